//! `kubectl`, as people have it.

use std::path::Path;
use std::process::{Command, Stdio};

use argosy_simulation::Options;
use argosy_simulation::serve::{Cluster, Transport};

/// Runs kubectl; none if there is none on this machine.
fn kubectl(kubeconfig: &Path, home: &Path, args: &[&str], input: &str) -> Option<(bool, String)> {
    use std::io::Write as _;
    let child = Command::new("kubectl")
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            eprintln!("not tried with kubectl: {error}");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text))
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
    let cluster = Cluster::start(Options::default(), Transport::Tls).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, cluster.kubeconfig().unwrap().to_string()).unwrap();
    let work = tokio::task::spawn_blocking(move || {
        let run = |args: &[&str], input: &str| kubectl(&file, dir.path(), args, input);
        let Some((true, version)) = run(&["version"], "") else {
            return;
        };
        assert!(version.contains("v1.36"), "{version}");
        let must = |args: &[&str], input: &str, words: &[&str]| {
            let (fine, text) = run(args, input).unwrap();
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
            &["rollout", "status", "deployment/web", "--timeout=60s"],
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
                "--timeout=60s",
            ],
            "",
            &["condition met"],
        );
        must(
            &["get", "pods", "--watch", "--request-timeout=2s", "-o", "name"],
            "",
            &["pod/web-"],
        );
        must(
            &["delete", "-f", "-", "--timeout=60s"],
            WORKLOAD,
            &["\"web\" deleted"],
        );
        let (_, text) = run(&["get", "deployment", "web"], "").unwrap();
        assert!(text.contains("NotFound"), "{text}");
    });
    work.await.unwrap();
}
