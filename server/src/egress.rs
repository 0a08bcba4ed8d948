//! What leaves the server: credentials taken off, Secrets masked. The one place where that is done.

use argosy_api::v1alpha1::{Cluster, ClusterConfig, RepoCreds, Repository, ResourceDiff, TlsClientConfig};
use argosy_object::Value;

/// A repository without what it is entered with.
pub(crate) fn repository(full: &Repository) -> Repository {
    Repository {
        repo: bare_url(&full.repo),
        username: full.username.clone(),
        connection_state: full.connection_state.clone(),
        insecure_ignore_host_key: full.insecure_ignore_host_key,
        insecure: full.insecure,
        enable_lfs: full.enable_lfs,
        r#type: full.r#type.clone(),
        name: full.name.clone(),
        inherited_creds: full.inherited_creds,
        enable_oci: full.enable_oci,
        github_app_id: full.github_app_id,
        github_app_installation_id: full.github_app_installation_id,
        github_app_enterprise_base_url: full.github_app_enterprise_base_url.clone(),
        proxy: bare_url(&full.proxy),
        project: full.project.clone(),
        force_http_basic_auth: full.force_http_basic_auth,
        no_proxy: full.no_proxy.clone(),
        use_azure_workload_identity: full.use_azure_workload_identity,
        insecure_oci_force_http: full.insecure_oci_force_http,
        depth: full.depth,
        webhook_manifest_cache_warm_disabled: full.webhook_manifest_cache_warm_disabled,
        ..Repository::default()
    }
}

/// A credential template without credentials.
pub(crate) fn template(full: &RepoCreds) -> RepoCreds {
    RepoCreds {
        url: bare_url(&full.url),
        username: full.username.clone(),
        github_app_id: full.github_app_id,
        github_app_installation_id: full.github_app_installation_id,
        github_app_enterprise_base_url: full.github_app_enterprise_base_url.clone(),
        enable_oci: full.enable_oci,
        r#type: full.r#type.clone(),
        proxy: bare_url(&full.proxy),
        no_proxy: full.no_proxy.clone(),
        force_http_basic_auth: full.force_http_basic_auth,
        use_azure_workload_identity: full.use_azure_workload_identity,
        insecure_oci_force_http: full.insecure_oci_force_http,
        ..RepoCreds::default()
    }
}

/// A cluster without what it is entered with, as Argo CD shows it. What a credential program is called with may hold secrets too.
pub(crate) fn cluster(full: &Cluster) -> Cluster {
    let config = &full.config;
    let mut bare = full.clone();
    bare.config = ClusterConfig {
        tls_client_config: TlsClientConfig {
            insecure: config.tls_client_config.insecure,
            server_name: config.tls_client_config.server_name.clone(),
            ..TlsClientConfig::default()
        },
        aws_auth_config: config.aws_auth_config.clone(),
        disable_compression: config.disable_compression,
        proxy_url: bare_url(&config.proxy_url),
        ..ClusterConfig::default()
    };
    bare
}

/// A URL without the user and password in it.
pub(crate) fn bare_url(text: &str) -> String {
    match url::Url::parse(text) {
        Ok(mut url) if !url.username().is_empty() || url.password().is_some() => {
            if url.scheme() == "ssh" && url.password().is_none() {
                return text.to_owned();
            }
            // Only URLs that cannot have them refuse.
            let _ = url.set_password(None);
            let _ = url.set_username("");
            url.to_string()
        }
        _ => text.to_owned(),
    }
}

/// One live object as text.
pub(crate) fn manifest(mut object: Value, sensitive_annotations: &[String]) -> String {
    if argosy_diff::mask::is_secret(&object) {
        argosy_diff::mask::mask_secrets(&mut [Some(&mut object)], sensitive_annotations);
    }
    object.to_string()
}

/// A rendered manifest. A text that cannot be read as JSON is not handed out: nobody knows what is in it.
pub(crate) fn rendered(text: &str, sensitive_annotations: &[String]) -> Option<String> {
    let object = serde_json::from_str(text).ok()?;
    Some(manifest(object, sensitive_annotations))
}

/// Desired and live state of one resource. The owner of the state has masked it already; this is for those that have
/// not.
pub(crate) fn resource_diff(mut diff: ResourceDiff, sensitive_annotations: &[String]) -> ResourceDiff {
    if !(diff.group.is_empty() && diff.kind == "Secret") {
        return diff;
    }
    let mut texts = [
        &mut diff.target_state,
        &mut diff.live_state,
        &mut diff.normalized_live_state,
        &mut diff.predicted_live_state,
    ];
    let mut values: Vec<Option<Value>> = texts
        .iter()
        .map(|text| serde_json::from_str(text).ok().filter(Value::is_object))
        .collect();
    let mut documents: Vec<Option<&mut Value>> = values.iter_mut().map(Option::as_mut).collect();
    argosy_diff::mask::mask_secrets(&mut documents, sensitive_annotations);
    for (text, value) in texts.iter_mut().zip(values) {
        if let Some(value) = value {
            **text = value.to_string();
        } else if !text.is_empty() {
            **text = "null".to_owned();
        }
    }
    diff
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CANARY: &str = "canary-7f3a";

    #[test]
    fn no_credential_of_a_repository_template_or_cluster_leaves() {
        // Every text field holds the canary; those that may be seen are set back.
        fn filled<T: serde::Serialize + serde::de::DeserializeOwned + Default>(texts: &[&str]) -> T {
            let mut value = serde_json::to_value(T::default()).unwrap();
            for text in texts {
                value[*text] = CANARY.into();
            }
            serde_json::from_value(value).unwrap()
        }
        let secret = [
            "password",
            "sshPrivateKey",
            "tlsClientCertData",
            "tlsClientCertKey",
            "githubAppPrivateKey",
            "gcpServiceAccountKey",
            "bearerToken",
            "azureServicePrincipalClientSecret",
        ];
        let shown = repository(&filled(&secret));
        assert!(!serde_json::to_string(&shown).unwrap().contains(CANARY));
        let shown = template(&filled(&secret));
        assert!(!serde_json::to_string(&shown).unwrap().contains(CANARY));

        let mut full = Cluster::default();
        full.config.password = CANARY.into();
        full.config.bearer_token = CANARY.into();
        full.config.username = CANARY.into();
        full.config.tls_client_config.key_data = CANARY.into();
        full.config.tls_client_config.cert_data = CANARY.into();
        full.config.tls_client_config.ca_data = CANARY.into();
        full.config.proxy_url = format!("http://user:{CANARY}@proxy.example.com:8080");
        full.config.exec_provider_config = Some(argosy_api::v1alpha1::ExecProviderConfig {
            args: vec![CANARY.into()],
            env: [("TOKEN".to_owned(), CANARY.to_owned())].into(),
            ..Default::default()
        });
        assert!(!format!("{:?}", cluster(&full)).contains(CANARY));
    }

    #[test]
    fn urls_lose_their_passwords() {
        assert_eq!(
            bare_url("https://u:p@git.example.com/a"),
            "https://git.example.com/a"
        );
        assert_eq!(
            bare_url("ssh://git@git.example.com/a"),
            "ssh://git@git.example.com/a"
        );
        assert_eq!(bare_url("git@git.example.com:a"), "git@git.example.com:a");
    }

    #[test]
    fn secrets_are_masked_on_both_sides_alike() {
        let text = |value: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"s"}},"data":{{"a":"{value}"}}}}"#
            )
        };
        let diff = ResourceDiff {
            kind: "Secret".into(),
            target_state: text("Y2FuYXJ5LTdmM2E="),
            live_state: text("b3RoZXI="),
            normalized_live_state: text("b3RoZXI="),
            predicted_live_state: text("Y2FuYXJ5LTdmM2E="),
            ..ResourceDiff::default()
        };
        let masked = resource_diff(diff, &[]);
        let shown = format!("{masked:?}");
        assert!(
            !shown.contains("Y2FuYXJ5") && !shown.contains("b3RoZXI"),
            "{shown}"
        );
        assert_eq!(masked.target_state, masked.predicted_live_state);
        assert_ne!(masked.target_state, masked.live_state);
    }
}
