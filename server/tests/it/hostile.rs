//! Requests that are made to break the server, and floods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use argosy_runtime::bounds::{self, Class, Limit};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;

use crate::world::{ADMIN_PASSWORD, PATIENCE, World, log_in, run, start, world};

#[test]
fn a_query_of_thousands_of_fields_in_fields_breaks_nothing() {
    run(async {
        let world = world().await;
        let path = format!("/api/v1/applications?{}=x", ["a"; 30_000].join("."));
        assert_eq!(world.http("GET", &path, "", None).await.0, 401);
        let admin = world.admin().await;
        assert_eq!(world.http("GET", &path, &admin, None).await.0, 200);
    });
}

#[test]
fn a_patch_that_nests_values_without_end_is_refused() {
    run(async {
        let world = start("nested", &["--insecure"]).await;
        let dev = world.token("dev").await;
        let annotation = "/metadata/annotations";
        let mut patch = vec![json!({"op": "add", "path": annotation, "value": {}})];
        let mut path = annotation.to_owned();
        for _ in 0..400 {
            let nested = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
            patch.push(json!({"op": "add", "path": format!("{path}/a"), "value": nested}));
            path += &"/a".repeat(101);
        }
        let body = json!({"patchType": "json", "patch": serde_json::to_string(&patch).unwrap()});
        let (status, body) = world
            .http("PATCH", "/api/v1/applications/web", &dev, Some(body))
            .await;
        assert_eq!(status, 400, "{body}");
        assert!(body.contains("nested deeper"), "{body}");
        // Without a type it is a patch of operations.
        let patch = json!({"patch": r#"[{"op": "replace", "path": "/spec/source/path", "value": "x"}]"#});
        let (status, body) = world
            .http("PATCH", "/api/v1/applications/web", &dev, Some(patch))
            .await;
        assert!(!body.contains("patch:"), "{status} {body}");
    });
}

#[test]
fn positions_out_of_all_range_are_told_as_such() {
    run(async {
        let world = start("positions", &["--insecure"]).await;
        let dev = world.token("dev").await;
        let source = |path: &str| json!({"repoURL": "https://git.example.com/app", "path": path});
        let several = json!({"spec": {"source": null, "sources": [source("a"), source("b")]}});
        let kind = argosy_test_cluster::api::kinds::APPLICATION;
        world
            .api
            .merge_patch(kind, "positions", "web", &several)
            .await
            .unwrap();
        let started = std::time::Instant::now();
        while !world
            .http("GET", "/api/v1/applications/web", &dev, None)
            .await
            .1
            .contains("\"sources\"")
        {
            assert!(started.elapsed() < PATIENCE);
        }
        for position in [i64::MIN, -1, 0, 3, i64::MAX] {
            let body = json!({"revisions": ["x"], "sourcePositions": [position]});
            let (status, body) = world
                .http("POST", "/api/v1/applications/web/sync", &dev, Some(body))
                .await;
            assert_eq!(status, 400, "{position}: {body}");
            let path = format!("/api/v1/applications/web/manifests?revisions=x&sourcePositions={position}");
            let (status, body) = world.http("GET", &path, &dev, None).await;
            assert_eq!(status, 400, "{position}: {body}");
        }
    });
}

const CHUNK: usize = 64 << 10;

/// A body that goes on as long as it is taken, up to a size; how much of it was taken.
fn body(head: Vec<u8>, size: usize) -> (reqwest::Body, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = taken.clone();
    let chunks = std::iter::once(Bytes::from(head))
        .chain(std::iter::repeat_n(Bytes::from(vec![b' '; CHUNK]), size / CHUNK));
    let chunks = stream::iter(chunks).map(move |chunk| {
        counter.fetch_add(chunk.len(), Ordering::Relaxed);
        Ok::<_, std::io::Error>(chunk)
    });
    (reqwest::Body::wrap_stream(chunks), taken)
}

#[test]
fn who_is_not_known_is_not_listened_to_for_long() {
    run(async {
        let world = world().await;
        let client = reqwest::Client::new();
        let size: usize = 128 << 20;
        let mut frame = vec![0];
        frame.extend(u32::try_from(size).unwrap().to_be_bytes());
        let before = bounds::times_exceeded(Limit::RequestBody);
        for (path, kind, head) in [
            ("/api/v1/applications", "application/json", Vec::new()),
            (
                "/application.ApplicationService/List",
                "application/grpc-web+proto",
                frame,
            ),
        ] {
            let (body, taken) = body(head, size);
            let request = client.post(format!("http://{}{path}", world.address));
            let sent = request.header("Content-Type", kind).body(body).send();
            // The answer may be lost where the connection is closed before all was sent.
            if let Ok(answer) = tokio::time::timeout(PATIENCE, sent).await.unwrap() {
                let (status, code) = (answer.status(), answer.headers().get("grpc-status").cloned());
                assert!(
                    status == 401 || code.is_some_and(|code| code == "16"),
                    "{path}: {answer:?}"
                );
            }
            let taken = taken.load(Ordering::Relaxed);
            assert!(taken < size / 4, "{path}: {taken} bytes were taken of a stranger");
        }
        assert!(bounds::times_exceeded(Limit::RequestBody) > before);
        // Those who log in have enough.
        assert!(log_in(&world.channel, "admin", ADMIN_PASSWORD).await.is_ok());
    });
}

/// A webhook of which only a part is sent; it is held until it is dropped.
async fn half_a_hook(world: &World, size: usize) -> tokio::task::JoinHandle<Option<u16>> {
    let url = format!("http://{}/api/webhook", world.address);
    let (sent, is_sent) = tokio::sync::oneshot::channel();
    let chunks =
        stream::iter(vec![Bytes::from(vec![b' '; CHUNK]); size / CHUNK]).map(Ok::<_, std::io::Error>);
    let end = stream::once(async move {
        let _ = sent.send(());
        std::future::pending::<Result<Bytes, std::io::Error>>().await
    });
    let request = reqwest::Client::new()
        .post(url)
        .header("X-GitHub-Event", "push")
        .body(reqwest::Body::wrap_stream(chunks.chain(end)));
    let hook = tokio::spawn(async move { request.send().await.ok().map(|answer| answer.status().as_u16()) });
    let _ = tokio::time::timeout(PATIENCE, is_sent).await;
    hook
}

#[test]
fn large_webhooks_have_one_room_and_small_ones_are_taken_beside_them() {
    run(async {
        let world = start("large-hooks", &["--insecure"]).await;
        let mut hooks = Vec::new();
        for _ in 0..6 {
            hooks.push(half_a_hook(&world, 40 << 20).await);
        }
        let started = std::time::Instant::now();
        while hooks.iter().filter(|hook| hook.is_finished()).count() < 5 {
            assert!(
                started.elapsed() < PATIENCE,
                "more than one large payload is held"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let push =
            json!({"ref": "refs/heads/main", "repository": {"html_url": "https://git.example.com/app"}});
        let answer = reqwest::Client::new()
            .post(format!("http://{}/api/webhook", world.address))
            .header("X-GitHub-Event", "push")
            .body(push.to_string())
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        let mut refused = 0;
        for hook in hooks {
            if hook.is_finished() {
                // The answer may be lost where the connection is closed before all was sent.
                refused += usize::from(matches!(hook.await.unwrap(), None | Some(429)));
            } else {
                hook.abort();
            }
        }
        assert_eq!(refused, 5);
        assert!(bounds::times_shed(Class::Webhook) >= 5);
    });
}

#[test]
fn a_flood_of_names_does_not_keep_out_who_knows_the_password() {
    run(async {
        let world = start("flood", &["--insecure", "--max-concurrent-logins=2"]).await;
        let flood: Vec<_> = (0..200)
            .map(|at| {
                let channel = world.channel.clone();
                tokio::spawn(async move { log_in(&channel, &format!("noise-{at}"), "wrong").await })
            })
            .collect();
        // Whoever comes in the middle of it is let in, long before those who make the noise have their answers.
        let mut broken = 0;
        while let Err(status) = log_in(&world.channel, "admin", ADMIN_PASSWORD).await {
            if status.code() == Code::ResourceExhausted {
                assert!(flood.iter().any(|noise| !noise.is_finished()), "{status}");
            } else {
                // The flood may take the connection down that it shares with others.
                broken += 1;
                assert!(broken < 5, "{status}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for refused in flood {
            assert!(refused.await.unwrap().is_err());
        }
    });
}

/// Kinds of frames of HTTP/2.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;

/// A frame of a few bytes.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap();
    [&[0, 0, len, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn as_many_calls_as_a_connection_may_have_can_come_in_one_breath() {
    const CALLS: u32 = 1_000;
    run(async {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/session.SessionService/GetUserInfo"),
            (":authority", "server"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let mut head = Vec::new();
        for (name, value) in fields {
            head.push(0);
            for text in [name, value] {
                head.push(u8::try_from(text.len()).unwrap());
                head.extend_from_slice(text.as_bytes());
            }
        }
        let mut breath = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        breath.extend(frame(SETTINGS, 0, 0, &[]));
        let streams = || (0..CALLS).map(|call| 1 + 2 * call);
        for stream in streams() {
            breath.extend(frame(HEADERS, 4, stream, &head));
            // A message of no bytes. That it was the last one is said later, as clients do.
            breath.extend(frame(DATA, 0, stream, &[0; 5]));
        }
        for stream in streams() {
            breath.extend(frame(DATA, 1, stream, &[]));
        }
        let connection = tokio::net::TcpStream::connect(world().await.address)
            .await
            .unwrap();
        let (mut answers, mut requests) = connection.into_split();
        let sent = tokio::spawn(async move {
            requests.write_all(&breath).await.unwrap();
            requests
        });
        let mut answered = 0;
        while answered < CALLS {
            let mut head = [0; 9];
            answers.read_exact(&mut head).await.unwrap();
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(len).unwrap()];
            answers.read_exact(&mut payload).await.unwrap();
            let (kind, ends) = (head[3], head[4] & 1 == 1);
            assert_ne!(kind, GO_AWAY, "{}", String::from_utf8_lossy(&payload));
            answered += u32::from(ends && [DATA, HEADERS].contains(&kind));
        }
        sent.await.unwrap();
    });
}

#[test]
fn what_is_under_way_when_the_server_stops_is_answered_and_streams_end() {
    run(async {
        let world = start("stopping", &["--insecure"]).await;
        let admin = world.admin().await;
        let mut watch = {
            use argosy_api::services::application::ApplicationQuery;
            use argosy_api::services::application::application_service_client::ApplicationServiceClient;
            let mut client = ApplicationServiceClient::new(world.channel.clone());
            let query = ApplicationQuery::default();
            client
                .watch(crate::world::with(&admin, query))
                .await
                .unwrap()
                .into_inner()
        };
        assert!(watch.message().await.unwrap().is_some());
        // A refusal takes half a second at least.
        let login = log_in(&world.channel, "human", "wrong");
        let stop = async {
            let started = std::time::Instant::now();
            // It is written down before it is answered.
            let failures = async || {
                let kind = argosy_test_cluster::api::kinds::SECRET;
                let secret = world.api.get(kind, "stopping", "argosy-login-failures").await;
                secret
                    .unwrap()
                    .is_some_and(|secret| secret["data"]["human"].is_string())
            };
            while !failures().await {
                assert!(started.elapsed() < PATIENCE, "the guess is not counted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            world.stop();
        };
        let (refused, ()) = tokio::join!(login, stop);
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
        let end = async {
            loop {
                match watch.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(status) => return Some(status.code()),
                }
            }
        };
        let end = tokio::time::timeout(PATIENCE, end).await.unwrap();
        assert_eq!(end, Some(Code::Unavailable));
    });
}
