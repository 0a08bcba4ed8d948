//! `kubectl`, of the version that is simulated.

use std::path::Path;
use std::process::{Command, Stdio};

use argosy_simulation::Options;
use argosy_simulation::serve::{Cluster, Transport};
use argosy_test_cluster::Binaries;

/// Runs kubectl, and gives what it says and whether it has done what it was told.
fn kubectl(program: &Path, kubeconfig: &Path, home: &Path, args: &[&str], input: &str) -> (bool, String) {
    use std::io::Write as _;
    let mut child = Command::new(program)
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

const WORKLOAD: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx:1}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_gets_applies_watches_and_deletes() {
    let Some(program) = Binaries::kubectl_built() else {
        eprintln!("not tried with kubectl: build it once with `cargo xtask tools`");
        return;
    };
    let cluster = Cluster::start(Options::default(), Transport::Tls).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, cluster.kubeconfig().unwrap().to_string()).unwrap();
    let work = tokio::task::spawn_blocking(move || {
        let run = |args: &[&str], input: &str| kubectl(&program, &file, dir.path(), args, input);
        let (fine, version) = run(&["version"], "");
        assert!(fine && version.contains("v1.36"), "{version}");
        let must = |args: &[&str], input: &str, words: &[&str]| {
            let (fine, text) = run(args, input);
            assert!(fine, "kubectl {args:?}: {text}");
            for word in words {
                assert!(
                    text.contains(word),
                    "kubectl {args:?} does not say {word:?}: {text}"
                );
            }
        };
        must(
            &["api-resources", "-o", "name"],
            "",
            &["deployments.apps", "configmaps"],
        );
        must(
            &["apply", "-f", "-"],
            WORKLOAD,
            &["configmap/settings created", "deployment.apps/web created"],
        );
        must(
            &["apply", "-f", "-"],
            WORKLOAD,
            &["configmap/settings unchanged", "deployment.apps/web unchanged"],
        );
        let changed = WORKLOAD.replace("red", "green").replace("nginx:1", "nginx:2");
        must(
            &["apply", "-f", "-"],
            &changed,
            &["configmap/settings configured", "deployment.apps/web configured"],
        );
        must(
            &["rollout", "status", "deployment/web", "--timeout=300s"],
            "",
            &["successfully rolled out"],
        );
        must(&["get", "deployment", "web"], "", &["READY", "2/2"]);
        must(
            &["get", "configmap", "settings", "-o", "jsonpath={.data.color}"],
            "",
            &["green"],
        );
        must(
            &[
                "apply",
                "--server-side",
                "--field-manager=other",
                "--force-conflicts",
                "-f",
                "-",
            ],
            &changed,
            &["serverside-applied"],
        );
        must(&["explain", "deployment.spec.replicas"], "", &["<integer>"]);
        must(&["scale", "deployment", "web", "--replicas=1"], "", &["scaled"]);
        must(
            &[
                "wait",
                "--for=jsonpath={.status.readyReplicas}=1",
                "deployment/web",
                "--timeout=300s",
            ],
            "",
            &["condition met"],
        );
        must(
            &["get", "pods", "--watch", "--request-timeout=10s", "-o", "name"],
            "",
            &["pod/web-"],
        );
        must(
            &["delete", "-f", "-", "--timeout=300s"],
            WORKLOAD,
            &["\"web\" deleted"],
        );
        let (_, text) = run(&["get", "deployment", "web"], "");
        assert!(text.contains("NotFound"), "{text}");
    });
    work.await.unwrap();
}
