//! The Jsonnet evaluator as a program of its own; `argosy jsonnet-worker` is the same.

fn main() -> std::process::ExitCode {
    argosy_repo_server::jsonnet_worker()
}
