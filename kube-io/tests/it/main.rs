//! Everything here runs against a real kube-apiserver and etcd, which the test starts itself.
//!
//! One control plane serves all scenarios, one after the other: a start costs more than all of them together.
#![allow(clippy::unwrap_used)]

mod connections;
mod following;
mod writes;

use std::time::Duration;

use argosy_kube_io::client::{Client, Options};
use argosy_kube_io::{ClusterAuth, Target, connect};
use argosy_object::Value;
use argosy_test_cluster::{Binaries, Cluster};
use serde_json::json;

#[test]
fn on_a_real_api_server() {
    let mut cluster = Cluster::start(Binaries::locate().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = client(&cluster).await;
        connections::calls_share_one_http2_connection(&client).await;
        connections::watches_are_spread_over_connections(&client).await;
        connections::discovery_finds_what_is_served(&client).await;
        connections::schemas_of_two_clients_are_one(&cluster, &client).await;
        connections::a_refusal_keeps_the_servers_words(&cluster).await;
        connections::a_server_that_is_not_there_is_no_connection().await;
        writes::an_object_lives_its_life(&client).await;
        writes::preconditions_guard_deletions(&client).await;
        writes::a_missing_kind_is_not_a_missing_object(&client).await;
        writes::unknown_fields_are_warned_of_or_refused(&client).await;
        writes::a_write_stays_here_when_the_cluster_is_not_held(&client).await;
        writes::a_write_that_waited_for_its_connection_stays_here_too(&cluster).await;
        following::lists_in_pages_and_streams_are_the_same(&client).await;
        following::objects_are_counted_between_watches(&client).await;
        following::one_bad_object_does_not_stop_the_others(&client).await;
        following::changes_go_on_after_the_server_was_away(&mut cluster, &client).await;
    });
}

async fn client(cluster: &Cluster) -> Client {
    let auth = ClusterAuth::kubeconfig(Some(&cluster.kubeconfig()), None)
        .await
        .unwrap();
    connect(auth, Options::default()).await.unwrap()
}

fn target(client: &Client) -> Target {
    Target::new(client.clone())
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": data})
}

/// Long enough for a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);
