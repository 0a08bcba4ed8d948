//! Conditions of an Application: one table of types, their severity, and how a list of them changes.

use crate::meta::Time;
use crate::v1alpha1::{ApplicationCondition, words};

words! {
    /// What a condition is about.
    ConditionType {
        /// What the Application owns could not be deleted.
        DeletionError = "DeletionError",
        /// The spec cannot be followed: source, destination or project are wrong.
        InvalidSpecError = "InvalidSpecError",
        /// Desired and live state could not be compared.
        ComparisonError = "ComparisonError",
        /// Something of the comparison could not be done as asked: a rule of `ignoreDifferences` that cannot be applied, a dry run that is
        /// refused. The comparison stands, and syncs go on.
        ComparisonWarning = "ComparisonWarning",
        /// An automated sync could not be started, or failed.
        SyncError = "SyncError",
        /// Something else went wrong.
        UnknownError = "UnknownError",
        /// Another Application owns the same resource.
        SharedResourceWarning = "SharedResourceWarning",
        /// The source renders the same resource twice.
        RepeatedResourceWarning = "RepeatedResourceWarning",
        /// The source renders a resource of a kind that settings exclude.
        ExcludedResourceWarning = "ExcludedResourceWarning",
        /// Resources in the destination belong to no Application.
        OrphanedResourceWarning = "OrphanedResourceWarning",
    }
}

/// How much a condition matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information.
    Info,
    /// Something should be looked at.
    Warning,
    /// The Application cannot do its work.
    Error,
}

impl Severity {
    /// Of a type, also one that is unknown here: its ending tells.
    pub fn of(condition_type: &str) -> Self {
        if condition_type.ends_with("Error") {
            Self::Error
        } else if condition_type.ends_with("Warning") {
            Self::Warning
        } else {
            Self::Info
        }
    }
}

impl ConditionType {
    /// How much it matters.
    pub fn severity(self) -> Severity {
        Severity::of(self.as_str())
    }

    /// A condition of this type, without a time yet.
    pub fn with_message(self, message: impl Into<String>) -> ApplicationCondition {
        ApplicationCondition {
            r#type: self.into(),
            message: message.into(),
            last_transition_time: None,
        }
    }
}

/// The list of conditions after a pass that evaluated some types and found these.
///
/// Conditions of types that were not evaluated stay. A condition that was there before with the same message keeps its
/// time. The outcome is in order of type, so that the same findings make the same list.
pub fn updated(
    current: &[ApplicationCondition],
    found: Vec<ApplicationCondition>,
    evaluated: &[ConditionType],
    now: Time,
) -> Vec<ApplicationCondition> {
    let was_evaluated =
        |condition: &ApplicationCondition| evaluated.iter().any(|t| t.as_str() == condition.r#type);
    let mut conditions: Vec<_> = current
        .iter()
        .filter(|condition| !was_evaluated(condition))
        .cloned()
        .collect();
    for mut condition in found {
        let before = current
            .iter()
            .find(|c| c.r#type == condition.r#type && c.message == condition.message);
        condition.last_transition_time = before.and_then(|c| c.last_transition_time).or(Some(now));
        conditions.push(condition);
    }
    conditions.sort_by(|a, b| (&a.r#type, &a.message).cmp(&(&b.r#type, &b.message)));
    conditions.dedup_by(|a, b| a.r#type == b.r#type && a.message == b.message);
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_type_is_its_severity() {
        assert_eq!(ConditionType::SyncError.severity(), Severity::Error);
        assert_eq!(
            ConditionType::OrphanedResourceWarning.severity(),
            Severity::Warning
        );
        assert_eq!(Severity::of("SomethingNewInfo"), Severity::Info);
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_message_stays() {
        let at = |seconds| Time { seconds, nanos: 0 };
        let mut old = ConditionType::SyncError.with_message("denied");
        old.last_transition_time = Some(at(10));
        let mut other = ConditionType::DeletionError.with_message("stuck");
        other.last_transition_time = Some(at(5));
        let evaluated = [ConditionType::SyncError];

        let same = updated(
            &[old.clone(), other.clone()],
            vec![ConditionType::SyncError.with_message("denied")],
            &evaluated,
            at(20),
        );
        assert_eq!(same, [other.clone(), old.clone()]);

        let changed = updated(
            &[old.clone(), other.clone()],
            vec![ConditionType::SyncError.with_message("refused")],
            &evaluated,
            at(20),
        );
        assert_eq!(changed[1].last_transition_time, Some(at(20)));

        assert_eq!(
            updated(&[old, other.clone()], vec![], &evaluated, at(20)),
            [other]
        );
    }
}
