//! What the tests share: a control plane, objects in it, and a server. No repo-server and no controller: what needs
//! them says so.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use argosy_api::services::session::SessionCreateRequest;
use argosy_api::services::session::session_service_client::SessionServiceClient;
use argosy_runtime::tasks::Tasks;
use argosy_server::Args;
use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::{Binaries, Cluster};
use clap::Parser;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

pub(crate) const ADMIN_PASSWORD: &str = "correct-horse-1";
/// bcrypt of [`ADMIN_PASSWORD`], made by another implementation than ours.
const ADMIN_HASH: &str = "$2b$04$FjMOwzMjZSk/YnN8FQ7wSuv4NsV0umSudwzN1ZTO/QDziFfVytHEq";
/// In every credential that the control plane holds; nothing that leaves may hold it.
pub(crate) const CANARY: &str = "canary-58d1c0";
/// The longest wait for anything that should happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

const NAMESPACE: &str = "argocd";
/// There is neither a controller nor a repo-server.
const ALONE: [&str; 3] = [
    "--controller=127.0.0.1:1",
    "--repo-server=127.0.0.1:1",
    "--repo-server-timeout-seconds=2",
];

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// Runs a test on the runtime that all tests share.
pub(crate) fn run(test: impl Future<Output = ()>) {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    // Frames of debug builds are several times those of releases.
    let new = || {
        tokio::runtime::Builder::new_multi_thread()
            .thread_stack_size(8 << 20)
            .enable_all()
            .build()
            .unwrap()
    };
    RUNTIME.get_or_init(new).block_on(test);
}

/// The server of a control plane.
pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    tasks: Tasks,
}

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("server-it");
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch).unwrap();
        Cluster::start_in(Binaries::locate().unwrap(), &scratch).unwrap()
    })
}

/// The world that tests share. What they write is their own: names begin with the test's.
pub(crate) async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_init(|| start(NAMESPACE, &["--insecure"])).await
}

/// A world in a namespace of its own.
pub(crate) async fn start(namespace: &str, more: &[&str]) -> World {
    let kubeconfig = cluster().kubeconfig();
    let api = Api::connect(&kubeconfig).await.unwrap();
    start_on(api, &kubeconfig, namespace, &[&ALONE[..], more].concat()).await
}

/// A world on another control plane than that of the other tests.
pub(crate) async fn start_on(api: Api, kubeconfig: &Path, namespace: &str, more: &[&str]) -> World {
    for crd in argosy_api::crds() {
        api.apply(kinds::CRD, &crd).await.unwrap();
    }
    apply(
        &api,
        kinds::NAMESPACE,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
    )
    .await;
    for (kind, object) in objects(namespace) {
        apply(&api, kind, object).await;
    }
    serve(api, kubeconfig, namespace, more).await
}

/// Two servers that start at the same time in a namespace where there is nothing yet.
pub(crate) async fn start_bare(namespace: &str) -> [World; 2] {
    let api = Api::connect(&cluster().kubeconfig()).await.unwrap();
    for crd in argosy_api::crds() {
        api.apply(kinds::CRD, &crd).await.unwrap();
    }
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    apply(&api, kinds::NAMESPACE, object).await;
    // The kinds are served as soon as one of them can be made.
    apply(&api, kinds::PROJECT, project(namespace, "other", json!([])).1).await;
    let (kubeconfig, args) = (cluster().kubeconfig(), [&ALONE[..], &["--insecure"]].concat());
    let (one, two) = tokio::join!(
        serve(api.clone(), &kubeconfig, namespace, &args),
        serve(api.clone(), &kubeconfig, namespace, &args)
    );
    [one, two]
}

async fn serve(api: Api, kubeconfig: &Path, namespace: &str, more: &[&str]) -> World {
    let mut args = vec![
        "server".to_owned(),
        format!("--namespace={namespace}"),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--address=127.0.0.1".to_owned(),
        "--port=0".to_owned(),
        "--metrics-address=127.0.0.1:0".to_owned(),
    ];
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    let args = Command::try_parse_from(args).unwrap().args;
    let tasks = Tasks::new();
    let server = argosy_server::start(args, &tasks).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", server.address))
        .unwrap()
        .connect_lazy();
    World {
        api,
        address: server.address,
        channel,
        tasks,
    }
}

/// CRDs take a moment to be served.
async fn apply(api: &Api, kind: Kind, object: Value) {
    let started = std::time::Instant::now();
    while let Err(error) = api.apply(kind, &object).await {
        assert!(started.elapsed() < PATIENCE, "{error:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn app(namespace: &str, name: &str, project: &str) -> (Kind, Value) {
    let object = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name, "namespace": namespace, "labels": {"team": project}},
        "spec": {"project": project, "source": {"repoURL": "https://git.example.com/app", "path": "deploy"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "default"}}});
    (kinds::APPLICATION, object)
}

fn project(namespace: &str, name: &str, roles: Value) -> (Kind, Value) {
    let object = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
            "clusterResourceWhitelist": [{"group": "*", "kind": "*"}], "roles": roles}});
    (kinds::PROJECT, object)
}

fn secret(namespace: &str, name: &str, kind: &str, data: Value) -> (Kind, Value) {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "stringData": data,
        "metadata": {"name": name, "namespace": namespace, "labels": {"argocd.argoproj.io/secret-type": kind}}});
    (kinds::SECRET, object)
}

fn config_map(namespace: &str, name: &str, data: Value) -> (Kind, Value) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "argocd"}}});
    (kinds::CONFIG_MAP, object)
}

fn objects(namespace: &str) -> Vec<(Kind, Value)> {
    let cluster_config = json!({"bearerToken": CANARY, "tlsClientConfig": {"insecure": true},
        "execProviderConfig": {"command": "aws", "args": [CANARY], "env": {"TOKEN": CANARY}}});
    let policy = "p, role:shop-dev, applications, *, shop/*, allow\n\
        p, role:shop-dev, projects, get, shop, allow\n\
        p, role:getter, applications, get, */*, allow\n\
        p, role:syncer, applications, get, shop/*, allow\n\
        p, role:syncer, applications, sync, shop/*, allow\n\
        g, dev, role:shop-dev\n\
        g, reader, role:readonly\n\
        g, getter, role:getter\n\
        g, syncer, role:syncer\n";
    let accounts = [
        "dev", "reader", "getter", "syncer", "nobody", "disabled", "former",
    ];
    let mut settings =
        json!({"accounts.login": "login", "accounts.disabled.enabled": "false", "admin.enabled": "true"});
    for account in accounts {
        settings[format!("accounts.{account}")] = "apiKey".into();
    }
    settings["accounts.human"] = "login, apiKey".into();
    vec![
        config_map(namespace, "argocd-cm", settings),
        config_map(namespace, "argocd-rbac-cm", json!({"policy.csv": policy})),
        config_map(
            namespace,
            "argocd-notifications-cm",
            json!({"trigger.on-sync": "x", "service.slack": CANARY}),
        ),
        (
            kinds::SECRET,
            json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "argocd-secret", "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "argocd"}},
            "stringData": {"admin.password": ADMIN_HASH, "admin.passwordMtime": "2026-01-01T00:00:00Z",
                "accounts.human.password": ADMIN_HASH}}),
        ),
        project(
            namespace,
            "shop",
            json!([{"name": "ci", "policies": [
            "p, proj:shop:ci, applications, get, shop/*, allow",
            "p, proj:shop:ci, applications, sync, shop/*, allow"]}]),
        ),
        project(namespace, "other", json!([])),
        app(namespace, "web", "shop"),
        app(namespace, "api", "other"),
        secret(
            namespace,
            "repo-1",
            "repository",
            json!({"url": "https://git.example.com/app", "username": "u",
            "password": CANARY, "sshPrivateKey": CANARY, "project": ""}),
        ),
        secret(
            namespace,
            "repo-2",
            "repository",
            json!({"url": "https://git.example.com/shop", "password": CANARY,
            "project": "shop"}),
        ),
        secret(
            namespace,
            "creds-1",
            "repo-creds",
            json!({"url": "https://git.example.com/", "password": CANARY,
            "githubAppPrivateKey": CANARY}),
        ),
        secret(
            namespace,
            "cluster-1",
            "cluster",
            json!({"name": "far", "server": "https://far.example.com:6443",
            "config": cluster_config.to_string()}),
        ),
    ]
}

/// A session of a local account.
pub(crate) async fn log_in(channel: &Channel, name: &str, password: &str) -> Result<String, Status> {
    let request = SessionCreateRequest {
        username: name.to_owned(),
        password: password.to_owned(),
        token: String::new(),
    };
    let answer = SessionServiceClient::new(channel.clone()).create(request).await?;
    Ok(answer.into_inner().token)
}

impl World {
    /// A session of `admin`. Tests come by theirs one after the other: logins of one account at the same time share a budget of
    /// failures until they have succeeded.
    pub(crate) async fn admin(&self) -> String {
        static TURN: Mutex<()> = Mutex::const_new(());
        let _turn = TURN.lock().await;
        log_in(&self.channel, "admin", ADMIN_PASSWORD).await.unwrap()
    }

    /// Stops the server, as a signal does.
    pub(crate) fn stop(&self) {
        self.tasks.stop();
    }

    /// Adds lines to the policy of a world in this namespace, and waits until they count: when `who` may do what the last one
    /// allows.
    pub(crate) async fn allow(&self, namespace: &str, who: &str, lines: &[&str]) {
        let stored = self.api.get(kinds::CONFIG_MAP, namespace, "argocd-rbac-cm").await;
        let stored = stored.unwrap().unwrap();
        let before = stored["data"]["policy.csv"].as_str().unwrap_or_default();
        let policy = format!("{before}\n{}\n", lines.join("\n"));
        let patch = json!({"data": {"policy.csv": policy}});
        self.api
            .merge_patch(kinds::CONFIG_MAP, namespace, "argocd-rbac-cm", &patch)
            .await
            .unwrap();
        let fields: Vec<&str> = lines.last().unwrap().split(',').map(str::trim).collect();
        let (resource, action, object) = (fields[2], fields[3], fields[4].replace('*', "x"));
        let answer = if fields[5] == "allow" { "yes" } else { "no" };
        let path = format!("/api/v1/account/can-i/{resource}/{action}/{object}");
        let started = std::time::Instant::now();
        while !self.http("GET", &path, who, None).await.1.contains(answer) {
            assert!(
                started.elapsed() < PATIENCE,
                "the policy does not count: {lines:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A token for an account.
    pub(crate) async fn token(&self, account: &str) -> String {
        use argosy_api::services::account::CreateTokenRequest;
        use argosy_api::services::account::account_service_client::AccountServiceClient;
        let admin = self.admin().await;
        let request = CreateTokenRequest {
            name: account.to_owned(),
            ..CreateTokenRequest::default()
        };
        let mut client = AccountServiceClient::new(self.channel.clone());
        client
            .create_token(with(&admin, request))
            .await
            .unwrap()
            .into_inner()
            .token
    }

    /// A token for a role of a project.
    pub(crate) async fn project_token(&self, project: &str, role: &str) -> String {
        use argosy_api::services::project::ProjectTokenCreateRequest;
        use argosy_api::services::project::project_service_client::ProjectServiceClient;
        let admin = self.admin().await;
        let request = ProjectTokenCreateRequest {
            project: project.to_owned(),
            role: role.to_owned(),
            ..ProjectTokenCreateRequest::default()
        };
        let mut client = ProjectServiceClient::new(self.channel.clone());
        client
            .create_token(with(&admin, request))
            .await
            .unwrap()
            .into_inner()
            .token
    }

    /// The same; of a stream no more than what it begins with.
    pub(crate) async fn http_head(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> (u16, String) {
        let mut answer = self.send(method, path, token, body).await;
        let status = answer.status().as_u16();
        let first = tokio::time::timeout(Duration::from_millis(300), answer.chunk()).await;
        let first = first.ok().and_then(Result::ok).flatten().unwrap_or_default();
        (status, String::from_utf8_lossy(&first).into_owned())
    }

    /// An HTTP request; status and body.
    pub(crate) async fn http(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> (u16, String) {
        let answer = self.send(method, path, token, body).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// A stream of JSON, value by value.
    pub(crate) async fn watch(&self, path: &str, token: &str) -> Watch {
        Watch {
            answer: self.send("GET", path, token, None).await,
            rest: Vec::new(),
        }
    }

    async fn send(&self, method: &str, path: &str, token: &str, body: Option<Value>) -> reqwest::Response {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let method = method.parse().unwrap();
        let mut request = client.request(method, format!("http://{}{path}", self.address));
        if !token.is_empty() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if let Some(body) = body {
            request = request.json(&body);
        } else {
            request = request.header("Content-Type", "application/json");
        }
        request.send().await.unwrap()
    }
}

/// A stream that goes on.
pub(crate) struct Watch {
    answer: reqwest::Response,
    rest: Vec<u8>,
}

impl Watch {
    /// The next value.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let chunk = tokio::time::timeout(PATIENCE, self.answer.chunk()).await;
            let chunk = chunk.expect("the stream goes on").unwrap();
            self.rest.extend(chunk.expect("the stream has not ended"));
        }
    }
}

/// A request with a token.
pub(crate) fn with<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}
