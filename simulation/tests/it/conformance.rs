//! The same script on a simulated and on a real kube-apiserver: the same answers.
//!
//! What no two servers can have in common (uids, versions, times, given addresses) is replaced before it is compared.

use argosy_simulation::serve::{Cluster, Transport};
use argosy_simulation::{ADMIN_TOKEN, Options};
use argosy_test_cluster::{Binaries, Cluster as RealCluster};
use serde_json::{Value, json};

use crate::support::{Remote, Reply};

mod fixed;
mod random;
mod recording;

/// One request of a script. `$version` in it is the resourceVersion that the last answer about that object had.
#[derive(Clone, Debug)]
struct Step {
    method: &'static str,
    target: String,
    media: &'static str,
    body: Value,
}

impl Step {
    fn new(method: &'static str, target: impl Into<String>, media: &'static str, body: Value) -> Self {
        Self {
            method,
            target: target.into(),
            media,
            body,
        }
    }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn real() -> Option<(RealCluster, Remote)> {
    let binaries = match Binaries::locate() {
        Ok(binaries) => binaries,
        Err(error) => {
            eprintln!("not compared with a kube-apiserver: {error:#}");
            return None;
        }
    };
    let cluster = tokio::task::spawn_blocking(|| RealCluster::start(binaries))
        .await
        .unwrap()
        .unwrap();
    let kubeconfig: Value = serde_json::from_slice(&std::fs::read(cluster.kubeconfig()).unwrap()).unwrap();
    let remote = Remote::connect(kubeconfig).await;
    Some((cluster, remote))
}

async fn simulated() -> (Cluster, Remote) {
    let options = Options {
        nodes: 0,
        ..Options::default()
    };
    let cluster = Cluster::start(options, Transport::Tls).await.unwrap();
    let remote = Remote::connect(cluster.kubeconfig().unwrap()).await;
    (cluster, remote)
}

/// Runs a script on both and returns where they differ.
async fn differences(script: &[Step], real: &Remote, simulated: &Remote) -> Vec<String> {
    let mut found = Vec::new();
    let (mut last_real, mut last_simulated) = (String::new(), String::new());
    for (number, step) in script.iter().enumerate() {
        let expected = run(step, real, &mut last_real).await;
        let got = run(step, simulated, &mut last_simulated).await;
        let (expected, got) = (normal(expected), normal(got));
        if expected != got {
            found.push(format!(
                "step {number}: {} {} {}\n{}",
                step.method,
                step.target,
                step.body,
                lines_that_differ(&expected, &got)
            ));
        }
    }
    found
}

async fn run(step: &Step, remote: &Remote, last: &mut String) -> Reply {
    let body = match &step.body {
        Value::Null => String::new(),
        Value::String(raw) => raw.clone(),
        body => body.to_string(),
    };
    let body = body.replace("$version", last);
    let target = step.target.replace("$continue", last);
    let reply = remote.call(step.method, &target, step.media, &body).await;
    let metadata = &reply.body["metadata"];
    if let Some(version) = metadata["continue"]
        .as_str()
        .filter(|token| !token.is_empty())
        .or(metadata["resourceVersion"].as_str())
    {
        version.clone_into(last);
    }
    reply
}

/// Without what differs between any two servers.
fn normal(mut reply: Reply) -> Reply {
    scrub(&mut reply.body, "");
    reply
}

fn scrub(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                scrub(field, name);
            }
            // Managers are sorted by time, causes come in the order of Go's maps.
            for name in ["causes", "managedFields"] {
                if let Some(Value::Array(entries)) = fields.get_mut(name) {
                    entries.sort_by_key(ToString::to_string);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(item, name)),
        Value::String(text) => match name {
            "uid"
            | "resourceVersion"
            | "time"
            | "creationTimestamp"
            | "deletionTimestamp"
            | "lastTransitionTime"
            | "lastPhaseTransitionTime"
            | "continue"
                if !text.is_empty() =>
            {
                *value = format!("<{name}>").into();
            }
            "clusterIP" | "clusterIPs" if text != "None" => *value = "<address>".into(),
            "message" | "reason" => *text = in_one_order(&scrub_text(text)),
            _ if is_uid(text) => *value = "<uid>".into(),
            _ => {}
        },
        Value::Number(_) if name == "nodePort" => *value = "<port>".into(),
        _ => {}
    }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4
}

fn scrub_text(text: &str) -> String {
    let words = text.split_inclusive([' ', '(', ')', ',', ']']).map(|word| {
        let bare = word.trim_end_matches([' ', '(', ')', ',', '.', ']']);
        if is_uid(bare) || (bare.len() > 1 && bare.bytes().all(|byte| byte.is_ascii_digit())) {
            word.replace(bare, "<n>")
        } else {
            word.to_owned()
        }
    });
    words.collect()
}

/// What is wrong with a custom resource comes in the order of Go's maps, that is in none.
fn in_one_order(text: &str) -> String {
    match text
        .split_once(": [")
        .and_then(|(head, rest)| Some((head, rest.strip_suffix(']')?)))
    {
        Some((head, list)) => {
            let mut items: Vec<&str> = list.split(", ").collect();
            items.sort_unstable();
            format!("{head}: [{}]", items.join(", "))
        }
        None => text.to_owned(),
    }
}

fn lines_that_differ(expected: &Reply, got: &Reply) -> String {
    let text = |reply: &Reply| {
        let body = serde_json::to_string_pretty(&reply.body).unwrap();
        format!("{}\n{:?}\n{body}", reply.code, reply.warnings)
    };
    let (expected, got) = (text(expected), text(got));
    let (expected, got): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), got.lines().collect());
    let only = |these: &[&str], those: &[&str], mark: &str| {
        let trimmed: Vec<&str> = those.iter().map(|line| line.trim_end_matches(',')).collect();
        let lines = these
            .iter()
            .filter(|line| !trimmed.contains(&line.trim_end_matches(',')));
        lines
            .take(25)
            .map(|line| format!("  {mark} {line}\n"))
            .collect::<String>()
    };
    let mut text = only(&expected, &got, "real     ") + &only(&got, &expected, "simulated");
    if text.is_empty() {
        text = "  the same lines in another order or number, from here on\n".to_owned();
        let at = expected
            .iter()
            .zip(&got)
            .take_while(|(expected, got)| expected == got)
            .count();
        let show = |lines: &[&str]| {
            lines
                .iter()
                .skip(at.saturating_sub(6))
                .take(14)
                .map(|line| line.trim())
                .collect::<Vec<_>>()
                .join(" ")
        };
        text += &format!("  real {}\n  simulated {}\n", show(&expected), show(&got));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_a_kube_apiserver() {
    let Some((real_cluster, real)) = real().await else {
        return;
    };
    let (simulated_cluster, simulated) = simulated().await;
    let setup = [
        Step::new(
            "POST",
            "/api/v1/namespaces",
            JSON,
            json!({"metadata": {"name": "script"}}),
        ),
        Step::new(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            JSON,
            fixed::definition(),
        ),
    ];
    let mut found = differences(&setup, &real, &simulated).await;
    served(&real).await;
    served(&simulated).await;
    let fixed = fixed::script();
    found.extend(differences(&fixed, &real, &simulated).await);
    let seed = std::env::var("ARGOSY_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let random = random::script(seed, 400);
    found.extend(differences(&random, &real, &simulated).await);
    found.extend(recording::check(&real).await);
    let steps = setup.len() + fixed.len() + random.len();
    drop((real_cluster, simulated_cluster));
    assert!(
        found.is_empty(),
        "{} of {steps} answers differ (seed {seed}, token {ADMIN_TOKEN}):\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Waits until the custom kind is served.
async fn served(remote: &Remote) {
    for _ in 0..3000 {
        let reply = remote
            .call(
                "GET",
                "/apis/script.example.com/v1/namespaces/script/widgets",
                JSON,
                "",
            )
            .await;
        if reply.code == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the custom kind is not served");
}
