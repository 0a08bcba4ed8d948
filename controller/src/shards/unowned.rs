//! What the Applications of a cluster say that no shard takes: Unknown, since when and why, instead of yesterday's green.
//!
//! The coordinator writes it, since nobody gives the cluster away but itself, and over the very object that it has seen.
//! The next owner looks again, and its verdict replaces this one.

use std::time::Duration;

use argosy_api::condition::{ConditionType, updated};
use argosy_api::meta::Time;
use argosy_api::v1alpha1::{Application, ApplicationStatus};
use argosy_object::Value;
use argosy_shard_coordinator::timing::Timing;
use jiff::Timestamp;

use crate::status::patch_between;

const UNKNOWN: &str = "Unknown";
/// What each report begins with.
const REASON: &str = "No shard looks after cluster";

/// A cluster that has had no owner for so long is not about to be given one: a lost owner's clusters have another within
/// a lease and a list.
pub(super) fn grace(timing: &Timing) -> Duration {
    timing.expiry() * 2
}

/// The patch that says so; nothing if the Application says it already.
pub(crate) fn report(app: &Application, server: &str, since: Timestamp) -> Option<Value> {
    let reason = format!("{REASON} {server}: none takes clusters (argosy shards)");
    let since = Time::from_timestamp(since);
    let mut status: ApplicationStatus = app.status.clone();
    let reported = status.sync.status == UNKNOWN
        && status.health.status == UNKNOWN
        && status.conditions.iter().any(|known| known.message == reason);
    if reported {
        return None;
    }
    status.sync.status = UNKNOWN.into();
    if status.health.status != UNKNOWN {
        status.health.status = UNKNOWN.into();
        status.health.last_transition_time = Some(since);
    }
    let found = vec![ConditionType::ComparisonError.with_message(reason)];
    status.conditions = updated(
        &app.status.conditions,
        found,
        &[ConditionType::ComparisonError],
        since,
    );
    patch_between(&app.status, &status)
}

/// Whether the Application says so now.
pub(crate) fn is_reported(app: &Application) -> bool {
    let conditions = &app.status.conditions;
    conditions.iter().any(|known| known.message.starts_with(REASON))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn green_becomes_unknown_with_since_when_and_why_once() {
        let mut app = Application::default();
        app.status.sync.status = "Synced".into();
        app.status.health.status = "Healthy".into();
        let since = "2026-11-30T10:00:00Z".parse().unwrap();
        let patch = report(&app, "https://a", since).unwrap();
        assert_eq!(patch["status"]["sync"]["status"], "Unknown");
        assert_eq!(patch["status"]["health"]["status"], "Unknown");
        assert_eq!(
            patch["status"]["health"]["lastTransitionTime"],
            "2026-11-30T10:00:00Z"
        );
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["type"], "ComparisonError");
        assert_eq!(condition["lastTransitionTime"], "2026-11-30T10:00:00Z");
        assert!(condition["message"].as_str().unwrap().contains("https://a"));

        app.status.sync.status = "Unknown".into();
        app.status.health.status = "Unknown".into();
        app.status.conditions =
            vec![ConditionType::ComparisonError.with_message(condition["message"].as_str().unwrap())];
        assert_eq!(report(&app, "https://a", since), None, "it is said already");
    }
}
