//! The CRDs that `argosy crds` prints: the API server takes them and keeps every field.

use std::path::Path;

use anyhow::{Context, Result};
use argosy_test_cluster::api::{Kind, kinds};
use serde_json::{Value, json};

use crate::harness::{self, run};

const APPLICATION_SET: Kind = Kind {
    api_version: "argoproj.io/v1alpha1",
    plural: "applicationsets",
};

/// The examples that fill every field, made for the round trip of the types.
fn examples() -> Result<Vec<(Kind, Value)>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/examples");
    let mut examples = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        let example: Value =
            serde_json::from_slice(&std::fs::read(&path)?).with_context(|| format!("{}", path.display()))?;
        let kind = match example["kind"].as_str() {
            Some("Application") => kinds::APPLICATION,
            Some("AppProject") => kinds::PROJECT,
            Some("ApplicationSet") => APPLICATION_SET,
            other => anyhow::bail!("{}: unexpected kind {other:?}", path.display()),
        };
        examples.push((kind, example));
    }
    Ok(examples)
}

#[test]
fn the_api_server_keeps_every_field_of_the_examples() {
    run(async {
        let installation = harness::installation().await;
        let api = installation.api();
        // A namespace of its own: no controller acts on these.
        let namespace = "crd-examples";
        api.apply(
            kinds::NAMESPACE,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        )
        .await?;
        let examples = examples()?;
        assert!(examples.len() >= 3, "an example of each kind");
        for (kind, mut example) in examples {
            // Identity as a person writes it: what the server sets cannot be sent.
            example["metadata"] = json!({"name": example["metadata"]["name"], "namespace": namespace});
            let name = example["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let stored = api
                .create(kind, &example)
                .await
                .with_context(|| format!("create example {name}"))?;
            for part in ["spec", "status", "operation"] {
                // ApplicationSet has a status subresource: a create leaves its status out.
                if kind.plural == "applicationsets" && part == "status" {
                    continue;
                }
                assert_eq!(stored[part], example[part], "{name}: {part} as it was sent");
            }
        }
        Ok(())
    });
}
