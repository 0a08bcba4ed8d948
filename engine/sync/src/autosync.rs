//! Whether an Application syncs by itself, now.

use std::time::Duration;

use crate::phase::OperationPhase;
use crate::plan::Selector;

/// `syncPolicy.automated`, present and not switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What is no longer desired is deleted.
    pub prune: bool,
    /// What is changed in the cluster is changed back.
    pub self_heal: bool,
    /// Deleting everything is allowed.
    pub allow_empty: bool,
}

/// The sync status of the Application, or of one of its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing differs.
    Synced,
    /// Something differs.
    OutOfSync,
    /// It could not be told.
    Unknown,
}

/// One entry of `status.resources`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The resource.
    pub selector: Selector,
    /// Git has it.
    pub desired: bool,
    /// Its status; none for the remains of hooks, for what is to be left alone, and for what only carries a copy of the Application's mark.
    pub status: Option<Status>,
    /// It is no longer desired.
    pub requires_pruning: bool,
}

impl Resource {
    /// It has a status that is not `Synced`.
    fn differs(&self) -> bool {
        self.status.is_some_and(|status| status != Status::Synced)
    }
}

/// The last operation, running or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastOperation {
    /// Its phase.
    pub phase: OperationPhase,
    /// Its message.
    pub message: String,
    /// The revisions it went to, one for each source; `None` if it ended without a result.
    pub revisions: Option<Vec<String>>,
    /// It went to the sources that the Application has now.
    pub same_sources: bool,
    /// `autoHealAttemptsCount` of it.
    pub self_heal_attempts: i64,
    /// Time since it ended.
    pub finished: Option<Duration>,
}

/// Everything that counts.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// `None` if automated sync is off.
    pub policy: Option<Policy>,
    /// An operation is requested or at work.
    pub operation_in_progress: bool,
    /// The Application is being deleted.
    pub deleting: bool,
    /// Its status by the comparison just made.
    pub status: Status,
    /// Its resources by the same comparison.
    pub resources: &'a [Resource],
    /// The revisions compared to, one for each source.
    pub revisions: &'a [String],
    /// False if it is known that these revisions change nothing against the ones synced to.
    pub revisions_have_changes: bool,
    /// The operation in the status.
    pub last: Option<&'a LastOperation>,
    /// The pauses between repairs.
    pub backoff: SelfHealBackoff,
}

/// The pauses between repairs of the same revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfHealBackoff {
    /// A fixed pause, which counts instead of the growing one if it is set.
    pub fixed: Option<Duration>,
    /// The first of the growing pauses.
    pub first: Duration,
    /// How much longer each is.
    pub factor: u32,
    /// The longest.
    pub cap: Duration,
}

impl Default for SelfHealBackoff {
    fn default() -> Self {
        SelfHealBackoff {
            fixed: None,
            first: Duration::from_secs(2),
            factor: 3,
            cap: Duration::from_secs(300),
        }
    }
}

impl SelfHealBackoff {
    /// The pause after this many repairs: none before the first.
    pub fn pause(&self, attempts: i64) -> Duration {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        if attempts <= 0 {
            return Duration::ZERO;
        }
        let exponent = u32::try_from(attempts - 1).unwrap_or(u32::MAX);
        let factor = self.factor.checked_pow(exponent).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.cap)
    }
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// An operation starts.
    Start {
        /// The resources of a repair; empty for a whole sync.
        resources: Vec<Selector>,
        /// What is no longer desired is deleted.
        prune: bool,
        /// `autoHealAttemptsCount` of the new operation.
        self_heal_attempts: i64,
    },
    /// Nothing, and nothing to say.
    Skip(Reason),
    /// Nothing now; look again after this time.
    Wait(Duration),
    /// Nothing; a person should know.
    Error {
        /// Text of the `SyncError` condition.
        message: String,
        /// Look again after this time.
        retry_after: Option<Duration>,
    },
}

/// Why nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Automated sync is off.
    Disabled,
    /// An operation is at work.
    OperationInProgress,
    /// The Application is being deleted.
    Deleting,
    /// There is nothing to do, or it cannot be told.
    NotOutOfSync,
    /// Everything that differs should be deleted, and that is switched off.
    OnlyPruning,
    /// This was synced already, and repairs are switched off.
    AlreadySynced,
}

impl Reason {
    /// The text for a log line.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Disabled => "automated sync is off",
            Reason::OperationInProgress => "another operation is in progress",
            Reason::Deleting => "deletion in progress",
            Reason::NotOutOfSync => "the application is not OutOfSync",
            Reason::OnlyPruning => "need to prune extra resources only but automated prune is disabled",
            Reason::AlreadySynced => "most recent sync already to these revisions",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Decides.
///
/// A failed sync of the same revision is not repeated at once; with self-heal it is tried again, whole, once every
/// [`SelfHealBackoff::cap`], because what made it fail may have passed.
pub fn decide(input: &Input<'_>) -> Decision {
    let policy = match preconditions(input) {
        Ok(policy) => policy,
        Err(reason) => return Decision::Skip(reason),
    };
    let start = match input.last.filter(|last| attempted(input, last)) {
        Some(last) if !last.phase.successful() => after_failure(input, policy, last),
        Some(last) => after_success(input, policy, last),
        None => Decision::Start {
            resources: Vec::new(),
            prune: policy.prune,
            self_heal_attempts: 0,
        },
    };
    // The remains of a hook are nothing that would be left.
    let wipes =
        policy.prune && !policy.allow_empty && !input.resources.iter().any(|resource| resource.desired);
    match start {
        Decision::Start { .. } if wipes => Decision::Error {
            message: format!(
                "Skipping sync attempt to {}: auto-sync will wipe out all resources",
                list(input.revisions)
            ),
            retry_after: None,
        },
        other => other,
    }
}

fn preconditions(input: &Input<'_>) -> Result<Policy, Reason> {
    let policy = input.policy.ok_or(Reason::Disabled)?;
    if input.operation_in_progress {
        return Err(Reason::OperationInProgress);
    }
    if input.deleting {
        return Err(Reason::Deleting);
    }
    if input.status != Status::OutOfSync {
        return Err(Reason::NotOutOfSync);
    }
    let only_pruning = input
        .resources
        .iter()
        .all(|resource| !resource.differs() || resource.requires_pruning);
    if !policy.prune && only_pruning {
        return Err(Reason::OnlyPruning);
    }
    Ok(policy)
}

/// True if the last operation already went to these revisions of these sources.
fn attempted(input: &Input<'_>, last: &LastOperation) -> bool {
    match &last.revisions {
        None => last.phase.completed(),
        Some(revisions) if input.revisions_have_changes && revisions != input.revisions => false,
        Some(_) => last.same_sources,
    }
}

fn after_failure(input: &Input<'_>, policy: Policy, last: &LastOperation) -> Decision {
    let remaining = remaining(input.backoff.cap, last.finished);
    if policy.self_heal && remaining.is_none() {
        return Decision::Start {
            resources: Vec::new(),
            prune: policy.prune,
            self_heal_attempts: last.self_heal_attempts,
        };
    }
    let revisions = last.revisions.as_deref().unwrap_or_default();
    Decision::Error {
        message: format!(
            "Failed last sync attempt to {}: {}",
            list(revisions),
            last.message
        ),
        retry_after: remaining.filter(|_| policy.self_heal),
    }
}

fn after_success(input: &Input<'_>, policy: Policy, last: &LastOperation) -> Decision {
    if !policy.self_heal {
        return Decision::Skip(Reason::AlreadySynced);
    }
    if let Some(remaining) = remaining(input.backoff.pause(last.self_heal_attempts), last.finished) {
        return Decision::Wait(remaining);
    }
    let resources = input
        .resources
        .iter()
        .filter(|resource| resource.differs())
        .map(|resource| resource.selector.clone());
    Decision::Start {
        resources: resources.collect(),
        prune: policy.prune,
        self_heal_attempts: last.self_heal_attempts + 1,
    }
}

/// What is left of a pause, if anything.
fn remaining(pause: Duration, passed: Option<Duration>) -> Option<Duration> {
    Some(pause.saturating_sub(passed.unwrap_or_default())).filter(|left| !left.is_zero())
}

/// A list as Go prints it: `[a b]`.
fn list(items: &[String]) -> String {
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a hook of an earlier sync.
    fn remains(name: &str) -> Resource {
        Resource {
            desired: false,
            status: None,
            ..resource(name, true, false)
        }
    }

    fn resource(name: &str, synced: bool, requires_pruning: bool) -> Resource {
        let selector = Selector {
            group: "apps".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: name.into(),
        };
        Resource {
            selector,
            desired: !requires_pruning,
            status: Some(if synced { Status::Synced } else { Status::OutOfSync }),
            requires_pruning,
        }
    }

    fn last(phase: OperationPhase) -> LastOperation {
        LastOperation {
            phase,
            message: "it broke".into(),
            revisions: Some(vec!["abc".into()]),
            same_sources: true,
            self_heal_attempts: 0,
            finished: Some(Duration::from_secs(60)),
        }
    }

    fn ask<'a>(change: impl FnOnce(&mut Input<'a>)) -> Decision {
        let resources = vec![resource("web", false, false), resource("db", true, false)].leak();
        let revisions = vec!["abc".to_owned()].leak();
        let mut input = Input {
            policy: Some(Policy::default()),
            operation_in_progress: false,
            deleting: false,
            status: Status::OutOfSync,
            resources,
            revisions,
            revisions_have_changes: true,
            last: None,
            backoff: SelfHealBackoff::default(),
        };
        change(&mut input);
        decide(&input)
    }

    const HEALING: Option<Policy> = Some(Policy {
        prune: false,
        self_heal: true,
        allow_empty: false,
    });

    #[test]
    fn an_application_that_differs_and_was_never_synced_starts() {
        assert_eq!(
            ask(|_| {}),
            Decision::Start {
                resources: vec![],
                prune: false,
                self_heal_attempts: 0
            }
        );
    }

    #[test]
    fn each_precondition_alone_prevents_it() {
        assert_eq!(ask(|input| input.policy = None), Decision::Skip(Reason::Disabled));
        assert_eq!(
            ask(|input| input.operation_in_progress = true),
            Decision::Skip(Reason::OperationInProgress)
        );
        assert_eq!(
            ask(|input| input.deleting = true),
            Decision::Skip(Reason::Deleting)
        );
        assert_eq!(
            ask(|input| input.status = Status::Unknown),
            Decision::Skip(Reason::NotOutOfSync)
        );
    }

    #[test]
    fn only_pruning_left_and_pruning_off_is_no_reason_to_start() {
        let extra = [resource("web", true, false), resource("old", false, true)];
        assert_eq!(
            ask(|input| input.resources = &extra),
            Decision::Skip(Reason::OnlyPruning)
        );
    }

    #[test]
    fn the_remains_of_hooks_are_no_reason_to_start() {
        let extra = [resource("old", false, true), remains("migrate")];
        assert_eq!(
            ask(|input| (input.resources, input.policy) = (&extra, HEALING)),
            Decision::Skip(Reason::OnlyPruning)
        );
    }

    #[test]
    fn the_remains_of_hooks_are_not_repaired() {
        let done = last(OperationPhase::Succeeded);
        let some = [resource("web", false, false), remains("migrate")];
        let decision =
            ask(|input| (input.resources, input.last, input.policy) = (&some, Some(&done), HEALING));
        let expected = vec![resource("web", false, false).selector];
        assert!(matches!(decision, Decision::Start { resources, .. } if resources == expected));
    }

    #[test]
    fn deleting_all_but_the_remains_of_a_hook_is_deleting_everything() {
        let all = [resource("web", false, true), remains("migrate")];
        let policy = Some(Policy {
            prune: true,
            ..Policy::default()
        });
        assert!(matches!(
            ask(|input| (input.resources, input.policy) = (&all, policy)),
            Decision::Error { message, .. } if message.ends_with("auto-sync will wipe out all resources")
        ));
    }

    #[test]
    fn deleting_everything_needs_to_be_allowed() {
        let all = [resource("web", false, true)];
        let message = "Skipping sync attempt to [abc]: auto-sync will wipe out all resources".to_owned();
        let pruning = |allow_empty| {
            Some(Policy {
                prune: true,
                self_heal: false,
                allow_empty,
            })
        };
        assert_eq!(
            ask(|input| (input.resources, input.policy) = (&all, pruning(false))),
            Decision::Error {
                message,
                retry_after: None
            }
        );
        assert!(matches!(
            ask(|input| (input.resources, input.policy) = (&all, pruning(true))),
            Decision::Start { prune: true, .. }
        ));
    }

    #[test]
    fn a_failed_sync_of_the_same_revision_is_not_repeated() {
        let failed = last(OperationPhase::Failed);
        let message = "Failed last sync attempt to [abc]: it broke".to_owned();
        assert_eq!(
            ask(|input| input.last = Some(&failed)),
            Decision::Error {
                message,
                retry_after: None
            }
        );
    }

    #[test]
    fn with_self_heal_a_failed_sync_is_repeated_after_the_longest_pause() {
        let mut failed = last(OperationPhase::Failed);
        let early = ask(|input| (input.last, input.policy) = (Some(&failed), HEALING));
        assert!(
            matches!(early, Decision::Error { retry_after: Some(left), .. } if left == Duration::from_secs(240))
        );
        failed.finished = Some(Duration::from_secs(300));
        let late = ask(|input| (input.last, input.policy) = (Some(&failed), HEALING));
        assert!(matches!(late, Decision::Start { resources, .. } if resources.is_empty()));
    }

    #[test]
    fn a_new_revision_or_source_starts_whatever_happened_before() {
        let failed = last(OperationPhase::Failed);
        let newer = ["def".to_owned()];
        assert!(matches!(
            ask(|input| (input.last, input.revisions) = (Some(&failed), &newer)),
            Decision::Start { .. }
        ));
        let other = LastOperation {
            same_sources: false,
            ..failed
        };
        assert!(matches!(
            ask(|input| input.last = Some(&other)),
            Decision::Start { .. }
        ));
    }

    #[test]
    fn a_revision_without_changes_is_the_same_revision() {
        let done = last(OperationPhase::Succeeded);
        let newer = ["def".to_owned()];
        let decision = ask(|input| {
            (input.last, input.revisions, input.revisions_have_changes) = (Some(&done), &newer, false)
        });
        assert_eq!(decision, Decision::Skip(Reason::AlreadySynced));
    }

    #[test]
    fn a_repair_syncs_only_what_differs_and_counts() {
        let done = last(OperationPhase::Succeeded);
        let decision = ask(|input| (input.last, input.policy) = (Some(&done), HEALING));
        let expected = vec![resource("web", false, false).selector];
        assert_eq!(
            decision,
            Decision::Start {
                resources: expected,
                prune: false,
                self_heal_attempts: 1
            }
        );
    }

    #[test]
    fn repairs_wait_longer_each_time() {
        let pauses: Vec<u64> = (0..7)
            .map(|attempts| SelfHealBackoff::default().pause(attempts).as_secs())
            .collect();
        assert_eq!(pauses, [0, 2, 6, 18, 54, 162, 300]);
        let third = LastOperation {
            self_heal_attempts: 3,
            finished: Some(Duration::from_secs(8)),
            ..last(OperationPhase::Succeeded)
        };
        let decision = ask(|input| (input.last, input.policy) = (Some(&third), HEALING));
        assert_eq!(decision, Decision::Wait(Duration::from_secs(10)));
    }

    #[test]
    fn an_operation_that_ended_without_result_counts_as_attempted() {
        let broken = LastOperation {
            revisions: None,
            ..last(OperationPhase::Error)
        };
        assert!(matches!(
            ask(|input| input.last = Some(&broken)),
            Decision::Error { .. }
        ));
    }
}
