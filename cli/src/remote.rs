//! Talking to an API server: which one, as whom. Argo CD's own configuration file is read and written, so that whoever
//! has logged in with `argocd` is logged in here.

mod way;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use argosy_object::{Value, yaml};
use argosy_peers::{Identity, Live, Material};
use argosy_repo_client::Tls;
use argosy_runtime::args::Format;
use argosy_runtime::log;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status};
use way::Way;

/// Where certificates of the system are, on one system or another.
const SYSTEM_CERTIFICATES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Flags of every command that talks to an API server.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Connection {
    /// Address of the API server [default: the current context's].
    // Positions of commands are called "server" too: an argument of the same id would take their value.
    #[arg(id = "api-server", long = "server", env = "ARGOCD_SERVER", global = true)]
    server: Option<String>,
    /// Token to speak with [default: the one of the login].
    #[arg(long, env = "ARGOCD_AUTH_TOKEN", global = true, hide_env_values = true)]
    auth_token: Option<String>,
    /// Take any certificate.
    #[arg(long, global = true)]
    insecure: bool,
    /// Speak without TLS.
    #[arg(long, global = true)]
    plaintext: bool,
    /// Speak gRPC-web, for proxies that do not carry gRPC [default: only if gRPC does not get there].
    #[arg(long, global = true)]
    grpc_web: bool,
    /// Path that the API is below; implies --grpc-web.
    #[arg(long, global = true)]
    grpc_web_root_path: Option<String>,
    /// Certificates that the server's is verified with, in PEM [default: the system's].
    #[arg(long, global = true)]
    server_crt: Option<PathBuf>,
    /// Certificate that says who we are, in PEM, for a proxy that asks for one; with --client-crt-key.
    #[arg(long, global = true)]
    client_crt: Option<PathBuf>,
    /// Its key, in PEM.
    #[arg(long, global = true)]
    client_crt_key: Option<PathBuf>,
    /// How often a connection for gRPC-web that does not come about is tried again.
    #[arg(long, global = true, default_value_t = 0, value_name = "COUNT")]
    http_retry_max: u32,
    /// NAME: VALUE of a header that goes with every call, for proxies that want one.
    #[arg(long, short = 'H', global = true, value_delimiter = ',')]
    header: Vec<String>,
    /// Configuration file.
    #[arg(long = "config", env = "ARGOCD_CONFIG", global = true)]
    config_file: Option<PathBuf>,
    /// Context of that file.
    #[arg(long, global = true)]
    argocd_context: Option<String>,
    /// Log the calls that are made to standard error, in this format.
    #[arg(long, global = true, value_enum)]
    logformat: Option<Format>,
    /// Lowest level that is logged there: calls are at debug [default: nothing is].
    #[arg(long, global = true)]
    loglevel: Option<String>,
}

/// A server and a token.
pub(crate) struct Remote {
    way: Way,
    /// The address.
    pub server: String,
    token: String,
}

impl Remote {
    /// A request with the token.
    pub(crate) fn request<T>(&self, message: T) -> Result<Request<T>> {
        let mut request = Request::new(message);
        if !self.token.is_empty() {
            let value: MetadataValue<_> = format!("Bearer {}", self.token)
                .parse()
                .context("use the token")?;
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

/// Calls a method as whoever is logged in, and takes the message out of the answer.
macro_rules! ask {
    ($remote:expr, $service:ident.$method:ident($message:expr)) => {
        $remote
            .$service()
            .$method($remote.request($message)?)
            .await
            .map_err(crate::remote::said)?
            .into_inner()
    };
}
pub(crate) use ask;

/// Messages of large fleets.
const MESSAGE_LEN_MAX: usize = 200 << 20;

macro_rules! services {
    ($($name:ident: $package:ident::$module:ident::$client:ident;)*) => {
        impl Remote {
            $(pub(crate) fn $name(&self) -> argosy_api::services::$package::$module::$client<Way> {
                argosy_api::services::$package::$module::$client::new(self.way.clone())
                    .max_decoding_message_size(MESSAGE_LEN_MAX)
            })*
        }
    };
}

services! {
    accounts: account::account_service_client::AccountServiceClient;
    applications: application::application_service_client::ApplicationServiceClient;
    application_sets: applicationset::application_set_service_client::ApplicationSetServiceClient;
    certificates: certificate::certificate_service_client::CertificateServiceClient;
    clusters: cluster::cluster_service_client::ClusterServiceClient;
    gpg_keys: gpgkey::gpg_key_service_client::GpgKeyServiceClient;
    projects: project::project_service_client::ProjectServiceClient;
    credentials: repocreds::repo_creds_service_client::RepoCredsServiceClient;
    repositories: repository::repository_service_client::RepositoryServiceClient;
    sessions: session::session_service_client::SessionServiceClient;
    versions: version::version_service_client::VersionServiceClient;
}

/// What a server answered, for people.
pub(crate) fn said(status: Status) -> anyhow::Error {
    anyhow::anyhow!("{} ({:?})", status.message(), status.code())
}

impl Connection {
    /// The server and the token that count.
    pub(crate) fn remote(&self) -> Result<Remote> {
        let file = self.file()?;
        let config = Config::read(&file)?;
        let current = config.entry(self.argocd_context.as_deref());
        let server = self
            .server
            .as_deref()
            .or_else(|| current.and_then(|entry| entry["server"].as_str()));
        let server = server.context("which server? Log in first (argosy login SERVER), or give --server")?;
        let context = self.chosen(&config, server);
        let token = self.auth_token.clone().or_else(|| {
            let user = context.and_then(|entry| entry["user"].as_str());
            user.and_then(|user| config.token(user)).map(str::to_owned)
        });
        let known = config.server(server);
        let root_path = match context {
            Some(context) => config.root_path(context),
            None => known.map_or("", root_path),
        };
        self.connect(server, known, root_path, token.unwrap_or_default())
    }

    /// The context whose token is for this server: the current one, or the one that is called as the server is. Below another
    /// path of one address is another server, which is not given it.
    fn chosen<'a>(&self, config: &'a Config, server: &str) -> Option<&'a Value> {
        let is_meant = |entry: &&Value| {
            let path = self.grpc_web_root_path.as_deref();
            entry["server"] == server
                && path.is_none_or(|path| config.root_path(entry).trim_matches('/') == path.trim_matches('/'))
        };
        let current = config.entry(self.argocd_context.as_deref());
        let named = || config.entry(Some(&self.name_of(server)));
        current.filter(is_meant).or_else(|| named().filter(is_meant))
    }

    /// The same way, of another context.
    ///
    /// # Errors
    /// When the file has no such context.
    pub(crate) fn of_context(mut self, name: &str) -> Result<Self> {
        let known = self.contexts()?;
        anyhow::ensure!(
            known.iter().any(|(_, known, _)| known == name),
            "context {name} does not exist"
        );
        self.argocd_context = Some(name.to_owned());
        Ok(self)
    }

    /// A server to log in to.
    pub(crate) fn anonymous(&self, server: &str) -> Result<Remote> {
        self.connect(server, None, "", String::new())
    }

    fn connect(&self, server: &str, known: Option<&Value>, root_path: &str, token: String) -> Result<Remote> {
        self.start_log()?;
        let is = |key: &str| known.is_some_and(|known| known[key] == true);
        let identity = self.identity(known)?;
        let tls = if self.plaintext || is("plain-text") {
            Tls::Plaintext
        } else if self.insecure || is("insecure") {
            Tls::Unverified { identity }
        } else {
            let authority = Live::of(Material {
                identity: None,
                authority: Some(self.authorities(known)?),
            })?;
            Tls::Strict { authority, identity }
        };
        let default_port = if matches!(tls, Tls::Plaintext) { 80 } else { 443 };
        let address = match server.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => server.to_owned(),
            _ => format!("{server}:{default_port}"),
        };
        let root_path = self.grpc_web_root_path.as_deref().unwrap_or(root_path);
        let headers = way::headers(&self.header)?;
        let web = way::web(&address, &tls, root_path, self.http_retry_max)?;
        let web = way::with(web, &headers);
        let way = match self.grpc_web || is("grpc-web") || !root_path.is_empty() {
            true => web,
            false => way::either(way::with(way::native(&address, &tls)?, &headers), web),
        };
        Ok(Remote {
            way: way::logged(way),
            server: server.to_owned(),
            token,
        })
    }

    /// Starts the log if one is asked for; the first connection of a process does.
    fn start_log(&self) -> Result<()> {
        if self.loglevel.is_none() && self.logformat.is_none() {
            return Ok(());
        }
        let wanted = argosy_runtime::args::Log {
            format: self.logformat,
            level: self.loglevel.clone(),
        };
        match log::init(&wanted, "ARGOCD") {
            Err(log::Error::Twice) => Ok(()),
            done => done.context("start the log (--loglevel)"),
        }
    }

    /// What we show to a server that asks who we are: as the flags say, or else the login's configuration.
    fn identity(&self, known: Option<&Value>) -> Result<Option<Arc<Live>>> {
        let file = |path: &Path| std::fs::read(path).with_context(|| format!("read {}", path.display()));
        let identity = match (&self.client_crt, &self.client_crt_key) {
            (Some(certificate), Some(key)) => Some((file(certificate)?, file(key)?)),
            (None, None) => known.map(remembered_identity).transpose()?.flatten(),
            _ => bail!("--client-crt and --client-crt-key must always be specified together"),
        };
        let live = identity.map(|identity| {
            Live::of(Material {
                identity: Some(identity),
                authority: None,
            })
        });
        live.transpose().context("use the client's certificate")
    }

    /// Who vouches for the server: as the flag says, or else the login's configuration, the environment or the system.
    fn authorities(&self, known: Option<&Value>) -> Result<Vec<u8>> {
        let remembered = known.map(|known| remembered_data(known, "certificate-authority-data"));
        if self.server_crt.is_none()
            && let Some(data) = remembered.transpose()?.flatten()
        {
            return Ok(data);
        }
        let own = self
            .server_crt
            .clone()
            .or_else(|| std::env::var_os("SSL_CERT_FILE").map(PathBuf::from));
        let system = || {
            SYSTEM_CERTIFICATES
                .iter()
                .map(PathBuf::from)
                .find(|path| path.is_file())
        };
        let path = own.or_else(system).context(
            "no certificates to verify the server with were found: give --server-crt, or --insecure to take any",
        )?;
        std::fs::read(&path).with_context(|| format!("read {}", path.display()))
    }

    /// The token that counts, for other programs.
    pub(crate) fn token(&self) -> Result<String> {
        let token = self.remote()?.token;
        if token.is_empty() {
            bail!("nobody is logged in: argosy login SERVER");
        }
        Ok(token)
    }

    /// Takes another token for the current context, if it was its own that was spoken with.
    pub(crate) fn renew(&self, token: &str) -> Result<()> {
        if self.auth_token.is_some() {
            return Ok(());
        }
        let file = self.file()?;
        let mut config = Config::read(&file)?;
        let current = config.entry(self.argocd_context.as_deref());
        let server = self
            .server
            .as_deref()
            .or_else(|| current.and_then(|entry| entry["server"].as_str()));
        let context = server.and_then(|server| self.chosen(&config, server));
        let Some(user) = context.and_then(|entry| entry["user"].as_str()) else {
            return Ok(());
        };
        let user = user.to_owned();
        config.put("users", "name", json!({"name": user, "auth-token": token}));
        config.write(&file)
    }

    /// What a login is called unless it is given a name: servers of one address may differ by path.
    pub(crate) fn name_of(&self, server: &str) -> String {
        match self
            .grpc_web_root_path
            .as_deref()
            .unwrap_or_default()
            .trim_matches('/')
        {
            "" => server.to_owned(),
            path => format!("{server}/{path}"),
        }
    }

    /// Remembers a login.
    pub(crate) fn remember(&self, server: &str, context: &str, token: &str) -> Result<()> {
        let file = self.file()?;
        let mut config = Config::read(&file)?;
        let root_path = self.grpc_web_root_path.as_deref().unwrap_or_default();
        let mut entry = json!({"server": server, "grpc-web-root-path": root_path});
        if self.grpc_web {
            entry["grpc-web"] = true.into();
        }
        if self.insecure {
            entry["insecure"] = true.into();
        }
        if self.plaintext {
            entry["plain-text"] = true.into();
        }
        config.keep_root_paths(server);
        config.put("servers", "server", entry);
        config.put("users", "name", json!({"name": context, "auth-token": token}));
        config.put(
            "contexts",
            "name",
            json!({"name": context, "server": server, "user": context, "grpc-web-root-path": root_path}),
        );
        config.0["current-context"] = context.into();
        config.write(&file)
    }

    /// Forgets the token of a context; the name of its server.
    pub(crate) fn forget(&self, context: &str) -> Result<()> {
        let file = self.file()?;
        let mut config = Config::read(&file)?;
        let user = config.context(Some(context)).map(|(_, user)| user.to_owned());
        let user = user.with_context(|| format!("context {context} does not exist in {}", file.display()))?;
        config.put("users", "name", json!({"name": user}));
        config.write(&file)
    }

    /// The contexts: current or not, name, server.
    pub(crate) fn contexts(&self) -> Result<Vec<(bool, String, String)>> {
        let config = Config::read(&self.file()?)?;
        let current = config.0["current-context"].as_str().unwrap_or_default();
        let entries = config.0["contexts"].as_array().into_iter().flatten();
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Ok(entries
            .map(|entry| {
                (
                    entry["name"] == current,
                    text(entry, "name"),
                    text(entry, "server"),
                )
            })
            .collect())
    }

    /// Makes another context the current one.
    pub(crate) fn use_context(&self, name: &str) -> Result<()> {
        let file = self.file()?;
        let mut config = Config::read(&file)?;
        if config.context(Some(name)).is_none() {
            bail!("context {name} does not exist in {}", file.display());
        }
        config.0["current-context"] = name.into();
        config.write(&file)
    }

    /// Sets whether Argo CD's program may ask, or leaves that as it is; what holds then.
    pub(crate) fn set_prompts(&self, enabled: Option<bool>) -> Result<bool> {
        let file = self.file()?;
        anyhow::ensure!(
            file.exists(),
            "No local configuration found: log in first, or give --config"
        );
        let mut config = Config::read(&file)?;
        let enabled = enabled.unwrap_or(config.0["prompts-enabled"] == true);
        config.0["prompts-enabled"] = enabled.into();
        config.write(&file)?;
        Ok(enabled)
    }

    fn file(&self) -> Result<PathBuf> {
        if let Some(file) = &self.config_file {
            return Ok(file.clone());
        }
        let dir = std::env::var_os("ARGOCD_CONFIG_DIR")
            .map(PathBuf::from)
            .or_else(|| {
                let base = std::env::var_os("XDG_CONFIG_HOME")
                    .filter(|dir| !dir.is_empty())
                    .map(PathBuf::from);
                let base =
                    base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
                base.map(|base| base.join("argocd"))
            });
        Ok(dir
            .context("where is the configuration? Set HOME, or give --config")?
            .join("config"))
    }
}

/// What the configuration file has in base64 for a server.
fn remembered_data(server: &Value, key: &str) -> Result<Option<Vec<u8>>> {
    let text = server[key].as_str().filter(|text| !text.is_empty());
    let bytes = text.map(|text| {
        STANDARD
            .decode(text)
            .with_context(|| format!("read {key} of the configuration"))
    });
    bytes.transpose()
}

/// The certificate and key that the configuration file has for a server.
fn remembered_identity(server: &Value) -> Result<Option<Identity>> {
    let certificate = remembered_data(server, "client-certificate-data")?;
    let key = remembered_data(server, "client-certificate-key-data")?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => {
            bail!("client-certificate-data and client-certificate-key-data must always be specified together")
        }
    }
}

/// Argo CD's configuration file. What is not known here stays in it.
struct Config(Value);

impl Config {
    fn read(file: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Config(json!({}))),
            other => other.with_context(|| format!("read {}", file.display()))?,
        };
        check_mode(file)?;
        let read = yaml::parse(&text, &yaml::Limits::default());
        let value = read.with_context(|| format!("read {}", file.display()))?;
        match value {
            Value::Null => Ok(Config(json!({}))),
            value if value.is_object() => Ok(Config(value)),
            _ => bail!("{}: a map is expected", file.display()),
        }
    }

    fn write(&self, file: &Path) -> Result<()> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let dir = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        // Beside and then renamed: a file that is half written would lose every login.
        let beside = file.with_extension(format!("new-{}", std::process::id()));
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside);
        let written = written.and_then(|mut open| open.write_all(yaml::to_string(&self.0).as_bytes()));
        written
            .and_then(|()| std::fs::rename(&beside, file))
            .with_context(|| format!("write {}", file.display()))
    }

    /// A context, or the current one.
    fn entry(&self, name: Option<&str>) -> Option<&Value> {
        let name = name.or_else(|| self.0["current-context"].as_str())?;
        self.0["contexts"]
            .as_array()?
            .iter()
            .find(|entry| entry["name"] == name)
    }

    /// Server and user of a context.
    fn context(&self, name: Option<&str>) -> Option<(&str, &str)> {
        let found = self.entry(name)?;
        Some((found["server"].as_str()?, found["user"].as_str()?))
    }

    /// The path that the server of a context is below. Argo CD's program keeps it with the address alone.
    fn root_path<'a>(&'a self, context: &'a Value) -> &'a str {
        let of_server = || context["server"].as_str().and_then(|server| self.server(server));
        match context["grpc-web-root-path"].as_str() {
            Some(path) => path,
            None => of_server().map_or("", root_path),
        }
    }

    /// Notes with the contexts of a server what path they are below, before the server's entry says another.
    fn keep_root_paths(&mut self, server: &str) {
        let path = self.server(server).map_or("", root_path).to_owned();
        for entry in self.0["contexts"].as_array_mut().into_iter().flatten() {
            if entry["server"] == server && entry["grpc-web-root-path"].is_null() {
                entry["grpc-web-root-path"] = path.as_str().into();
            }
        }
    }

    fn server(&self, server: &str) -> Option<&Value> {
        self.0["servers"]
            .as_array()?
            .iter()
            .find(|entry| entry["server"] == server)
    }

    fn token(&self, user: &str) -> Option<&str> {
        let found = self.0["users"]
            .as_array()?
            .iter()
            .find(|entry| entry["name"] == user)?;
        found["auth-token"].as_str()
    }

    /// Adds an entry to a list, in place of the one with the same `key`.
    fn put(&mut self, list: &str, key: &str, entry: Value) {
        if !self.0[list].is_array() {
            self.0[list] = json!([]);
        }
        if let Some(entries) = self.0[list].as_array_mut() {
            entries.retain(|known| known[key] != entry[key]);
            entries.push(entry);
        }
    }
}

/// The path that an entry of a server or a context says.
fn root_path(entry: &Value) -> &str {
    entry["grpc-web-root-path"].as_str().unwrap_or_default()
}

/// Tokens are in it: others must not read it.
fn check_mode(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(file)
        .with_context(|| format!("read {}", file.display()))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        bail!("{} can be read by others: chmod 0600 it", file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn connection(file: &Path) -> Connection {
        Connection {
            server: None,
            auth_token: None,
            insecure: true,
            plaintext: false,
            grpc_web: false,
            grpc_web_root_path: None,
            server_crt: None,
            client_crt: None,
            client_crt_key: None,
            http_retry_max: 0,
            header: Vec::new(),
            config_file: Some(file.to_owned()),
            argocd_context: None,
            logformat: None,
            loglevel: None,
        }
    }

    #[test]
    fn a_login_is_remembered_where_argo_cd_keeps_it_and_the_rest_of_the_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("argocd/config");
        let connection = connection(&file);
        connection.remember("one.example.com:443", "one", "t1").unwrap();
        connection.remember("two.example.com:443", "two", "t2").unwrap();
        let contexts = connection.contexts().unwrap();
        assert_eq!(contexts[1], (true, "two".into(), "two.example.com:443".into()));
        connection.use_context("one").unwrap();
        let config = Config::read(&file).unwrap();
        assert_eq!(config.context(None), Some(("one.example.com:443", "one")));
        assert_eq!(config.token("one"), Some("t1"));
        connection.forget("one").unwrap();
        let config = Config::read(&file).unwrap();
        assert_eq!((config.token("one"), config.token("two")), (None, Some("t2")));
        assert!(connection.use_context("three").is_err());
    }

    #[test]
    fn servers_below_two_paths_of_one_address_are_not_given_each_others_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        let host = "one.example.com:443";
        let below = |path: Option<&str>| Connection {
            server: Some(host.into()),
            grpc_web_root_path: path.map(str::to_owned),
            ..connection(&file)
        };
        // As Argo CD's program writes it.
        let config = Config(json!({
            "servers": [{"server": host, "grpc-web-root-path": "a"}],
            "users": [{"name": "old", "auth-token": "t-a"}],
            "contexts": [{"name": "old", "server": host, "user": "old"}],
            "current-context": "old",
        }));
        config.write(&file).unwrap();
        let b = below(Some("/b/"));
        b.remember(host, &b.name_of(host), "t-b").unwrap();
        let spoken = |connection: &Connection| {
            let config = Config::read(&file).unwrap();
            let entry = connection.chosen(&config, host)?;
            let token = config.token(entry["user"].as_str()?)?;
            Some((config.root_path(entry).to_owned(), token.to_owned()))
        };
        let pair = |path: &str, token: &str| Some((path.to_owned(), token.to_owned()));
        assert_eq!(spoken(&below(None)), pair("/b/", "t-b"));
        assert_eq!(spoken(&below(Some("b"))), pair("/b/", "t-b"));
        assert_eq!(spoken(&below(Some("c"))), None);
        connection(&file).use_context("old").unwrap();
        assert_eq!(spoken(&below(None)), pair("a", "t-a"));
        assert_eq!(spoken(&below(Some("a"))), pair("a", "t-a"));
        assert_eq!(spoken(&below(Some("b"))), pair("/b/", "t-b"));
        b.renew("t-b2").unwrap();
        assert_eq!(spoken(&below(None)), pair("a", "t-a"));
        assert_eq!(spoken(&b), pair("/b/", "t-b2"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, "current-context: a\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = connection(&file).contexts().unwrap_err();
        assert!(error.to_string().contains("chmod 0600"), "{error}");
    }
}
