//! Ways to an API server: gRPC, or gRPC-web where something in between does not carry gRPC (a proxy that knows no HTTP/2).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use argosy_api::services::version::version_service_client::VersionServiceClient;
use argosy_repo_client::{Tls, connect};
use argosy_runtime::log::chain;
use http::header::CONTENT_TYPE;
use http::uri::InvalidUri;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::OnceCell;
use tonic::body::Body;
use tonic::{Code, Status, transport};
use tonic_web::{GrpcWebCall, GrpcWebClientService};
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt as _, service_fn};

/// Where calls go.
pub(crate) type Way = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;

/// A connection comes about within so long, or not at all.
const CONNECT: Duration = Duration::from_secs(5);
/// Whether a way gets there shows within so long.
const PROBE: Duration = Duration::from_secs(10);
/// The longest pause before a connection is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The content type that Argo CD's server takes for gRPC-web, letter by letter.
const GRPC_WEB: HeaderValue = HeaderValue::from_static("application/grpc-web+proto");

/// By gRPC.
pub(crate) fn native(address: &str, tls: &Tls) -> Result<Way> {
    let channel = connect(address, tls)?;
    let address = address.to_owned();
    let told = move |error: transport::Error| {
        let status = Status::from_error(error.into());
        match status.code() {
            Code::Unavailable => Status::unavailable(format!("{address}: {}", status.message())),
            _ => status,
        }
    };
    Ok(BoxCloneSyncService::new(channel.map_err(told)))
}

/// By gRPC-web over HTTP/1.1, below a path. A connection that does not come about is tried again so often.
pub(crate) fn web(address: &str, tls: &Tls, root_path: &str, retries: u32) -> Result<Way> {
    let root_path = root_path.trim_matches('/');
    let config = tls.config()?;
    let scheme = if config.is_some() { "https" } else { "http" };
    let base = match root_path {
        "" => format!("{scheme}://{address}"),
        path => format!("{scheme}://{address}/{path}"),
    };
    base.parse::<http::Uri>()
        .with_context(|| format!("use {base} (--server, --grpc-web-root-path)"))?;
    let connector = hyper_rustls::HttpsConnectorBuilder::new();
    let connector = match config {
        Some(config) => {
            let mut config = (*config).clone();
            // The connector says which protocols there are to choose from.
            config.alpn_protocols.clear();
            connector.with_tls_config(config)
        }
        None => connector.with_tls_config(nothing_is_trusted()?),
    };
    let mut tcp = HttpConnector::new();
    // What is above it knows schemes.
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    let tcp = service_fn(move |to| {
        let tcp = tcp.clone();
        Box::pin(async move {
            let mut tried = 0;
            loop {
                match tcp.clone().oneshot(http::Uri::clone(&to)).await {
                    Err(_) if tried < retries => tokio::time::sleep(pause(tried)).await,
                    outcome => return outcome,
                }
                tried += 1;
            }
        })
    });
    let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
    let http = Client::builder(TokioExecutor::new()).build(connector);
    let send = service_fn(move |request: Request<GrpcWebCall<Body>>| {
        let (http, base) = (http.clone(), base.clone());
        async move {
            let unreached = |why: String| Status::unavailable(format!("{base}: {why}"));
            let (mut parts, body) = request.into_parts();
            let uri = format!("{base}{}", parts.uri.path()).parse();
            parts.uri = uri.map_err(|error: InvalidUri| unreached(error.to_string()))?;
            parts.version = Version::HTTP_11;
            parts.headers.insert(CONTENT_TYPE, GRPC_WEB);
            let answer = http.request(Request::from_parts(parts, body)).await;
            let answer = answer.map_err(|error| unreached(chain(&error)))?;
            match answer.status() {
                StatusCode::OK => Ok::<_, Status>(answer),
                status => Err(unreached(format!("HTTP status {status}"))),
            }
        }
    });
    let answers = GrpcWebClientService::new(send).map_response(|answer| answer.map(Body::new));
    Ok(BoxCloneSyncService::new(answers))
}

/// Before a connection is tried again: twice as long each time.
fn pause(tried: u32) -> Duration {
    Duration::from_secs(1 << tried.min(5)).min(PAUSE_MAX)
}

/// No certificate is looked at on a way without TLS.
fn nothing_is_trusted() -> Result<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth())
}

/// Headers as they are given, `NAME: VALUE` each.
///
/// # Errors
/// When one of them is no header.
pub(crate) fn headers(texts: &[String]) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for text in texts {
        let header = text.split_once(':').and_then(|(name, value)| {
            let name: HeaderName = name.trim().parse().ok()?;
            Some((name, value.trim().parse::<HeaderValue>().ok()?))
        });
        let (name, value) = header.with_context(|| format!("--header {text:?}: NAME: VALUE is expected"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// A way on which every call has these headers.
pub(crate) fn with(way: Way, headers: &HeaderMap) -> Way {
    if headers.is_empty() {
        return way;
    }
    let headers = headers.clone();
    BoxCloneSyncService::new(way.map_request(move |mut request: Request<Body>| {
        for (name, value) in &headers {
            request.headers_mut().append(name, value.clone());
        }
        request
    }))
}

/// A way whose calls are logged.
pub(crate) fn logged(way: Way) -> Way {
    BoxCloneSyncService::new(service_fn(move |request: Request<Body>| {
        let way = way.clone();
        async move {
            let (method, started) = (request.uri().path().to_owned(), Instant::now());
            let answer = way.oneshot(request).await;
            let code = match &answer {
                // What goes well says so at its end, which is yet to come.
                Ok(answer) => {
                    Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code())
                }
                Err(status) => status.code(),
            };
            tracing::debug!(
                method,
                ?code,
                seconds = started.elapsed().as_secs_f64(),
                "a call was answered"
            );
            answer
        }
    }))
}

/// By gRPC if that gets there, and else by gRPC-web if that does. It is tried once, before the first call.
pub(crate) fn either(native: Way, web: Way) -> Way {
    let chosen = Arc::new(OnceCell::new());
    BoxCloneSyncService::new(service_fn(move |request| {
        let (native, web, chosen) = (native.clone(), web.clone(), chosen.clone());
        async move {
            let way: &Way = chosen.get_or_init(|| choose(native, web)).await;
            way.clone().oneshot(request).await
        }
    }))
}

async fn choose(native: Way, web: Way) -> Way {
    // Where neither gets there, it is the error of gRPC that is told.
    if gets_there(&native).await || !gets_there(&web).await {
        return native;
    }
    eprintln!("argosy: gRPC does not get to the server, gRPC-web does; --grpc-web goes that way at once");
    web
}

/// Anybody may ask for the version. A proxy that takes a connection and is silent does not get there either.
async fn gets_there(way: &Way) -> bool {
    let mut client = VersionServiceClient::new(way.clone());
    matches!(tokio::time::timeout(PROBE, client.version(())).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value() {
        let read = headers(&["X-Team: shop".into(), "cf-access:a: b".into()]).unwrap();
        assert_eq!(
            (&read["x-team"], &read["cf-access"]),
            (&"shop".parse().unwrap(), &"a: b".parse().unwrap())
        );
        for bad in ["", "X-Team", ": a", "a b: c", "a: b\u{1}"] {
            assert!(headers(&[bad.into()]).is_err(), "{bad}");
        }
    }
}
