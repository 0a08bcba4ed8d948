//! The finalizers of Argo CD, and what they ask for when an object is deleted.

use crate::annotation::Propagation;

/// On Applications, AppProjects and ApplicationSets: delete what they own, foreground.
pub const RESOURCES: &str = "resources-finalizer.argocd.argoproj.io";
/// The same, said aloud.
pub const RESOURCES_FOREGROUND: &str = "resources-finalizer.argocd.argoproj.io/foreground";
/// Delete what an Application owns, background.
pub const RESOURCES_BACKGROUND: &str = "resources-finalizer.argocd.argoproj.io/background";
/// An Application has PreDelete hooks that must run.
pub const PRE_DELETE: &str = "pre-delete-finalizer.argocd.argoproj.io";
/// PreDelete hooks ran and must be cleaned away.
pub const PRE_DELETE_CLEANUP: &str = "pre-delete-finalizer.argocd.argoproj.io/cleanup";
/// An Application has PostDelete hooks that must run.
pub const POST_DELETE: &str = "post-delete-finalizer.argocd.argoproj.io";
/// PostDelete hooks ran and must be cleaned away.
pub const POST_DELETE_CLEANUP: &str = "post-delete-finalizer.argocd.argoproj.io/cleanup";
/// On hooks: keep it until its result is recorded.
pub const HOOK: &str = "argocd.argoproj.io/hook-finalizer";

/// How to delete what an Application owns: the first such finalizer says. `None` leaves it where it is.
pub fn cascade<'a>(finalizers: impl IntoIterator<Item = &'a str>) -> Option<Propagation> {
    finalizers.into_iter().find_map(|finalizer| match finalizer {
        RESOURCES | RESOURCES_FOREGROUND => Some(Propagation::Foreground),
        RESOURCES_BACKGROUND => Some(Propagation::Background),
        _ => None,
    })
}

/// Whether this is one of ours on an Application.
pub fn is_ours(finalizer: &str) -> bool {
    [RESOURCES, PRE_DELETE, POST_DELETE].iter().any(|ours| {
        finalizer == *ours
            || finalizer
                .strip_prefix(ours)
                .is_some_and(|rest| rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_finalizer_deletes_in_the_foreground() {
        assert_eq!(cascade([RESOURCES]), Some(Propagation::Foreground));
        assert_eq!(cascade([RESOURCES_BACKGROUND]), Some(Propagation::Background));
        assert_eq!(cascade(["example.com/other", POST_DELETE]), None);
    }

    #[test]
    fn finalizers_of_others_are_not_ours() {
        assert!(is_ours(PRE_DELETE_CLEANUP));
        assert!(!is_ours("resources-finalizer.argocd.argoproj.io.example.com"));
    }
}
