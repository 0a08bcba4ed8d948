//! Findings and errors → `status.conditions`. Pure.
//!
//! Each stage states the types it has looked at; conditions of those types that were not found again go, the others
//! stay ([`argosy_api::condition::updated`]).

use argosy_api::condition::ConditionType;
use argosy_api::v1alpha1::{Application, ApplicationCondition};

use super::{compare, manifest};

/// The types that looking at the spec decides on.
pub(crate) const OF_SPEC: &[ConditionType] = &[ConditionType::InvalidSpecError, ConditionType::UnknownError];
/// The types that a comparison decides on.
pub(crate) const OF_COMPARISON: &[ConditionType] = &[
    ConditionType::ComparisonError,
    ConditionType::ComparisonWarning,
    ConditionType::SharedResourceWarning,
    ConditionType::RepeatedResourceWarning,
    ConditionType::ExcludedResourceWarning,
    ConditionType::OrphanedResourceWarning,
];
/// The type that the decision on automated sync decides on.
pub(crate) const OF_AUTOSYNC: &[ConditionType] = &[ConditionType::SyncError];

/// What sorting the manifests out has found.
pub(crate) fn of_manifests(
    findings: &[manifest::Finding],
) -> impl Iterator<Item = ApplicationCondition> + '_ {
    findings.iter().map(|finding| match finding {
        manifest::Finding::Repeated { key, times } => ConditionType::RepeatedResourceWarning.with_message(
            format!("Resource {key} appeared {times} times among application resources."),
        ),
        manifest::Finding::Excluded { key } => ConditionType::ExcludedResourceWarning.with_message(format!(
            "Resource {}/{} {} is excluded in the settings",
            key.group, key.kind, key.name
        )),
        manifest::Finding::NoNamespace { name, gvk } => {
            ConditionType::InvalidSpecError.with_message(format!("Namespace for {name} {gvk} is missing."))
        }
        manifest::Finding::Odd(warning) => ConditionType::ComparisonWarning.with_message(warning.clone()),
        manifest::Finding::Faulty(fault) => ConditionType::ComparisonError.with_message(fault.clone()),
    })
}

/// What the comparison has found.
pub(crate) fn of_comparison<'a>(
    app: &'a Application,
    findings: &'a [compare::Finding],
) -> impl Iterator<Item = ApplicationCondition> + 'a {
    let this = format!("{}/{}", app.metadata.namespace, app.metadata.name);
    findings.iter().map(move |finding| match finding {
        compare::Finding::Shared { key, other } => {
            ConditionType::SharedResourceWarning.with_message(format!(
                "{}/{} is part of applications {this} and {}",
                key.kind,
                key.name,
                other.replacen('_', "/", 1)
            ))
        }
        compare::Finding::KindUnknown { kind, reason } => {
            ConditionType::ComparisonError.with_message(format!(
                "The cluster's objects of kind {}/{} cannot be listed: {reason}",
                kind.group, kind.kind
            ))
        }
        compare::Finding::Unknown { key, message } => {
            ConditionType::ComparisonError.with_message(format!("Failed to compare {key}: {message}"))
        }
        compare::Finding::Rule { key, message } => {
            ConditionType::ComparisonWarning.with_message(format!("{key}: {message}"))
        }
    })
}

/// Rules of the Application that are wrong in themselves.
pub(crate) fn of_rules(findings: &[String]) -> impl Iterator<Item = ApplicationCondition> + '_ {
    findings.iter().map(|finding| {
        ConditionType::ComparisonWarning.with_message(format!("spec.ignoreDifferences: {finding}"))
    })
}
