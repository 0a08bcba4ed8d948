//! Certificates kept on a simulated API server, by several processes at once.
#![allow(clippy::unwrap_used)]

use argosy_kube_io::target::{Selection, Write};
use argosy_kube_io::{ClusterAuth, Target, api, client, connect};
use argosy_object::Value;
use argosy_peers::{Component, Live};
use argosy_peers_keeper::{AUTHORITY, CLIENTS, Keeper, REPO_SERVER};
use argosy_runtime::tasks::Tasks;
use argosy_simulation::serve::Transport;
use argosy_simulation::{Cluster, Options};
use jiff::ToSpan as _;
use jiff::civil::{Date, date};
use serde_json::json;
use std::sync::Arc;

const NAMESPACE: &str = "argocd";
const TODAY: Date = date(2026, 11, 30);

async fn world() -> (Cluster, Target) {
    let cluster = Cluster::start(Options::default(), Transport::Tls).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), cluster.kubeconfig().unwrap().to_string()).unwrap();
    let auth = ClusterAuth::kubeconfig(Some(file.path()), None).await.unwrap();
    let target = Target::new(connect(auth, client::Options::default()).await.unwrap());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    target
        .create(&api::namespaces(), &namespace, &Write::default())
        .await
        .unwrap();
    (cluster, target)
}

fn keeper(target: &Target, component: Component) -> (Keeper, Arc<Live>) {
    let live = Arc::new(Live::default());
    (
        Keeper::with(target.clone(), NAMESPACE, component, live.clone()),
        live,
    )
}

async fn data(target: &Target, name: &str) -> Value {
    let secret = target.get(&api::secrets(), NAMESPACE, name).await.unwrap();
    secret.unwrap_or_else(|| panic!("there is no Secret {name}"))["data"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_start_at_once_make_one_authority() {
    let (_cluster, target) = world().await;
    let kept = (0..8).map(|nth| {
        let component = if nth % 2 == 0 {
            Component::Controller
        } else {
            Component::Server
        };
        let (keeper, live) = keeper(&target, component);
        tokio::spawn(async move { keeper.keep(TODAY).await.map(|_| live) })
    });
    for each in kept.collect::<Vec<_>>() {
        let live = each.await.unwrap().unwrap();
        assert!(live.knows_an_authority() && live.shows_an_identity());
    }
    let authority = data(&target, AUTHORITY).await;
    assert_eq!(data(&target, CLIENTS).await["client-ca.crt"], authority["ca.crt"]);
    assert_eq!(data(&target, REPO_SERVER).await["ca.crt"], authority["ca.crt"]);
    // The key of the authority is nowhere else.
    for name in [CLIENTS, REPO_SERVER] {
        let text = data(&target, name).await.to_string();
        assert!(!text.contains(authority["ca.key"].as_str().unwrap()), "{name}");
    }
    let all = target
        .list(&api::secrets(), &Selection::namespace(NAMESPACE))
        .await;
    assert_eq!(all.unwrap().items.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_made_anew_once_and_read_by_the_others() {
    let (_cluster, target) = world().await;
    let (first, live) = keeper(&target, Component::Controller);
    let (second, other) = keeper(&target, Component::Server);
    assert!(first.keep(TODAY).await.unwrap() && second.keep(TODAY).await.unwrap());
    assert!(!first.keep(TODAY).await.unwrap(), "nothing has changed");
    let before = data(&target, CLIENTS).await;

    let later = TODAY.checked_add(30.days()).unwrap();
    assert!(second.keep(later).await.unwrap());
    let after = data(&target, CLIENTS).await;
    assert_eq!(before["client-ca.crt"], after["client-ca.crt"]);
    assert_ne!(before["client.crt"], after["client.crt"]);
    let generation = live.generation();
    assert!(first.keep(later).await.unwrap());
    assert_eq!(data(&target, CLIENTS).await, after, "it was made already");
    assert_eq!((live.generation(), other.generation()), (generation + 1, 2));

    // A Secret that somebody deletes is made again, of the same authority.
    target
        .delete(&api::secrets(), NAMESPACE, CLIENTS, &Default::default())
        .await
        .unwrap();
    first.keep(later).await.unwrap();
    assert_eq!(
        data(&target, CLIENTS).await["client-ca.crt"],
        after["client-ca.crt"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_administrator_made_is_used_and_left_as_it_is() {
    let (_cluster, target) = world().await;
    // Made elsewhere: an authority and one certificate that all components share.
    let (elsewhere, theirs) = world().await;
    keeper(&theirs, Component::Server).0.keep(TODAY).await.unwrap();
    let made = data(&theirs, CLIENTS).await;
    drop(elsewhere);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CLIENTS, "namespace": NAMESPACE},
        "data": {
            "client-ca.crt": made["client-ca.crt"], "client.crt": made["client.crt"], "client.key": made["client.key"],
        },
    });
    target
        .create(&api::secrets(), &secret, &Write::default())
        .await
        .unwrap();
    let (keeper, live) = keeper(&target, Component::Controller);
    let later = TODAY.checked_add(4000.days()).unwrap();
    assert!(keeper.keep(later).await.unwrap());
    assert!(live.knows_an_authority() && live.shows_an_identity());
    assert_eq!(data(&target, CLIENTS).await, secret["data"]);
    let all = target
        .list(&api::secrets(), &Selection::namespace(NAMESPACE))
        .await;
    assert_eq!(all.unwrap().items.len(), 1, "no authority of ours is made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_others_write_into_our_secret_is_left_as_it_is() {
    let (_cluster, target) = world().await;
    let (keeper, live) = keeper(&target, Component::Server);
    assert!(keeper.keep(TODAY).await.unwrap());
    // A merge leaves our keys: only the certificate tells.
    let (elsewhere, theirs) = world().await;
    let made = {
        let (keeper, _) = self::keeper(&theirs, Component::Server);
        keeper.keep(TODAY).await.unwrap();
        data(&theirs, REPO_SERVER).await
    };
    drop(elsewhere);
    let found = target.get(&api::secrets(), NAMESPACE, REPO_SERVER).await;
    let mut secret = found.unwrap().unwrap();
    for key in ["tls.crt", "tls.key", "ca.crt"] {
        secret["data"][key] = made[key].clone();
    }
    target
        .replace(&api::secrets(), &secret, &Write::default())
        .await
        .unwrap();
    let clients = data(&target, CLIENTS).await;
    let later = TODAY.checked_add(40.days()).unwrap();
    assert!(keeper.keep(later).await.unwrap());
    assert_eq!(data(&target, REPO_SERVER).await, secret["data"]);
    assert_ne!(data(&target, CLIENTS).await, clients, "ours is renewed");
    assert!(live.knows_an_authority());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_the_right_goes_on_without_certificates() {
    let (cluster, target) = world().await;
    drop(cluster);
    let tasks = Tasks::new();
    let target = target.with_timeout(std::time::Duration::from_secs(1));
    let live = Keeper::new(target, NAMESPACE, Component::Server)
        .start(&tasks)
        .await;
    assert!(!live.knows_an_authority());
    tasks.stop();
}
