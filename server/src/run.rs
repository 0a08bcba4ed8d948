//! The process: connect, follow the control plane, make what is missing, serve.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwapOption;
use argosy_api::services::account::account_service_server::AccountServiceServer;
use argosy_api::services::application::application_service_server::ApplicationServiceServer;
use argosy_api::services::applicationset::application_set_service_server::ApplicationSetServiceServer;
use argosy_api::services::certificate::certificate_service_server::CertificateServiceServer;
use argosy_api::services::cluster::cluster_service_server::ClusterServiceServer;
use argosy_api::services::cluster::settings_service_server::SettingsServiceServer;
use argosy_api::services::gpgkey::gpg_key_service_server::GpgKeyServiceServer;
use argosy_api::services::notification::notification_service_server::NotificationServiceServer;
use argosy_api::services::project::project_service_server::ProjectServiceServer;
use argosy_api::services::repocreds::repo_creds_service_server::RepoCredsServiceServer;
use argosy_api::services::repository::repository_service_server::RepositoryServiceServer;
use argosy_api::services::session::session_service_server::SessionServiceServer;
use argosy_api::services::version::version_service_server::VersionServiceServer;
use argosy_kube_io::{ClusterAuth, Target, client, endpoints};
use argosy_peers::{Component, Mutual};
use argosy_peers_keeper::Keeper;
use argosy_redis::entries::Entries;
use argosy_repo_client::RepoClient;
use argosy_runtime::clock::{Clock, System};
use argosy_runtime::tasks::Tasks;
use argosy_runtime::{log, metrics as port};
use tokio::net::TcpListener;
use tonic::server::NamedService;
use tonic::service::Routes;

use crate::args::{Args, ENV_PREFIX, METRICS_PORT};
use crate::auth::limiter::{Limiter, Limits};
use crate::auth::password::Passwords;
use crate::auth::{Authenticator, session};
use crate::gate::Gate;
use crate::listener::{self, Front};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::rest::Rest;
use crate::service::{Api, ConnectionStates, Options};
use crate::state::ControlPlane;
use crate::state::write::Change;
use crate::targets::Targets;
use crate::web::Web;
use crate::webhook::Webhooks;
use crate::{reflection, state, tls};

/// Files that people send along are held whole, of so many requests at the same time.
const UPLOADS_MAX: usize = 4;
/// Refused logins that are let wait for their answer.
const REFUSALS_MAX: usize = 10_000;
/// Requests may go on for so long after a signal.
const GRACE: Duration = Duration::from_secs(10);
/// The Secret that tells the first password.
const INITIAL_PASSWORD: &str = "argocd-initial-admin-secret";
/// What that password is made of.
const PASSWORD_CHARS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-";
const PASSWORD_LEN: usize = 16;

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    /// Of gRPC, gRPC-web and REST.
    pub address: SocketAddr,
    /// Of metrics and health.
    pub metrics_address: SocketAddr,
}

/// Runs the server until it is told to stop.
///
/// # Errors
/// When it cannot start, or something without which it is of no use ended.
pub async fn run(args: Args) -> anyhow::Result<()> {
    // A second start in one process (tests) keeps the first one's logs.
    if let Err(error @ log::Error::Filter { .. }) = log::init(&args.log, ENV_PREFIX) {
        return Err(error.into());
    }
    let tasks = Tasks::new();
    let server = start(args, &tasks).await?;
    tracing::info!(address = %server.address, "argosy server is listening");
    tasks.run_until_stopped(GRACE).await?;
    Ok(())
}

/// Starts the server as tasks.
///
/// # Errors
/// When the control plane cannot be reached, or a port or certificate cannot be had.
pub async fn start(args: Args, tasks: &Tasks) -> anyhow::Result<Server> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let auth = ClusterAuth::infer(args.kubeconfig.as_deref(), args.context.as_deref())
        .await
        .context("find the control plane's API server")?;
    let namespace = args
        .namespace
        .clone()
        .unwrap_or_else(|| auth.namespace().to_owned());
    let control_plane = argosy_kube_io::connect(auth.clone(), client::Options::default())
        .await
        .context("connect to the control plane's API server")?;
    let plane = ControlPlane::start(
        tasks,
        &control_plane,
        auth,
        &namespace,
        args.application_namespaces.clone(),
    );
    plane.listed().await;
    if args.disable_auth {
        tracing::warn!("nobody is asked who they are (--disable-auth): everybody is an administrator");
    }
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let passwords = Passwords::new(cores).context("prepare the comparison of passwords")?;
    first_start(&plane, &passwords)
        .await
        .context("make what a first start makes")?;

    let clock: Arc<dyn Clock> = Arc::new(System);
    let auth = Arc::new(Authenticator::new(
        plane.clone(),
        clock.clone(),
        args.disable_auth,
    ));
    let live = match args.mutual_tls {
        Mutual::Off => Arc::default(),
        _ => {
            let target = Target::new(control_plane.clone());
            Keeper::new(target, &namespace, Component::Server)
                .start(tasks)
                .await
        }
    };
    let mut repo = args.repo_server().config(tasks, &live)?;
    if args.repo_server_endpoints {
        repo.told = Some(endpoints::ready_replicas(
            tasks,
            &control_plane,
            &args.repo_server,
            &namespace,
        )?);
    }
    let mut registry = port::registry();
    let metrics = Metrics::new(&mut registry);
    let api = Arc::new(Api {
        gate: Arc::new(Gate::new(plane.clone(), args.disable_auth)),
        auth: auth.clone(),
        passwords,
        limiter: Limiter::new(plane.clone(), Limits::from_env()),
        logins: tokio::sync::Semaphore::new(args.max_concurrent_logins.max(1)),
        refusals: tokio::sync::Semaphore::new(REFUSALS_MAX),
        uploads: tokio::sync::Semaphore::new(UPLOADS_MAX),
        repo: RepoClient::new(repo).context("configure the repo-server client")?,
        connections: ConnectionStates::default(),
        live: Live::new(
            plane.clone(),
            &args.controller,
            &args.controller_tls(&live),
            Entries::new(&args.redis)?,
        )
        .map(Arc::new)
        .context("configure the way to the controllers (--controller)")?,
        targets: Targets::new(args.allow_exec_credentials),
        options: Options {
            replace_allowed: args.sync_with_replace_allowed,
            auth_disabled: args.disable_auth,
        },
        clock,
        plane: plane.clone(),
    });

    let config = Arc::new(ArcSwapOption::empty());
    if !args.insecure {
        tls::ensure(&plane).await?;
        let (certificate, key) = tls::pair(&plane).context("find the server's certificate")?;
        config.store(Some(tls::config(&certificate, &key)?));
        follow_certificate(tasks, &plane, &config);
    }
    let front = Arc::new(Front {
        routes: routes(&api, args.grpc_max_size << 20).await?,
        web: Web {
            rest: Rest::new(&api),
            webhooks: Webhooks::start(tasks, plane.clone(), metrics.clone()),
            plane: plane.clone(),
            auth: auth.clone(),
            content_types: args.api_content_types.clone(),
            x_frame_options: args.x_frame_options.clone(),
            content_security_policy: args.content_security_policy.clone(),
        },
        auth,
        metrics,
        tls: config,
        rootpath: args.rootpath.clone(),
    });
    let listener = TcpListener::bind((args.address, args.port))
        .await
        .context("listen for requests")?;
    let address = listener.local_addr()?;
    let serving = tasks.clone();
    tasks.spawn_finishing("listener", async move {
        listener::serve(listener, front, &serving).await;
    });
    let metrics_address = port::serve(
        tasks,
        args.metrics.socket(METRICS_PORT),
        registry,
        port::Health::default(),
    )
    .await
    .context("serve metrics")?;
    Ok(Server {
        address,
        metrics_address,
    })
}

/// Makes the key that sessions are signed with, the first password, and the project that everybody has.
async fn first_start(plane: &ControlPlane, passwords: &Passwords) -> Result<(), tonic::Status> {
    let key: String = session::random::<32>()?
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let admin = plane
        .settings()
        .accounts
        .get(state::accounts::ADMIN)
        .cloned()
        .unwrap_or_default();
    let password = match admin.enabled && admin.password_hash.is_empty() {
        true => {
            let password = first_password()?;
            let hash = passwords.hash(&password).await?;
            Some((password, hash))
        }
        false => None,
    };
    let now = argosy_runtime::clock::rfc3339(jiff::Timestamp::now());
    let mut is_ours = false;
    plane
        .change_secret(state::settings::SECRET, |secret| {
            // Another server that starts at the same time may have been first.
            let is_missing = |key: &str| secret.text(key).is_empty();
            let mut change = Change::new();
            if is_missing("server.secretkey") {
                change.insert("server.secretkey".to_owned(), Some(key.clone()));
            }
            is_ours = is_missing("admin.password");
            if let Some((_, hash)) = password.as_ref().filter(|_| is_ours) {
                change.insert("admin.password".to_owned(), Some(hash.clone()));
                change.insert("admin.passwordMtime".to_owned(), Some(now.clone()));
            }
            Ok(change)
        })
        .await?;
    if let Some((password, _)) = password.filter(|_| is_ours) {
        plane
            .change_secret(INITIAL_PASSWORD, |_| {
                Ok(Change::from([("password".to_owned(), Some(password.clone()))]))
            })
            .await?;
        tracing::info!("the first password of admin is in Secret {INITIAL_PASSWORD}");
    }
    plane.ensure_default_project().await
}

/// Every character as likely as any other.
fn first_password() -> Result<String, tonic::Status> {
    let mut password = String::new();
    while password.len() < PASSWORD_LEN {
        for byte in session::random::<32>()? {
            let fair = 256 - 256 % PASSWORD_CHARS.len();
            if usize::from(byte) < fair && password.len() < PASSWORD_LEN {
                password.push(char::from(
                    PASSWORD_CHARS[usize::from(byte) % PASSWORD_CHARS.len()],
                ));
            }
        }
    }
    Ok(password)
}

/// A certificate that changes counts for the next connection.
fn follow_certificate(
    tasks: &Tasks,
    plane: &Arc<ControlPlane>,
    config: &Arc<ArcSwapOption<rustls::ServerConfig>>,
) {
    let (plane, config) = (plane.clone(), config.clone());
    let mut changes = plane.settings_changes();
    let mut known = tls::pair(&plane);
    tasks.spawn("certificate", async move {
        while changes.changed().await.is_ok() {
            let pair = tls::pair(&plane);
            if pair == known {
                continue;
            }
            if let Some((certificate, key)) = &pair {
                match tls::config(certificate, key) {
                    Ok(read) => {
                        config.store(Some(read));
                        tracing::info!("the certificate has changed");
                    }
                    Err(error) => tracing::warn!("the new certificate does not count: {error:#}"),
                }
            }
            known = pair;
        }
    });
}

async fn routes(api: &Arc<Api>, max: usize) -> anyhow::Result<Routes> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("", tonic_health::ServingStatus::Serving)
        .await;
    let mut names = vec![name_of(&health)];
    let mut routes = Routes::new(health);
    macro_rules! add {
        ($($service:ident)*) => {$(
            let service = $service::from_arc(api.clone());
            names.push(name_of(&service));
            routes = routes.add_service(service.max_decoding_message_size(max).max_encoding_message_size(max));
        )*};
    }
    add! {
        AccountServiceServer ApplicationServiceServer ApplicationSetServiceServer CertificateServiceServer
        ClusterServiceServer SettingsServiceServer GpgKeyServiceServer NotificationServiceServer
        ProjectServiceServer RepoCredsServiceServer RepositoryServiceServer SessionServiceServer VersionServiceServer
    }
    Ok(reflection::add(routes, &names)?.prepare())
}

fn name_of<S: NamedService>(_: &S) -> &'static str {
    S::NAME
}
