//! Prints the CustomResourceDefinitions, one JSON document a line: `cargo run -p argosy-api --example crds | kubectl apply
//! --server-side -f -`.

fn main() {
    for crd in argosy_api::crds() {
        println!("{crd}");
    }
}
