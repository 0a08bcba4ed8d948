use std::sync::Arc;

use argosy_kube_io::client::{Client, Options};
use argosy_kube_io::list_watch::{self, Event, ListWatch};
use argosy_kube_io::target::Selection;
use argosy_kube_io::{Budget, Class, ClusterAuth, Error, api, connect, discover, openapi};
use argosy_object::{GroupKind, GroupVersionKind};
use argosy_test_cluster::Cluster;

use crate::{PATIENCE, target};

pub(crate) async fn calls_share_one_http2_connection(client: &Client) {
    assert!(client.is_http2());
    let version = client.version().await.unwrap();
    assert_eq!(
        (version.major.as_str(), version.git_version.starts_with("v1.")),
        ("1", true)
    );
    assert!(client.down_since().is_none());
}

pub(crate) async fn watches_are_spread_over_connections(client: &Client) {
    // An API server allows 100 streams a connection: the 101st watch on one would wait for ever.
    let budget = Budget::new(8 * Budget::LIST);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..130 {
        let options = list_watch::Options {
            selection: Selection::namespace("kube-system"),
            ..Default::default()
        };
        let mut events = ListWatch::new(client.clone(), api::config_maps(), options, budget.clone());
        tasks.spawn(async move {
            while !matches!(events.next().await, Event::Live) {}
            events
        });
    }
    let watches = tokio::time::timeout(PATIENCE, tasks.join_all()).await.unwrap();
    assert_eq!(watches.len(), 130);
    assert_eq!(client.watch_connections(), 2);
    assert!(client.version().await.is_ok());
}

pub(crate) async fn discovery_finds_what_is_served(client: &Client) {
    let discovery = discover(client).await.unwrap();
    assert!(discovery.findings().is_empty(), "{:?}", discovery.findings());
    let deployment = discovery
        .preferred(&GroupKind::new("apps", "Deployment"))
        .unwrap();
    assert!(deployment.namespaced && deployment.watchable());
    assert_eq!(
        (deployment.plural.as_str(), deployment.version.as_str()),
        ("deployments", "v1")
    );
    assert!(deployment.subresources.iter().any(|name| name == "scale"));
    let role = discovery
        .exact(&GroupVersionKind::new(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
        ))
        .unwrap();
    assert!(!role.namespaced);
    let versions = discovery.api_versions();
    for expected in [
        "v1",
        "v1/Pod",
        "apps/v1",
        "apps/v1/Deployment",
        "autoscaling/v2/HorizontalPodAutoscaler",
    ] {
        assert!(
            versions.iter().any(|version| version == expected),
            "{expected} is missing"
        );
    }
    assert!(
        !discovery
            .resources()
            .iter()
            .any(|resource| resource.plural.contains('/'))
    );
}

pub(crate) async fn schemas_of_two_clients_are_one(cluster: &Cluster, client: &Client) {
    let first = openapi::schemas(client, &Default::default()).await.unwrap();
    let other = crate::client(cluster).await;
    let second = openapi::schemas(&other, &Default::default()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let deployment = first
        .root(&GroupVersionKind::new("apps", "v1", "Deployment"))
        .unwrap();
    assert!(
        deployment
            .field("spec")
            .is_some_and(|spec| spec.field("replicas").is_some())
    );
}

pub(crate) async fn a_refusal_keeps_the_servers_words(cluster: &Cluster) {
    let file = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let token = argosy_test_cluster::ADMIN_TOKEN;
    assert!(file.contains(token));
    let path = std::env::temp_dir().join(format!("argosy-kubeconfig-{}", std::process::id()));
    let with = |other: &str| std::fs::write(&path, file.replace(token, other)).unwrap();

    with(argosy_test_cluster::POWERLESS_TOKEN);
    let nobody = connect(
        ClusterAuth::kubeconfig(Some(&path), None).await.unwrap(),
        Options::default(),
    )
    .await
    .unwrap();
    let error = target(&nobody)
        .get(&api::secrets(), "default", "any")
        .await
        .unwrap_err();
    assert!(error.forbidden() && error.class() == Class::Stalled);
    assert!(
        error.message().contains("cannot get resource \"secrets\""),
        "{}",
        error.message()
    );

    with("no-such-token");
    let stranger = connect(
        ClusterAuth::kubeconfig(Some(&path), None).await.unwrap(),
        Options::default(),
    )
    .await
    .unwrap();
    let error = target(&stranger)
        .get(&api::secrets(), "default", "any")
        .await
        .unwrap_err();
    assert!(error.unauthorized(), "{error}");
    std::fs::remove_file(&path).unwrap();
}

pub(crate) async fn a_server_that_is_not_there_is_no_connection() {
    let port = argosy_test_cluster::free_port().unwrap();
    let path = std::env::temp_dir().join(format!("argosy-nowhere-{}", std::process::id()));
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    std::fs::write(&path, text.to_string()).unwrap();
    let auth = ClusterAuth::kubeconfig(Some(&path), None).await.unwrap();
    let error = connect(auth, Options::default()).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    std::fs::remove_file(&path).unwrap();
}
