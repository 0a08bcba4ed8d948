//! What a project demands of Git repositories before it deploys from them: which policy is for which repository, and whether
//! signatures satisfy it. Pure; who asks `git` and GnuPG is the repo-server.

use crate::glob::{Glob, Malformed};
use crate::v1alpha1::{
    AppProjectSpec, ApplicationSource, SourceIntegrity, SourceIntegrityCheckResult,
    SourceIntegrityCheckResultItem, SourceIntegrityGit, SourceIntegrityGitPolicy,
    SourceIntegrityGitPolicyGpg, SourceIntegrityGitPolicyRepo,
};

/// Name of the check, as conditions show it.
const CHECK: &str = "GIT/GPG";
/// Problems told of one revision.
const MAX_PROBLEMS: usize = 10;

/// What a project demands; its older `signatureKeys` stand for one policy for all repositories, unless there are newer ones.
pub fn effective(spec: &AppProjectSpec) -> Option<SourceIntegrity> {
    let newer = spec.source_integrity.as_ref().filter(|newer| newer.git.is_some());
    if newer.is_some() || spec.signature_keys.is_empty() {
        return spec.source_integrity.clone();
    }
    let policy = SourceIntegrityGitPolicy {
        repos: vec![SourceIntegrityGitPolicyRepo { url: "*".into() }],
        gpg: Some(SourceIntegrityGitPolicyGpg {
            mode: "head".into(),
            keys: spec.signature_keys.iter().map(|key| key.key_id.clone()).collect(),
        }),
    };
    Some(SourceIntegrity {
        git: Some(SourceIntegrityGit {
            policies: vec![policy],
        }),
    })
}

/// What must be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The commit, or the annotated tag that stands for it.
    Head,
    /// All that led to it as well, back to a commit that seals what was before.
    Strict,
}

/// A demand on one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What must be signed.
    pub extent: Extent,
    /// Ids or fingerprints of the keys that may sign.
    pub keys: Vec<String>,
}

/// A demand that contradicts itself. It must stop what it is for, or a slip would take the demand away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// More than one policy is for the repository.
    #[error("multiple ({count}) git source integrity policies found for repo URL: {url}")]
    Several {
        /// How many.
        count: usize,
        /// The repository.
        url: String,
    },
    /// A mode that does not exist.
    #[error("unknown GPG mode {0:?} configured for GIT source integrity")]
    Mode(String),
    /// A pattern of URLs that cannot be read.
    #[error("a pattern of a git source integrity policy: {0}")]
    Pattern(#[from] Malformed),
}

/// What is demanded of a repository; nothing where no policy is for it.
///
/// # Errors
/// [`Contradiction`].
pub fn demand(integrity: &SourceIntegrity, url: &str) -> Result<Option<Demand>, Contradiction> {
    let mut found = Vec::new();
    for policy in integrity.git.iter().flat_map(|git| &git.policies) {
        if is_for(policy, url)? {
            found.push(policy);
        }
    }
    let gpg = match found[..] {
        [] => return Ok(None),
        [policy] => policy.gpg.as_ref(),
        _ => {
            return Err(Contradiction::Several {
                count: found.len(),
                url: url.to_owned(),
            });
        }
    };
    let Some(gpg) = gpg else { return Ok(None) };
    let extent = match gpg.mode.as_str() {
        "none" => return Ok(None),
        "head" => Extent::Head,
        "strict" => Extent::Strict,
        other => return Err(Contradiction::Mode(other.to_owned())),
    };
    Ok(Some(Demand {
        extent,
        keys: gpg.keys.clone(),
    }))
}

/// Whether something is demanded of a source; a contradiction is a demand.
pub fn is_demanded(integrity: Option<&SourceIntegrity>, source: &ApplicationSource) -> bool {
    let is_git = source.chart.is_empty() && !source.repo_url.starts_with("oci://");
    is_git && integrity.is_some_and(|integrity| !matches!(demand(integrity, &source.repo_url), Ok(None)))
}

/// One pattern must be for the URL, and no pattern after a `!` against it.
fn is_for(policy: &SourceIntegrityGitPolicy, url: &str) -> Result<bool, Malformed> {
    let mut included = false;
    for repo in &policy.repos {
        match repo.url.strip_prefix('!') {
            Some(pattern) if Glob::new(pattern, None)?.matches(url) => return Ok(false),
            Some(_) => {}
            None => included |= Glob::new(&repo.url, None)?.matches(url),
        }
    }
    Ok(included)
}

/// What was found out about the signature of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By a key of the ring.
    Good,
    /// Not what was signed.
    Bad,
    /// The signature had an end, which is over.
    ExpiredSignature,
    /// The key had an end, which is over.
    ExpiredKey,
    /// The key was revoked.
    RevokedKey,
    /// By a key that is not in the ring.
    MissingKey,
    /// There is none.
    Unsigned,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Good => "signed",
            Verdict::Bad => "bad signature",
            Verdict::ExpiredSignature => "expired signature",
            Verdict::ExpiredKey => "signed with expired key",
            Verdict::RevokedKey => "signed with revoked key",
            Verdict::MissingKey => "signed with key not in keyring",
            Verdict::Unsigned => "unsigned",
        }
    }
}

/// The signature of a commit or tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// SHA, or name of the tag.
    pub revision: String,
    /// Whether it is a tag.
    pub tag: bool,
    /// What was found out.
    pub verdict: Verdict,
    /// Long id of the key, in capitals; empty if there is none.
    pub key: String,
    /// `Name <mail>` of the author or tagger.
    pub author: String,
}

/// Judges signatures by the keys that may sign.
pub fn judge(keys: &[String], signatures: &[Signature]) -> SourceIntegrityCheckResult {
    let allowed: Vec<String> = keys.iter().filter_map(|key| long_id(key)).collect();
    let mut told: Vec<&str> = Vec::new();
    let mut problems = Vec::new();
    for signature in signatures {
        let what = match signature.verdict {
            Verdict::Good if allowed.contains(&signature.key) => continue,
            Verdict::Good => "signed with unallowed key",
            verdict => verdict.as_str(),
        };
        // One key is told of once, but for tags, which are signed for themselves.
        if !signature.key.is_empty() && !signature.tag {
            if told.contains(&signature.key.as_str()) {
                continue;
            }
            told.push(&signature.key);
        }
        problems.push(format!(
            "Failed verifying revision {} by '{}': {what} (key_id={})",
            signature.revision, signature.author, signature.key
        ));
        if problems.len() == MAX_PROBLEMS {
            break;
        }
    }
    SourceIntegrityCheckResult {
        checks: vec![SourceIntegrityCheckResultItem {
            name: CHECK.into(),
            problems,
        }],
    }
}

/// The problems of a result in one text; nothing if it passed.
pub fn problems(result: &SourceIntegrityCheckResult) -> Option<String> {
    let lines = result.checks.iter().flat_map(|check| {
        check
            .problems
            .iter()
            .map(|problem| format!("{}: {problem}", check.name))
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The long id of a key given by that or by its fingerprint.
fn long_id(key: &str) -> Option<String> {
    let hexadecimal = key.bytes().all(|byte| byte.is_ascii_hexdigit());
    match key.len() {
        40 if hexadecimal => Some(key[24..].to_ascii_uppercase()),
        16 if hexadecimal => Some(key.to_ascii_uppercase()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1alpha1::SignatureKey;

    fn policy(urls: &[&str], mode: &str) -> SourceIntegrityGitPolicy {
        SourceIntegrityGitPolicy {
            repos: urls
                .iter()
                .map(|url| SourceIntegrityGitPolicyRepo { url: (*url).into() })
                .collect(),
            gpg: Some(SourceIntegrityGitPolicyGpg {
                mode: mode.into(),
                keys: vec!["D56C4FCA57A46444".into()],
            }),
        }
    }

    fn of(policies: Vec<SourceIntegrityGitPolicy>) -> SourceIntegrity {
        SourceIntegrity {
            git: Some(SourceIntegrityGit { policies }),
        }
    }

    #[test]
    fn one_policy_is_for_a_repository_or_nothing_is_deployed() {
        let group = policy(
            &[
                "https://example.com/group/*",
                "!https://example.com/group/ignored.git",
            ],
            "head",
        );
        let integrity = of(vec![
            group.clone(),
            policy(&["https://example.com/group/twice*"], "strict"),
        ]);
        let extent = |url: &str| demand(&integrity, url).map(|found| found.map(|found| found.extent));
        assert_eq!(extent("https://example.com/group/a.git"), Ok(Some(Extent::Head)));
        assert_eq!(extent("https://example.com/group/ignored.git"), Ok(None));
        assert_eq!(extent("https://example.org/a.git"), Ok(None));
        assert!(matches!(
            extent("https://example.com/group/twice.git"),
            Err(Contradiction::Several { count: 2, .. })
        ));
        assert!(demand(&of(vec![policy(&["*"], "heda")]), "x").is_err());
        assert!(demand(&of(vec![policy(&["[a"], "head")]), "x").is_err());
        assert_eq!(demand(&of(vec![policy(&["*"], "none")]), "x"), Ok(None));
    }

    #[test]
    fn signature_keys_of_old_are_one_policy_for_all() {
        let mut spec = AppProjectSpec {
            signature_keys: vec![SignatureKey {
                key_id: "4AEE18F83AFDEB23".into(),
            }],
            ..AppProjectSpec::default()
        };
        let demanded = |spec: &AppProjectSpec| {
            effective(spec).and_then(|integrity| demand(&integrity, "https://example.com/a").ok().flatten())
        };
        let expected = Demand {
            extent: Extent::Head,
            keys: vec!["4AEE18F83AFDEB23".into()],
        };
        assert_eq!(demanded(&spec), Some(expected));
        spec.source_integrity = Some(of(vec![policy(&["https://example.org/*"], "strict")]));
        assert_eq!(demanded(&spec), None, "the newer ones alone");
    }

    #[test]
    fn problems_are_told_in_the_words_of_argo_cd() {
        let signature = |revision: &str, verdict, key: &str| Signature {
            revision: revision.into(),
            tag: false,
            verdict,
            key: key.into(),
            author: "Ada <ada@example.com>".into(),
        };
        let keys = [
            "28027897AAAAAAAAAAAAAAAAD56C4FCA57A46444".to_owned(),
            "nonsense".to_owned(),
        ];
        let good = signature("a1", Verdict::Good, "D56C4FCA57A46444");
        assert_eq!(problems(&judge(&keys, std::slice::from_ref(&good))), None);
        let result = judge(
            &keys,
            &[
                good,
                signature("b2", Verdict::Unsigned, ""),
                signature("c3", Verdict::Good, "4AEE18F83AFDEB23"),
                signature("d4", Verdict::Good, "4AEE18F83AFDEB23"),
                signature("e5", Verdict::Unsigned, ""),
            ],
        );
        assert_eq!(
            problems(&result).unwrap_or_default(),
            "GIT/GPG: Failed verifying revision b2 by 'Ada <ada@example.com>': unsigned (key_id=)\n\
             GIT/GPG: Failed verifying revision c3 by 'Ada <ada@example.com>': signed with unallowed key \
             (key_id=4AEE18F83AFDEB23)\n\
             GIT/GPG: Failed verifying revision e5 by 'Ada <ada@example.com>': unsigned (key_id=)"
        );
    }
}
