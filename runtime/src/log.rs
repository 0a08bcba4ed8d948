//! Log lines with Argo CD's keys: `time`, `level`, `msg`, then the fields.
//!
//! Dashboards rely on the names: levels are `trace`, `debug`, `info`, `warning`, `error`; the Application is
//! `application`, its namespace `app-namespace`. In code the fields are called `app`, `app_namespace`, `dest_server`;
//! [`wire_name`] is the table between both. Fields of the spans an event happens in come along, the inner ones win.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

use crate::args::{Format, Log};

/// Why logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter text is not one.
    #[error("read log level {text:?}")]
    Filter {
        /// The text.
        text: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// A subscriber is set already.
    #[error("start logging: it was started before")]
    Twice,
}

/// Starts logging to standard error as the flags, or the environment under `prefix`, say.
pub fn init(log: &Log, prefix: &str) -> Result<(), Error> {
    let (format, level) = log.resolve(prefix);
    // The libraries below speak of their own insides at info; a component's own lines are what an operator reads.
    let quiet = "hyper=warn,h2=warn,rustls=warn,tower=warn,tonic=warn,kube=warn";
    let text = if level.contains('=') || level.contains(',') {
        level
    } else {
        format!("{level},{quiet}")
    };
    let filter = EnvFilter::try_new(&text).map_err(|source| Error::Filter { text, source })?;
    Registry::default()
        .with(filter)
        .with(Lines { format })
        .try_init()
        .map_err(|_| Error::Twice)
}

/// The key under which a field is written.
pub fn wire_name(name: &str) -> &str {
    match name {
        "message" => "msg",
        "app" => "application",
        "app_namespace" => "app-namespace",
        "app_qualified_name" => "app-qualified-name",
        "dest_server" => "dest-server",
        "dest_namespace" => "dest-namespace",
        "dest_name" => "dest-name",
        "comparison_level" => "comparison-level",
        other => other,
    }
}

/// The layer that writes one line an event.
struct Lines {
    format: Format,
}

/// Field values of a span or an event, as JSON.
#[derive(Default)]
struct Fields(Vec<(&'static str, serde_json::Value)>);

impl Fields {
    fn set(&mut self, field: &Field, value: serde_json::Value) {
        match self.0.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, old)) => *old = value,
            None => self.0.push((field.name(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, chain(value).into());
    }
}

/// An error and its causes in one line, joined by `: `.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let part = next.to_string();
        // Some libraries repeat their cause in their own text.
        if !text.ends_with(&part) {
            let _ = write!(text, ": {part}");
        }
        cause = next.source();
    }
    text
}

fn level_name(level: &Level) -> &'static str {
    match *level {
        Level::TRACE => "trace",
        Level::DEBUG => "debug",
        Level::INFO => "info",
        Level::WARN => "warning",
        Level::ERROR => "error",
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = ctx.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some(span) = ctx.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);
        let mut fields: Vec<(&'static str, serde_json::Value)> = Vec::with_capacity(own.0.len() + 4);
        if let Some(scope) = ctx.event_scope(event) {
            for span in scope.from_root() {
                if let Some(outer) = span.extensions().get::<Fields>() {
                    merge(&mut fields, &outer.0);
                }
            }
        }
        merge(&mut fields, &own.0);
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let line = line(self.format, &time, level_name(event.metadata().level()), &fields);
        // A log line that cannot be written has nowhere to be reported.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn merge(into: &mut Vec<(&'static str, serde_json::Value)>, from: &[(&'static str, serde_json::Value)]) {
    for (name, value) in from {
        match into.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => old.clone_from(value),
            None => into.push((name, value.clone())),
        }
    }
}

fn line(format: Format, time: &str, level: &str, fields: &[(&'static str, serde_json::Value)]) -> String {
    match format {
        Format::Json => {
            let mut object = serde_json::Map::new();
            for (name, value) in fields {
                object.insert(wire_name(name).to_owned(), value.clone());
            }
            object.entry("msg").or_insert_with(|| "".into());
            object.insert("level".into(), level.into());
            object.insert("time".into(), time.into());
            format!("{}\n", serde_json::Value::Object(object))
        }
        Format::Text => {
            let message = fields.iter().find(|(name, _)| *name == "message");
            let message = message.map(|(_, value)| plain(value)).unwrap_or_default();
            let mut text = format!("time=\"{time}\" level={level} msg={}", quoted(&message, true));
            for (name, value) in fields.iter().filter(|(name, _)| *name != "message") {
                let _ = write!(text, " {}={}", wire_name(name), quoted(&plain(value), false));
            }
            text.push('\n');
            text
        }
    }
}

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Quotes as logrus does: when a character needs it, or always.
fn quoted(text: &str, always: bool) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-._/@^+".contains(c);
    if !always && !text.is_empty() && text.chars().all(bare) {
        text.to_owned()
    } else {
        format!("{text:?}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn json_lines_carry_the_keys_dashboards_read() {
        let fields = [
            ("message", "compared".into()),
            ("app", "guestbook".into()),
            ("took_ms", 12.into()),
        ];
        let text = line(Format::Json, "2026-11-29T15:00:00Z", "info", &fields);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"time": "2026-11-29T15:00:00Z", "level": "info", "msg": "compared",
                "application": "guestbook", "took_ms": 12})
        );
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn text_lines_quote_what_needs_it() {
        let fields = [
            ("message", "it's \"so\"".into()),
            ("app", "guestbook".into()),
            ("error", "a b".into()),
        ];
        assert_eq!(
            line(Format::Text, "2026-11-29T15:00:00Z", "warning", &fields),
            "time=\"2026-11-29T15:00:00Z\" level=warning msg=\"it's \\\"so\\\"\" application=guestbook error=\"a b\"\n"
        );
    }

    #[test]
    fn inner_fields_win_over_outer_ones() {
        let mut fields = vec![("app", serde_json::Value::from("a"))];
        merge(&mut fields, &[("app", "b".into()), ("cluster", "c".into())]);
        assert_eq!(fields, vec![("app", "b".into()), ("cluster", "c".into())]);
    }
}
