//! Repositories, servers and programs for the tests: all real, all made by the test.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Long enough for a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Runs git in a directory, as a person with a name.
pub(crate) fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(dir)
        .env_remove("GIT_DIR")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with a working tree.
pub(crate) struct Repo {
    pub(crate) dir: tempfile::TempDir,
}

impl Repo {
    pub(crate) fn new() -> Repo {
        let repo = Repo {
            dir: tempfile::tempdir().unwrap(),
        };
        git(repo.path(), &["init", "--quiet", "--initial-branch=main"]);
        repo
    }

    /// A repository with one commit.
    pub(crate) fn with(files: &[(&str, &str)]) -> Repo {
        let repo = Repo::new();
        repo.commit(files);
        repo
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    /// Writes files and commits everything; gives the SHA.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> String {
        for (path, text) in files {
            let path = self.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        git(self.path(), &["add", "--all"]);
        git(
            self.path(),
            &["commit", "--quiet", "--allow-empty", "--message", "change"],
        );
        git(self.path(), &["rev-parse", "HEAD"])
    }
}

pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {value}\n")
}

/// The render worker, built once from its source.
pub(crate) fn render_worker() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("ARGOSY_RENDER_WORKER") {
                return path.into();
            }
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let output = root.join("../target/tools/argosy-render-worker");
            let status = Command::new("go")
                .args(["build", "-trimpath", "-o"])
                .arg(&output)
                .arg("./cmd/argosy-render-worker")
                .current_dir(root.join("render-worker"))
                .status()
                .expect("the tests need Go to build the render worker, or ARGOSY_RENDER_WORKER");
            assert!(status.success(), "building the render worker failed");
            output
        })
        .clone()
}

/// A request as the servers of the tests see it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// User and password of basic authentication.
    pub(crate) fn basic(&self) -> Option<String> {
        use base64::Engine as _;
        let encoded = self.headers.get("authorization")?.strip_prefix("Basic ")?;
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).ok()?).ok()
    }
}

/// Status, headers, body.
pub(crate) type Answer = (u16, Vec<(String, String)>, Vec<u8>);

pub(crate) fn answer(status: u16, body: impl Into<Vec<u8>>) -> Answer {
    (status, Vec::new(), body.into())
}

/// An HTTP server that remembers what it was asked.
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
}

impl Http {
    pub(crate) async fn start(
        tls: Option<Arc<rustls::ServerConfig>>,
        handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Http {
        Http::start_at("127.0.0.1:0", tls, handler).await
    }

    pub(crate) async fn start_at(
        address: &str,
        tls: Option<Arc<rustls::ServerConfig>>,
        handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Http {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (log, handler) = (seen.clone(), Arc::new(handler));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, handler, tls) = (log.clone(), handler.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, log, handler).await,
                        Some(tls) => match tokio_rustls::TlsAcceptor::from(tls).accept(stream).await {
                            Ok(stream) => serve(stream, log, handler).await,
                            Err(error) => Err(error),
                        },
                    }
                });
            }
        });
        Http { address, seen }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    log: Arc<Mutex<Vec<Seen>>>,
    handler: Arc<dyn Fn(&Seen) -> Answer + Send + Sync>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let method = first.next().unwrap_or_default().to_owned();
    let target = first.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    if headers.get("expect").is_some_and(|value| value == "100-continue") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let mut body = Vec::new();
    if headers
        .get("transfer-encoding")
        .is_some_and(|value| value == "chunked")
    {
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(stream.read_u8().await?);
            }
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).await?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else if let Some(length) = headers.get("content-length").and_then(|value| value.parse().ok()) {
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
    }
    let seen = Seen {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body,
    };
    log.lock().unwrap().push(seen.clone());
    let (status, headers, body) = tokio::task::spawn_blocking(move || handler(&seen)).await.unwrap();
    let mut text = format!(
        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

/// Answers as `git http-backend` does for the repositories below a directory.
pub(crate) fn http_backend(root: &Path, seen: &Seen) -> Answer {
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("PATH_INFO", &seen.path)
        .env("QUERY_STRING", &seen.query)
        .env("REQUEST_METHOD", &seen.method)
        .env(
            "CONTENT_TYPE",
            seen.headers.get("content-type").map_or("", String::as_str),
        )
        .env("CONTENT_LENGTH", seen.body.len().to_string())
        .env(
            "HTTP_CONTENT_ENCODING",
            seen.headers.get("content-encoding").map_or("", String::as_str),
        )
        .env(
            "GIT_PROTOCOL",
            seen.headers.get("git-protocol").map_or("", String::as_str),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = seen.body.clone();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&body);
    });
    let output = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap();
    let end = output
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let mut status = 200;
    let mut headers = Vec::new();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if name.eq_ignore_ascii_case("status") {
            status = value.trim().split(' ').next().unwrap().parse().unwrap();
        } else {
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }
    (status, headers, output[end + 4..].to_vec())
}

fn issue(
    issuer: &rcgen::Issuer<'static, rcgen::KeyPair>,
    name: &str,
    usage: rcgen::ExtendedKeyUsagePurpose,
) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

/// An authority of the test, with certificates for a server called `localhost` and for one client.
pub(crate) struct Authority {
    pub(crate) ca: String,
    server: (String, String),
    pub(crate) client: (String, String),
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        use rcgen::{
            BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
        };
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of the test");
        let ca = params.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(params, ca_key);
        Authority {
            server: issue(&issuer, "localhost", ExtendedKeyUsagePurpose::ServerAuth),
            client: issue(&issuer, "argosy", ExtendedKeyUsagePurpose::ClientAuth),
            issuer,
            ca,
        }
    }

    /// A certificate and key for a client of a name.
    pub(crate) fn issue_client(&self, name: &str) -> (String, String) {
        issue(&self.issuer, name, rcgen::ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Certificate and key of a server called `localhost`.
    pub(crate) fn server(&self) -> (String, String) {
        self.server.clone()
    }

    pub(crate) fn server_config(&self, ask_client: bool) -> Arc<rustls::ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let certificates = |pem: &str| {
            rustls_pemfile::certs(&mut pem.as_bytes())
                .collect::<Result<Vec<_>, _>>()
                .unwrap()
        };
        let builder = if ask_client {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(certificates(&self.ca).remove(0)).unwrap();
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = rustls_pemfile::private_key(&mut self.server.1.as_bytes())
            .unwrap()
            .unwrap();
        Arc::new(
            builder
                .with_single_cert(certificates(&self.server.0), key)
                .unwrap(),
        )
    }
}

/// Packs a chart as `helm package` does.
pub(crate) fn pack(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}
