//! A Redis between repo-servers: what one has rendered the other need not, and nothing that lies in it is believed.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use argosy_api::v1alpha1::ApplicationSource;
use argosy_redis::redis;
use argosy_repo_server::Args;
use argosy_repo_server::render::Request;

use crate::render::{Fixture, request};
use crate::support::{Repo, config_map};

/// A redis-server on loopback. It ends with this value.
struct Redis {
    process: Child,
    port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Redis {
    fn start() -> Redis {
        let port = free_port();
        let process = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--requirepass",
                "hush",
            ])
            .args(["--port", &port.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .expect("the tests need redis-server");
        let redis = Redis { process, port };
        for _ in 0..400 {
            if redis.connection().is_ok() {
                return redis;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("redis-server does not listen");
    }

    fn connection(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(format!("redis://:hush@127.0.0.1:{}", self.port))?.get_connection()
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut self.connection().unwrap())
            .unwrap();
        keys.sort();
        keys
    }

    /// Waits until so many entries are there: they are written by and by.
    async fn wait(&self, count: usize) -> Vec<String> {
        for _ in 0..400 {
            let keys = self.keys();
            if keys.len() >= count {
                return keys;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{count} entries are awaited, {:?} are there", self.keys());
    }

    fn get(&self, key: &str) -> Vec<u8> {
        redis::cmd("GET")
            .arg(key)
            .query(&mut self.connection().unwrap())
            .unwrap()
    }

    fn set(&self, key: &str, value: &[u8]) {
        let () = redis::cmd("SET")
            .arg(key)
            .arg(value)
            .query(&mut self.connection().unwrap())
            .unwrap();
    }

    /// A repo-server of its own that shares through this Redis.
    fn fixture(&self, change: impl FnOnce(&mut Args)) -> Fixture {
        let address = format!("127.0.0.1:{}", self.port);
        Fixture::with(|args| {
            args.redis.connection.redis = address.parse().unwrap();
            args.redis.connection.redis_password = "hush".into();
            args.redis.shared_cache_key = "of all repo-servers".into();
            change(args);
        })
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
    let (one, two) = (redis.fixture(|_| {}), redis.fixture(|_| {}));
    let request = of(&repo, "a");
    let first = one.renderer.manifests(&request).await.unwrap();
    assert!(first.ran);
    redis.wait(1).await;
    let second = two.renderer.manifests(&request).await.unwrap();
    assert!(!second.ran);
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
    let first = redis.fixture(|_| {});
    assert!(ran(&first, &of(&repo, "a")).await && ran(&first, &of(&repo, "b")).await);
    let keys = redis.wait(2).await;
    let values: Vec<Vec<u8>> = keys.iter().map(|key| redis.get(key)).collect();
    let unchanged = redis.fixture(|_| {});
    assert!(!ran(&unchanged, &of(&repo, "a")).await && !ran(&unchanged, &of(&repo, "b")).await);

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
        for path in ["a", "b"] {
            let manifests = fixture.renderer.manifests(&of(&repo, path)).await.unwrap();
            assert!(manifests.ran, "{path}");
            assert!(
                manifests.rendered.manifests[0].contains(&format!("\"name\":\"{path}\"")),
                "{path}"
            );
        }
        for (key, bad) in keys.iter().zip([first, second]) {
            while redis.get(key) == bad {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
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
        args.redis.connection.redis = format!("127.0.0.1:{}", free_port()).parse().unwrap();
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
