//! From what a verdict was made, to know whether it still stands without opening either side.

use argosy_object::ContentHash;

/// The identity of the two sides of a verdict. Rules and schemas are the caller's: with others no verdict stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    desired: Option<ContentHash>,
    live: Option<(Box<str>, Box<str>)>,
}

impl Seen {
    /// Of these sides: what Git wants by its content, the live object by uid and resourceVersion.
    #[must_use]
    pub fn new(desired: Option<ContentHash>, live: Option<(&str, &str)>) -> Self {
        Self {
            desired,
            live: live.map(|(uid, version)| (uid.into(), version.into())),
        }
    }

    /// Whether they are the same still.
    #[must_use]
    pub fn is(&self, desired: Option<ContentHash>, live: Option<(&str, &str)>) -> bool {
        let known = self.live.as_ref().map(|(uid, version)| (&**uid, &**version));
        self.desired == desired && known == live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_incarnation_or_version_is_not_the_same() {
        let hash = |text: &str| Some(ContentHash::of(text.as_bytes()));
        let seen = Seen::new(hash("a"), Some(("u", "1")));
        assert!(seen.is(hash("a"), Some(("u", "1"))));
        assert!(!seen.is(hash("b"), Some(("u", "1"))));
        assert!(!seen.is(hash("a"), Some(("u", "2"))));
        assert!(!seen.is(hash("a"), Some(("v", "1"))));
        assert!(!seen.is(hash("a"), None));
        assert!(!seen.is(None, Some(("u", "1"))));
    }
}
