//! What was too much, counted for the process wherever it is refused: one thing that is larger than it may be
//! ([`exceeded`]), or one more where there are too many already ([`shed`]). Every row is there from the start, at zero.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// A bound for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// An answer of a Kubernetes API server, or an object in it.
    ApiAnswer,
    /// An Application, with its status.
    Application,
    /// Wrong guesses at the password of an account.
    LoginFailures,
    /// A document of YAML: its length, depth, nodes, and what its aliases stand for.
    Manifest,
    /// Memory of a render.
    RenderMemory,
    /// The body of a request.
    RequestBody,
    /// Files of a repository, archive or registry: their size, number, and length of names.
    Source,
    /// The time that a tool, or what is fetched, takes.
    Time,
    /// What a tool prints.
    ToolOutput,
    /// What a Git host sends.
    WebhookPayload,
}

impl Limit {
    const ALL: [Limit; 10] = [
        Limit::ApiAnswer,
        Limit::Application,
        Limit::LoginFailures,
        Limit::Manifest,
        Limit::RenderMemory,
        Limit::RequestBody,
        Limit::Source,
        Limit::Time,
        Limit::ToolOutput,
        Limit::WebhookPayload,
    ];

    const fn name(self) -> &'static str {
        match self {
            Limit::ApiAnswer => "api_answer",
            Limit::Application => "application",
            Limit::LoginFailures => "login_failures",
            Limit::Manifest => "manifest",
            Limit::RenderMemory => "render_memory",
            Limit::RequestBody => "request_body",
            Limit::Source => "source",
            Limit::Time => "time",
            Limit::ToolOutput => "tool_output",
            Limit::WebhookPayload => "webhook_payload",
        }
    }
}

/// A kind of work of which there may be too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Kubernetes events that were to be written.
    Event,
    /// Logins.
    Login,
    /// Renders.
    Render,
    /// Second tries of calls that have failed.
    Retry,
    /// Webhooks.
    Webhook,
}

impl Class {
    const ALL: [Class; 5] = [
        Class::Event,
        Class::Login,
        Class::Render,
        Class::Retry,
        Class::Webhook,
    ];

    const fn name(self) -> &'static str {
        match self {
            Class::Event => "event",
            Class::Login => "login",
            Class::Render => "render",
            Class::Retry => "retry",
            Class::Webhook => "webhook",
        }
    }
}

static EXCEEDED: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];
static SHED: [AtomicU64; Class::ALL.len()] = [const { AtomicU64::new(0) }; Class::ALL.len()];

/// Something was refused because it is larger than it may be.
pub fn exceeded(limit: Limit) {
    EXCEEDED[limit as usize].fetch_add(1, Ordering::Relaxed);
}

/// Something was refused or left out because there is too much of it.
pub fn shed(class: Class) {
    SHED[class as usize].fetch_add(1, Ordering::Relaxed);
}

/// How often [`exceeded`] was called for a limit.
pub fn times_exceeded(limit: Limit) -> u64 {
    EXCEEDED[limit as usize].load(Ordering::Relaxed)
}

/// How often [`shed`] was called for a class.
pub fn times_shed(class: Class) -> u64 {
    SHED[class as usize].load(Ordering::Relaxed)
}

/// Writes `argosy_limit_exceeded_total` and `argosy_shed_total` at each scrape.
#[derive(Debug)]
pub struct BoundsCollector;

impl Collector for BoundsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "Things that were refused because they are larger than they may be";
        let mut metric =
            encoder.encode_descriptor("argosy_limit_exceeded", help, None, MetricType::Counter)?;
        for limit in Limit::ALL {
            let labels = [("limit", limit.name())];
            let mut row = metric.encode_family(&labels)?;
            row.encode_counter::<NoLabelSet, _, u64>(&times_exceeded(limit), None)?;
        }
        let help = "Work that was refused or left out because there was too much of it";
        let mut metric = encoder.encode_descriptor("argosy_shed", help, None, MetricType::Counter)?;
        for class in Class::ALL {
            let labels = [("class", class.name())];
            let mut row = metric.encode_family(&labels)?;
            row.encode_counter::<NoLabelSet, _, u64>(&times_shed(class), None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn each_limit_and_class_has_a_row_of_its_own() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(BoundsCollector));
        let rows = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.lines()
                .filter(|line| line.starts_with("argosy_"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let before = rows();
        assert_eq!(before.len(), Limit::ALL.len() + Class::ALL.len());
        assert!(before.iter().all(|row| row.ends_with(" 0")), "{before:?}");
        for limit in Limit::ALL {
            exceeded(limit);
        }
        for class in Class::ALL {
            shed(class);
        }
        let once: Vec<String> = before.iter().map(|row| row.replace(" 0", " 1")).collect();
        assert_eq!(rows(), once);
        exceeded(Limit::Source);
        shed(Class::Webhook);
        let twice: Vec<String> = rows().into_iter().filter(|row| row.ends_with(" 2")).collect();
        assert_eq!(
            twice,
            [
                r#"argosy_limit_exceeded_total{limit="source"} 2"#,
                r#"argosy_shed_total{class="webhook"} 2"#,
            ]
        );
    }
}
