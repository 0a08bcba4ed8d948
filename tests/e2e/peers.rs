//! Components that know each other by certificates, without anybody having set them up.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use argosy_api::repository::ListRefsRequest;
use argosy_api::v1alpha1::Repository;
use argosy_repo_client::{Config, RepoClient, Tls};
use argosy_test_cluster::api::{Api, kinds};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::harness::{self, PATIENCE, application, config_map, run, wait_app};
use crate::shards::get;

const NAMESPACE: &str = "argocd-peers";

/// What the kubelet does with a Secret, once it is there.
async fn mount(api: &Api, secret: &str, keys: &[&str], into: &Path) -> Result<()> {
    let started = Instant::now();
    let data = loop {
        if let Some(secret) = api.get(kinds::SECRET, NAMESPACE, secret).await? {
            break secret["data"].clone();
        }
        if started.elapsed() > PATIENCE {
            bail!("Secret {secret} is never made");
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    for key in keys {
        let text = data[*key]
            .as_str()
            .with_context(|| format!("{secret} has no {key}"))?;
        let new = into.join(format!("{key}.new"));
        std::fs::write(&new, STANDARD.decode(text)?)?;
        std::fs::rename(new, into.join(key))?;
    }
    Ok(())
}

#[test]
fn components_speak_mutual_tls_soon_after_a_start_without_any_certificate() {
    run(async {
        let mut installation = harness::start_installation(NAMESPACE).await?;
        let (tls, mtls) = (harness::scratch("peers-tls"), harness::scratch("peers-mtls"));
        installation.start_repo_server(&[
            &format!("--tls-path={}", tls.display()),
            &format!("--client-ca-path={}", mtls.join("client-ca.crt").display()),
        ])?;
        installation.start_server(&["--disable-auth", "--insecure"])?;
        let api = installation.api().clone();
        let repository = harness::repository("peers")?;
        repository.write("app/one.yaml", &config_map("one", "1"))?;
        let revision = repository.commit("one")?;

        // Somebody without a certificate is served until the repo-server has the authority, and not after.
        let nobody = RepoClient::new(Config {
            address: installation.repo_server_address(),
            tls: Tls::default(),
            ..Config::default()
        })?;
        let refs = || {
            nobody.list_refs(ListRefsRequest {
                repo: Some(Repository {
                    repo: repository.url(),
                    ..Repository::default()
                }),
            })
        };
        refs().await.context("list refs as nobody")?;
        mount(&api, "argocd-repo-server-tls", &["tls.key", "tls.crt"], &tls).await?;
        mount(&api, "argocd-repo-server-mtls", &["client-ca.crt"], &mtls).await?;
        let started = Instant::now();
        loop {
            match refs().await {
                Err(error) if error.to_string().contains("code = Unauthenticated") => break,
                other if started.elapsed() > PATIENCE => bail!("nobody is never refused: {other:?}"),
                _ => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
            }
        }

        // The controller and the API server are served all the time, by the repo-server and by the controller.
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        let app = application(NAMESPACE, "peers-app", source);
        api.create(kinds::APPLICATION, &app).await?;
        wait_app(&api, NAMESPACE, "peers-app", "is synced", |app| {
            app["status"]["sync"]["status"] == "Synced"
                && app["status"]["sync"]["revision"] == revision.as_str()
        })
        .await?;
        let server = installation.server_address();
        let about = "/api/v1/applications/peers-app";
        let tree = get(&server, &format!("{about}/resource-tree")).await?;
        assert!(tree.contains(r#""name":"one""#), "{tree}");
        let commit = get(&server, &format!("{about}/revisions/{revision}/metadata")).await?;
        assert!(commit.contains(r#""message":"one""#), "{commit}");
        Ok(())
    });
}
