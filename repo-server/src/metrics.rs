//! Counters of the repo-server, under the names dashboards for Argo CD read.

use crate::jail::{Held, Hold};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// All metrics; cheap to clone, every clone counts into the same cells.
#[derive(Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<RequestLabels, Histogram, fn() -> Histogram>,
    fetch_failures: Family<RepoLabels, Counter>,
    list_failures: Family<RepoLabels, Counter>,
    oci_requests: Family<RequestLabels, Counter>,
    oci_durations: Family<RequestLabels, Histogram, fn() -> Histogram>,
    pending: Family<RepoLabels, Gauge>,
    parallelism_wait: Histogram,
    renders: Family<RenderLabels, Counter>,
    cache: Family<CacheLabels, Counter>,
    fence: Family<FenceLabels, Gauge>,
    open_inputs: Family<OpenLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    repo: String,
    request_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepoLabels {
    repo: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RenderLabels {
    source_type: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OpenLabels {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FenceLabels {
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    outcome: &'static str,
}

/// Buckets of the reference: 0.1 s to 20 s.
fn request_histogram() -> Histogram {
    Histogram::new([0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 20.0])
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            requests: Family::default(),
            durations: Family::new_with_constructor(request_histogram),
            fetch_failures: Family::default(),
            list_failures: Family::default(),
            oci_requests: Family::default(),
            oci_durations: Family::new_with_constructor(request_histogram),
            pending: Family::default(),
            parallelism_wait: Histogram::new([0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 20.0, 60.0, 120.0]),
            renders: Family::default(),
            cache: Family::default(),
            fence: Family::default(),
            open_inputs: Family::default(),
        }
    }
}

impl Metrics {
    /// Makes the metrics visible under `/metrics`.
    pub fn register(&self, registry: &mut Registry) {
        // The encoder adds `_total` to counters by itself.
        registry.register(
            "argocd_git_request",
            "Number of git requests performed by repo server",
            self.requests.clone(),
        );
        registry.register(
            "argocd_git_request_duration_seconds",
            "Git requests duration seconds.",
            self.durations.clone(),
        );
        registry.register(
            "argocd_git_fetch_fail",
            "Number of git fetch requests failures by repo server",
            self.fetch_failures.clone(),
        );
        registry.register(
            "argocd_git_lsremote_fail",
            "Number of git ls-remote requests failures by repo server",
            self.list_failures.clone(),
        );
        registry.register(
            "argocd_oci_request",
            "Number of OCI requests performed by repo server",
            self.oci_requests.clone(),
        );
        registry.register(
            "argocd_oci_request_duration_seconds",
            "OCI requests duration seconds.",
            self.oci_durations.clone(),
        );
        // A gauge under a counter's name, as the reference has it.
        registry.register(
            "argocd_repo_pending_request_total",
            "Number of pending requests requiring repository lock",
            self.pending.clone(),
        );
        registry.register(
            "argocd_repo_parallelism_wait_duration_seconds",
            "Time a render waited for a free place.",
            self.parallelism_wait.clone(),
        );
        registry.register(
            "argosy_renders",
            "Renders by source type and result.",
            self.renders.clone(),
        );
        registry.register(
            "argosy_manifest_cache_lookups",
            "Look-ups in the manifest cache by outcome.",
            self.cache.clone(),
        );
        registry.register(
            "argosy_render_open_inputs",
            "Renders whose output is not a function of the files alone, by reason: they are made anew at each commit.",
            self.open_inputs.clone(),
        );
        registry.register(
            "argosy_render_fence",
            "Whether renders are fenced in, by part: 1 it holds, 0 it does not.",
            self.fence.clone(),
        );
    }

    pub(crate) fn git_request(&self, repo: &str, request_type: &'static str, took: Duration) {
        let labels = RequestLabels {
            repo: repo.to_owned(),
            request_type,
        };
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn git_failed(&self, repo: &str, request_type: &str) {
        let labels = RepoLabels {
            repo: repo.to_owned(),
        };
        let family = if request_type == "fetch" {
            &self.fetch_failures
        } else {
            &self.list_failures
        };
        family.get_or_create(&labels).inc();
    }

    pub(crate) fn oci_request(&self, repo: &str, request_type: &'static str, took: Duration) {
        let labels = RequestLabels {
            repo: repo.to_owned(),
            request_type,
        };
        self.oci_requests.get_or_create(&labels).inc();
        self.oci_durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// Counts a request as waiting until the guard is dropped.
    pub(crate) fn pending(&self, repo: &str) -> Pending {
        let gauge = self
            .pending
            .get_or_create(&RepoLabels {
                repo: repo.to_owned(),
            })
            .clone();
        gauge.inc();
        Pending(gauge)
    }

    pub(crate) fn waited(&self, took: Duration) {
        self.parallelism_wait.observe(took.as_secs_f64());
    }

    pub(crate) fn rendered(&self, source_type: &'static str, ok: bool) {
        self.renders
            .get_or_create(&RenderLabels {
                source_type,
                result: if ok { "ok" } else { "error" },
            })
            .inc();
    }

    /// The reasons are names of template functions and words of ours: few.
    pub(crate) fn open_input(&self, reason: &str) {
        let labels = OpenLabels {
            reason: reason.to_owned(),
        };
        self.open_inputs.get_or_create(&labels).inc();
    }

    pub(crate) fn fence(&self, held: Option<Held>) {
        let parts = [
            ("files", held.is_some_and(|held| held.files != Hold::None)),
            (
                "system_calls",
                held.is_some_and(|held| held.system_calls != Hold::None),
            ),
        ];
        for (part, holds) in parts {
            self.fence.get_or_create(&FenceLabels { part }).set(holds.into());
        }
    }

    pub(crate) fn cache(&self, outcome: &'static str) {
        self.cache.get_or_create(&CacheLabels { outcome }).inc();
    }
}

/// One waiting request.
pub(crate) struct Pending(Gauge);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.dec();
    }
}
