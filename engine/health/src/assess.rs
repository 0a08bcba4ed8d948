//! The order of asking for one object.

use argosy_object::{GroupVersionKind, Value, meta};

use crate::customizations::Customizations;
use crate::status::Health;
use crate::{kind, lua, rules};

/// Keeps a hook object in the cluster until its result is recorded; such an object is not "going away" yet.
const HOOK_FINALIZER: &str = "argocd.argoproj.io/hook-finalizer";

/// The health of `live`, or `None` if nobody can tell (no rule for the kind, or a script that declined to answer): such an object does
/// not count.
///
/// First match wins: pending deletion, a child Application that asks to be waited for, a script (overrides before bundled, exact
/// before pattern), the built-in rules of a custom resource, the native rule of the kind. A script
/// that fails and a kind in a version without a rule are `Unknown` with the reason.
#[must_use]
pub fn assess(live: &Value, customizations: &Customizations) -> Option<Health> {
    if meta::deletion_timestamp(live).is_some() && !has_hook_finalizer(live) {
        return Some(Health::progressing("Pending deletion"));
    }
    let GroupVersionKind { group, version, kind } = meta::gvk(live);
    // That one object asks for it says more than a script for all of its kind.
    let asks = group == "argoproj.io" && kind == "Application" && kind::application::asks(live);
    if !asks && let Some(script) = customizations.script(&group, &kind) {
        return lua::health(script, live);
    }
    if let Some(answer) = rules::assess(&group, &kind, live) {
        return answer;
    }
    kind::native(&group, &version, &kind, live)
}

fn has_hook_finalizer(live: &Value) -> bool {
    live.pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == HOOK_FINALIZER))
}
