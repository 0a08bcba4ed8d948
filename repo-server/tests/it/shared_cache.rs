//! A Redis between repo-servers: what one has rendered the other need not, and nothing that lies in it is believed.

use std::time::{Duration, Instant};

use argosy_api::v1alpha1::ApplicationSource;
use argosy_redis::redis;
use argosy_repo_server::Args;
use argosy_repo_server::render::{Manifests, Request};
use argosy_test_cluster::free_port;
use argosy_test_cluster::redis::PASSWORD;

use crate::render::{Fixture, request};
use crate::support::{PATIENCE, Repo, config_map};

/// A redis-server on loopback. It ends with this value.
struct Redis {
    server: argosy_test_cluster::redis::Redis,
    _dir: tempfile::TempDir,
}

impl Redis {
    fn start() -> Redis {
        let dir = tempfile::tempdir().unwrap();
        let server = argosy_test_cluster::redis::Redis::start(dir.path()).unwrap();
        Redis { server, _dir: dir }
    }

    fn connection(&self) -> redis::Connection {
        redis::Client::open(self.server.url())
            .unwrap()
            .get_connection()
            .unwrap()
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.connection()).unwrap();
        keys.sort();
        keys
    }

    fn get(&self, key: &str) -> Vec<u8> {
        redis::cmd("GET").arg(key).query(&mut self.connection()).unwrap()
    }

    fn set(&self, key: &str, value: &[u8]) {
        let () = redis::cmd("SET")
            .arg(key)
            .arg(value)
            .query(&mut self.connection())
            .unwrap();
    }

    /// A repo-server of its own that shares through this Redis.
    fn fixture(&self, change: impl FnOnce(&mut Args)) -> Fixture {
        Fixture::with(|args| {
            args.redis.connection.redis = self.server.address().parse().unwrap();
            args.redis.connection.redis_password = PASSWORD.into();
            args.redis.shared_cache_key = "of all repo-servers".into();
            change(args);
        })
    }

    /// Renders until that is so of what lies here. Redis is waited for a quarter of a second at most, which a busy machine may take
    /// for itself: then another repo-server tries, which has no grudge against Redis yet.
    async fn renders_until(&self, request: &Request, what: &str, so: impl Fn() -> bool) {
        let started = Instant::now();
        loop {
            let fixture = self.fixture(|_| {});
            fixture.renderer.manifests(request).await.unwrap();
            // It is written by and by.
            for _ in 0..40 {
                if so() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        }
    }

    /// Has so many entries when this is rendered, too.
    async fn shares(&self, request: &Request, count: usize) -> Vec<String> {
        let what = format!("{count} entries");
        self.renders_until(request, &what, || self.keys().len() >= count)
            .await;
        self.keys()
    }

    /// A repo-server that finds this here, and what it found; for the same reason as above it may be the second that looks.
    async fn finds(&self, request: &Request) -> (Fixture, Manifests) {
        let started = Instant::now();
        loop {
            let fixture = self.fixture(|_| {});
            let found = fixture.renderer.manifests(request).await.unwrap();
            if !found.ran {
                return (fixture, found);
            }
            assert!(started.elapsed() < PATIENCE, "nobody finds it");
        }
    }
}

fn of(repo: &Repo, path: &str) -> Request {
    let source = ApplicationSource {
        path: path.into(),
        ..ApplicationSource::default()
    };
    request(repo, source)
}

async fn ran(fixture: &Fixture, request: &Request) -> bool {
    fixture.renderer.manifests(request).await.unwrap().ran
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_repo_server_has_rendered_another_need_not() {
    let redis = Redis::start();
    let repo = Repo::with(&[("a/a.yaml", &config_map("a", "1")), ("b/b.yaml", "")]);
    let one = redis.fixture(|_| {});
    let request = of(&repo, "a");
    let first = one.renderer.manifests(&request).await.unwrap();
    assert!(first.ran);
    redis.shares(&request, 1).await;
    let (two, second) = redis.finds(&request).await;
    assert_eq!(second.rendered.digest, first.rendered.digest);
    // It knows what that was made from, too: a commit elsewhere is no reason to render.
    repo.commit(&[("b/b.yaml", "# 2")]);
    assert!(!ran(&two, &request).await);
    repo.commit(&[("a/a.yaml", &config_map("a", "2"))]);
    assert!(ran(&two, &request).await);
    // Who insists gets a render, and others get that.
    let insisting = Request {
        no_cache: true,
        ..request
    };
    assert!(ran(&one, &insisting).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_cache_what_lies_in_redis_is_believed_only_for_what_it_was_written_for() {
    let redis = Redis::start();
    let repo = Repo::with(&[
        ("a/a.yaml", &config_map("a", "1")),
        ("b/b.yaml", &config_map("b", "1")),
    ]);
    let paths = ["a", "b"];
    let mut keys = redis.shares(&of(&repo, "a"), 1).await;
    let both = redis.shares(&of(&repo, "b"), 2).await;
    keys.extend(both.into_iter().find(|key| *key != keys[0]));
    let values: Vec<Vec<u8>> = keys.iter().map(|key| redis.get(key)).collect();
    for path in paths {
        redis.finds(&of(&repo, path)).await;
    }

    // Swapped, garbage, empty, cut off: each is rendered, rightly, and put right in Redis.
    let cut = |nth: usize| &values[nth][..values[nth].len() / 2];
    for (first, second) in [
        (&values[1][..], &values[0][..]),
        (b"garbage", b""),
        (cut(0), cut(1)),
    ] {
        redis.set(&keys[0], first);
        redis.set(&keys[1], second);
        let fixture = redis.fixture(|_| {});
        for path in paths {
            let manifests = fixture.renderer.manifests(&of(&repo, path)).await.unwrap();
            assert!(manifests.ran, "{path}");
            assert!(
                manifests.rendered.manifests[0].contains(&format!("\"name\":\"{path}\"")),
                "{path}"
            );
        }
        for ((key, path), bad) in keys.iter().zip(paths).zip([first, second]) {
            redis
                .renders_until(&of(&repo, path), "the entry to be put right", || {
                    redis.get(key) != bad
                })
                .await;
        }
    }

    // Who has another secret, or another policy, finds nothing.
    let stranger = redis.fixture(|args| args.redis.shared_cache_key = "somebody else's".into());
    assert!(ran(&stranger, &of(&repo, "a")).await);
    let stricter = redis.fixture(|args| args.max_combined_directory_manifests_size = 5_000);
    assert!(ran(&stricter, &of(&repo, "b")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_gone_or_silent_holds_nothing_up() {
    let repo = Repo::with(&[("a/a.yaml", &config_map("a", "1"))]);
    let gone = Fixture::with(|args| {
        args.redis.connection.redis = format!("127.0.0.1:{}", free_port().unwrap()).parse().unwrap();
        args.redis.shared_cache_key = "x".into();
    });
    assert!(ran(&gone, &of(&repo, "a")).await);
    // One that takes connections and says nothing.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = Fixture::with(|args| {
        args.redis.connection.redis = mute.local_addr().unwrap().to_string().parse().unwrap();
        args.redis.shared_cache_key = "x".into();
    });
    for commit in 0..20 {
        repo.commit(&[("a/a.yaml", &config_map("a", &commit.to_string()))]);
        assert!(ran(&silent, &of(&repo, "a")).await);
    }
    let started = Instant::now();
    drop(silent);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "what waits for Redis holds up no end"
    );
}
