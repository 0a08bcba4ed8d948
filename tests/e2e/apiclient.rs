//! Argo CD's own Go client, with everything that people do by it, against the shipped program on a simulated cluster in
//! which Pods run. The steps are in `tests/oracle/argocd/`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use argosy_simulation::serve::Transport;
use argosy_test_cluster::Binaries;
use argosy_test_cluster::api::kinds;
use argosy_test_cluster::git::Repository;
use argosy_test_cluster::installation::{Installation, Options};
use serde_json::json;

use crate::harness::{self, config_map, program, run, scratch};

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  selector:\n    matchLabels: {app: web}\n  \
    template:\n    metadata:\n      labels: {app: web}\n    spec:\n      containers:\n      - name: web\n        image: registry.example.com/web:1\n";

/// Two commits of one folder; the revision of each.
fn repository(dir: PathBuf) -> Result<(Repository, String, String)> {
    let repository = Repository::init(dir)?;
    repository.write("app/web.yaml", DEPLOYMENT)?;
    let text = |text: &str| config_map("settings", "x").replace("key: \"x\"", &format!("text: \"{text}\""));
    repository.write("app/settings.yaml", &text("first"))?;
    let first = repository.commit("The first")?;
    repository.write("app/settings.yaml", &text("second"))?;
    let second = repository.commit("The second")?;
    Ok((repository, first, second))
}

#[test]
fn argo_cds_own_client_finds_everything_as_it_knows_it() {
    run(async {
        let Some(client) = harness::tool("argosy-apiclient") else {
            return Ok(());
        };
        let dir = scratch("apiclient");
        let cluster =
            argosy_simulation::Cluster::start(argosy_simulation::Options::default(), Transport::Tls).await?;
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()?.to_string())?;
        let (repository, first, second) = repository(dir.join("repository"))?;
        let options = Options {
            program: program(),
            namespace: "argocd".into(),
            dir: dir.join("argosy"),
            attention: None,
        };
        let mut installation =
            Installation::start_on(kubeconfig, Binaries::render_worker_built(), options).await?;
        let settings = json!({"data": {"accounts.robot": "apiKey"}});
        installation
            .api()
            .merge_patch(kinds::CONFIG_MAP, "argocd", "argocd-cm", &settings)
            .await?;
        installation.start_server(&[])?;

        let mut steps = Command::new(client);
        steps
            .env("SERVER", installation.server_address())
            .env("PASSWORD", installation.admin_password().await?)
            .env("REPOSITORY", repository.url())
            .env("FIRST", first)
            .env("SECOND", second)
            .env("CLUSTER", cluster.url())
            .env("CLUSTER_TOKEN", argosy_simulation::ADMIN_TOKEN);
        let output = tokio::task::spawn_blocking(move || steps.output()).await?;
        let output = output.context("run Argo CD's client")?;
        if !output.status.success() {
            bail!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    });
}
