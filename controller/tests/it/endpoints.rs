//! Replicas of the repo-server, found by EndpointSlices on a simulated API server.

use std::time::Duration;

use argosy_kube_io::endpoints::Service;
use argosy_kube_io::target::{Delete, Patch, Propagation, Write};
use argosy_kube_io::{ClusterAuth, Target, api, client, connect};
use argosy_object::Value;
use argosy_repo_client::{Config, Error, Pool, Tls};
use argosy_simulation::serve::Transport;
use argosy_simulation::{Cluster, Options};
use serde_json::json;
use tokio::sync::watch;

const NAMESPACE: &str = "argocd";
/// Long enough for a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);

fn slice(name: &str, service: &str, endpoints: &[(&str, bool)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": endpoints,
        "ports": [{"name": "metrics", "port": 8084}, {"name": "server", "port": 8081}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_those_that_are_ready_from_the_moment_that_they_are() {
    let options = Options {
        controllers: false,
        ..Options::default()
    };
    let simulated = Cluster::start(options, Transport::Tls).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), simulated.kubeconfig().unwrap().to_string()).unwrap();
    let auth = ClusterAuth::kubeconfig(Some(file.path()), None).await.unwrap();
    let client = connect(auth, client::Options::default()).await.unwrap();
    let target = Target::new(client.clone());
    let create = async |resource, object: Value| {
        target
            .create(&resource, &object, &Write::default())
            .await
            .unwrap();
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(api::namespaces(), namespace).await;
    let slices = api::endpoint_slices;
    let first = slice(
        "first",
        "argocd-repo-server",
        &[("10.0.0.1", true), ("10.0.0.2", false)],
    );
    create(slices(), first).await;
    create(slices(), slice("other", "somebody-else", &[("10.9.9.9", true)])).await;

    let address = "argocd-repo-server:8081";
    let (tell, told) = watch::channel(None);
    let pool = Pool::new(&Config {
        address: address.to_owned(),
        tls: Tls::Plaintext,
        told: Some(told.clone()),
        ..Config::default()
    })
    .unwrap();
    let service = Service::of(address, NAMESPACE).unwrap();
    let following = tokio::spawn(service.follow(client, tell));
    let mut changes = told;
    let mut wait = async |expected: &[&str]| {
        let is_expected = |known: &Option<Vec<std::net::SocketAddr>>| {
            let known = known.as_ref().map(|known| known.iter().map(ToString::to_string));
            known.is_some_and(|known| known.eq(expected.iter().copied()))
        };
        let seen = tokio::time::timeout(PATIENCE, changes.wait_for(is_expected)).await;
        assert!(seen.is_ok(), "{expected:?} is never told");
    };
    let replicas = async || {
        let replicas = pool.replicas().await?.into_iter();
        Ok::<Vec<String>, Error>(replicas.map(|replica| replica.address.to_string()).collect())
    };

    wait(&["10.0.0.1:8081"]).await;
    assert_eq!(replicas().await.unwrap(), ["10.0.0.1:8081"]);
    // The second gets ready, the first goes, and a third stands in another slice.
    let merge = json!({"endpoints": slice("", "", &[("10.0.0.1", false), ("10.0.0.2", true)])["endpoints"]});
    let patch = Patch::Merge(&merge);
    target
        .patch(&slices(), NAMESPACE, "first", patch, &Write::default())
        .await
        .unwrap();
    create(
        slices(),
        slice("second", "argocd-repo-server", &[("10.0.0.3", true)]),
    )
    .await;
    wait(&["10.0.0.2:8081", "10.0.0.3:8081"]).await;
    assert_eq!(replicas().await.unwrap(), ["10.0.0.2:8081", "10.0.0.3:8081"]);
    let at_once = Delete {
        propagation: Propagation::Background,
        ..Delete::default()
    };
    for name in ["first", "second"] {
        target.delete(&slices(), NAMESPACE, name, &at_once).await.unwrap();
    }
    wait(&[]).await;
    let error = replicas().await.unwrap_err().to_string();
    assert!(
        error.ends_with("argocd-repo-server:8081: no replica is ready"),
        "{error}"
    );

    // Nobody wants to know any more.
    drop((changes, pool));
    tokio::time::timeout(PATIENCE, following).await.unwrap().unwrap();
}
