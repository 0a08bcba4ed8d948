//! A simulated API server on a port, or on connections that are brought to it: HTTP/1.1 and HTTP/2, plain or with TLS.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::access::ADMIN_TOKEN;
use crate::api_server::{Answer, ApiServer, Options};
use crate::request::Request;
use crate::watch::Watch;

/// A kube-apiserver allows so many streams on one connection.
const STREAMS_MAX: u32 = 100;
/// The largest body of a request, as a kube-apiserver has it.
const BODY_LEN_MAX: usize = 3 << 20;
/// Answers of this length and more are compressed for whoever takes it, as a kube-apiserver does it.
const GZIP_FROM: usize = 128 << 10;
/// The longest sleep of whoever waits for the next thing to happen by itself.
const SLEEP_MAX: Duration = Duration::from_secs(30);

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP/1.1 or HTTP/2 with prior knowledge.
    Plain,
    /// TLS, with a certificate of this process's own.
    Tls,
}

/// A simulated API server that listens. It ends when this is dropped.
pub struct Cluster {
    server: Shared,
    address: SocketAddr,
    transport: Transport,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Clone)]
struct Shared {
    server: Arc<Mutex<ApiServer>>,
    work: Arc<Notify>,
    /// Bytes of answers and events that were sent.
    sent: Arc<AtomicU64>,
    now: Now,
}

impl Shared {
    fn new(server: ApiServer, now: Now) -> Self {
        Shared {
            server: Arc::new(Mutex::new(server)),
            work: Arc::new(Notify::new()),
            sent: Arc::default(),
            now,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut ApiServer) -> T) -> T {
        let result = act(&mut self.server.lock());
        self.work.notify_one();
        result
    }
}

/// Tells a server the time.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Sees each request of a connection, and decides what befalls it.
pub trait Witness: Send + Sync {
    /// A request has arrived.
    fn arrived(&self, request: &Request) -> Fate;

    /// The server has handled it just now.
    fn handled(&self, request: &Request, fate: Fate, answer: &Answer);
}

/// What befalls a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// It takes so long to get to the server.
    pub delay: Duration,
    /// It gets there at all.
    pub handled: bool,
    /// What its sender hears.
    pub reply: Reply,
}

impl Fate {
    /// Nothing out of the ordinary.
    pub const GOOD: Fate = Fate {
        delay: Duration::ZERO,
        handled: true,
        reply: Reply::Answer,
    };
}

/// What the sender of a request hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer.
    Answer,
    /// That the request was broken off.
    Broken,
    /// Nothing, ever.
    Nothing,
}

/// A simulated API server without a port: connections are brought to it, from a network that is simulated as well. It ends
/// when this is dropped.
pub struct Unbound {
    server: Shared,
    controllers: JoinHandle<()>,
}

impl Unbound {
    /// Lets the server's controllers work, in the runtime that this is called in.
    #[must_use]
    pub fn start(server: ApiServer, now: Now) -> Self {
        let server = Shared::new(server, now);
        let controllers = tokio::spawn(run_controllers(server.clone()));
        Unbound { server, controllers }
    }

    /// Serves one connection to its end.
    pub fn serve<S>(&self, stream: S, witness: Arc<dyn Witness>) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        speak(stream, self.server.clone(), Some(witness))
    }

    /// Does something with the server itself.
    pub fn with<T>(&self, act: impl FnOnce(&mut ApiServer) -> T) -> T {
        self.server.with(act)
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        self.controllers.abort();
    }
}

impl Cluster {
    /// A fresh server on a free port of loopback.
    ///
    /// # Errors
    /// When there is no port, or no certificate can be made.
    pub async fn start(options: Options, transport: Transport) -> Result<Self> {
        Self::serve(ApiServer::new(options, Timestamp::now()), transport).await
    }

    /// A server that is prepared already.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn serve(server: ApiServer, transport: Transport) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("listen on loopback")?;
        Self::serve_on(listener, server, transport)
    }

    /// A server on a listener.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn serve_on(listener: TcpListener, server: ApiServer, transport: Transport) -> Result<Self> {
        let address = listener.local_addr()?;
        let acceptor = match transport {
            Transport::Plain => None,
            Transport::Tls => Some(TlsAcceptor::from(Arc::clone(&identity()?.config))),
        };
        let server = Shared::new(server, Arc::new(Timestamp::now));
        let tasks = [
            tokio::spawn(accept(listener, acceptor, server.clone())),
            tokio::spawn(run_controllers(server.clone())),
        ];
        Ok(Self {
            server,
            address,
            transport,
            tasks,
        })
    }

    /// Such as `https://127.0.0.1:41234`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.transport == Transport::Tls {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate that verifies the server's, in PEM. The same for all servers of the process.
    ///
    /// # Errors
    /// When none can be made.
    pub fn ca_pem(&self) -> Result<&'static str> {
        Ok(&identity()?.pem)
    }

    /// A kubeconfig of the administrator.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn kubeconfig(&self) -> Result<serde_json::Value> {
        use base64::Engine as _;
        let mut cluster = serde_json::json!({"server": self.url()});
        if self.transport == Transport::Tls {
            let pem = base64::engine::general_purpose::STANDARD.encode(self.ca_pem()?);
            cluster["certificate-authority-data"] = pem.into();
        }
        Ok(serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "simulated",
            "clusters": [{"name": "simulated", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "admin"}}],
        }))
    }

    /// Bytes of answers and events sent so far, without what HTTP adds.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.server.sent.load(Ordering::Relaxed)
    }

    /// The server, as long as this lives.
    pub(crate) fn weak(&self) -> std::sync::Weak<Mutex<ApiServer>> {
        Arc::downgrade(&self.server.server)
    }

    /// Does something with the server itself: faults, changes behind the back of watches, questions.
    pub fn with<T>(&self, act: impl FnOnce(&mut ApiServer) -> T) -> T {
        self.server.with(act)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The certificate of this process.
struct Identity {
    pem: String,
    config: Arc<rustls::ServerConfig>,
}

fn identity() -> Result<&'static Identity> {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    if let Some(known) = IDENTITY.get() {
        return Ok(known);
    }
    let made = make_identity().context("make a certificate for loopback")?;
    Ok(IDENTITY.get_or_init(|| made))
}

fn make_identity() -> Result<Identity> {
    let names = ["127.0.0.1", "localhost"].map(str::to_owned).to_vec();
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Identity {
        pem: made.cert.pem(),
        config: Arc::new(config),
    })
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, server: Shared) {
    // Connections end with their server.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(connection(stream, acceptor.clone(), server.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, server: Shared) {
    // Small events must not wait for more of them.
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => speak(stream, server, None).await,
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => speak(stream, server, None).await,
            Err(error) => tracing::debug!(%error, "no TLS"),
        },
    }
}

/// HTTP over a connection, to its end.
async fn speak<S>(stream: S, server: Shared, witness: Option<Arc<dyn Witness>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(server.clone(), witness.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection has ended");
    }
}

/// Answers one request. An error breaks the connection, which is what a fault may ask for.
async fn answer(
    shared: Shared,
    witness: Option<Arc<dyn Witness>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = http_body_util::Limited::new(body, BODY_LEN_MAX).collect().await;
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let mut response = http::Response::new(full(Bytes::from(error.to_string())));
            *response.status_mut() = http::StatusCode::PAYLOAD_TOO_LARGE;
            return Ok(response);
        }
    };
    let request = http::Request::from_parts(head, body);
    let fate = witness
        .as_ref()
        .map_or(Fate::GOOD, |witness| witness.arrived(&request));
    let delay = fate.delay + shared.server.lock().delay(&request);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let (answer, work) = if fate.handled {
        let mut server = shared.server.lock();
        let now = (shared.now)();
        let answer = server.handle(&request, now);
        if let Some(witness) = &witness {
            witness.handled(&request, fate, &answer);
        }
        (answer, server.has_work(now))
    } else {
        (Answer::Broken, false)
    };
    if work {
        shared.work.notify_one();
    }
    let answer = match fate.reply {
        Reply::Answer => answer,
        Reply::Broken => Answer::Broken,
        Reply::Nothing => return std::future::pending().await,
    };
    match answer {
        Answer::Document(mut response) => {
            if response.body().len() >= GZIP_FROM && takes_gzip(request.headers()) {
                compress(&mut response)?;
            }
            shared
                .sent
                .fetch_add(response.body().len() as u64, Ordering::Relaxed);
            Ok(response.map(full))
        }
        Answer::Watch(watch) => {
            let stream = WatchStream {
                shared,
                watch,
                lines: VecDeque::new(),
                timer: None,
            };
            let mut response = http::Response::new(StreamBody::new(stream).boxed_unsync());
            response.headers_mut().insert(
                http::header::CONTENT_TYPE,
                http::HeaderValue::from_static("application/json"),
            );
            Ok(response)
        }
        Answer::Broken => Err(std::io::Error::new(
            std::io::ErrorKind::ConnectionReset,
            "a fault was asked for",
        )),
    }
}

fn takes_gzip(headers: &http::HeaderMap) -> bool {
    let accepted = headers.get(http::header::ACCEPT_ENCODING);
    accepted
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|coding| coding.trim() == "gzip"))
}

fn compress(response: &mut http::Response<Bytes>) -> std::io::Result<()> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(response.body())?;
    *response.body_mut() = encoder.finish()?.into();
    let gzip = http::HeaderValue::from_static("gzip");
    response
        .headers_mut()
        .insert(http::header::CONTENT_ENCODING, gzip);
    Ok(())
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A watch as the body of an answer.
struct WatchStream {
    shared: Shared,
    watch: Box<Watch>,
    lines: VecDeque<Bytes>,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Stream for WatchStream {
    type Item = Result<Frame<Bytes>, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if !self.lines.is_empty() {
                let data = join(std::mem::take(&mut self.lines));
                self.shared.sent.fetch_add(data.len() as u64, Ordering::Relaxed);
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let now = (self.shared.now)();
            {
                let this = &mut *self;
                let mut server = this.shared.server.lock();
                // First the waker, then the look: nothing can slip in between.
                server.wake_on_change(&this.watch, cx.waker());
                this.lines = server.next_events(&mut this.watch, now).into();
            }
            if !self.lines.is_empty() {
                continue;
            }
            if self.watch.is_over() {
                return Poll::Ready(None);
            }
            let wait = Duration::try_from(self.watch.next_due().duration_since(now)).unwrap_or_default();
            let mut timer = Box::pin(tokio::time::sleep(
                wait.clamp(Duration::from_millis(1), SLEEP_MAX),
            ));
            let over = timer.as_mut().poll(cx).is_ready();
            self.timer = Some(timer);
            if !over {
                return Poll::Pending;
            }
        }
    }
}

/// Several lines as one piece.
fn join(lines: VecDeque<Bytes>) -> Bytes {
    if lines.len() == 1 {
        return lines.into_iter().next().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(lines.iter().map(Bytes::len).sum());
    for line in lines {
        all.extend_from_slice(&line);
    }
    all.freeze()
}

/// Lets the controllers of a server work when there is something to do.
async fn run_controllers(shared: Shared) {
    loop {
        let (again, due) = {
            let mut server = shared.server.lock();
            let now = (shared.now)();
            server.advance(now);
            (server.has_work(now), server.next_due())
        };
        if again {
            // Requests get their turn between the steps.
            tokio::task::yield_now().await;
            continue;
        }
        let wait = due.map_or(SLEEP_MAX, |due| {
            Duration::try_from(due.duration_since((shared.now)()))
                .unwrap_or_default()
                .min(SLEEP_MAX)
        });
        tokio::select! {
            () = shared.work.notified() => {}
            () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
        }
    }
}
