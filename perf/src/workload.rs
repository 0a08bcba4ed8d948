//! The plain workload: Applications of 20 resources each, in one Git repository.
//!
//! A ServiceAccount, a Deployment of three replicas and two containers, a Service, an Ingress, a PodDisruptionBudget, and
//! 15 ConfigMaps of about 1 KB whose text is different in each: the shape the peer was measured on.

use anyhow::Result;
use argosy_test_cluster::git::Repository;
use serde_json::{Value, json};

use crate::chance::Chance;

/// ConfigMaps an Application: with the five others, 20 resources.
const CONFIG_MAPS: usize = 15;

/// Words a ConfigMap: about 1 KB.
const WORDS: usize = 150;

/// Writes and commits `applications` folders `apps/app-0000…`.
///
/// # Errors
/// When Git or the disk refuses.
pub(crate) fn fill(repository: &Repository, applications: usize) -> Result<()> {
    let mut chance = Chance::new(7);
    let words: Vec<String> = (0..2000).map(|_| chance.word()).collect();
    for index in 0..applications {
        let documents: Vec<String> = manifests(index, &words, &mut chance)
            .iter()
            .map(serde_json::to_string_pretty)
            .collect::<Result<_, _>>()?;
        repository.write(
            &format!("apps/{}/all.yaml", name(index)),
            &format!("{}\n", documents.join("\n---\n")),
        )?;
    }
    repository.commit("the plain workload").map(drop)
}

/// The name of an Application of the workload; also of its folder and its namespace.
pub(crate) fn name(index: usize) -> String {
    format!("app-{index:04}")
}

/// The Application itself: automated, with prune and self-heal, making its namespace.
pub(crate) fn application(index: usize, repository: &str, namespace: &str) -> Value {
    let name = name(index);
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "project": "default",
            "source": {"repoURL": repository, "targetRevision": "main", "path": format!("apps/{name}")},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": name},
            "syncPolicy": {"automated": {"prune": true, "selfHeal": true}, "syncOptions": ["CreateNamespace=true"]},
        },
    })
}

fn manifests(index: usize, words: &[String], chance: &mut Chance) -> Vec<Value> {
    let name = name(index);
    let port = json!({"service": {"name": name, "port": {"name": "http"}}});
    let mut manifests = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
        deployment(index, words),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
            "selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http", "name": "http"}],
        }}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": {
            "rules": [{"host": format!("{name}.example.com"), "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": port},
            ]}}],
        }}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": {
            "minAvailable": 1, "selector": {"matchLabels": {"app": name}},
        }}),
    ];
    for number in 0..CONFIG_MAPS {
        let text: Vec<&str> = (0..WORDS)
            .map(|_| words[chance.below(words.len())].as_str())
            .collect();
        manifests.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-{number}")},
            "data": {"a.conf": text.join(" "), "k": words[number]},
        }));
    }
    manifests
}

fn deployment(index: usize, words: &[String]) -> Value {
    let name = name(index);
    let env: Vec<Value> = (0..12)
        .map(|number| {
            let key = words[(index + number) % words.len()].to_uppercase();
            json!({"name": key, "value": words[(index * 3 + number) % words.len()]})
        })
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name, "team": words[index % 20]}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "serviceAccountName": name,
                    "containers": [
                        {
                            "name": "main",
                            "image": format!("registry.example/{name}:1.{}.0", index % 9),
                            "ports": [{"containerPort": 8080, "name": "http"}],
                            "env": env,
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "128Mi"},
                                "limits": {"cpu": "1", "memory": "512Mi"},
                            },
                            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
                            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                        },
                        {"name": "sidecar", "image": "registry.example/proxy:2.1.0", "args": ["--x", "--y=1"]},
                    ],
                },
            },
        },
    })
}
