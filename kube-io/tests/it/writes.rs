use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_kube_io::client::{Client, Options};
use argosy_kube_io::fence::Fence;
use argosy_kube_io::target::{Delete, Deleted, FieldValidation, Patch, Propagation, Write};
use argosy_kube_io::{ApiResource, Class, ClusterAuth, Error, api, connect};
use argosy_object::meta;
use argosy_runtime::dial::{Dial, Stream};
use argosy_test_cluster::Cluster;
use serde_json::json;
use tokio::net::TcpStream;

use crate::{config_map, target};

pub(crate) async fn an_object_lives_its_life(client: &Client) {
    let target = target(client);
    let resource = api::config_maps();
    assert!(target.get(&resource, "default", "life").await.unwrap().is_none());

    let dry = Write {
        dry_run: true,
        ..Write::default()
    };
    assert!(
        target
            .create(&resource, &config_map("life", json!({"a": "1"})), &dry)
            .await
            .unwrap()
            .created
    );
    assert!(target.get(&resource, "default", "life").await.unwrap().is_none());

    let write = Write::default();
    let made = target
        .create(&resource, &config_map("life", json!({"a": "1"})), &write)
        .await
        .unwrap();
    assert!(made.created);
    assert_eq!(
        (meta::kind(&made.object), meta::api_version(&made.object)),
        ("ConfigMap", "v1")
    );
    let taken = target
        .create(&resource, &config_map("life", json!({})), &write)
        .await
        .unwrap_err();
    assert!(taken.already_exists());

    let merged = target
        .patch(
            &resource,
            "default",
            "life",
            Patch::Merge(&json!({"data": {"a": null, "b": "2"}})),
            &write,
        )
        .await
        .unwrap();
    assert!(!merged.created);
    assert_eq!(merged.object["data"], json!({"b": "2"}));
    let managers: Vec<_> = meta::array_field(&merged.object, &["metadata", "managedFields"])
        .iter()
        .map(|entry| &entry["manager"])
        .collect();
    assert_eq!(managers, ["argocd-controller"]);

    let tested =
        json!([{"op": "test", "path": "/data/b", "value": "9"}, {"op": "remove", "path": "/data/b"}]);
    let refused = target
        .patch(&resource, "default", "life", Patch::Json(&tested), &write)
        .await
        .unwrap_err();
    assert!(refused.invalid(), "{refused}");

    let strategic = json!({"metadata": {"finalizers": ["example.com/wait"]}});
    target
        .patch(&resource, "default", "life", Patch::Strategic(&strategic), &write)
        .await
        .unwrap();

    // Replaced with the version of before the last change.
    let stale = target
        .replace(&resource, &merged.object, &write)
        .await
        .unwrap_err();
    assert!(stale.conflict() && matches!(stale.class(), Class::Retry { .. }));

    let deleted = target
        .delete(&resource, "default", "life", &Delete::default())
        .await
        .unwrap();
    assert!(matches!(deleted, Deleted::Marked(_)));
    let done = json!({"metadata": {"finalizers": null}});
    target
        .patch(&resource, "default", "life", Patch::Merge(&done), &write)
        .await
        .unwrap();
    assert!(target.get(&resource, "default", "life").await.unwrap().is_none());
    let again = target
        .delete(&resource, "default", "life", &Delete::default())
        .await
        .unwrap();
    assert!(matches!(again, Deleted::Gone));

    let apply = config_map("life", json!({"a": "1"}));
    let applied = target
        .patch(
            &resource,
            "default",
            "life",
            Patch::Apply {
                object: &apply,
                force: false,
            },
            &write,
        )
        .await
        .unwrap();
    assert!(applied.created);
    let other = Write {
        field_manager: Some("somebody-else".to_owned()),
        ..Write::default()
    };
    let theirs = config_map("life", json!({"a": "2"}));
    let conflict = target
        .patch(
            &resource,
            "default",
            "life",
            Patch::Apply {
                object: &theirs,
                force: false,
            },
            &other,
        )
        .await
        .unwrap_err();
    assert!(
        conflict.conflict() && conflict.message().contains("argocd-controller"),
        "{}",
        conflict.message()
    );
    let forced = target
        .patch(
            &resource,
            "default",
            "life",
            Patch::Apply {
                object: &theirs,
                force: true,
            },
            &other,
        )
        .await
        .unwrap();
    assert_eq!(forced.object["data"], json!({"a": "2"}));
    target
        .delete(&resource, "default", "life", &Delete::default())
        .await
        .unwrap();
}

pub(crate) async fn preconditions_guard_deletions(client: &Client) {
    let (target, resource, write) = (target(client), api::config_maps(), Write::default());
    let made = target
        .create(&resource, &config_map("guarded", json!({})), &write)
        .await
        .unwrap()
        .object;
    let wrong = Delete {
        uid: Some("00000000-0000-0000-0000-000000000000".to_owned()),
        ..Delete::default()
    };
    assert!(
        target
            .delete(&resource, "default", "guarded", &wrong)
            .await
            .unwrap_err()
            .conflict()
    );
    let changed = json!({"data": {"x": "y"}});
    target
        .patch(&resource, "default", "guarded", Patch::Merge(&changed), &write)
        .await
        .unwrap();
    let stale = Delete {
        resource_version: Some(meta::resource_version(&made).to_owned()),
        propagation: Propagation::Background,
        ..Delete::default()
    };
    assert!(
        target
            .delete(&resource, "default", "guarded", &stale)
            .await
            .unwrap_err()
            .conflict()
    );
    let right = Delete {
        uid: Some(meta::uid(&made).to_owned()),
        propagation: Propagation::Background,
        ..Delete::default()
    };
    assert!(matches!(
        target
            .delete(&resource, "default", "guarded", &right)
            .await
            .unwrap(),
        Deleted::Gone
    ));
    assert!(
        target
            .get(&resource, "default", "guarded")
            .await
            .unwrap()
            .is_none()
    );
}

pub(crate) async fn a_missing_kind_is_not_a_missing_object(client: &Client) {
    let nothing = ApiResource::known("nobody.example.com", "v1", "Nothing", "nothings", true);
    let error = target(client).get(&nothing, "default", "a").await.unwrap_err();
    assert!(error.kind_unknown() && !error.not_found());
}

pub(crate) async fn unknown_fields_are_warned_of_or_refused(client: &Client) {
    let (target, resource) = (target(client), api::config_maps());
    let mut odd = config_map("odd", json!({}));
    odd["surprise"] = json!(1);
    let strict = Write {
        field_validation: FieldValidation::Strict,
        ..Write::default()
    };
    let refused = target.create(&resource, &odd, &strict).await.unwrap_err();
    assert_eq!(refused.code(), Some(400));
    assert!(
        refused.message().contains("unknown field \"surprise\""),
        "{}",
        refused.message()
    );
    let made = target
        .create(
            &resource,
            &odd,
            &Write {
                dry_run: true,
                ..Write::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(made.warnings, ["unknown field \"surprise\""]);
}

struct Held(Option<Duration>);

impl Fence for Held {
    fn remaining(&self) -> Option<Duration> {
        self.0
    }
}

pub(crate) async fn a_write_stays_here_when_the_cluster_is_not_held(client: &Client) {
    let (resource, write) = (api::config_maps(), Write::default());
    let lost = target(client).with_fence(Arc::new(Held(None)));
    let error = lost
        .create(&resource, &config_map("fenced", json!({})), &write)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
    assert!(matches!(error.class(), Class::Wait { .. }));
    // Reading is nobody's property.
    assert!(lost.get(&resource, "default", "fenced").await.unwrap().is_none());
    let held = target(client).with_fence(Arc::new(Held(Some(Duration::from_secs(60)))));
    assert!(
        held.create(&resource, &config_map("fenced", json!({})), &write)
            .await
            .unwrap()
            .created
    );
}

/// Open until somebody shuts it.
struct Gate(Arc<AtomicBool>);

impl Fence for Gate {
    fn remaining(&self) -> Option<Duration> {
        self.0.load(Ordering::SeqCst).then_some(Duration::from_secs(10))
    }
}

pub(crate) async fn a_write_that_waited_for_its_connection_stays_here_too(cluster: &Cluster) {
    let auth = ClusterAuth::kubeconfig(Some(&cluster.kubeconfig()), None)
        .await
        .unwrap();
    let open = Arc::new(AtomicBool::new(true));
    let gate = open.clone();
    // While a connection is made, the cluster is lost.
    let dial = Dial::new(move |address| {
        let (address, gate) = (address.to_owned(), gate.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            gate.store(false, Ordering::SeqCst);
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    });
    let client = connect(auth.dialing(dial), Options::default()).await.unwrap();
    let resource = api::config_maps();
    let held = target(&client).with_fence(Arc::new(Gate(open.clone())));
    let late = config_map("late", json!({}));
    // The first call makes the connection.
    open.store(true, Ordering::SeqCst);
    let error = held
        .create(&resource, &late, &Write::default())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
    assert!(held.get(&resource, "default", "late").await.unwrap().is_none());
    // What stayed here has not broken anything.
    open.store(true, Ordering::SeqCst);
    let made = held.create(&resource, &late, &Write::default()).await;
    assert!(made.unwrap().created);
}
