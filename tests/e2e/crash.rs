//! The controller dies in the middle of a sync; the next one ends in the same state.

use argosy_test_cluster::api::kinds;
use serde_json::json;

use crate::harness::{self, config_map, run, synced_to, wait, wait_app};

#[test]
fn a_controller_killed_in_the_middle_of_a_sync_is_no_matter() {
    run(async {
        let mut installation = harness::start_installation("argocd-crash").await?;
        let api = installation.api().clone();
        let namespace = "argocd-crash";
        let name = "crash";
        let repository = harness::repository(name)?;
        // Three waves, the middle one with a hook that waits for a person: there the controller is killed.
        for wave in 0..3 {
            for index in 0..10 {
                let manifest = format!(
                    "{}  extra: \"{wave}\"\n",
                    config_map(&format!("w{wave}-{index}"), "1").replace(
                        "\ndata:",
                        &format!("\n  annotations: {{argocd.argoproj.io/sync-wave: \"{wave}\"}}\ndata:")
                    )
                );
                repository.write(&format!("app/w{wave}-{index}.yaml"), &manifest)?;
            }
        }
        repository.write(
            "app/job.yaml",
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: gate\n  annotations: {argocd.argoproj.io/sync-wave: \"1\"}\nspec:\n  \
             suspend: false\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: main, image: registry.example/gate:1}]\n",
        )?;
        let revision = repository.commit("three waves")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;

        // Wave 1 waits for the Job, which no kubelet ever runs: the sync is in its middle.
        wait(&api, kinds::JOB, name, "gate", "created", |job| job.is_some()).await?;
        installation.kill_controller();
        assert!(
            api.get(kinds::CONFIG_MAP, name, "w2-0").await?.is_none(),
            "wave 2 waits for wave 1"
        );
        installation.start_controller(&[])?;
        wait_app(&api, namespace, name, "still Running after the restart", |app| {
            app["status"]["operationState"]["phase"] == "Running"
        })
        .await?;

        // The Job completes: what a kubelet and the Job controller would write.
        harness::complete_job(&api, name, "gate").await?;
        let app = wait_app(&api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;
        for wave in 0..3 {
            for index in 0..10 {
                let live = api
                    .get(kinds::CONFIG_MAP, name, &format!("w{wave}-{index}"))
                    .await?;
                assert_eq!(live.expect("applied")["data"]["extra"], wave.to_string());
            }
        }
        assert_eq!(
            app["status"]["history"].as_array().unwrap().len(),
            1,
            "one sync, one entry"
        );
        assert_eq!(
            app["status"]["operationState"]["syncResult"]["resources"]
                .as_array()
                .unwrap()
                .len(),
            32,
            "30 settings, the Job, the Namespace"
        );
        Ok(())
    });
}
