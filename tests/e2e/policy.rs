//! What a project and the settings allow: as whom a sync writes, when it may, and for how long. An installation of their own, because the
//! settings hold for all of it.

use anyhow::Result;
use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::git::Repository;
use argosy_test_cluster::installation::Installation;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::harness::{self, IN_CLUSTER, config_map, run, wait_app};

const CONTROL_PLANE: &str = "argocd-policy";
/// Longer than any of these syncs takes that is to succeed.
const SYNC_TIMEOUT: &str = "--sync-timeout=60";
const ROLE: Kind = Kind {
    api_version: "rbac.authorization.k8s.io/v1",
    plural: "roles",
};
const ROLE_BINDING: Kind = Kind {
    api_version: "rbac.authorization.k8s.io/v1",
    plural: "rolebindings",
};

async fn installation() -> &'static Api {
    static INSTALLATION: OnceCell<Installation> = OnceCell::const_new();
    let start = || async {
        let mut installation = harness::start_installation(CONTROL_PLANE).await?;
        let settings = json!({"data": {
            "application.sync.impersonation.enabled": "true",
            "application.sync.impersonation.enforced": "false",
        }});
        let api = installation.api().clone();
        api.merge_patch(kinds::CONFIG_MAP, CONTROL_PLANE, "argocd-cm", &settings)
            .await?;
        installation.start_controller(&[SYNC_TIMEOUT])?;
        Ok::<_, anyhow::Error>(installation)
    };
    INSTALLATION
        .get_or_init(|| async { start().await.expect("start an installation with policies") })
        .await
        .api()
}

/// A project of its own with these fields, and an Application in it with one ConfigMap.
async fn application(name: &str, project: Value, automated: bool) -> Result<(&'static Api, Repository)> {
    let api = installation().await;
    let mut spec = json!({
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    });
    for (field, value) in project.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let project = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": name, "namespace": CONTROL_PLANE}, "spec": spec});
    api.apply(kinds::PROJECT, &project).await?;
    api.apply(
        kinds::NAMESPACE,
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
    )
    .await?;
    let repository = harness::repository(name)?;
    repository.write("app/a.yaml", &config_map("a", "1"))?;
    repository.commit("first")?;
    let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
    let mut app = harness::application(CONTROL_PLANE, name, source);
    app["spec"]["project"] = name.into();
    app["spec"]["syncPolicy"] = if automated {
        json!({"automated": {}})
    } else {
        json!({})
    };
    api.create(kinds::APPLICATION, &app).await?;
    Ok((api, repository))
}

async fn sync(api: &Api, name: &str) -> Result<()> {
    let operation = json!({"operation": {"sync": {}, "initiatedBy": {"username": "tester"}}});
    api.merge_patch(kinds::APPLICATION, CONTROL_PLANE, name, &operation)
        .await
        .map(drop)
}

fn phase(app: &Value) -> &str {
    app["status"]["operationState"]["phase"]
        .as_str()
        .unwrap_or_default()
}

fn message(app: &Value) -> &str {
    app["status"]["operationState"]["message"]
        .as_str()
        .unwrap_or_default()
}

#[test]
fn a_sync_writes_as_the_account_of_the_project() {
    run(async {
        let name = "as-the-account";
        let accounts = json!({"destinationServiceAccounts": [
            {"server": IN_CLUSTER, "namespace": name, "defaultServiceAccount": "deployer"}]});
        let (api, _repository) = application(name, accounts, false).await?;
        sync(api, name).await?;
        let app = wait_app(api, CONTROL_PLANE, name, "refused", |app| phase(app) == "Failed").await?;
        let user = format!("system:serviceaccount:{name}:deployer");
        assert!(message(&app).contains(&user), "{}", message(&app));
        assert!(api.get(kinds::CONFIG_MAP, name, "a").await?.is_none());

        api.apply(
            ROLE,
            &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "deployer", "namespace": name},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}),
        )
        .await?;
        api.apply(
            ROLE_BINDING,
            &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "deployer", "namespace": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deployer"},
                "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": name}]}),
        )
        .await?;
        sync(api, name).await?;
        wait_app(api, CONTROL_PLANE, name, "synced", |app| {
            phase(app) == "Succeeded"
        })
        .await?;
        assert!(api.get(kinds::CONFIG_MAP, name, "a").await?.is_some());
        Ok(())
    });
}

#[test]
fn a_closed_window_holds_syncs_back_and_lets_people_through_if_it_says_so() {
    run(async {
        let name = "in-the-window";
        let window = |manual: bool| json!([{"kind": "deny", "schedule": "* * * * *", "duration": "1h", "applications": ["*"], "manualSync": manual}]);
        let (api, repository) = application(name, json!({"syncWindows": window(true)}), true).await?;
        let app = wait_app(api, CONTROL_PLANE, name, "compared", |app| {
            app["status"]["sync"]["status"] == "OutOfSync"
        })
        .await?;
        assert!(app["status"]["operationState"].is_null(), "no automated sync");
        sync(api, name).await?;
        wait_app(api, CONTROL_PLANE, name, "synced", |app| {
            phase(app) == "Succeeded"
        })
        .await?;

        // Projects are told of by themselves: what else the project says from now on shows that the controller knows it.
        let stranger = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stranger", "namespace": name}});
        api.create(kinds::CONFIG_MAP, &stranger).await?;
        let closed = json!({"spec": {"syncWindows": window(false), "orphanedResources": {"warn": true}}});
        api.merge_patch(kinds::PROJECT, CONTROL_PLANE, name, &closed)
            .await?;
        harness::refresh(api, CONTROL_PLANE, name).await?;
        wait_app(api, CONTROL_PLANE, name, "told of orphans", |app| {
            !harness::condition(app, "OrphanedResourceWarning").is_empty()
        })
        .await?;
        repository.write("app/a.yaml", &config_map("a", "2"))?;
        repository.commit("second")?;
        sync(api, name).await?;
        wait_app(api, CONTROL_PLANE, name, "held back", |app| {
            message(app) == "Sync operation blocked by sync window"
        })
        .await?;
        let live = api.get(kinds::CONFIG_MAP, name, "a").await?;
        assert_eq!(live.expect("applied before")["data"]["key"], "1");
        Ok(())
    });
}

#[test]
fn a_sync_that_takes_too_long_is_ended() {
    run(async {
        let name = "too-long";
        let (api, repository) = application(name, json!({}), false).await?;
        repository.write(
            "app/job.yaml",
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: endless\n  annotations: {argocd.argoproj.io/hook: PreSync}\nspec:\n  \
             template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: main, image: registry.example/endless:1}]\n",
        )?;
        repository.commit("a hook that nobody runs")?;
        harness::refresh(api, CONTROL_PLANE, name).await?;
        sync(api, name).await?;
        let app = wait_app(api, CONTROL_PLANE, name, "ended", |app| phase(app) == "Failed").await?;
        assert_eq!(
            message(&app),
            "Operation terminated, triggered by controller sync timeout"
        );
        harness::wait(api, kinds::JOB, name, "endless", "gone", |job| job.is_none()).await?;
        assert!(api.get(kinds::CONFIG_MAP, name, "a").await?.is_none());
        Ok(())
    });
}
