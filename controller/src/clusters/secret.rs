//! A cluster Secret, as the registry has it.

use std::collections::BTreeMap;

use argosy_api::cluster_secret;
use argosy_api::v1alpha1::ClusterConfig;
use argosy_object::{Value, meta};
use base64::Engine as _;
use tracing::warn;

use super::ClusterInfo;

/// Reads a cluster Secret. The error carries the URL too, if that much can be read.
pub(super) fn read(secret: &Value) -> Result<(ClusterInfo, ClusterConfig), (String, String)> {
    let mut data = BTreeMap::new();
    if let Some(fields) = meta::field(secret, &["data"]).and_then(Value::as_object) {
        for (key, encoded) in fields {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(encoded.as_str().unwrap_or_default())
                .map_err(|error| (String::new(), format!("read {key}: {error}")))?;
            data.insert(key.clone(), bytes);
        }
    }
    let map = |field: &str| -> BTreeMap<String, String> {
        meta::field(secret, &["metadata", field])
            .and_then(|map| serde_json::from_value(map.clone()).ok())
            .unwrap_or_default()
    };
    let server = || {
        let server = data.get("server").map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(server).trim_end_matches('/').to_owned()
    };
    let registered = cluster_secret::read(cluster_secret::Secret {
        name: meta::name(secret),
        uid: meta::uid(secret),
        labels: &map("labels"),
        annotations: &map("annotations"),
        data: &data,
    })
    .map_err(|error| (server(), with_sources(&error)))?;
    for finding in &registered.findings {
        warn!(
            secret = meta::name(secret),
            reason = finding,
            "odd cluster secret"
        );
    }
    let cluster = registered.cluster;
    Ok((
        ClusterInfo {
            name: if cluster.name.is_empty() {
                cluster.server.clone()
            } else {
                cluster.name
            },
            server: cluster.server,
            id: registered.uid,
            namespaces: cluster.namespaces,
            cluster_resources: cluster.cluster_resources,
            project: cluster.project,
            shard: cluster.shard,
            skip_reconcile: registered.skip_reconcile,
            labels: map("labels"),
            annotations: map("annotations"),
            secret: Some(meta::name(secret).to_owned()),
        },
        cluster.config,
    ))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn secret(fields: &[(&str, &str)]) -> Value {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let data: serde_json::Map<String, Value> = fields
            .iter()
            .map(|(key, text)| ((*key).to_owned(), Value::String(encode(text))))
            .collect();
        serde_json::json!({
            "metadata": {"name": "prod", "uid": "u1", "labels": {"env": "prod"}},
            "data": data,
        })
    }

    #[test]
    fn a_cluster_secret_is_read_as_argo_cd_reads_it() {
        let (info, config) = read(&secret(&[
            ("name", "prod"),
            ("server", "https://prod.example.com/"),
            (
                "config",
                r#"{"bearerToken":"t","tlsClientConfig":{"insecure":true}}"#,
            ),
            ("namespaces", "a,b"),
            ("clusterResources", "true"),
            ("shard", "2"),
            ("project", "shop"),
        ]))
        .unwrap();
        assert_eq!(info.server, "https://prod.example.com");
        assert_eq!(info.namespaces, ["a", "b"]);
        assert!(info.cluster_resources);
        assert_eq!(
            (info.shard, info.project.as_str(), info.id.as_str()),
            (Some(2), "shop", "u1")
        );
        assert_eq!(config.bearer_token, "t");
        assert!(config.tls_client_config.insecure);
    }

    #[test]
    fn a_broken_config_is_an_error_of_that_cluster() {
        let (server, message) =
            read(&secret(&[("server", "https://a"), ("config", "{not json")])).unwrap_err();
        assert_eq!(server, "https://a");
        assert!(
            message.starts_with("read config of cluster secret prod: "),
            "{message}"
        );
    }

    #[test]
    fn a_cluster_without_a_name_is_called_by_its_url() {
        assert_eq!(
            read(&secret(&[("server", "https://a")])).unwrap().0.name,
            "https://a"
        );
    }
}
