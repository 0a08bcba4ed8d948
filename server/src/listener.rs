//! One port for everything: TLS or not by the first byte, gRPC or HTTP by the content type.

mod ending;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use argosy_runtime::tasks::{Tasks, caught};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, ServiceExt as _};

use crate::auth::{Authenticator, Identity, session};
use crate::metrics::Metrics;
use crate::web::{self, Web};

/// Where clients find the token of a session that was renewed.
const RENEWED: &str = "renew-token";
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// Who has not said a word after so long is not listened to any longer.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at the same time.
const CONNECTIONS_MAX: u32 = 20_000;
/// Calls at the same time on one connection.
const STREAMS_MAX: u32 = 1_000;
/// Bytes that may lie unread of all calls of one connection. Where small messages wait that come to more than half of it, at 256 bytes
/// each, hyper takes that for an attack and ends the connection: it must do for the first message of each of [`STREAMS_MAX`] calls,
/// which a window that begins small and adapts does not.
const CONNECTION_WINDOW: u32 = 2 << 20;
/// The largest body of who is not known: names and passwords are short.
pub(crate) const STRANGERS_BODY_LEN_MAX: usize = 64 << 10;
/// A connection on which nobody has said anything for so long is tried.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// The oldest client that is served.
const CLIENT_MIN: semver::Version = semver::Version::new(1, 4, 0);

/// What is served.
pub(crate) struct Front {
    pub routes: Routes,
    pub web: Web,
    pub auth: Arc<Authenticator>,
    pub metrics: Arc<Metrics>,
    /// Nothing for plaintext.
    pub tls: Arc<ArcSwapOption<ServerConfig>>,
    pub rootpath: String,
}

/// Accepts connections until the process stops, and then waits for what is under way on them.
pub(crate) async fn serve(listener: TcpListener, front: Arc<Front>, tasks: &Tasks) {
    let stopping = tasks.stopping();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    accept(&listener, &front, &places, &stopping).await;
    drop(listener);
    // Whoever stops waits for this no longer than for its other tasks.
    let _ = places.acquire_many(CONNECTIONS_MAX).await;
}

async fn accept(
    listener: &TcpListener,
    front: &Arc<Front>,
    places: &Arc<Semaphore>,
    stopping: &CancellationToken,
) {
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = stopping.cancelled() => return,
        };
        let Ok(place) = place else { return };
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: others will be closed in a moment.
                    tracing::warn!(%error, "accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = stopping.cancelled() => return,
        };
        let (front, stopping) = (front.clone(), stopping.clone());
        tokio::spawn(async move {
            let _place = place;
            connection(stream, peer, front, stopping).await;
        });
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, front: Arc<Front>, stopping: CancellationToken) {
    // Latency matters more than the number of packets.
    let _ = stream.set_nodelay(true);
    // A client that is gone without a word is found out, or it would hold its place for ever.
    let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
    let mut first = [0];
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(GREETING_TIMEOUT, stream.peek(&mut first)) => greeted,
        () = stopping.cancelled() => return,
    };
    if !matches!(greeted, Ok(Ok(1))) {
        return;
    }
    let tls = front.tls.load_full();
    match tls {
        Some(tls) if first[0] == TLS_HANDSHAKE => {
            let accepted =
                tokio::time::timeout(GREETING_TIMEOUT, TlsAcceptor::from(tls).accept(stream)).await;
            match accepted {
                Ok(Ok(stream)) => http(stream, front, Security::Tls, stopping).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake"),
                Err(_) => tracing::debug!(%peer, "TLS handshake: it took too long"),
            }
        }
        Some(_) => http(stream, front, Security::Redirect, stopping).await,
        None => http(stream, front, Security::Plaintext, stopping).await,
    }
}

/// How a connection is protected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Security {
    Tls,
    Plaintext,
    /// It is not, and should be.
    Redirect,
}

async fn http<S>(stream: S, front: Arc<Front>, security: Security, stopping: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stop = stopping.clone();
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let (front, stop) = (front.clone(), stop.clone());
        async move {
            let answer = front.answer(request, security).await;
            Ok::<_, Infallible>(answer.map(|body| ending::body(body, stop)))
        }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING_TIMEOUT);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(Some(Duration::from_secs(60)))
        .keep_alive_timeout(Duration::from_secs(20))
        .initial_connection_window_size(CONNECTION_WINDOW);
    let mut serving = std::pin::pin!(
        server.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service))
    );
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = stopping.cancelled() => {
            // What is under way is answered; nothing new is taken.
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(error = %error, "a connection ended");
    }
}

/// A message is held whole before anybody is asked who sent it: who is not known, and why that is `refusal` says, has little to say.
async fn of_stranger(
    request: Request<Incoming>,
    refusal: Status,
    web: bool,
) -> Result<Request<Body>, Status> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, STRANGERS_BODY_LEN_MAX);
    let body = match web {
        // What is wrong with a body is taken for a defect on this way.
        true => match body.collect().await {
            Ok(body) => Body::new(Full::new(body.to_bytes())),
            Err(error) => {
                web::count_excess(&*error);
                return Err(refusal);
            }
        },
        false => Body::new(body.map_err(move |error| {
            web::count_excess(&*error);
            refusal.clone()
        })),
    };
    Ok(Request::from_parts(parts, body))
}

impl Front {
    async fn answer(&self, request: Request<Incoming>, security: Security) -> Response<Body> {
        let outcome = caught(self.dispatch(request, security)).await;
        outcome.unwrap_or_else(|message| {
            tracing::error!(panic = message, "a request panicked");
            crate::rest::error_response(&Status::internal("the server has a defect; its log says more"))
        })
    }

    async fn dispatch(&self, mut request: Request<Incoming>, security: Security) -> Response<Body> {
        let kind = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let web = kind.starts_with("application/grpc-web");
        let grpc = kind.starts_with("application/grpc") && !web && request.version() == http::Version::HTTP_2;
        if security == Security::Redirect {
            // What is sent without TLS by mistake is not answered as if it were none: a token may be in it.
            return match grpc {
                true => Status::failed_precondition(
                    "this server speaks TLS: without it (--plaintext) anybody on the way could read the token",
                )
                .into_http(),
                false => redirect(&request),
            };
        }
        self.strip_rootpath(&mut request);
        let identity = Identity(self.auth.caller(request.headers()));
        let path = request.uri().path().to_owned();
        // Whoever logs out wants no other session.
        let is_about_sessions = ["/session.SessionService/", "/api/v1/session", web::LOGOUT]
            .iter()
            .any(|own| path.starts_with(own));
        let renewed = match is_about_sessions {
            true => None,
            false => self.auth.renewed(&identity),
        };
        if !grpc && !web {
            let secure = security == Security::Tls;
            let mut response = self.web.answer(request, identity, secure).await;
            let cookies = renewed.map(|token| session::split_cookies(&token, "/", secure));
            for cookie in cookies.iter().flatten() {
                if let Ok(value) = HeaderValue::from_str(cookie) {
                    response.headers_mut().append(header::SET_COOKIE, value);
                }
            }
            return response;
        }
        if let Err(status) = check_agent(request.headers()) {
            return status.into_http();
        }
        let refusal = identity.0.as_ref().err().cloned();
        request.extensions_mut().insert(identity);
        let request = match refusal {
            None => request.map(Body::new),
            Some(refusal) => match of_stranger(request, refusal, web).await {
                Ok(request) => request,
                Err(refusal) => return refusal.into_http(),
            },
        };
        let response = match web {
            true => {
                GrpcWebLayer::new()
                    .layer(self.routes.clone())
                    .oneshot(request)
                    .await
            }
            false => self.routes.clone().oneshot(request).await,
        };
        let response = match response {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let mut response = if web {
            with_plain_message(response)
        } else {
            response
        };
        if let Some(value) = renewed.and_then(|token| HeaderValue::from_str(&token).ok()) {
            response.headers_mut().insert(RENEWED, value);
        }
        let code = response
            .headers()
            .get("grpc-status")
            .and_then(|value| value.to_str().ok());
        let code = code
            .and_then(|code| code.parse().ok())
            .map_or(tonic::Code::Ok, tonic::Code::from_i32);
        self.metrics
            .handled(&path, &format!("{code:?}").replace("Ok", "OK"));
        response
    }

    fn strip_rootpath<B>(&self, request: &mut Request<B>) {
        let root = self.rootpath.trim_matches('/');
        if root.is_empty() {
            return;
        }
        let rest = request.uri().path_and_query().and_then(|full| {
            let rest = full.as_str().strip_prefix('/')?.strip_prefix(root)?;
            rest.starts_with('/').then(|| rest.to_owned())
        });
        if let Some(rest) = rest.and_then(|rest| rest.parse().ok()) {
            *request.uri_mut() = rest;
        }
    }
}

/// Clients of gRPC-web show the message as it stands in the header: only what a header cannot hold is escaped in it, as by
/// servers in Go. Spaces stay.
fn with_plain_message(mut response: Response<Body>) -> Response<Body> {
    let Some(message) = response.headers().get("grpc-message") else {
        return response;
    };
    let text = crate::rest::decoded(message.to_str().unwrap_or_default()).unwrap_or_default();
    let mut plain = String::new();
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => plain.push(char::from(byte)),
            _ => plain += &format!("%{byte:02X}"),
        }
    }
    if let Ok(value) = HeaderValue::from_str(&plain) {
        response.headers_mut().insert("grpc-message", value);
    }
    response
}

/// Plain HTTP on a port that speaks TLS is sent to where it should have gone.
fn redirect<B>(request: &Request<B>) -> Response<Body> {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    let host = host
        .or_else(|| request.uri().authority().map(|authority| authority.as_str()))
        .unwrap_or("localhost");
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut response = Response::new(Body::empty());
    match HeaderValue::from_str(&format!("https://{host}{path}")) {
        Ok(location) => {
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert(header::LOCATION, location);
        }
        Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    response
}

/// Clients that are too old say so themselves.
fn check_agent(headers: &http::HeaderMap) -> Result<(), Status> {
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    for token in agent.split_whitespace() {
        let Some(version) = token.strip_prefix("argocd-client/") else {
            continue;
        };
        let version = version.trim_start_matches('v');
        let version = version.split(['-', '+']).next().unwrap_or_default();
        let version: semver::Version = version
            .parse()
            .map_err(|_| Status::invalid_argument(format!("could not parse user-agent version: {token}")))?;
        if version < CLIENT_MIN {
            return Err(Status::failed_precondition(format!(
                "unsatisfied client version constraint: >= {CLIENT_MIN}"
            )));
        }
    }
    if matches!(agent.trim(), "grpc-go/1.15.0" | "grpc-go/1.10.0") {
        return Err(Status::failed_precondition(format!(
            "unsatisfied client version constraint: >= {CLIENT_MIN}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_clients_that_say_they_are_too_old_are_refused() {
        let check = |agent: &str| {
            let headers = [(header::USER_AGENT, agent.parse().unwrap())]
                .into_iter()
                .collect();
            check_agent(&headers).map_err(|status| status.code())
        };
        assert_eq!(check("argocd-client/v3.6.0 grpc-go/1.70.0"), Ok(()));
        assert_eq!(check("argocd-client/1.4.0-rc1"), Ok(()));
        assert_eq!(check("curl/8"), Ok(()));
        assert_eq!(check("grpc-go/1.70.0"), Ok(()));
        assert_eq!(check("argocd-client/1.3.9"), Err(tonic::Code::FailedPrecondition));
        assert_eq!(check("grpc-go/1.15.0"), Err(tonic::Code::FailedPrecondition));
        assert_eq!(check("argocd-client/latest"), Err(tonic::Code::InvalidArgument));
    }
}
