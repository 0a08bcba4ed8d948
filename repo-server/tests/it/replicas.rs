//! Several repo-servers behind one client, and what a repo-server does by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use argosy_api::repository::{ManifestRequest, RETRY_AFTER, ResolveRevisionRequest};
use argosy_repo_client::{Config, Error, RepoClient, Tls};

use crate::service::{Running, manifests, repository, running, running_with};
use crate::support::{PATIENCE, Repo, config_map, git};

fn client_of(servers: &[&Running]) -> RepoClient {
    let addresses: Vec<String> = servers
        .iter()
        .map(|running| running.server.address.to_string())
        .collect();
    let config = Config {
        address: addresses.join(","),
        tls: Tls::Plaintext,
        timeout: PATIENCE,
        ..Config::default()
    };
    RepoClient::new(config).unwrap()
}

async fn rendered_by(running: &Running) -> f64 {
    running.counter("argosy_renders_total", "").await
}

fn app(repo: &Repo, name: &str) -> ManifestRequest {
    ManifestRequest {
        app_name: name.into(),
        ..manifests(repo, "app")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_stays_with_one_replica_until_it_takes_too_much_of_the_calls() {
    let (one, two) = (running(true).await, running(true).await);
    let client = client_of(&[&one, &two]);
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    for nth in 0..20 {
        client
            .generate_manifest(app(&repo, &format!("app-{nth}")))
            .await
            .unwrap();
    }
    let mut shares = [rendered_by(&one).await, rendered_by(&two).await];
    shares.sort_by(f64::total_cmp);
    assert_eq!(shares, [0.0, 20.0]);
    // Now it is known to take all of the calls.
    for nth in 0..200 {
        client
            .generate_manifest(app(&repo, &format!("app-{nth}")))
            .await
            .unwrap();
    }
    let shares = [rendered_by(&one).await, rendered_by(&two).await];
    assert!(shares.iter().all(|share| *share > 40.0), "{shares:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_for_the_same_share_one_render_of_all_replicas() {
    let (one, two) = (running(true).await, running(true).await);
    let client = client_of(&[&one, &two]);
    let chart = "{{- range until 20000 }}{{ $x := . | toString | sha256sum }}{{ end }}apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let repo = Repo::with(&[
        ("app/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        ("app/templates/a.yaml", chart),
    ]);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let (client, request) = (client.clone(), app(&repo, "same"));
        callers.spawn(async move { client.generate_manifest(request).await });
    }
    while let Some(answer) = callers.join_next().await {
        assert_eq!(answer.unwrap().unwrap().manifests.len(), 1);
    }
    assert_eq!(rendered_by(&one).await + rendered_by(&two).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_gone_costs_no_call() {
    let (one, two) = (running(true).await, running(true).await);
    let client = client_of(&[&one, &two]);
    let repos: Vec<Repo> = (0..6)
        .map(|_| Repo::with(&[("app/a.yaml", &config_map("a", "1"))]))
        .collect();
    for repo in &repos {
        client.generate_manifest(app(repo, "before")).await.unwrap();
    }
    one.stop();
    // Its address still stands in the list: it is left out, and asked again after a while.
    for round in 0..5 {
        for repo in &repos {
            client
                .generate_manifest(app(repo, &format!("after-{round}")))
                .await
                .unwrap();
        }
    }
    two.stop();
    // It answers what is under way, and then nobody.
    let started = Instant::now();
    loop {
        match client.generate_manifest(app(&repos[0], "nobody")).await {
            Err(Error::Connect { .. }) => break,
            other => assert!(started.elapsed() < PATIENCE, "both are stopped: {other:?}"),
        }
    }
}

/// A repo-server that has too much to do for whatever it is asked, and says when to come back.
#[derive(Clone)]
struct Busy {
    asked: Arc<AtomicUsize>,
}

impl tonic::server::NamedService for Busy {
    const NAME: &'static str = "repository.RepoServerService";
}

impl<B> tower::Service<http::Request<B>> for Busy {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<B>) -> Self::Future {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut status = tonic::Status::resource_exhausted("too much to do");
        status.metadata_mut().insert(RETRY_AFTER, 20_u64.into());
        std::future::ready(Ok(status.into_http()))
    }
}

/// Starts one; gives its address.
async fn busy() -> (Busy, std::net::SocketAddr) {
    let busy = Busy {
        asked: Arc::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(busy.clone());
    tokio::spawn(server.serve_with_incoming(incoming));
    (busy, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_too_much_to_do_is_asked_again_when_it_says_and_others_meanwhile() {
    let (busy, address) = busy().await;
    let well = running(true).await;
    let client = |addresses: String| {
        RepoClient::new(Config {
            address: addresses,
            tls: Tls::Plaintext,
            ..Config::default()
        })
        .unwrap()
    };
    let both = client(format!("{address},{}", well.server.address));
    // Which repositories are its own is by chance; some are.
    let mut repos = Vec::new();
    while repos.len() < 8 || busy.asked.load(Ordering::Relaxed) == 0 {
        let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
        both.generate_manifest(app(&repo, "web")).await.unwrap();
        repos.push(repo);
    }
    let asked = busy.asked.swap(0, Ordering::Relaxed);
    assert!(asked <= repos.len(), "each call asks it once: {asked}");
    // Where there is no other, it is asked when it says, not for ever, and its word is handed on.
    let alone = client(address.to_string());
    let error = alone.generate_manifest(app(&repos[0], "web")).await.unwrap_err();
    let retry_after = Some(Duration::from_millis(20));
    assert!(
        matches!(&error, Error::Call { code: tonic::Code::ResourceExhausted, retry_after: told, .. } if *told == retry_after),
        "{error:?}"
    );
    let asked = busy.asked.load(Ordering::Relaxed);
    assert!((2..=12).contains(&asked), "within the budget of retries: {asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_are_renewed_and_what_moved_is_fetched_before_somebody_asks() {
    let running = running_with(true, |args| {
        args.revision_cache_expiration = Duration::from_secs(2)
    })
    .await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let resolve = || ResolveRevisionRequest {
        repo: repository(&repo),
        ambiguous_revision: "main".into(),
        ..ResolveRevisionRequest::default()
    };
    running.client.generate_manifest(app(&repo, "web")).await.unwrap();
    let store = std::fs::read_dir(running.dir.path().join("git"))
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path();
    let has_arrived = |commit: &str| {
        let found = std::process::Command::new("git")
            .args(["cat-file", "-e", commit])
            .env("GIT_DIR", &store)
            .stderr(std::process::Stdio::null())
            .status();
        found.unwrap().success()
    };
    // Nobody asks; the commit arrives in the store all the same. A repository is let go of six seconds after it was asked for, which
    // on a busy machine may be before there is a commit: then somebody asks once more, and another one is to arrive.
    let started = Instant::now();
    let mut nth = 0;
    let commit = loop {
        running.client.resolve_revision(resolve()).await.unwrap();
        let asked = Instant::now();
        nth += 1;
        let commit = repo.commit(&[("app/a.yaml", &config_map("b", &nth.to_string()))]);
        while !has_arrived(&commit) && asked.elapsed() < Duration::from_secs(12) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if has_arrived(&commit) {
            break commit;
        }
        assert!(started.elapsed() < PATIENCE, "it is not fetched");
    };
    assert_eq!(
        running.client.resolve_revision(resolve()).await.unwrap().revision,
        commit
    );

    // A repository that nobody asks for any more is left alone.
    let asked = || running.counter("argocd_git_request_total", "ls-remote");
    let quiet = async {
        loop {
            let before = asked().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            if asked().await == before {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, quiet).await.expect("it is let go");
    assert_eq!(git(repo.path(), &["rev-parse", "HEAD"]), commit);
}
