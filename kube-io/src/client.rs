//! A few HTTP/2 connections to one API server, shared by all calls and watches.
//!
//! kube's default transport opens one connection per watch. Over HTTP/2 a watch is a stream instead, but an API server
//! allows 100 streams a connection, and the 101st request would wait for ever. So watches are spread over connections
//! of [`Options::watches_per_connection`] each, opened when the others are full, and ordinary calls have one of their
//! own. A server that does not speak HTTP/2 is spoken to in HTTP/1.1, where each watch has its own connection anyway.
//!
//! Death is noticed: a ping on every connection, idle or not, and TCP keep-alive below it. When no connection can be
//! made, one prober asks for all streams of this server ([`Client::wait_until_reachable`]), so that a hundred kinds do
//! not knock a hundred times.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use argosy_runtime::bounds::{self, Limit};
use argosy_runtime::dial::{Dial, Stream};
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::connect::{Connected, Connection as ConnectionInfo, HttpConnector, proxy};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceBuilder};

use crate::auth::{ClusterAuth, set_identity};
use crate::error::{self, Error, Status};
use crate::fence::{Carried, Fenced, Refused};

/// The longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection is pinged, and how long the answer may take: a dead peer is noticed within their sum.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Flow control: a list of megabytes must not wait for a round trip every 64 KiB.
pub(crate) const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
/// No answer to a call may be larger than this. The largest that we ask for is an OpenAPI document (a few MB); lists
/// are streamed and do not count.
const ANSWER_LEN_MAX: usize = 64 << 20;
/// Credentials are obtained anew at most this often, however often the server refuses them.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// The waits of the prober of an unreachable server. The last one bounds how late a recovery is noticed.
const PROBE_WAIT_MIN: Duration = Duration::from_millis(250);
const PROBE_WAIT_MAX: Duration = Duration::from_secs(4);

/// How to speak to one API server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest time from sending a call to its whole answer, unless the call says otherwise.
    pub call_timeout: Duration,
    /// Watches on one HTTP/2 connection. API servers allow 100 streams unless told otherwise.
    pub watches_per_connection: usize,
    /// What this process calls itself.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            call_timeout: Duration::from_secs(60),
            watches_per_connection: 80,
            user_agent: concat!("argosy/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// Connections to one API server under one identity. Clones share them.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    auth: ClusterAuth,
    options: Options,
    live: ArcSwap<Live>,
    renewed: tokio::sync::Mutex<Instant>,
    /// Since when no connection can be made.
    down: watch::Sender<Option<Instant>>,
}

/// One generation of connections: replaced as a whole when a client certificate ends.
struct Live {
    protocol: Protocol,
    /// The configuration with the certificate of this generation.
    config: kube::Config,
    calls: kube::Client,
    watches: Mutex<Vec<Arc<WatchConnection>>>,
    ends: Option<jiff::Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    /// Not known yet: ALPN decides.
    Probe,
    Http1,
    Http2,
}

struct WatchConnection {
    client: kube::Client,
    watches: AtomicUsize,
}

/// A place on one of the connections for watches; given back when dropped.
pub struct WatchSlot {
    connection: Arc<WatchConnection>,
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        self.connection.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request before it gets its headers. `path` begins with `/`.
#[derive(Clone)]
pub(crate) struct Call {
    /// In the words of error messages: `list apps/v1 deployments`.
    pub(crate) what: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) accept: Option<&'static str>,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    pub(crate) headers: Vec<(http::HeaderName, HeaderValue)>,
    pub(crate) fence: Option<Carried>,
    pub(crate) timeout: Duration,
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What `/version` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Version {
    /// Such as `1`.
    pub major: String,
    /// Such as `36`, on some providers `36+`.
    pub minor: String,
    /// Such as `v1.36.3`.
    pub git_version: String,
}

/// Makes the first connection and finds out which protocol the server speaks.
pub async fn connect(auth: ClusterAuth, options: Options) -> Result<Client, Error> {
    // Two providers may be compiled in; without a choice rustls panics at the first use.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();

    let live = Live::build(&auth, &options, Protocol::Probe).await?;
    let client = Client {
        inner: Arc::new(Inner {
            auth,
            options,
            live: ArcSwap::from_pointee(live),
            renewed: tokio::sync::Mutex::new(Instant::now()),
            down: watch::Sender::new(None),
        }),
    };
    let probe = client.request(&Call::get("get version", "/version"))?;
    let answer = client
        .send(
            &client.kube(),
            probe,
            client.inner.options.call_timeout,
            "get version",
        )
        .await?;
    let protocol = if answer.version() == http::Version::HTTP_2 {
        Protocol::Http2
    } else {
        Protocol::Http1
    };
    // Draining lets an HTTP/1.1 connection be used again.
    let _ = answer.into_body().collect().await;
    let live = Live::build(&client.inner.auth, &client.inner.options, protocol).await?;
    client.inner.live.store(Arc::new(live));
    Ok(client)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// The URL of the API server.
    pub fn server(&self) -> &str {
        &self.inner.auth.server
    }

    /// Where the server is and how it is spoken to.
    pub fn auth(&self) -> &ClusterAuth {
        &self.inner.auth
    }

    /// kube's client over the connection for calls, for what kube does better than we.
    pub fn kube(&self) -> kube::Client {
        self.inner.live.load().calls.clone()
    }

    /// Whether the server speaks HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.inner.live.load().protocol == Protocol::Http2
    }

    /// Connections that carry watches now.
    pub fn watch_connections(&self) -> usize {
        self.inner.live.load().watches.lock().len()
    }

    /// The version of the API server.
    pub async fn version(&self) -> Result<Version, Error> {
        let call = Call::get("get version", "/version");
        let answer = self.call(&call).await?;
        decode(&call.what, &answer.body)
    }

    /// Since when no connection can be made; `None` while all is well.
    pub fn down_since(&self) -> Option<Instant> {
        *self.inner.down.borrow()
    }

    /// Changes of [`Client::down_since`].
    pub fn reachability(&self) -> watch::Receiver<Option<Instant>> {
        self.inner.down.subscribe()
    }

    /// Returns when the server is not known to be unreachable. At the end of an outage the many callers return spread
    /// over `spread`, so that they do not all start at once.
    pub async fn wait_until_reachable(&self, spread: Duration) {
        let mut down = self.inner.down.subscribe();
        if down.borrow_and_update().is_none() {
            return;
        }
        // The sender lives in `self`, so this ends only with an answer.
        let _ = down.wait_for(Option::is_none).await;
        tokio::time::sleep(spread.mul_f64(fastrand::f64())).await;
    }

    /// Takes a place for one watch.
    pub fn watch_slot(&self) -> Result<WatchSlot, Error> {
        let live = self.inner.live.load_full();
        let mut connections = live.watches.lock();
        let limit = match live.protocol {
            Protocol::Http2 => self.inner.options.watches_per_connection.max(1),
            // One client, which opens a connection for each watch.
            Protocol::Http1 | Protocol::Probe => usize::MAX,
        };
        let free = connections
            .iter()
            .find(|connection| connection.watches.load(Ordering::Relaxed) < limit);
        let connection = match free {
            Some(connection) => connection.clone(),
            None => {
                let client = live.connection(&self.inner.auth, &self.inner.options)?;
                let connection = Arc::new(WatchConnection {
                    client,
                    watches: AtomicUsize::new(0),
                });
                connections.push(connection.clone());
                connection
            }
        };
        connection.watches.fetch_add(1, Ordering::Relaxed);
        Ok(WatchSlot { connection })
    }

    /// Sends a call and reads the whole answer. An answer with an error code is an [`Error::Api`].
    pub(crate) async fn call(&self, call: &Call) -> Result<Answer, Error> {
        let deadline = Instant::now() + call.timeout;
        self.keep_identity().await?;
        let mut renewed = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let request = self.request(call)?;
            let client = self.kube();
            let outcome = tokio::time::timeout(left, async {
                let response = self.send(&client, request, left, &call.what).await?;
                read_all(&call.what, response).await
            })
            .await
            .unwrap_or_else(|_| {
                Err(Error::Timeout {
                    call: call.what.clone(),
                    after: call.timeout,
                })
            });
            let outcome = outcome.and_then(|answer| answer.checked(&call.what));
            let refused = outcome.as_ref().is_err_and(Error::unauthorized);
            if refused && !renewed && self.renew().await? {
                renewed = true;
                continue;
            }
            return outcome;
        }
    }

    /// Sends a call whose answer is read as it comes: at most `call.timeout` to its head, then as long as it takes.
    /// With a slot it goes over a connection for watches.
    pub(crate) async fn stream(
        &self,
        call: &Call,
        slot: Option<&WatchSlot>,
    ) -> Result<(HeaderMap, BodyStream), Error> {
        self.keep_identity().await?;
        let request = self.request(call)?;
        let client = match slot {
            Some(slot) => slot.connection.client.clone(),
            None => self.kube(),
        };
        let response = self.send(&client, request, call.timeout, &call.what).await?;
        if response.status().is_success() {
            let (head, body) = response.into_parts();
            return Ok((
                head.headers,
                BodyStream {
                    call: call.what.clone(),
                    body: body.into_data_stream(),
                },
            ));
        }
        let answer = tokio::time::timeout(call.timeout, read_all(&call.what, response))
            .await
            .unwrap_or_else(|_| {
                Err(Error::Timeout {
                    call: call.what.clone(),
                    after: call.timeout,
                })
            })?;
        let error = match answer.checked(&call.what) {
            Err(error) => error,
            Ok(_) => Error::Answer {
                call: call.what.clone(),
                message: "a redirection".to_owned(),
            },
        };
        if error.unauthorized() {
            self.renew().await?;
        }
        Err(error)
    }

    fn request(&self, call: &Call) -> Result<Request<Body>, Error> {
        let mut uri = call.path.clone();
        for (index, (name, value)) in call.query.iter().enumerate() {
            uri.push(if index == 0 { '?' } else { '&' });
            uri.push_str(name);
            uri.push('=');
            encode_into(&mut uri, value);
        }
        let mut request = Request::builder().method(call.method.clone()).uri(uri);
        if let Some(accept) = call.accept {
            request = request.header(ACCEPT, accept);
        }
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        let mut request = request
            .body(Body::from(call.body.clone()))
            .map_err(|error| Error::Request {
                call: call.what.clone(),
                message: format!("build the request: {error}"),
            })?;
        for (name, value) in &call.headers {
            request.headers_mut().append(name, value.clone());
        }
        if let Some(carried) = &call.fence {
            request.extensions_mut().insert(carried.clone());
        }
        Ok(request)
    }

    /// Sends one request and waits for the head of the answer. Keeps the books on reachability.
    async fn send(
        &self,
        client: &kube::Client,
        request: Request<Body>,
        timeout: Duration,
        what: &str,
    ) -> Result<Response<Body>, Error> {
        let sent = tokio::time::timeout(timeout, client.send(request))
            .await
            .map_err(|_| Error::Timeout {
                call: what.to_owned(),
                after: timeout,
            })?;
        match sent {
            Ok(response) => {
                self.inner.down.send_if_modified(|down| down.take().is_some());
                Ok(response)
            }
            Err(error) => {
                let error = sending_failed(what, self.server(), error);
                if error.is_connect() {
                    self.went_down();
                }
                Err(error)
            }
        }
    }

    fn went_down(&self) {
        let first = self.inner.down.send_if_modified(|down| {
            let first = down.is_none();
            down.get_or_insert_with(Instant::now);
            first
        });
        if first {
            tracing::warn!(server = self.server(), "the API server cannot be reached");
            tokio::spawn(probe(Arc::downgrade(&self.inner)));
        }
    }

    /// Replaces the connections if the client certificate that they were made with ends.
    async fn keep_identity(&self) -> Result<(), Error> {
        let ends = self.inner.live.load().ends;
        if ends.is_some_and(|ends| ends < jiff::Timestamp::now() + Duration::from_secs(30)) {
            self.renew().await?;
        }
        Ok(())
    }

    /// Obtains credentials anew because the server did not accept them. Says whether there is something new to try.
    async fn renew(&self) -> Result<bool, Error> {
        let mut renewed = self.inner.renewed.lock().await;
        if renewed.elapsed() < RENEW_INTERVAL || !self.inner.auth.source.forget().await {
            return Ok(false);
        }
        *renewed = Instant::now();
        let live = self.inner.live.load_full();
        if live.ends.is_some()
            || self
                .inner
                .auth
                .source
                .identity(self.server())
                .await?
                .is_some_and(|new| new.identity.is_some())
        {
            let fresh = Live::build(&self.inner.auth, &self.inner.options, live.protocol).await?;
            self.inner.live.store(Arc::new(fresh));
        }
        tracing::info!(server = self.server(), "credentials obtained anew");
        Ok(true)
    }
}

/// Asks an unreachable server again and again, until it answers anything or nobody is interested any more.
async fn probe(inner: Weak<Inner>) {
    let mut wait = PROBE_WAIT_MIN;
    loop {
        tokio::time::sleep(wait.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
        wait = (wait * 2).min(PROBE_WAIT_MAX);
        let Some(inner) = inner.upgrade() else { return };
        let client = Client { inner };
        if client.down_since().is_none() {
            return;
        }
        let Ok(request) = client.request(&Call::get("probe", "/version")) else {
            return;
        };
        // A success clears the mark inside `send`.
        if client
            .send(&client.kube(), request, CONNECT_TIMEOUT, "probe")
            .await
            .is_ok()
        {
            tracing::info!(server = client.server(), "the API server is reachable again");
            return;
        }
    }
}

impl Live {
    async fn build(auth: &ClusterAuth, options: &Options, protocol: Protocol) -> Result<Live, Error> {
        let mut config = auth.config.clone();
        let mut ends = None;
        if let Some(obtained) = auth.source.identity(&auth.server).await?
            && let Some((cert, key)) = &obtained.identity
        {
            set_identity(&mut config.auth_info, cert.as_bytes(), key.as_bytes());
            ends = obtained.expires;
        }
        let calls = kube_client(auth, &config, options, protocol)?;
        Ok(Live {
            protocol,
            config,
            calls,
            watches: Mutex::new(Vec::new()),
            ends,
        })
    }

    fn connection(&self, auth: &ClusterAuth, options: &Options) -> Result<kube::Client, Error> {
        kube_client(auth, &self.config, options, self.protocol)
    }
}

/// A kube client over one connection (HTTP/2) or a pool of them (HTTP/1.1).
fn kube_client(
    auth: &ClusterAuth,
    config: &kube::Config,
    options: &Options,
    protocol: Protocol,
) -> Result<kube::Client, Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(10)));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(Duration::from_secs(45)));

    if let Some(dial) = &auth.dial {
        return over(auth, config, options, protocol, dialed(dial.clone()));
    }
    let Some(url) = &config.proxy_url else {
        return over(auth, config, options, protocol, tcp);
    };
    let fail = |message: String| Error::Config {
        server: auth.server.clone(),
        message,
    };
    match url.scheme_str() {
        Some("socks5") => over(
            auth,
            config,
            options,
            protocol,
            proxy::SocksV5::new(url.clone(), tcp),
        ),
        Some("https") => {
            let tls = config
                .rustls_https_connector_with_connector(tcp)
                .map_err(|error| fail(format!("prepare TLS for the proxy: {}", error::chain(&error))))?;
            over(
                auth,
                config,
                options,
                protocol,
                with_password(url, proxy::Tunnel::new(url.clone(), tls)),
            )
        }
        _ => over(
            auth,
            config,
            options,
            protocol,
            with_password(url, proxy::Tunnel::new(url.clone(), tcp)),
        ),
    }
}

/// A connector whose connections are not TCP's. They are ready for HTTP/2, as those are that TLS has agreed on.
fn dialed(
    dial: Dial,
) -> impl Service<Uri, Response = TokioIo<Dialed>, Error = std::io::Error, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static {
    tower::service_fn(move |uri: Uri| {
        let port = uri.port_u16().unwrap_or(443);
        let connecting = dial.connect(&format!("{}:{port}", uri.host().unwrap_or_default()));
        async move {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
            Ok(TokioIo::new(Dialed(stream)))
        }
    })
}

struct Dialed(Box<dyn Stream>);

impl ConnectionInfo for Dialed {
    fn connected(&self) -> Connected {
        Connected::new().negotiated_h2()
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// User and password in the proxy's URL become its `Proxy-Authorization`.
fn with_password<C>(url: &Uri, tunnel: proxy::Tunnel<C>) -> proxy::Tunnel<C> {
    use base64::Engine as _;
    let user = url
        .authority()
        .and_then(|authority| authority.as_str().rsplit_once('@'))
        .map(|(user, _)| decoded(user));
    let Some(user) = user else { return tunnel };
    let pair = base64::engine::general_purpose::STANDARD.encode(user);
    match HeaderValue::from_str(&format!("Basic {pair}")) {
        Ok(mut value) => {
            value.set_sensitive(true);
            tunnel.with_auth(value)
        }
        Err(_) => tunnel,
    }
}

fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let hex = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) = (
                bytes.get(at + 1).copied().and_then(hex),
                bytes.get(at + 2).copied().and_then(hex),
            )
        {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

fn over<C>(
    auth: &ClusterAuth,
    config: &kube::Config,
    options: &Options,
    protocol: Protocol,
    connector: C,
) -> Result<kube::Client, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: ConnectionInfo + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let fail = |what: &str, error: &dyn std::error::Error| Error::Config {
        server: auth.server.clone(),
        message: format!("{what}: {error}"),
    };
    let tls = config.rustls_client_config().map_err(|error| Error::Config {
        server: auth.server.clone(),
        message: format!("prepare TLS: {}", error::chain(&error)),
    })?;
    let builder = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    let builder = match &config.tls_server_name {
        None => builder,
        Some(name) => {
            let name = rustls::pki_types::ServerName::try_from(name.clone())
                .map_err(|error| fail("read the TLS server name", &error))?;
            builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
        }
    };
    let connector = match protocol {
        Protocol::Probe => builder.enable_all_versions().wrap_connector(connector),
        Protocol::Http1 => builder.enable_http1().wrap_connector(connector),
        Protocol::Http2 => builder.enable_http2().wrap_connector(connector),
    };
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_only(protocol == Protocol::Http2)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .build::<_, Fenced>(connector);

    let user_agent =
        HeaderValue::from_str(&options.user_agent).map_err(|error| fail("read the user agent", &error))?;
    let (source, server) = (auth.source.clone(), auth.server.clone());
    let last = tower::service_fn(move |mut request: Request<Body>| {
        let (http, source, server, user_agent) =
            (http.clone(), source.clone(), server.clone(), user_agent.clone());
        async move {
            if let Some(header) = source.header(&server).await? {
                request.headers_mut().insert(http::header::AUTHORIZATION, header);
            }
            request.headers_mut().entry(USER_AGENT).or_insert(user_agent);
            let carried = request.extensions_mut().remove::<Carried>();
            if carried.as_ref().is_some_and(|carried| !carried.passes()) {
                return Err(BoxError::from(Refused));
            }
            // It may wait for a connection yet, or for a place on one: the last look is where the body leaves.
            let (head, body) = request.into_parts();
            let (body, refused) = Fenced::new(body, carried);
            let answer = http.request(Request::from_parts(head, body)).await;
            match refused.load(Ordering::SeqCst) {
                true => Err(BoxError::from(Refused)),
                false => answer.map_err(BoxError::from),
            }
        }
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(
            tower_http::decompression::DecompressionLayer::new()
                .no_br()
                .no_deflate()
                .no_zstd()
                .gzip(auth.compression),
        )
        .layer(
            config
                .extra_headers_layer()
                .map_err(|error| fail("prepare headers", &error))?,
        )
        .service(last);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

impl Call {
    pub(crate) fn get(what: impl Into<String>, path: impl Into<String>) -> Call {
        Call {
            what: what.into(),
            method: Method::GET,
            path: path.into(),
            query: Vec::new(),
            accept: Some("application/json"),
            content_type: "application/json",
            body: Bytes::new(),
            headers: Vec::new(),
            fence: None,
            timeout: Duration::from_secs(60),
        }
    }

    /// Never compressed: for streams that must deliver each event at once.
    pub(crate) fn uncompressed(mut self) -> Call {
        self.headers
            .push((ACCEPT_ENCODING, HeaderValue::from_static("identity")));
        self
    }
}

impl Answer {
    fn checked(self, what: &str) -> Result<Answer, Error> {
        if (200..300).contains(&self.code) {
            return Ok(self);
        }
        let retry_after = self
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.trim().parse().ok())
            .map(Duration::from_secs);
        let status = Box::new(Status::read(self.code, retry_after, &self.body));
        Err(Error::Api {
            call: what.to_owned(),
            status,
        })
    }
}

/// The body of an answer, piece by piece.
pub(crate) struct BodyStream {
    call: String,
    body: http_body_util::BodyDataStream<Body>,
}

impl BodyStream {
    /// The next piece; `None` at the orderly end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        let piece = self.body.next().await?;
        Some(piece.map_err(|error| transport(&self.call, error)))
    }
}

async fn read_all(what: &str, response: Response<Body>) -> Result<Answer, Error> {
    let (head, body) = response.into_parts();
    let body = http_body_util::Limited::new(body, ANSWER_LEN_MAX)
        .collect()
        .await
        .map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                bounds::exceeded(Limit::ApiAnswer);
                return Error::Answer {
                    call: what.to_owned(),
                    message: format!("it is larger than {} MiB", ANSWER_LEN_MAX >> 20),
                };
            }
            Error::Transport {
                call: what.to_owned(),
                message: error::chain(&*error),
                source: Arc::from(error),
            }
        })?;
    Ok(Answer {
        code: head.status.as_u16(),
        headers: head.headers,
        body: body.to_bytes(),
    })
}

/// Reads a whole answer as JSON.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::Answer {
        call: what.to_owned(),
        message: error.to_string(),
    })
}

fn transport(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Transport {
        call: what.to_owned(),
        message: error::chain(&error),
        source: Arc::new(error),
    }
}

/// Sorts an error of the transport: refused by the fence, no credentials, no connection, or broken under way.
fn sending_failed(what: &str, server: &str, error: kube::Error) -> Error {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut connect = false;
    while let Some(current) = next {
        if current.is::<Refused>() {
            return Error::Fenced {
                call: what.to_owned(),
            };
        }
        if let Some(known) = current.downcast_ref::<Error>() {
            return known.clone();
        }
        if let Some(http) = current.downcast_ref::<hyper_util::client::legacy::Error>() {
            connect |= http.is_connect();
        }
        next = current.source();
    }
    // kube wraps without adding anything to say.
    let message = match &error {
        kube::Error::Service(inner) => error::chain(&**inner),
        other => error::chain(other),
    };
    let (call, source) = (what.to_owned(), Arc::new(error) as error::Cause);
    if connect {
        Error::Connect {
            call,
            server: server.to_owned(),
            message,
            source,
        }
    } else {
        Error::Transport {
            call,
            message,
            source,
        }
    }
}

/// Percent-encodes a value of a query or one segment of a path.
pub(crate) fn encode_into(out: &mut String, value: &str) {
    use fmt::Write as _;
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                out.push(char::from(byte))
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_encoded() {
        let mut out = String::new();
        encode_into(&mut out, "a=b,c in (d)/ü");
        assert_eq!(out, "a%3Db%2Cc%20in%20%28d%29%2F%C3%BC");
    }

    #[test]
    fn a_proxys_password_is_decoded() {
        assert_eq!(decoded("user:p%40ss%"), b"user:p@ss%");
    }
}
