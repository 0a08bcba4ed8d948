//! The build environment: what a source may refer to as `$ARGOCD_APP_NAME` and the like.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Variables of one render.
#[derive(Debug, Default)]
pub struct BuildEnv {
    variables: BTreeMap<&'static str, String>,
    revision_used: AtomicBool,
}

impl BuildEnv {
    /// The variables of an Application's source at a commit or chart version.
    pub fn new(
        app: &str,
        namespace: &str,
        project: &str,
        revision: &str,
        path: &str,
        repo_url: &str,
        target: &str,
    ) -> Self {
        let short = |length: usize| revision.chars().take(length).collect::<String>();
        let variables = BTreeMap::from([
            ("ARGOCD_APP_NAME", app.to_owned()),
            ("ARGOCD_APP_NAMESPACE", namespace.to_owned()),
            ("ARGOCD_APP_PROJECT_NAME", project.to_owned()),
            ("ARGOCD_APP_REVISION", revision.to_owned()),
            ("ARGOCD_APP_REVISION_SHORT", short(7)),
            ("ARGOCD_APP_REVISION_SHORT_8", short(8)),
            ("ARGOCD_APP_SOURCE_PATH", path.to_owned()),
            ("ARGOCD_APP_SOURCE_REPO_URL", repo_url.to_owned()),
            ("ARGOCD_APP_SOURCE_TARGET_REVISION", target.to_owned()),
        ]);
        BuildEnv {
            variables,
            revision_used: AtomicBool::new(false),
        }
    }

    /// With one more variable.
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.variables.insert(name, value);
        self
    }

    /// All variables.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Whether something was made from the revision, so that another commit with the same files gives other output.
    pub fn used_revision(&self) -> bool {
        self.revision_used.load(Ordering::Relaxed)
    }

    /// Replaces `$NAME` and `${NAME}`; `$$` is a dollar sign, an unknown name is empty. The rules are those of Go's
    /// `os.Expand`, quirks included: a `$` before anything else stays, a brace that never closes eats `${`.
    pub fn substitute(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let (name, width) = shell_name(after);
            match name {
                Some("$") => out.push('$'),
                Some(name) => {
                    if name.starts_with("ARGOCD_APP_REVISION") {
                        self.revision_used.store(true, Ordering::Relaxed);
                    }
                    out.push_str(self.variables.get(name).map_or("", String::as_str));
                }
                // Bad syntax is eaten; a lone dollar stays.
                None if width > 0 => {}
                None => out.push('$'),
            }
            rest = &after[width..];
        }
        out.push_str(rest);
        out
    }
}

/// The name after a `$` and how many bytes it takes.
fn shell_name(text: &str) -> (Option<&str>, usize) {
    let bytes = text.as_bytes();
    let Some(&first) = bytes.first() else {
        return (None, 0);
    };
    let special = |byte: u8| b"*#$@!?-".contains(&byte) || byte.is_ascii_digit();
    if first == b'{' {
        if bytes.len() > 2 && special(bytes[1]) && bytes[2] == b'}' {
            return (Some(&text[1..2]), 3);
        }
        return match text.find('}') {
            Some(1) => (None, 2),
            Some(end) => (Some(&text[1..end]), end + 1),
            None => (None, 1),
        };
    }
    if special(first) {
        return (Some(&text[..1]), 1);
    }
    let end = bytes
        .iter()
        .take_while(|b| b.is_ascii_alphanumeric() || **b == b'_')
        .count();
    if end == 0 {
        (None, 0)
    } else {
        (Some(&text[..end]), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitution_follows_go() {
        let env = BuildEnv::new(
            "web",
            "shop",
            "default",
            "0123456789abcdef",
            "apps/web",
            "https://example.com/r",
            "main",
        );
        for (text, want) in [
            ("$ARGOCD_APP_NAME", "web"),
            ("a-${ARGOCD_APP_NAMESPACE}-b", "a-shop-b"),
            (
                "$ARGOCD_APP_REVISION_SHORT/$ARGOCD_APP_REVISION_SHORT_8",
                "0123456/01234567",
            ),
            ("$$ARGOCD_APP_NAME", "$ARGOCD_APP_NAME"),
            ("${UNKNOWN}x$HOME", "x"),
            ("cost: 5$ or $.", "cost: 5$ or $."),
            ("${", ""),
            ("${}x", "x"),
            ("$1x", "x"),
            ("ünï$ARGOCD_APP_NAMEß", "ünïwebß"),
        ] {
            assert_eq!(env.substitute(text), want, "{text}");
        }
    }
}
