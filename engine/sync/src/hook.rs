//! Hooks: objects that run at a moment of a sync instead of being kept.

use std::str::FromStr;

use argosy_object::{Value, meta};
use serde::{Deserialize, Serialize};

use crate::marks::Marks;
use crate::phase::Phase;

/// Annotation that makes an object a hook: comma list of [`HookType`].
pub const ANNOTATION: &str = "argocd.argoproj.io/hook";
/// Annotation with the comma list of [`DeletePolicy`].
pub const DELETE_POLICY_ANNOTATION: &str = "argocd.argoproj.io/hook-delete-policy";
/// Finalizer on hook objects, so that their result is seen before they go (a Job with a TTL of zero).
pub const FINALIZER: &str = "argocd.argoproj.io/hook-finalizer";
/// Annotation on hook objects with the run and the phase that created them, `<run>/<phase>`. A controller that was
/// stopped between creating a hook and writing it down recognises the hook as its own and does not run it twice.
pub const RUN_ANNOTATION: &str = "argosy.dev/hook-run";
const HELM: &str = "helm.sh/hook";
const HELM_DELETE_POLICY: &str = "helm.sh/hook-delete-policy";

/// The moment at which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HookType {
    /// Before anything is applied.
    PreSync,
    /// Among the resources.
    Sync,
    /// After all resources are healthy.
    PostSync,
    /// After a failure.
    SyncFail,
    /// Never: the object is left out of the sync.
    Skip,
    /// Before the resources of a deleted Application are deleted.
    PreDelete,
    /// After they are gone.
    PostDelete,
}

impl HookType {
    /// The name in the annotation and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            HookType::PreSync => "PreSync",
            HookType::Sync => "Sync",
            HookType::PostSync => "PostSync",
            HookType::SyncFail => "SyncFail",
            HookType::Skip => "Skip",
            HookType::PreDelete => "PreDelete",
            HookType::PostDelete => "PostDelete",
        }
    }

    /// The phase of a sync in which such a hook runs, if it runs in one.
    pub fn phase(self) -> Option<Phase> {
        match self {
            HookType::PreSync => Some(Phase::PreSync),
            HookType::Sync => Some(Phase::Sync),
            HookType::PostSync => Some(Phase::PostSync),
            HookType::SyncFail => Some(Phase::SyncFail),
            HookType::Skip | HookType::PreDelete | HookType::PostDelete => None,
        }
    }

    fn from_helm(text: &str) -> Option<Self> {
        match text {
            "pre-install" | "pre-upgrade" => Some(HookType::PreSync),
            "post-install" | "post-upgrade" => Some(HookType::PostSync),
            "pre-delete" => Some(HookType::PreDelete),
            "post-delete" => Some(HookType::PostDelete),
            _ => None,
        }
    }
}

impl From<Phase> for HookType {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::PreSync => HookType::PreSync,
            Phase::Sync => HookType::Sync,
            Phase::PostSync => HookType::PostSync,
            Phase::SyncFail => HookType::SyncFail,
        }
    }
}

impl FromStr for HookType {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        use HookType::{PostDelete, PostSync, PreDelete, PreSync, Skip, Sync, SyncFail};
        [PreSync, Sync, PostSync, SyncFail, Skip, PreDelete, PostDelete]
            .into_iter()
            .find(|hook| hook.as_str() == text)
            .ok_or(())
    }
}

/// When a hook object is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeletePolicy {
    /// The one of an earlier sync, before this sync creates its own. The default.
    BeforeHookCreation,
    /// At the end of a sync that succeeded.
    HookSucceeded,
    /// At the end of a sync that failed.
    HookFailed,
}

impl DeletePolicy {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "BeforeHookCreation" => Some(DeletePolicy::BeforeHookCreation),
            "HookSucceeded" => Some(DeletePolicy::HookSucceeded),
            "HookFailed" => Some(DeletePolicy::HookFailed),
            _ => None,
        }
    }

    fn from_helm(text: &str) -> Option<Self> {
        match text {
            "before-hook-creation" => Some(DeletePolicy::BeforeHookCreation),
            "hook-succeeded" => Some(DeletePolicy::HookSucceeded),
            "hook-failed" => Some(DeletePolicy::HookFailed),
            _ => None,
        }
    }
}

/// What the annotations of an object say about its being a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its moments, without repetition. Empty for Helm's tests and rollback hooks: such an object is a hook that never runs.
    pub types: Vec<HookType>,
    /// Never empty.
    pub delete_policies: Vec<DeletePolicy>,
}

/// What an object is to a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// An ordinary resource. Helm's `crd-install` marks one too.
    Resource,
    /// It is marked `Skip` and nothing else: it belongs to the Application, and a sync leaves it alone.
    Skipped,
    /// A hook.
    Hook(Hook),
}

impl Role {
    /// What its annotations say.
    pub fn of(object: &Value) -> Role {
        let marks = Marks::of(object);
        let helm = || marks.text(HELM).is_some_and(|value| value != "crd-install");
        if marks.text(ANNOTATION).is_none() && !helm() {
            return Role::Resource;
        }
        let types = types(marks);
        if types == [HookType::Skip] {
            return Role::Skipped;
        }
        Role::Hook(Hook {
            types,
            delete_policies: delete_policies(marks),
        })
    }
}

impl Hook {
    /// The hook that an object is, or `None` for what is none ([`Role`]).
    pub fn of(object: &Value) -> Option<Hook> {
        match Role::of(object) {
            Role::Hook(hook) => Some(hook),
            Role::Resource | Role::Skipped => None,
        }
    }

    /// The phases of a sync in which it runs, in order.
    pub fn phases(&self) -> Vec<Phase> {
        let mut phases: Vec<Phase> = self.types.iter().filter_map(|hook| hook.phase()).collect();
        phases.sort_unstable();
        phases
    }

    /// True if the object is removed under this policy.
    pub fn deleted(&self, policy: DeletePolicy) -> bool {
        self.delete_policies.contains(&policy)
    }
}

/// True if the object says `Skip` and nothing else: it belongs to the Application, and a sync leaves it alone.
pub fn skipped(object: &Value) -> bool {
    types(Marks::of(object)) == [HookType::Skip]
}

/// True if the object is a hook of this type.
pub fn is_of_type(object: &Value, hook: HookType) -> bool {
    Hook::of(object).is_some_and(|found| found.types.contains(&hook))
}

/// True if the object carries the finalizer that keeps a hook until its result is seen.
pub fn has_finalizer(object: &Value) -> bool {
    meta::field(object, &["metadata", "finalizers"])
        .and_then(Value::as_array)
        .is_some_and(|list| list.iter().any(|entry| entry.as_str() == Some(FINALIZER)))
}

/// The types an object declares: its own annotation, and only when that names none, Helm's.
fn types(marks: Marks<'_>) -> Vec<HookType> {
    let own = distinct(marks.list(ANNOTATION).filter_map(|text| text.parse().ok()));
    if own.is_empty() {
        distinct(marks.list(HELM).filter_map(HookType::from_helm))
    } else {
        own
    }
}

/// The union of the own policies and Helm's; `BeforeHookCreation` if there is none.
fn delete_policies(marks: Marks<'_>) -> Vec<DeletePolicy> {
    let own = marks
        .list(DELETE_POLICY_ANNOTATION)
        .filter_map(DeletePolicy::parse);
    let helm = marks.list(HELM_DELETE_POLICY).filter_map(DeletePolicy::from_helm);
    let mut policies = distinct(own.chain(helm));
    if policies.is_empty() {
        policies.push(DeletePolicy::BeforeHookCreation);
    }
    policies
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// The name of a hook that has only `generateName`: the prefix, the first seven characters of the revision, the phase and
/// the start of the operation in Unix seconds. It is the same each time it is asked, so a resumed sync finds its hook.
pub fn generated_name(prefix: &str, revision: &str, phase: Phase, started_at: i64) -> String {
    let short = if revision.len() >= 8 {
        revision.get(..7).unwrap_or(revision)
    } else {
        revision
    };
    format!(
        "{prefix}{}",
        format!("{short}-{phase}-{started_at}").to_lowercase()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn annotated(pairs: &[(&str, &str)]) -> Value {
        let annotations: serde_json::Map<String, Value> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        json!({"kind": "Job", "metadata": {"name": "a", "annotations": annotations}})
    }

    #[test]
    fn an_own_annotation_makes_helms_be_ignored() {
        let both = Hook::of(&annotated(&[(ANNOTATION, "PostSync"), (HELM, "pre-install")])).unwrap();
        assert_eq!(both.types, [HookType::PostSync]);
        let neither_known = Hook::of(&annotated(&[(ANNOTATION, "Nonsense"), (HELM, "pre-install")])).unwrap();
        assert_eq!(neither_known.types, [HookType::PreSync]);
    }

    #[test]
    fn helms_hooks_are_mapped_and_its_tests_are_hooks_that_never_run() {
        let install = Hook::of(&annotated(&[(HELM, "pre-install,pre-upgrade")])).unwrap();
        assert_eq!(install.phases(), [Phase::PreSync]);
        let test = Hook::of(&annotated(&[(HELM, "test-success")])).unwrap();
        assert!(test.types.is_empty());
        assert_eq!(Hook::of(&annotated(&[(HELM, "crd-install")])), None);
        let delete = Hook::of(&annotated(&[(HELM, "post-delete")])).unwrap();
        assert_eq!(
            (delete.types.as_slice(), delete.phases().len()),
            ([HookType::PostDelete].as_slice(), 0)
        );
    }

    #[test]
    fn skip_alone_is_no_hook_and_skip_with_another_is_that_other() {
        assert_eq!(Hook::of(&annotated(&[(ANNOTATION, "Skip")])), None);
        assert!(skipped(&annotated(&[(ANNOTATION, "Skip")])));
        let both = annotated(&[(ANNOTATION, "Skip,PreSync")]);
        assert!(!skipped(&both));
        assert_eq!(Hook::of(&both).unwrap().phases(), [Phase::PreSync]);
    }

    #[test]
    fn delete_policies_are_united_and_default_to_before_hook_creation() {
        let both = annotated(&[
            (ANNOTATION, "PreSync"),
            (DELETE_POLICY_ANNOTATION, "HookFailed"),
            (HELM_DELETE_POLICY, "hook-succeeded"),
        ]);
        assert_eq!(
            Hook::of(&both).unwrap().delete_policies,
            [DeletePolicy::HookFailed, DeletePolicy::HookSucceeded]
        );
        assert_eq!(
            Hook::of(&annotated(&[(ANNOTATION, "Sync")]))
                .unwrap()
                .delete_policies,
            [DeletePolicy::BeforeHookCreation]
        );
    }

    #[test]
    fn a_generated_name_has_seven_characters_of_the_revision() {
        let name = |revision| generated_name("migrate-", revision, Phase::PreSync, 1_700_000_000);
        assert_eq!(name("0123456789abcdef"), "migrate-0123456-presync-1700000000");
        assert_eq!(name("v1.2.3"), "migrate-v1.2.3-presync-1700000000");
    }
}
