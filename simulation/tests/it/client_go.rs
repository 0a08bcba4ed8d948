//! client-go, as controllers use it: discovery, shared informers (lists as streams, watches, bookmarks) and writes.

use argosy_oracle::Oracle;
use argosy_simulation::Options;
use argosy_simulation::serve::{Cluster, Transport};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn informers_of_client_go_follow_what_happens() {
    let cluster = Cluster::start(Options::default(), Transport::Tls).await.unwrap();
    let kubeconfig = cluster.kubeconfig().unwrap();
    let asked = tokio::task::spawn_blocking(move || {
        let mut reference = Oracle::start().unwrap()?;
        Some(
            reference
                .ask("informers", json!({"kubeconfig": kubeconfig}))
                .unwrap(),
        )
    });
    let Some(seen) = asked.await.unwrap() else { return };
    let seen = seen.unwrap();
    assert_eq!(
        seen["events"],
        json!(["added seen", "changed seen", "deleted seen"])
    );
    assert_eq!(seen["pods"], 2);
    assert!(seen["groups"].as_u64() > Some(10), "{seen}");
}
