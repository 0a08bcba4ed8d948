//! Sync options: what an Application says, what a resource says, and which of the two counts.

use std::borrow::Cow;

use argosy_object::Value;
use serde::{Deserialize, Serialize};

use crate::marks::Marks;

/// Annotation with the options of one resource, a comma list of `Key=value`.
pub const ANNOTATION: &str = "argocd.argoproj.io/sync-options";
/// Annotation that names the field manager whose fields move to ours before the first server-side apply.
pub const MIGRATION_MANAGER_ANNOTATION: &str = "argocd.argoproj.io/client-side-apply-migration-manager";
/// The field manager whose fields are moved if nothing else is named.
pub const DEFAULT_MIGRATION_MANAGER: &str = "kubectl-client-side-apply";
const HELM_POLICY: &str = "helm.sh/resource-policy";

/// Options as `Key=value` pairs in the order given. Of a key given twice the first counts. Unknown keys are kept and have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncOptions(Vec<(String, String)>);

impl SyncOptions {
    /// Reads entries such as `Prune=false`; white space around them is dropped, entries without `=` are ignored.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Self {
        let pairs = entries
            .into_iter()
            .filter_map(|entry| entry.trim().split_once('='));
        SyncOptions(
            pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// The options written on an object.
    pub fn on(object: &Value) -> Self {
        SyncOptions::of(Marks::of(object))
    }

    fn of(marks: Marks<'_>) -> Self {
        SyncOptions::parse(marks.list(ANNOTATION))
    }

    /// The value of an option, if it is given.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// An option that is switched on or off; any other value counts as not given.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// True if the option is switched on.
    pub fn enabled(&self, key: &str) -> bool {
        self.flag(key) == Some(true)
    }

    /// `CreateNamespace=true`.
    pub fn create_namespace(&self) -> bool {
        self.enabled("CreateNamespace")
    }

    /// `RespectIgnoreDifferences=true`.
    pub fn respect_ignore_differences(&self) -> bool {
        self.enabled("RespectIgnoreDifferences")
    }

    /// `FailOnSharedResource=true`.
    pub fn fail_on_shared_resource(&self) -> bool {
        self.enabled("FailOnSharedResource")
    }

    /// `PrunePropagationPolicy=…`; foreground unless something else is said.
    pub fn propagation(&self) -> Propagation {
        match self.get("PrunePropagationPolicy") {
            Some("background") => Propagation::Background,
            Some("orphan") => Propagation::Orphan,
            _ => Propagation::Foreground,
        }
    }
}

/// What happens to what a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// It goes first, and the object stays visible until then.
    Foreground,
    /// It goes afterwards.
    Background,
    /// It stays.
    Orphan,
}

impl Propagation {
    /// The name in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Propagation::Foreground => "Foreground",
            Propagation::Background => "Background",
            Propagation::Orphan => "Orphan",
        }
    }
}

/// Whether an object may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// Yes.
    Allowed,
    /// Once a person has approved it.
    Confirm,
    /// No: it stays.
    Forbidden,
}

/// The options that count for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOptions {
    /// Removal when the resource is no longer desired.
    pub prune: Removal,
    /// Removal when the Application is deleted.
    pub delete: Removal,
    /// Removal comes after the last wave.
    pub prune_last: bool,
    /// The object is replaced instead of patched. Beats `server_side_apply`.
    pub replace: bool,
    /// The object is deleted and created again where it cannot be changed.
    pub force: bool,
    /// The API server merges, as field manager `argocd-controller`.
    pub server_side_apply: bool,
    /// What others put beside what Git states counts as different, and goes.
    pub strict: bool,
    /// The API server refuses fields it does not know.
    pub validate: bool,
    /// Nothing is applied if nothing differs.
    pub out_of_sync_only: bool,
    /// A kind the API server does not know yet does not fail the dry run.
    pub skip_dry_run_on_missing_kind: bool,
    /// The field manager whose fields become ours before the first server-side apply, if any.
    pub migrate_from: Option<Cow<'static, str>>,
}

/// The options of one resource: what its desired object says, else what its live object says (for `Force`, `Replace` and
/// everything about removal, which must also work for what is no longer desired), else what the Application says.
/// `migration_manager` is the Application's own annotation of that name.
pub fn resource_options(
    app: &SyncOptions,
    migration_manager: Option<&str>,
    desired: Option<&Value>,
    live: Option<&Value>,
) -> ResourceOptions {
    let (marks, marks_live) = (desired.map(Marks::of), live.map(Marks::of));
    let on_desired = marks.map(SyncOptions::of).unwrap_or_default();
    let on_live = marks_live.map(SyncOptions::of).unwrap_or_default();
    let stated = |key| on_desired.flag(key).or_else(|| app.flag(key));
    let stated_anywhere = |key| {
        on_desired
            .flag(key)
            .or_else(|| on_live.flag(key))
            .or_else(|| app.flag(key))
    };
    let own = marks.or(marks_live);
    let kept = own.is_some_and(|marks| marks.list(HELM_POLICY).any(|policy| policy == "keep"));
    let removal = |key| {
        let value = if desired.is_some() {
            on_desired.get(key)
        } else {
            on_live.get(key)
        };
        match value.or_else(|| app.get(key)) {
            _ if kept => Removal::Forbidden,
            Some("false") => Removal::Forbidden,
            Some("confirm") => Removal::Confirm,
            _ => Removal::Allowed,
        }
    };
    let migrate = stated("ClientSideApplyMigration").unwrap_or(true);
    let manager = own
        .and_then(|marks| marks.text(MIGRATION_MANAGER_ANNOTATION))
        .or(migration_manager)
        .filter(|name| !name.is_empty());
    let replace = stated_anywhere("Replace").unwrap_or(false);
    ResourceOptions {
        prune: removal("Prune"),
        delete: removal("Delete"),
        prune_last: stated_anywhere("PruneLast").unwrap_or(false),
        replace,
        force: stated_anywhere("Force").unwrap_or(false),
        server_side_apply: !replace && stated("ServerSideApply").unwrap_or(false),
        strict: stated("Strict").unwrap_or(false),
        validate: stated("Validate").unwrap_or(true),
        out_of_sync_only: stated("ApplyOutOfSyncOnly").unwrap_or(false),
        skip_dry_run_on_missing_kind: stated("SkipDryRunOnMissingResource").unwrap_or(false),
        migrate_from: migrate.then(|| {
            manager.map_or(Cow::Borrowed(DEFAULT_MIGRATION_MANAGER), |name| {
                Cow::Owned(name.to_owned())
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(options: &str) -> Value {
        json!({"kind": "ConfigMap", "metadata": {"name": "a", "annotations": {ANNOTATION: options}}})
    }

    fn of(app: &str, desired: Option<&Value>, live: Option<&Value>) -> ResourceOptions {
        resource_options(&SyncOptions::parse(app.split(',')), None, desired, live)
    }

    #[test]
    fn a_resource_beats_its_application() {
        assert!(!of("Replace=true", Some(&object("Replace=false")), None).replace);
        assert!(
            of(
                "ServerSideApply=false",
                Some(&object("ServerSideApply=true")),
                None
            )
            .server_side_apply
        );
        assert!(
            !of(
                "ApplyOutOfSyncOnly=true",
                Some(&object("ApplyOutOfSyncOnly=false")),
                None
            )
            .out_of_sync_only
        );
        assert_eq!(
            of("Prune=confirm", None, Some(&object("Prune=false"))).prune,
            Removal::Forbidden
        );
        assert_eq!(
            of("Prune=false", None, Some(&object("Prune=true"))).prune,
            Removal::Allowed
        );
    }

    #[test]
    fn order_and_spaces_in_the_list_do_not_matter() {
        let options = of("", Some(&object("Replace=true, Force=true")), None);
        assert!(options.replace && options.force);
    }

    #[test]
    fn force_and_replace_count_from_the_live_object_too() {
        let options = of(
            "",
            Some(&json!({"kind": "Job"})),
            Some(&object("Force=true,Replace=true")),
        );
        assert!(options.replace && options.force);
    }

    #[test]
    fn strict_is_off_unless_somebody_asks_for_it() {
        assert!(!of("", Some(&object("")), None).strict);
        assert!(of("Strict=true", Some(&object("")), None).strict);
        assert!(!of("Strict=true", Some(&object("Strict=false")), None).strict);
        assert!(of("", Some(&object("Strict=true")), None).strict);
    }

    #[test]
    fn replace_beats_server_side_apply() {
        assert!(!of("Replace=true,ServerSideApply=true", Some(&object("")), None).server_side_apply);
    }

    #[test]
    fn helm_keep_forbids_removal_whatever_the_options_say() {
        let kept = json!({"kind": "Secret", "metadata": {"annotations": {HELM_POLICY: "keep", ANNOTATION: "Prune=true"}}});
        let options = of("", None, Some(&kept));
        assert_eq!(
            (options.prune, options.delete),
            (Removal::Forbidden, Removal::Forbidden)
        );
    }

    #[test]
    fn fields_of_kubectl_are_taken_over_unless_it_is_switched_off() {
        assert_eq!(
            of("", Some(&object("")), None).migrate_from.as_deref(),
            Some("kubectl-client-side-apply")
        );
        assert_eq!(
            of("ClientSideApplyMigration=false", Some(&object("")), None).migrate_from,
            None
        );
        let own = resource_options(&SyncOptions::default(), Some("flux"), Some(&object("")), None);
        assert_eq!(own.migrate_from.as_deref(), Some("flux"));
    }
}
