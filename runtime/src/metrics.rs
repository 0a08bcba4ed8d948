//! The metrics port: `/metrics` in the text format Prometheus reads, `/livez`
//! beside it (also as `/healthz`), `/readyz` for rollouts. `?verbose` names what was asked.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tracing::info;

use crate::bounds::BoundsCollector;
use crate::process::ProcessCollector;
use crate::tasks::Tasks;

/// Why the metrics port is not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("listen on {address} for metrics")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Answers whether the process is in order: an error is what is wrong, for people.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What `/livez` and `/readyz` ask; without a check the answer is yes.
#[derive(Clone, Default)]
pub struct Health {
    /// Must the process be restarted?
    pub live: Option<Check>,
    /// May others rely on it already?
    pub ready: Option<Check>,
}

struct Served {
    registry: Registry,
    health: Health,
}

/// A registry that holds the numbers of the process already, and what was [too much](crate::bounds) for it.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ProcessCollector::new()));
    registry.register_collector(Box::new(BoundsCollector));
    registry
}

/// Listens on `address` and serves until the process stops. Returns the address, with the port that was taken when
/// zero was asked for.
pub async fn serve(
    tasks: &Tasks,
    address: SocketAddr,
    registry: Registry,
    health: Health,
) -> Result<SocketAddr, Error> {
    let listen = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(livez))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(Served { registry, health }));
    info!(address = %bound, "serving metrics");
    tasks.spawn_vital("metrics", async move { axum::serve(listener, routes).await });
    Ok(bound)
}

async fn metrics(State(served): State<Arc<Served>>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::prometheus_text::encode(&mut text, &served.registry) {
        Ok(()) => {
            let kind = prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be written").into_response(),
    }
}

async fn livez(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Response {
    answer("live", served.health.live.as_ref(), query.as_deref())
}

async fn readyz(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Response {
    answer("ready", served.health.ready.as_ref(), query.as_deref())
}

fn answer(name: &str, check: Option<&Check>, query: Option<&str>) -> Response {
    let verbose = query.is_some_and(|query| {
        query
            .split('&')
            .any(|part| part.split('=').next() == Some("verbose"))
    });
    match check.map_or(Ok(()), |check| check()) {
        Ok(()) if verbose => format!("[+]{name} ok\n").into_response(),
        Ok(()) => "ok".into_response(),
        Err(reason) => {
            let text = if verbose {
                format!("[-]{name} failed: {reason}\n")
            } else {
                reason
            };
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn the_port_serves_metrics_health_and_readiness() {
        let tasks = Tasks::new();
        let ready: Check = Arc::new(|| Err("clusters are not listed yet".into()));
        let health = Health {
            live: None,
            ready: Some(ready),
        };
        let socket = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = serve(&tasks, socket, registry(), health).await.unwrap();

        let metrics = get(address, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
        assert!(metrics.contains("process_cpu_seconds_total "), "{metrics}");
        assert!(metrics.contains("\nprocess_resident_memory_bytes "), "{metrics}");
        assert!(metrics.contains("\nargosy_shed_total{class="), "{metrics}");
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/livez?verbose").await.ends_with("[+]live ok\n"));
        let verbose = get(address, "/readyz?verbose").await;
        assert!(
            verbose.starts_with("HTTP/1.1 503")
                && verbose.ends_with("[-]ready failed: clusters are not listed yet\n"),
            "{verbose}"
        );
        let waiting = get(address, "/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503") && waiting.ends_with("clusters are not listed yet"));
    }
}
