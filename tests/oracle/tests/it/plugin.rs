//! Our sidecar of config management plugins, asked by Argo CD's own client.

use std::time::Duration;

use argosy_oracle::Oracle;
use argosy_runtime::tasks::Tasks;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn argo_cds_client_is_answered_over_the_socket() {
    let Some(mut oracle) = Oracle::argo_cd().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["config", "sockets", "work", "repo/app", "repo/shared"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    std::fs::write(at("repo/app/a.cue"), "one").unwrap();
    std::fs::write(at("repo/shared/b"), "two").unwrap();
    let script =
        "printf '{\"kind\": \"ConfigMap\", \"text\": \"%s %s %s\"}' $(cat a.cue) $(cat ../shared/b) $SAID";
    let plugin = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ConfigManagementPlugin",
        "metadata": {"name": "cue"},
        "spec": {
            "version": "v1.0",
            "discover": {"fileName": "*.cue"},
            "generate": {"command": ["sh", "-c"], "args": [script]},
            "parameters": {"static": [{"name": "tier", "string": "gold"}]},
            "provideGitCreds": true,
        },
    });
    std::fs::write(at("config/plugin.yaml"), plugin.to_string()).unwrap();
    let tasks = Tasks::new();
    let args = argosy_cmp_server::Args {
        log: argosy_runtime::args::Log::default(),
        config_dir_path: at("config"),
        plugin_sockets: at("sockets"),
        work_dir: Some(at("work")),
        exec_timeout: Duration::from_secs(60),
        exec_fatal_timeout: Duration::from_secs(10),
        grpc_max_size: 1,
    };
    let socket = argosy_cmp_server::start(&args, &tasks).unwrap();
    let answer = oracle.ask(
        "plugin",
        json!({"socket": socket, "root": at("repo"), "app": at("repo/app"), "env": ["SAID=so"]}),
    );
    assert_eq!(
        answer.unwrap().unwrap(),
        json!({
            "discovers": true, "credentials": true, "supported": true,
            "parameters": [{"name": "tier", "string": "gold"}],
            "manifests": ["{\"kind\":\"ConfigMap\",\"text\":\"one two so\"}"],
        })
    );
    tasks.stop();
}
