//! Every annotation key of Argo CD's that this program reads or writes, and how its values are read.
//!
//! Keys on Applications first, then keys on managed resources, then the readers. Readers are lenient as Argo CD is: a
//! value that means nothing counts as absent, so that a typo in one manifest stops nobody.

use std::borrow::Cow;

use serde_json::Value;

use crate::meta::Time;
use crate::v1alpha1::HookType;

// ---------------------------------------------------------------------------------------------------------------------
// On Applications

/// `normal` or `hard`: look again. The controller takes it away when it has compared.
pub const REFRESH: &str = "argocd.argoproj.io/refresh";
/// When the refresh was asked for (RFC 3339 with nanoseconds); tells a newer request from the one being served.
pub const REFRESH_TIMESTAMP: &str = "argocd.argoproj.io/refresh-timestamp";
/// `normal` or `hard`: let the source hydrator run.
pub const HYDRATE: &str = "argocd.argoproj.io/hydrate";
/// When hydration was asked for.
pub const HYDRATE_TIMESTAMP: &str = "argocd.argoproj.io/hydrate-timestamp";
/// Paths whose changes matter to the manifests; read by [`manifest_generate_paths`].
pub const MANIFEST_GENERATE_PATHS: &str = "argocd.argoproj.io/manifest-generate-paths";
/// True: the controller leaves this Application, or on a cluster Secret this cluster, alone.
pub const SKIP_RECONCILE: &str = "argocd.argoproj.io/skip-reconcile";
/// Options of the comparison, of an Application or of one resource; read by [`CompareOptions::read`].
pub const COMPARE_OPTIONS: &str = "argocd.argoproj.io/compare-options";
/// URL of the Argo CD that manages this Application, for links.
pub const MANAGED_BY_URL: &str = "argocd.argoproj.io/managed-by-url";
/// RFC 3339: someone approved deletions and prunes that ask for confirmation.
pub const DELETION_APPROVED: &str = "argocd.argoproj.io/deletion-approved";
/// Field manager whose fields are taken over before the first server-side apply; also on resources.
pub const CLIENT_SIDE_APPLY_MIGRATION_MANAGER: &str =
    "argocd.argoproj.io/client-side-apply-migration-manager";
/// On an ApplicationSet: `true` asks for a reconcile.
pub const APPLICATION_SET_REFRESH: &str = "argocd.argoproj.io/application-set-refresh";
/// Prefix of extra links: `url` or `Title|url`.
pub const LINK_PREFIX: &str = "link.argocd.argoproj.io/";
/// Prefix of notification subscriptions.
pub const NOTIFICATION_SUBSCRIPTION_PREFIX: &str = "notifications.argoproj.io/subscribe.";
/// Subscriptions as a YAML list.
pub const NOTIFICATION_SUBSCRIPTIONS: &str = "notifications.argoproj.io/subscriptions";
/// What was notified already, kept by the notifications controller.
pub const NOTIFIED: &str = "notified.notifications.argoproj.io";
/// Prefix of the banner the UI shows: `content`, `severity`, `url`, `permanent`, `icon`, `scope`.
pub const NOTICE_PREFIX: &str = "notice.argocd.argoproj.io/";
/// Which view the UI opens.
pub const DEFAULT_VIEW: &str = "pref.argocd.argoproj.io/default-view";
/// How the UI groups pods.
pub const DEFAULT_POD_SORT: &str = "pref.argocd.argoproj.io/default-pod-sort";

// ---------------------------------------------------------------------------------------------------------------------
// On managed resources

/// Which Application a resource belongs to; see [`crate::tracking`].
pub const TRACKING_ID: &str = "argocd.argoproj.io/tracking-id";
/// Which installation of Argo CD it belongs to.
pub const INSTALLATION_ID: &str = "argocd.argoproj.io/installation-id";
/// Options of the sync of this resource; read by [`sync_options`].
pub const SYNC_OPTIONS: &str = "argocd.argoproj.io/sync-options";
/// The wave of a sync; read by [`sync_wave`].
pub const SYNC_WAVE: &str = "argocd.argoproj.io/sync-wave";
/// The phases in which a hook runs; read by [`Hook::read`].
pub const HOOK: &str = "argocd.argoproj.io/hook";
/// When a hook is deleted; read by [`delete_policies`].
pub const HOOK_DELETE_POLICY: &str = "argocd.argoproj.io/hook-delete-policy";
/// `true`: leave this resource out of the health of the Application.
pub const IGNORE_HEALTHCHECK: &str = "argocd.argoproj.io/ignore-healthcheck";
/// `true` on a Pod: judge it as one that runs for ever, whatever its restart policy.
pub const IGNORE_RESTART_POLICY: &str = "argocd.argoproj.io/ignore-restart-policy";
/// `true`: show no links that were found by themselves.
pub const IGNORE_DEFAULT_LINKS: &str = "argocd.argoproj.io/ignore-default-links";
/// `true` on children nobody tracks: apply `ignoreResourceUpdates` to them as well.
pub const IGNORE_RESOURCE_UPDATES: &str = "argocd.argoproj.io/ignore-resource-updates";
/// Helm's hook types.
pub const HELM_HOOK: &str = "helm.sh/hook";
/// Helm's order of hooks.
pub const HELM_HOOK_WEIGHT: &str = "helm.sh/hook-weight";
/// Helm's delete policies.
pub const HELM_HOOK_DELETE_POLICY: &str = "helm.sh/hook-delete-policy";
/// `keep`: neither prune nor delete.
pub const HELM_RESOURCE_POLICY: &str = "helm.sh/resource-policy";
/// The manifest that client-side apply last sent.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

// ---------------------------------------------------------------------------------------------------------------------
// Labels and annotations of Secrets and ConfigMaps

/// Label: what a Secret holds (`cluster`, `repository`, `repo-creds`, `repository-write`, `repo-write-creds`, `scm-creds`).
pub const SECRET_TYPE: &str = "argocd.argoproj.io/secret-type";
/// Annotation with value [`MANAGED_BY_ARGOCD`]: the API made this Secret and may delete it.
pub const MANAGED_BY: &str = "managed-by";
/// The value of [`MANAGED_BY`].
pub const MANAGED_BY_ARGOCD: &str = "argocd.argoproj.io";
/// Label of a cluster Secret: write the version of the cluster to [`CLUSTER_KUBERNETES_VERSION`].
pub const AUTO_LABEL_CLUSTER_INFO: &str = "argocd.argoproj.io/auto-label-cluster-info";
/// Label of a cluster Secret: version of the cluster.
pub const CLUSTER_KUBERNETES_VERSION: &str = "argocd.argoproj.io/kubernetes-version";

// ---------------------------------------------------------------------------------------------------------------------
// Reading

/// An annotation of an object.
pub fn get<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// An annotation that lists words with commas between: trimmed, none empty, none twice.
pub fn words<'a>(object: &'a Value, key: &str) -> Vec<&'a str> {
    split_words(get(object, key).unwrap_or_default())
}

fn split_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for word in text.split(',').map(str::trim) {
        if !word.is_empty() && !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// A boolean as Go's `strconv.ParseBool` takes it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Whether a switch is on, for keys that take any of Go's spellings of true.
pub fn is_true(object: &Value, key: &str) -> bool {
    get(object, key).and_then(parse_bool) == Some(true)
}

/// How thoroughly to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refresh {
    /// Ask the repository again, but take manifests from the cache if the revision is known.
    Normal,
    /// Render anew.
    Hard,
}

impl Refresh {
    /// The value of [`REFRESH`] or [`HYDRATE`]: `hard`, or anything else for normal.
    pub fn parse(text: &str) -> Self {
        if text == "hard" { Self::Hard } else { Self::Normal }
    }

    /// The text to annotate with.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Hard => "hard",
        }
    }
}

/// The path prefixes or globs, from the root of the repository and without leading `/`, that
/// [`MANIFEST_GENERATE_PATHS`] names for a source at this path. None: every change matters.
pub fn manifest_generate_paths(text: &str, source_path: &str) -> Vec<String> {
    text.split(';')
        .filter(|item| !item.is_empty())
        .map(|item| match item.strip_prefix('/') {
            Some(from_root) => from_root.to_owned(),
            None => clean_path(&format!("{source_path}/{item}")),
        })
        .collect()
}

/// Removes `.` and resolves `..` as far as the root.
fn clean_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    if segments.is_empty() {
        ".".to_owned()
    } else {
        segments.join("/")
    }
}

/// What [`COMPARE_OPTIONS`] asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompareOptions {
    /// The resource, if it is extra, does not make its Application OutOfSync.
    pub ignore_extraneous: bool,
    /// Compare by a dry run of server-side apply, or by no means.
    pub server_side_diff: Option<bool>,
    /// Take what mutating webhooks change for desired.
    pub include_mutation_webhook: bool,
}

impl CompareOptions {
    /// Of an Application or a resource.
    pub fn read(object: &Value) -> Self {
        Self::parse(get(object, COMPARE_OPTIONS).unwrap_or_default())
    }

    /// Of the annotation's text.
    pub fn parse(text: &str) -> Self {
        let mut options = Self::default();
        for word in split_words(text) {
            match word {
                "IgnoreExtraneous" => options.ignore_extraneous = true,
                "ServerSideDiff=true" => options.server_side_diff = Some(true),
                "ServerSideDiff=false" => options.server_side_diff = Some(false),
                "IncludeMutationWebhook=true" => options.include_mutation_webhook = true,
                _ => {}
            }
        }
        options
    }
}

/// Do it, do not, or do it once a person agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consent {
    /// `true`, the default.
    Yes,
    /// `false`.
    No,
    /// `confirm`.
    Confirm,
}

/// How dependents go when a resource is pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// Dependents first.
    Foreground,
    /// Dependents afterwards.
    Background,
    /// Dependents stay.
    Orphan,
}

impl Propagation {
    /// Kubernetes' word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::Background => "Background",
            Self::Orphan => "Orphan",
        }
    }
}

/// One option of a sync, from `syncPolicy.syncOptions`, `operation.sync.syncOptions` or [`SYNC_OPTIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncOption {
    /// `Validate=…`: schema validation on apply.
    Validate(bool),
    /// `CreateNamespace=…`: make the namespace of the destination.
    CreateNamespace(bool),
    /// `PruneLast=…`: prune after everything else.
    PruneLast(bool),
    /// `Prune=…`.
    Prune(Consent),
    /// `Delete=…`: what happens when the Application is deleted.
    Delete(Consent),
    /// `Replace=…`: replace, do not patch.
    Replace(bool),
    /// `Force=…`: delete and create again where a change is refused.
    Force(bool),
    /// `ServerSideApply=…`.
    ServerSideApply(bool),
    /// `ApplyOutOfSyncOnly=…`.
    ApplyOutOfSyncOnly(bool),
    /// `SkipDryRunOnMissingResource=…`: no dry run while the kind is unknown.
    SkipDryRunOnMissingResource(bool),
    /// `PrunePropagationPolicy=…`.
    PrunePropagationPolicy(Propagation),
    /// `RespectIgnoreDifferences=…`: keep live values of ignored fields.
    RespectIgnoreDifferences(bool),
    /// `FailOnSharedResource=…`.
    FailOnSharedResource(bool),
    /// `ClientSideApplyMigration=…`: take fields over from client-side apply.
    ClientSideApplyMigration(bool),
}

/// A text that is no option, or an option that has no such value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read sync option {0:?}: unknown")]
pub struct UnknownSyncOption(pub String);

impl std::str::FromStr for SyncOption {
    type Err = UnknownSyncOption;

    fn from_str(text: &str) -> Result<Self, UnknownSyncOption> {
        let unknown = || UnknownSyncOption(text.to_owned());
        let (name, value) = text.split_once('=').ok_or_else(unknown)?;
        let consent = match value {
            "true" => Some(Consent::Yes),
            "false" => Some(Consent::No),
            "confirm" => Some(Consent::Confirm),
            _ => None,
        };
        match name {
            "Prune" => return consent.map(Self::Prune).ok_or_else(unknown),
            "Delete" => return consent.map(Self::Delete).ok_or_else(unknown),
            "PrunePropagationPolicy" => {
                return match value {
                    "foreground" => Ok(Self::PrunePropagationPolicy(Propagation::Foreground)),
                    "background" => Ok(Self::PrunePropagationPolicy(Propagation::Background)),
                    "orphan" => Ok(Self::PrunePropagationPolicy(Propagation::Orphan)),
                    _ => Err(unknown()),
                };
            }
            _ => {}
        }
        let on = match value {
            "true" => true,
            "false" => false,
            _ => return Err(unknown()),
        };
        Ok(match name {
            "Validate" => Self::Validate(on),
            "CreateNamespace" => Self::CreateNamespace(on),
            "PruneLast" => Self::PruneLast(on),
            "Replace" => Self::Replace(on),
            "Force" => Self::Force(on),
            "ServerSideApply" => Self::ServerSideApply(on),
            "ApplyOutOfSyncOnly" => Self::ApplyOutOfSyncOnly(on),
            "SkipDryRunOnMissingResource" => Self::SkipDryRunOnMissingResource(on),
            "RespectIgnoreDifferences" => Self::RespectIgnoreDifferences(on),
            "FailOnSharedResource" => Self::FailOnSharedResource(on),
            "ClientSideApplyMigration" => Self::ClientSideApplyMigration(on),
            _ => return Err(unknown()),
        })
    }
}

/// The sync options a resource carries, and those of its words that are none.
pub fn sync_options(object: &Value) -> (Vec<SyncOption>, Vec<UnknownSyncOption>) {
    parse_sync_options(words(object, SYNC_OPTIONS))
}

/// The same of a list, as Applications hold it.
pub fn parse_sync_options<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> (Vec<SyncOption>, Vec<UnknownSyncOption>) {
    let mut options = Vec::new();
    let mut unknown = Vec::new();
    for text in texts {
        match text.trim().parse() {
            Ok(option) => options.push(option),
            Err(error) => unknown.push(error),
        }
    }
    (options, unknown)
}

/// The wave a resource syncs in: [`SYNC_WAVE`], else Helm's hook weight, else 0.
pub fn sync_wave(object: &Value) -> i64 {
    let number = |key| get(object, key).and_then(|text| text.parse().ok());
    number(SYNC_WAVE)
        .or_else(|| number(HELM_HOOK_WEIGHT))
        .unwrap_or(0)
}

/// What a resource is with regard to hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hook {
    /// An ordinary resource.
    No,
    /// `Skip` alone: never applied, but compared as an ordinary resource.
    Skip,
    /// A hook that runs in these phases. None: a kind of hook that Argo CD has no phase for, neither applied nor compared.
    In(Vec<HookType>),
}

impl Hook {
    /// Reads [`HOOK`], and [`HELM_HOOK`] where the former says nothing.
    pub fn read(object: &Value) -> Self {
        let mut types: Vec<HookType> = words(object, HOOK)
            .iter()
            .filter_map(|word| word.parse().ok())
            .collect();
        if types.is_empty() {
            for word in words(object, HELM_HOOK) {
                types.extend(helm_hook(word));
            }
        }
        if get(object, HOOK).is_some() {
            if types == [HookType::Skip] {
                Self::Skip
            } else {
                Self::In(types)
            }
        } else if get(object, HELM_HOOK).is_some_and(|text| text != "crd-install") {
            Self::In(dedup(types))
        } else {
            Self::No
        }
    }

    /// The phases; none for what is no hook.
    pub fn types(&self) -> &[HookType] {
        match self {
            Self::In(types) => types,
            Self::No | Self::Skip => &[],
        }
    }

    /// A hook of a kind that is neither applied nor compared.
    pub fn is_ignored(&self) -> bool {
        matches!(self, Self::In(types) if types.is_empty())
    }
}

fn helm_hook(word: &str) -> Option<HookType> {
    match word {
        "pre-install" | "pre-upgrade" => Some(HookType::PreSync),
        "post-install" | "post-upgrade" => Some(HookType::PostSync),
        "pre-delete" => Some(HookType::PreDelete),
        "post-delete" => Some(HookType::PostDelete),
        _ => None,
    }
}

fn dedup(types: Vec<HookType>) -> Vec<HookType> {
    let mut unique = Vec::new();
    for hook_type in types {
        if !unique.contains(&hook_type) {
            unique.push(hook_type);
        }
    }
    unique
}

/// When a hook is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeletePolicy {
    /// Before the next one is made.
    BeforeHookCreation,
    /// After it succeeded.
    HookSucceeded,
    /// After it failed.
    HookFailed,
}

/// The delete policies of a hook, Helm's and ours together; before the next creation unless it has any.
pub fn delete_policies(object: &Value) -> Vec<DeletePolicy> {
    let mut policies = Vec::new();
    let ours = words(object, HOOK_DELETE_POLICY);
    let helms = words(object, HELM_HOOK_DELETE_POLICY);
    for word in ours {
        policies.extend(match word {
            "BeforeHookCreation" => Some(DeletePolicy::BeforeHookCreation),
            "HookSucceeded" => Some(DeletePolicy::HookSucceeded),
            "HookFailed" => Some(DeletePolicy::HookFailed),
            _ => None,
        });
    }
    for word in helms {
        policies.extend(match word {
            "before-hook-creation" => Some(DeletePolicy::BeforeHookCreation),
            "hook-succeeded" => Some(DeletePolicy::HookSucceeded),
            "hook-failed" => Some(DeletePolicy::HookFailed),
            _ => None,
        });
    }
    if policies.is_empty() {
        policies.push(DeletePolicy::BeforeHookCreation);
    }
    policies
}

/// `helm.sh/resource-policy: keep`: neither prune nor delete.
pub fn is_kept_by_helm(object: &Value) -> bool {
    words(object, HELM_RESOURCE_POLICY).contains(&"keep")
}

/// When deletions that need consent were approved, if they were.
pub fn deletion_approved(object: &Value) -> Option<Time> {
    get(object, DELETION_APPROVED).and_then(|text| Time::parse(text).ok())
}

/// An extra link of a resource: its title, if it has one, and its URL.
pub fn link(value: &str) -> (Option<Cow<'_, str>>, &str) {
    match value.split_once('|') {
        Some((title, url)) => (Some(title.into()), url),
        None => (None, value),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn annotated(pairs: &[(&str, &str)]) -> Value {
        let annotations: serde_json::Map<String, Value> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).into()))
            .collect();
        json!({"metadata": {"annotations": annotations}})
    }

    #[test]
    fn any_value_of_refresh_but_hard_is_normal() {
        assert_eq!(Refresh::parse("hard"), Refresh::Hard);
        assert_eq!(Refresh::parse("normal"), Refresh::Normal);
        assert_eq!(Refresh::parse(""), Refresh::Normal);
    }

    #[test]
    fn generate_paths_are_relative_to_the_source_or_the_root() {
        assert_eq!(
            manifest_generate_paths(".;/shared;../base;charts/*.yaml", "apps/shop"),
            ["apps/shop", "shared", "apps/base", "apps/shop/charts/*.yaml"]
        );
    }

    #[test]
    fn compare_options_are_a_list() {
        let options = CompareOptions::parse("IgnoreExtraneous, ServerSideDiff=false");
        assert!(options.ignore_extraneous);
        assert_eq!(options.server_side_diff, Some(false));
        assert_eq!(CompareOptions::parse("Nonsense"), CompareOptions::default());
    }

    #[test]
    fn every_documented_sync_option_is_known() {
        for (text, option) in [
            ("Validate=false", SyncOption::Validate(false)),
            ("CreateNamespace=true", SyncOption::CreateNamespace(true)),
            ("PruneLast=true", SyncOption::PruneLast(true)),
            ("Prune=false", SyncOption::Prune(Consent::No)),
            ("Prune=confirm", SyncOption::Prune(Consent::Confirm)),
            ("Delete=false", SyncOption::Delete(Consent::No)),
            ("Delete=confirm", SyncOption::Delete(Consent::Confirm)),
            ("Replace=true", SyncOption::Replace(true)),
            ("Force=true", SyncOption::Force(true)),
            ("ServerSideApply=false", SyncOption::ServerSideApply(false)),
            ("ApplyOutOfSyncOnly=true", SyncOption::ApplyOutOfSyncOnly(true)),
            (
                "SkipDryRunOnMissingResource=true",
                SyncOption::SkipDryRunOnMissingResource(true),
            ),
            (
                "PrunePropagationPolicy=background",
                SyncOption::PrunePropagationPolicy(Propagation::Background),
            ),
            (
                "RespectIgnoreDifferences=true",
                SyncOption::RespectIgnoreDifferences(true),
            ),
            (
                "FailOnSharedResource=true",
                SyncOption::FailOnSharedResource(true),
            ),
            (
                "ClientSideApplyMigration=false",
                SyncOption::ClientSideApplyMigration(false),
            ),
        ] {
            assert_eq!(text.parse(), Ok(option), "{text}");
        }
    }

    #[test]
    fn an_unknown_sync_option_does_not_hide_its_neighbours() {
        let object = annotated(&[(SYNC_OPTIONS, "Prune=false, Purne=true,Prune=false")]);
        let (options, unknown) = sync_options(&object);
        assert_eq!(options, [SyncOption::Prune(Consent::No)]);
        assert_eq!(unknown, [UnknownSyncOption("Purne=true".to_owned())]);
    }

    #[test]
    fn waves_fall_back_to_helm_weights() {
        assert_eq!(
            sync_wave(&annotated(&[(SYNC_WAVE, "-5"), (HELM_HOOK_WEIGHT, "3")])),
            -5
        );
        assert_eq!(
            sync_wave(&annotated(&[(SYNC_WAVE, "first"), (HELM_HOOK_WEIGHT, "3")])),
            3
        );
        assert_eq!(sync_wave(&json!({})), 0);
    }

    #[test]
    fn our_hook_annotation_hides_helms() {
        let both = annotated(&[(HOOK, "PostSync"), (HELM_HOOK, "pre-install")]);
        assert_eq!(Hook::read(&both), Hook::In(vec![HookType::PostSync]));
        let unreadable = annotated(&[(HOOK, "Later"), (HELM_HOOK, "pre-install")]);
        assert_eq!(Hook::read(&unreadable), Hook::In(vec![HookType::PreSync]));
    }

    #[test]
    fn helm_hooks_map_to_phases_and_crd_install_is_no_hook() {
        let helm = |text| Hook::read(&annotated(&[(HELM_HOOK, text)]));
        assert_eq!(helm("pre-install,pre-upgrade"), Hook::In(vec![HookType::PreSync]));
        assert_eq!(helm("post-delete"), Hook::In(vec![HookType::PostDelete]));
        assert!(helm("test").is_ignored());
        assert_eq!(helm("crd-install"), Hook::No);
    }

    #[test]
    fn skip_counts_only_alone() {
        assert_eq!(Hook::read(&annotated(&[(HOOK, "Skip")])), Hook::Skip);
        assert_eq!(
            Hook::read(&annotated(&[(HOOK, "Skip,Sync")])),
            Hook::In(vec![HookType::Skip, HookType::Sync])
        );
    }

    #[test]
    fn delete_policies_join_ours_and_helms() {
        assert_eq!(delete_policies(&json!({})), [DeletePolicy::BeforeHookCreation]);
        assert_eq!(
            delete_policies(&annotated(&[
                (HOOK_DELETE_POLICY, "HookSucceeded"),
                (HELM_HOOK_DELETE_POLICY, "hook-failed")
            ])),
            [DeletePolicy::HookSucceeded, DeletePolicy::HookFailed]
        );
    }

    #[test]
    fn approval_is_a_time() {
        let object = annotated(&[(DELETION_APPROVED, "2026-03-01T10:00:00Z")]);
        assert_eq!(
            deletion_approved(&object).unwrap().to_string(),
            "2026-03-01T10:00:00Z"
        );
        assert_eq!(deletion_approved(&annotated(&[(DELETION_APPROVED, "yes")])), None);
    }
}
