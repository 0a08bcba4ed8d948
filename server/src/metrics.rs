//! The numbers of the server, by Argo CD's names.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handled {
    grpc_service: String,
    grpc_method: String,
    grpc_code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Login {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Repo {
    repo: String,
}

/// Repositories of webhooks that have a row of their own.
const REPOS_MAX: usize = 1000;

/// Counters of the server.
#[derive(Default)]
pub(crate) struct Metrics {
    handled: Family<Handled, Counter>,
    logins: Family<Login, Counter>,
    webhooks: Family<Repo, Counter>,
    /// Repositories that have a row of their own.
    hooked: Mutex<HashSet<String>>,
    in_flight: Gauge,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Arc<Self> {
        let metrics = Metrics::default();
        registry.register(
            "grpc_server_handled",
            "Calls that were answered",
            metrics.handled.clone(),
        );
        registry.register(
            "argocd_login_request",
            "Logins by outcome",
            metrics.logins.clone(),
        );
        registry.register(
            "argocd_webhook_requests",
            "Webhooks that were taken",
            metrics.webhooks.clone(),
        );
        registry.register(
            "argocd_webhook_handlers_in_flight",
            "Webhooks at work",
            metrics.in_flight.clone(),
        );
        let info = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("argocd", "Which version runs", info);
        Arc::new(metrics)
    }

    /// A call was answered.
    pub(crate) fn handled(&self, path: &str, code: &str) {
        // What there is not has a name of the caller's choice, which makes no row.
        let path = if code == "Unimplemented" { "" } else { path };
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        self.handled
            .get_or_create(&Handled {
                grpc_service: service.to_owned(),
                grpc_method: method.to_owned(),
                grpc_code: code.to_owned(),
            })
            .inc();
        if method == "Create" && service == "session.SessionService" {
            let status = if code == "OK" { "success" } else { "failed" };
            self.logins.get_or_create(&Login { status }).inc();
        }
    }

    /// A webhook about this repository was taken. Anybody may send one about any: those beyond the first thousand have one
    /// row together.
    pub(crate) fn webhook(&self, repo: &str) {
        let mut known = self.hooked.lock();
        let repo = if known.contains(repo) || known.len() < REPOS_MAX && known.insert(repo.to_owned()) {
            repo
        } else {
            "other"
        };
        self.webhooks
            .get_or_create(&Repo {
                repo: repo.to_owned(),
            })
            .inc();
    }
}
