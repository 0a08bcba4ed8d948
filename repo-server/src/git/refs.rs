//! What a repository advertises, and which commit a revision means.

use crate::error::{Error, Result};
use crate::version;
use std::collections::BTreeMap;

/// The refs a repository advertises.
#[derive(Clone, Debug, Default)]
pub struct Refs {
    /// Full ref name to commit SHA, annotated tags peeled.
    pub commits: BTreeMap<String, String>,
    /// Full name of an annotated tag to the SHA of its own object.
    pub annotated: BTreeMap<String, String>,
    /// The branch `HEAD` names, as a full ref name.
    pub head: Option<String>,
}

impl Refs {
    pub(super) fn parse(text: &str) -> Refs {
        let mut refs = Refs::default();
        for line in text.lines() {
            let Some((value, name)) = line.split_once('\t') else {
                continue;
            };
            if let Some(target) = value.strip_prefix("ref: ") {
                if name == "HEAD" {
                    refs.head = Some(target.to_owned());
                }
            } else if let Some(tag) = name.strip_suffix("^{}") {
                if let Some(object) = refs.commits.insert(tag.to_owned(), value.to_owned()) {
                    refs.annotated.insert(tag.to_owned(), object);
                }
            } else {
                refs.commits
                    .entry(name.to_owned())
                    .or_insert_with(|| value.to_owned());
            }
        }
        refs
    }

    /// Short names of the branches, sorted.
    pub fn branches(&self) -> Vec<String> {
        self.short("refs/heads/")
    }

    /// Short names of the tags, sorted.
    pub fn tags(&self) -> Vec<String> {
        self.short("refs/tags/")
    }

    fn short(&self, prefix: &str) -> Vec<String> {
        self.commits
            .keys()
            .filter_map(|name| name.strip_prefix(prefix))
            .map(str::to_owned)
            .collect()
    }

    /// Tags that point at a commit.
    pub fn tags_at(&self, commit: &str) -> Vec<String> {
        self.commits
            .iter()
            .filter(|(_, sha)| *sha == commit)
            .filter_map(|(name, _)| name.strip_prefix("refs/tags/"))
            .map(str::to_owned)
            .collect()
    }
}

/// What a revision means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Full commit SHA, or a prefix of one that only the objects can complete.
    pub commit: String,
    /// The ref it came from, as a full name.
    pub reference: Option<String>,
}

/// Resolves a revision against advertised refs, by the rules of Argo CD: full SHA, semver constraint over
/// tags (restricted to `tag_prefix`), ref by full or short name, SHA prefix of at least seven digits.
///
/// # Errors
/// [`Error::Revision`] if it is none of these.
pub fn resolve(refs: &Refs, revision: &str, tag_prefix: &str) -> Result<Resolved> {
    let revision = if revision.is_empty() { "HEAD" } else { revision };
    let found = |name: &str| {
        refs.commits.get(name).map(|sha| Resolved {
            commit: sha.clone(),
            reference: Some(name.to_owned()),
        })
    };
    if is_sha(revision) {
        return Ok(Resolved {
            commit: revision.to_ascii_lowercase(),
            reference: None,
        });
    }
    if revision == "HEAD" {
        let head = refs.head.as_deref().and_then(found).or_else(|| found("HEAD"));
        return head.ok_or_else(|| Error::Revision {
            revision: revision.into(),
        });
    }
    let tags: Vec<String> = refs
        .tags()
        .into_iter()
        .filter_map(|tag| tag.strip_prefix(tag_prefix).map(str::to_owned))
        .collect();
    let wanted = revision.strip_prefix(tag_prefix).unwrap_or(revision);
    let is_range = version::parse(wanted).is_none() && version::Constraint::parse(wanted).is_some();
    if is_range && let Ok(tag) = version::select(wanted, &tags) {
        return found(&format!("refs/tags/{tag_prefix}{tag}")).ok_or(Error::Revision {
            revision: revision.into(),
        });
    }
    if revision.starts_with("refs/")
        && let Some(resolved) = found(revision)
    {
        return Ok(resolved);
    }
    for name in [
        format!("refs/heads/{revision}"),
        format!("refs/tags/{revision}"),
        format!("refs/tags/{tag_prefix}{revision}"),
        format!("refs/remotes/{revision}"),
        format!("refs/{revision}"),
    ] {
        if let Some(resolved) = found(&name) {
            return Ok(resolved);
        }
    }
    if (7..40).contains(&revision.len()) && revision.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(Resolved {
            commit: revision.to_ascii_lowercase(),
            reference: None,
        });
    }
    Err(Error::Revision {
        revision: revision.into(),
    })
}

pub(super) fn is_sha(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refs() -> Refs {
        let sha = |n: u8| format!("{n:02x}").repeat(20);
        Refs::parse(&format!(
            "ref: refs/heads/main\tHEAD\n{}\tHEAD\n{}\trefs/heads/main\n{}\trefs/heads/feature/x\n{}\trefs/tags/v1.0.0\n\
             {}\trefs/tags/v1.0.0^{{}}\n{}\trefs/tags/v1.2.0\n{}\trefs/tags/web-2.0.0\n{}\trefs/pull/1/head\n",
            sha(1),
            sha(1),
            sha(2),
            sha(3),
            sha(4),
            sha(5),
            sha(6),
            sha(7)
        ))
    }

    fn commit(revision: &str, prefix: &str) -> String {
        resolve(&refs(), revision, prefix).map_or_else(|e| e.to_string(), |r| r.commit[..2].to_owned())
    }

    #[test]
    fn revisions_resolve_as_argo_cd_does() {
        assert_eq!(commit("", ""), "01");
        assert_eq!(commit("HEAD", ""), "01");
        assert_eq!(commit("feature/x", ""), "02");
        assert_eq!(commit("v1.0.0", ""), "04", "an annotated tag is peeled");
        assert_eq!(commit("v1.x", ""), "05");
        assert_eq!(commit("^1.0.0", ""), "05");
        assert_eq!(commit("2.x", "web-"), "06");
        assert_eq!(commit("refs/pull/1/head", ""), "07");
        assert_eq!(commit(&"ab".repeat(20), ""), "ab");
        assert_eq!(commit("abcdef1", ""), "ab");
        assert_eq!(commit("nope", ""), "unable to resolve 'nope' to a commit SHA");
    }
}
