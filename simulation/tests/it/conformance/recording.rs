//! The recording that the simulated server answers from is what a kube-apiserver says of itself.
//!
//! With `ARGOSY_RECORD=1` in the environment the recording is written anew: so it follows Kubernetes.

use std::io::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::support::Remote;

const FILE: &str = "recorded/kubernetes-1.36.json.gz";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Compares the recording with a real server, or writes it. Returns what differs.
pub(super) async fn check(real: &Remote) -> Vec<String> {
    let fresh = record(real).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("ARGOSY_RECORD").is_some() {
        let mut zipped = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
        zipped.write_all(fresh.to_string().as_bytes()).unwrap();
        std::fs::write(file, zipped.finish().unwrap()).unwrap();
        return Vec::new();
    }
    let held = flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap());
    let held: Value = serde_json::from_reader(held).unwrap();
    let differs = |name: &&str| fresh[*name] != held[*name];
    let differing = ["version", "discovery", "schemas"]
        .into_iter()
        .filter(|name| differs(name));
    differing
        .map(|name| {
            format!("the recorded {name} is not what the server says; ARGOSY_RECORD=1 writes it anew")
        })
        .collect()
}

async fn record(real: &Remote) -> Value {
    let mut items = Vec::new();
    for root in ["/api", "/apis"] {
        let mut list = real.ask(root, AGGREGATED).await;
        // Custom kinds of this test are no part of Kubernetes.
        if let Value::Array(groups) = list["items"].take() {
            items.extend(
                groups
                    .into_iter()
                    .filter(|group| group["metadata"]["name"] != "script.example.com"),
            );
        }
    }
    let index = real.ask("/openapi/v3", "application/json").await;
    let mut schemas = Map::new();
    let mut paths: Vec<(&String, &Value)> = index["paths"].as_object().unwrap().iter().collect();
    // Options and events of watches are in every document; those of the core group stand for all.
    paths.sort_by_key(|(path, _)| (*path != "api/v1", *path));
    for (path, at) in paths {
        if path.contains("script.example.com") {
            continue;
        }
        let document = real
            .ask(at["serverRelativeURL"].as_str().unwrap(), "application/json")
            .await;
        for (name, schema) in document["components"]["schemas"]
            .as_object()
            .into_iter()
            .flatten()
        {
            if !schemas.contains_key(name) {
                schemas.insert(name.clone(), schema.clone());
            }
        }
    }
    let version = real.ask("/version", "application/json").await;
    json!({"version": version, "discovery": {"items": items}, "schemas": schemas})
}
