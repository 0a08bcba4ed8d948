//! R27: far more calls than can be served, all at once.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::repository::repo_server_service_client::RepoServerServiceClient;
use argosy_api::repository::{ManifestRequest, RETRY_AFTER};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::service::{manifests, running};
use crate::support::{Repo, config_map};

/// Says that this process is to serve and nothing else.
const SERVE: &str = "ARGOSY_TEST_FLOODED";
const CALLS: usize = 10_000;
const CONNECTIONS: usize = 8;
/// Renders of one Application that may wait; far fewer than come.
const MAY_WAIT: usize = 1000;

/// Serves in a process of its own, so that what it takes is nobody else's. Each line that it is sent it answers with the most memory
/// that it has had so far.
#[tokio::test(flavor = "multi_thread")]
async fn served_alone() {
    if std::env::var_os(SERVE).is_none() {
        return;
    }
    let running = running(true).await;
    println!("\nlistening on {}", running.server.address);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {
        println!("{}", argosy_runtime::process::usage().rss_peak);
    }
}

struct Server {
    address: String,
    stdin: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Server {
    async fn start() -> Server {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "flood::served_alone", "--nocapture"])
            .env(SERVE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = said.next_line().await.unwrap().expect("it listens");
            if let Some(address) = line.strip_prefix("listening on ") {
                break address.to_owned();
            }
        };
        Server {
            address,
            stdin: process.stdin.take().unwrap(),
            said,
            _process: process,
        }
    }

    async fn memory(&mut self) -> u64 {
        self.stdin.write_all(b"?\n").await.unwrap();
        self.said.next_line().await.unwrap().unwrap().parse().unwrap()
    }

    async fn connect(&self) -> RepoServerServiceClient<Channel> {
        let address = format!("http://{}", self.address);
        RepoServerServiceClient::connect(address).await.unwrap()
    }
}

/// A call as a controller makes it: it waits for a minute.
async fn ask(
    mut client: RepoServerServiceClient<Channel>,
    request: ManifestRequest,
) -> Result<Vec<String>, Status> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(Duration::from_secs(60));
    Ok(client.generate_manifest(request).await?.into_inner().manifests)
}

fn of(app: &str, request: ManifestRequest) -> ManifestRequest {
    ManifestRequest {
        app_name: app.into(),
        ..request
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r27_of_ten_thousand_calls_at_once_those_too_many_are_refused_and_others_are_served() {
    let slow = "{{- range until 400000 }}{{ $x := . | toString | sha256sum }}{{ end }}apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slow}\n";
    let chart = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    let repo = Arc::new(Repo::with(&[
        ("slow/Chart.yaml", chart),
        ("slow/templates/a.yaml", slow),
        ("chart/Chart.yaml", chart),
        ("chart/templates/a.yaml", &config_map("chart", "1")),
        ("known/a.yaml", &config_map("known", "1")),
        ("new/a.yaml", &config_map("new", "1")),
    ]));
    let mut server = Server::start().await;
    let calm = server.connect().await;
    ask(calm.clone(), of("calm", manifests(&repo, "known")))
        .await
        .unwrap();
    ask(calm.clone(), of("calm", manifests(&repo, "chart")))
        .await
        .unwrap();
    let before = server.memory().await;

    let mut flood = tokio::task::JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(server.connect().await);
    }
    for nth in 0..CALLS {
        let mut request = of("greedy", manifests(&repo, "slow"));
        request.namespace = format!("ns-{nth}");
        flood.spawn(ask(connections[nth % CONNECTIONS].clone(), request));
    }
    // Meanwhile another asks for what is known, for what is not, and for what needs a worker: it has its turn.
    let others = tokio::spawn({
        let repo = repo.clone();
        async move {
            let mut answers = Vec::new();
            for path in ["known", "new", "chart"] {
                let mut request = of("calm", manifests(&repo, path));
                request.no_cache = path == "chart";
                answers.push(ask(calm.clone(), request).await.map(|manifests| manifests.len()));
            }
            answers
        }
    });
    let (mut refused, mut rendered) = (0, 0);
    while refused + rendered < CALLS - MAY_WAIT {
        match flood.join_next().await.unwrap().unwrap() {
            Ok(_) => rendered += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                let told = status
                    .metadata()
                    .get(RETRY_AFTER)
                    .expect("it says when to come back");
                let told: u64 = told.to_str().unwrap().parse().unwrap();
                assert!((1000..=60_000).contains(&told), "{told} ms");
                refused += 1;
            }
        }
    }
    // They did not wait for the renders: of those hardly any is done yet.
    assert!(rendered < MAY_WAIT, "{rendered} rendered, {refused} refused");
    for answer in others.await.unwrap() {
        assert_eq!(answer.unwrap(), 1);
    }
    let taken = server.memory().await - before;
    assert!(taken <= 256 << 20, "{} MiB", taken >> 20);
    println!(
        "{rendered} rendered, {refused} refused, {} MiB taken",
        taken >> 20
    );
}
