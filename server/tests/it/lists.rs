//! Applications as lists and streams: order, pages, resuming, and rights that change meanwhile.

use std::time::{Duration, Instant};

use argosy_api::services::application::ApplicationQuery;
use argosy_api::services::application::application_service_client::ApplicationServiceClient;
use argosy_api::v1alpha1::ApplicationWatchEvent;
use argosy_test_cluster::api::kinds;
use serde_json::{Value, json};
use tonic::{Code, Streaming};

use crate::world::{PATIENCE, World, run, start, with};

async fn create(world: &World, token: &str, name: &str, project: &str) {
    let app = json!({"metadata": {"name": name}, "spec": {"project": project,
        "source": {"repoURL": "https://git.example.com/app", "path": "deploy"},
        "destination": {"server": "https://kubernetes.default.svc", "namespace": "default"}}});
    let (status, body) = world
        .http("POST", "/api/v1/applications?validate=false", token, Some(app))
        .await;
    assert_eq!(status, 200, "{body}");
}

async fn list(world: &World, token: &str, query: &str) -> Value {
    let (status, body) = world
        .http("GET", &format!("/api/v1/applications?{query}"), token, None)
        .await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|app| app["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn lists_are_ordered_searched_and_paged() {
    run(async {
        let world = start("paging", &["--insecure"]).await;
        let (admin, dev) = (world.admin().await, world.token("dev").await);
        for name in ["alpha", "beta", "gamma"] {
            create(&world, &admin, name, "shop").await;
        }
        create(&world, &admin, "delta", "other").await;
        let health = json!({"status": {"health": {"status": "Degraded"}, "sync": {"status": "Synced"}}});
        world
            .api
            .merge_patch(kinds::APPLICATION, "paging", "gamma", &health)
            .await
            .unwrap();

        // `dev` sees project shop: alpha, beta, gamma and web.
        assert_eq!(
            names(&list(&world, &dev, "").await),
            ["alpha", "beta", "gamma", "web"]
        );
        let first = list(&world, &dev, "limit=3&sortBy=-name").await;
        assert_eq!(names(&first), ["web", "gamma", "beta"]);
        assert_eq!(first["metadata"]["remainingItemCount"], 1);
        let token = first["metadata"]["continue"].as_str().unwrap();
        let second = list(&world, &dev, &format!("limit=3&sortBy=-name&continue={token}")).await;
        assert_eq!(names(&second), ["alpha"]);
        assert!(second["metadata"].get("continue").is_none(), "{second}");
        assert_eq!(names(&list(&world, &dev, "search=ALPH").await), ["alpha"]);
        let started = Instant::now();
        while names(&list(&world, &dev, "health=Degraded").await) != ["gamma"] {
            assert!(started.elapsed() < PATIENCE, "the health is not known");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(
            names(&list(&world, &dev, "health=Degraded&health=Unknown&sync=Synced").await),
            ["gamma"]
        );
        assert!(
            names(&list(&world, &dev, "search=delta").await).is_empty(),
            "not even searched"
        );
        for (query, word) in [
            ("sortBy=size", "createdAt"),
            ("continue=x", "continue"),
            ("limit=-1", "limit"),
        ] {
            let (status, body) = world
                .http("GET", &format!("/api/v1/applications?{query}"), &dev, None)
                .await;
            assert_eq!(status, 400, "{query}: {body}");
            assert!(body.contains(word), "{query}: {body}");
        }
    });
}

async fn watch(
    world: &World,
    token: &str,
    query: ApplicationQuery,
) -> Result<Streaming<ApplicationWatchEvent>, tonic::Status> {
    let mut client = ApplicationServiceClient::new(world.channel.clone());
    Ok(client.watch(with(token, query)).await?.into_inner())
}

/// The next event: what happened to which.
async fn next(stream: &mut Streaming<ApplicationWatchEvent>) -> (String, String) {
    let event = tokio::time::timeout(PATIENCE, stream.message())
        .await
        .expect("an event")
        .unwrap()
        .unwrap();
    (event.r#type, event.application.metadata.name)
}

fn event(word: &str, name: &str) -> (String, String) {
    (word.to_owned(), name.to_owned())
}

#[test]
fn a_watch_goes_on_where_a_list_ended() {
    run(async {
        let world = start("resuming", &["--insecure"]).await;
        let (admin, dev) = (world.admin().await, world.token("dev").await);
        for (name, project) in [("stays", "shop"), ("goes", "shop"), ("hidden", "other")] {
            create(&world, &admin, name, project).await;
        }
        let version = list(&world, &dev, "").await["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        world
            .api
            .merge_patch(kinds::APPLICATION, "resuming", "stays", &label)
            .await
            .unwrap();
        for name in ["goes", "hidden"] {
            world
                .api
                .delete(kinds::APPLICATION, "resuming", name)
                .await
                .unwrap();
        }
        let started = Instant::now();
        while names(&list(&world, &admin, "").await).contains(&"hidden") {
            assert!(started.elapsed() < PATIENCE, "the deletion is not known");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let since = |version: &str| ApplicationQuery {
            resource_version: Some(version.to_owned()),
            resume: Some(true),
            ..ApplicationQuery::default()
        };
        let mut stream = watch(&world, &dev, since(&version)).await.unwrap();
        assert_eq!(next(&mut stream).await, event("MODIFIED", "stays"));
        assert_eq!(next(&mut stream).await, event("DELETED", "goes"));
        create(&world, &admin, "new", "shop").await;
        assert_eq!(next(&mut stream).await, event("ADDED", "new"));
        // Who watches one that has gone meanwhile is told so: Argo CD's program deletes first and waits for it then.
        let named = ApplicationQuery {
            name: Some("goes".to_owned()),
            ..ApplicationQuery::default()
        };
        let mut late = watch(&world, &dev, named).await.unwrap();
        assert_eq!(next(&mut late).await, event("DELETED", "goes"));
        // What went before this server began cannot be told.
        let refused = watch(&world, &dev, since("1")).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
        // Those who do not ask for it get what there is, as from Argo CD.
        let plain = ApplicationQuery {
            resume: None,
            ..since("1")
        };
        assert!(watch(&world, &dev, plain).await.is_ok());
    });
}

#[test]
fn a_stream_shows_only_what_may_be_seen_now() {
    run(async {
        let world = start("revoking", &["--insecure"]).await;
        let (admin, dev) = (world.admin().await, world.token("dev").await);
        create(&world, &admin, "beside", "shop").await;
        let mut stream = watch(&world, &dev, ApplicationQuery::default()).await.unwrap();
        let mut first = [next(&mut stream).await, next(&mut stream).await];
        first.sort();
        assert_eq!(first, [event("ADDED", "beside"), event("ADDED", "web")]);
        let grant = async |objects: &str, seen: &[&str]| {
            let line = format!("p, dev, applications, get, {objects}, allow\n");
            let policy = json!({"data": {"policy.csv": line}});
            let written = world
                .api
                .merge_patch(kinds::CONFIG_MAP, "revoking", "argocd-rbac-cm", &policy);
            written.await.unwrap();
            let started = Instant::now();
            while names(&list(&world, &dev, "").await) != seen {
                assert!(started.elapsed() < PATIENCE, "the policy does not count");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let label = async |name: &str, value: &str| {
            let label = json!({"metadata": {"labels": {"a": value}}});
            let written = world
                .api
                .merge_patch(kinds::APPLICATION, "revoking", name, &label);
            written.await.unwrap();
        };
        grant("shop/beside", &["beside"]).await;
        label("web", "unseen").await;
        // When this is told, the stream has gone past the other.
        label("beside", "seen").await;
        assert_eq!(next(&mut stream).await, event("MODIFIED", "beside"));
        grant("shop/*", &["beside", "web"]).await;
        label("web", "seen").await;
        let event = tokio::time::timeout(PATIENCE, stream.message())
            .await
            .expect("an event")
            .unwrap()
            .unwrap();
        let labels = &event.application.metadata.labels;
        assert_eq!(
            labels.get("a").map(String::as_str),
            Some("seen"),
            "what happened meanwhile is not shown"
        );
    });
}
