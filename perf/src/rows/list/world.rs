//! The fleet of row `list`: projects, Applications of about 5 kB in them, and for each project an account that sees it alone.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use argosy_api::services::account::CreateTokenRequest;
use argosy_api::services::account::account_service_client::AccountServiceClient;
use argosy_api::services::session::SessionCreateRequest;
use argosy_api::services::session::session_service_client::SessionServiceClient;
use argosy_simulation::{Cluster, GroupResource, Population};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::servers::request;

/// The control plane's namespace.
pub(super) const NAMESPACE: &str = "argocd";
const PASSWORD: &str = "correct-horse-1";
/// bcrypt of it.
const PASSWORD_HASH: &str = "$2b$04$FjMOwzMjZSk/YnN8FQ7wSuv4NsV0umSudwzN1ZTO/QDziFfVytHEq";

#[derive(Clone, Copy)]
pub(super) struct World {
    pub(super) applications: usize,
    pub(super) projects: usize,
}

pub(super) fn name(app: usize) -> String {
    format!("app-{app:05}")
}

fn project(at: usize) -> String {
    format!("team-{at:03}")
}

fn account(at: usize) -> String {
    format!("user-{at:03}")
}

/// A session of the administrator.
pub(super) async fn session(channel: &Channel) -> Result<String> {
    let request = SessionCreateRequest {
        username: "admin".into(),
        password: PASSWORD.into(),
        token: String::new(),
    };
    let answer = SessionServiceClient::new(channel.clone()).create(request).await.context("log in")?;
    Ok(answer.into_inner().token)
}

impl World {
    /// The project of an Application.
    pub(super) fn project_of(&self, app: usize) -> usize {
        app % self.projects
    }

    /// Puts everything into a control plane. Applications are put in place at once, past its API: they are what is asked
    /// for, not what is measured.
    pub(super) fn fill(self, cluster: &Cluster) -> Result<()> {
        for crd in argosy_api::crds() {
            request(cluster, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd)?;
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        request(cluster, "POST", "/api/v1/namespaces", &namespace)?;
        for (path, object) in self.settings() {
            request(cluster, "POST", &path, &object)?;
        }
        let kind = GroupResource::new("argoproj.io", "applications");
        let population: Arc<dyn Population> = Arc::new(self);
        cluster.with(|server| {
            for app in 0..self.applications {
                server.seed(&kind, NAMESPACE, &name(app), &population, u32::try_from(app)?);
            }
            Ok(())
        })
    }

    /// Where each object is created, and the object.
    fn settings(&self) -> Vec<(String, Value)> {
        let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "argocd"}});
        let mut accounts = json!({});
        let mut policy = String::new();
        let mut objects = Vec::new();
        for at in 0..self.projects {
            let (project, account) = (project(at), account(at));
            policy += &format!(
                "p, role:{project}, applications, *, {project}/*, allow\n\
                 p, role:{project}, projects, get, {project}, allow\n\
                 g, {account}, role:{project}\n"
            );
            accounts[format!("accounts.{account}")] = "apiKey".into();
            let spec = json!({"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": format!("{project}-*")}]});
            let object = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": metadata(&project), "spec": spec});
            objects.push((format!("/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/appprojects"), object));
        }
        let core = |plural: &str| format!("/api/v1/namespaces/{NAMESPACE}/{plural}");
        let map = |name: &str, data: Value| {
            (core("configmaps"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name), "data": data}))
        };
        objects.push(map("argocd-cm", accounts));
        objects.push(map("argocd-rbac-cm", json!({"policy.csv": policy})));
        let secret = json!({"admin.password": PASSWORD_HASH, "admin.passwordMtime": "2026-01-01T00:00:00Z"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("argocd-secret"), "stringData": secret});
        objects.push((core("secrets"), secret));
        objects
    }

    /// As a controller leaves it: ten resources, five entries of history, the last sync.
    fn application(&self, app: usize) -> Value {
        let (name, project) = (name(app), project(self.project_of(app)));
        let namespace = format!("{project}-{}", app % 7);
        let revision = format!("{:040x}", app.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let source = json!({"repoURL": format!("https://git.example.com/{project}/deploy.git"), "path": format!("apps/{name}"), "targetRevision": "main"});
        let destination = json!({"server": format!("https://cluster-{}.example.com:6443", app % 20), "namespace": namespace});
        let kinds = ["ServiceAccount", "Deployment", "Service", "Ingress", "PodDisruptionBudget", "ConfigMap", "ConfigMap", "ConfigMap", "Role", "RoleBinding"];
        let resource = |(at, kind): (usize, &&str)| json!({"version": "v1", "kind": kind, "namespace": namespace, "name": format!("{name}-{at}"), "status": "Synced"});
        let result = |(at, kind): (usize, &&str)| {
            json!({"group": "", "version": "v1", "kind": kind, "namespace": namespace, "name": format!("{name}-{at}"),
                "status": "Synced", "message": format!("{kind}/{name}-{at} unchanged"), "hookPhase": "Running", "syncPhase": "Sync"})
        };
        let resources: Vec<Value> = kinds.iter().enumerate().map(resource).collect();
        let results: Vec<Value> = kinds.iter().enumerate().map(result).collect();
        let history: Vec<Value> = (0..5)
            .map(|id| json!({"id": id, "revision": revision, "source": source, "deployedAt": "2026-06-01T00:00:00Z", "deployStartedAt": "2026-06-01T00:00:00Z"}))
            .collect();
        let (health, sync) = (["Healthy", "Progressing", "Degraded"][app % 3], ["Synced", "OutOfSync"][app % 2]);
        let tier = ["front", "back"][app % 2];
        json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"team": project, "tier": tier},
                "uid": format!("00000000-0000-4000-8000-{app:012}"), "generation": 7, "creationTimestamp": "2026-06-01T00:00:00Z"},
            "spec": {"project": project, "source": source, "destination": destination,
                "syncPolicy": {"automated": {"prune": true, "selfHeal": true}}},
            "status": {
                "resources": resources, "history": history, "reconciledAt": "2026-06-01T00:00:00Z", "sourceType": "Directory",
                "sync": {"status": sync, "revision": revision, "comparedTo": {"source": source, "destination": destination}},
                "health": {"status": health}, "summary": {"images": ["registry.example.com/app:1.0.0"]},
                "operationState": {"phase": "Succeeded", "message": "successfully synced (all tasks run)",
                    "startedAt": "2026-06-01T00:00:00Z", "finishedAt": "2026-06-01T00:00:03Z",
                    "operation": {"sync": {"revision": revision}},
                    "syncResult": {"revision": revision, "source": source, "resources": results}},
            },
        })
    }

    /// A token for the account of each project.
    pub(super) async fn tokens(&self, channel: &Channel, admin: &str) -> Result<Vec<String>> {
        let mut tokens = Vec::new();
        for at in 0..self.projects {
            let request = CreateTokenRequest { name: account(at), ..CreateTokenRequest::default() };
            let answer = AccountServiceClient::new(channel.clone())
                .create_token(super::with(admin, request)?)
                .await
                .context("make a token")?;
            tokens.push(answer.into_inner().token);
        }
        Ok(tokens)
    }
}

impl Population for World {
    fn object(&self, index: u32) -> Value {
        self.application(index as usize)
    }
}
