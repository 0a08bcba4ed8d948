//! What the hosts send, read into pushes: which host it is by its headers, whether it is the host by its signature.

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::{Push, lean, repo_of};

/// Pushes of one payload that are looked at.
const PUSHES_MAX: usize = 100;

/// Why a payload is not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    /// No host is known that sends such headers.
    #[error("Unknown webhook event")]
    Unknown,
    /// It is not signed with the secret.
    #[error("the signature is missing or wrong")]
    Signature,
    /// It cannot be read.
    #[error("read the payload: {0}")]
    Payload(String),
}

impl Error {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Error::Signature => StatusCode::UNAUTHORIZED,
            Error::Unknown | Error::Payload(_) => StatusCode::BAD_REQUEST,
        }
    }
}

type Secret<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a payload. `secret` looks a key of `argocd-secret` up; a host without one is not asked to prove itself.
pub(crate) fn read(headers: &HeaderMap, body: &[u8], secret: Secret<'_>) -> Result<Vec<Push>, Error> {
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let has = |name: &str| headers.contains_key(name);
    let json = || lean::read(body).map_err(|error| Error::Payload(error.to_string()));
    let mut pushes = if has("x-vss-activityid") {
        basic_auth(header("authorization"), secret)?;
        azure(&json()?)
    } else if has("x-gogs-event") {
        signed(
            hmac::HMAC_SHA256,
            secret("webhook.gogs.secret"),
            header("x-gogs-signature"),
            body,
        )?;
        github_like(&json()?, header("x-gogs-event"))
    } else if header("x-github-event") == "package" {
        signed_github(
            secret,
            header("x-hub-signature-256"),
            header("x-hub-signature"),
            body,
        )?;
        ghcr(&json()?)
    } else if has("x-github-event") {
        signed_github(
            secret,
            header("x-hub-signature-256"),
            header("x-hub-signature"),
            body,
        )?;
        github_like(&json()?, header("x-github-event"))
    } else if has("x-gitlab-event") {
        same(secret("webhook.gitlab.secret"), header("x-gitlab-token"))?;
        gitlab(&json()?)
    } else if has("x-hook-uuid") {
        same(
            secret("webhook.bitbucket.uuid"),
            header("x-hook-uuid").trim_matches(['{', '}']),
        )?;
        bitbucket(&json()?, header("x-event-key"))
    } else if has("x-event-key") {
        if header("x-event-key") != "diagnostics:ping" {
            let signature = header("x-hub-signature");
            signed(
                hmac::HMAC_SHA256,
                secret("webhook.bitbucketserver.secret"),
                signature,
                body,
            )?;
        }
        bitbucket_server(&json()?, header("x-event-key"))
    } else {
        let value = json().map_err(|_| Error::Unknown)?;
        if text(&value, "/type") != "PUSH_ARTIFACT" {
            return Err(Error::Unknown);
        }
        same(secret("webhook.harbor.secret"), header("authorization"))?;
        harbor(&value)
    };
    pushes.truncate(PUSHES_MAX);
    Ok(pushes)
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value
        .pointer(path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// A branch or tag without `refs/heads/` or `refs/tags/`.
fn plain(reference: &str) -> &str {
    reference
        .strip_prefix("refs/heads/")
        .or_else(|| reference.strip_prefix("refs/tags/"))
        .unwrap_or(reference)
}

fn same(secret: Option<String>, sent: &str) -> Result<(), Error> {
    match secret {
        None => Ok(()),
        Some(secret) => constant_time::verify_slices_are_equal(
            secret.trim_matches(['{', '}']).as_bytes(),
            sent.as_bytes(),
        )
        .map_err(|_| Error::Signature),
    }
}

fn signed(algorithm: hmac::Algorithm, secret: Option<String>, sent: &str, body: &[u8]) -> Result<(), Error> {
    let Some(secret) = secret else { return Ok(()) };
    let sent = sent.split_once('=').map_or(sent, |(_, sent)| sent);
    let bytes = unhex(sent).ok_or(Error::Signature)?;
    hmac::verify(&hmac::Key::new(algorithm, secret.as_bytes()), body, &bytes).map_err(|_| Error::Signature)
}

fn signed_github(secret: Secret<'_>, sha256: &str, sha1: &str, body: &[u8]) -> Result<(), Error> {
    let secret = secret("webhook.github.secret");
    match sha256 {
        "" => signed(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret, sha1, body),
        sha256 => signed(hmac::HMAC_SHA256, secret, sha256, body),
    }
}

fn basic_auth(sent: &str, secret: Secret<'_>) -> Result<(), Error> {
    let (user, password) = (
        secret("webhook.azuredevops.username"),
        secret("webhook.azuredevops.password"),
    );
    if user.is_none() && password.is_none() {
        return Ok(());
    }
    let sent = sent
        .strip_prefix("Basic ")
        .and_then(|text| STANDARD.decode(text.trim()).ok())
        .ok_or(Error::Signature)?;
    let wanted = format!("{}:{}", user.unwrap_or_default(), password.unwrap_or_default());
    constant_time::verify_slices_are_equal(wanted.as_bytes(), &sent).map_err(|_| Error::Signature)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

fn push(url: &str, reference: &str, default_branch: &str, changed: Option<Vec<String>>) -> Option<Push> {
    let revision = plain(reference);
    (!url.is_empty() && !revision.is_empty()).then(|| Push {
        repo: repo_of(url),
        revision: revision.to_owned(),
        is_default: !reference.starts_with("refs/tags/")
            && (revision == default_branch || default_branch.is_empty()),
        changed,
    })
}

/// Files of all commits.
fn files(commits: &[Value]) -> Vec<String> {
    let of_commit = |commit: &Value| {
        let kinds = ["/added", "/modified", "/removed"].map(|kind| list(commit, kind).to_vec());
        kinds
            .into_iter()
            .flatten()
            .filter_map(|file| file.as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let mut files: Vec<_> = commits.iter().flat_map(of_commit).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// GitHub, Gitea, Gogs.
fn github_like(value: &Value, event: &str) -> Vec<Push> {
    if event != "push" {
        return Vec::new();
    }
    let changed = files(list(value, "/commits"));
    let url = match text(value, "/repository/html_url") {
        "" => text(value, "/repository/clone_url"),
        url => url,
    };
    push(
        url,
        text(value, "/ref"),
        text(value, "/repository/default_branch"),
        Some(changed),
    )
    .into_iter()
    .collect()
}

/// Container packages of GitHub.
fn ghcr(value: &Value) -> Vec<Push> {
    let tag = text(value, "/package/package_version/container_metadata/tag/name");
    let (owner, name) = (text(value, "/package/owner/login"), text(value, "/package/name"));
    if text(value, "/action") != "published" || owner.is_empty() || name.is_empty() {
        return Vec::new();
    }
    push(&format!("oci://ghcr.io/{owner}/{name}"), tag, "-", None)
        .into_iter()
        .collect()
}

fn gitlab(value: &Value) -> Vec<Push> {
    if !matches!(text(value, "/object_kind"), "push" | "tag_push") {
        return Vec::new();
    }
    // A large push tells fewer commits than it has.
    let commits = list(value, "/commits");
    let all = value.pointer("/total_commits_count").and_then(Value::as_u64);
    let changed = (all.is_none_or(|all| all <= commits.len() as u64)).then(|| files(commits));
    push(
        text(value, "/project/web_url"),
        text(value, "/ref"),
        text(value, "/project/default_branch"),
        changed,
    )
    .into_iter()
    .collect()
}

fn bitbucket(value: &Value, event: &str) -> Vec<Push> {
    if event != "repo:push" {
        return Vec::new();
    }
    let url = text(value, "/repository/links/html/href");
    let branch = text(value, "/repository/mainbranch/name");
    let changes = list(value, "/push/changes").iter();
    changes
        .filter_map(|change| push(url, text(change, "/new/name"), branch, None))
        .collect()
}

fn bitbucket_server(value: &Value, event: &str) -> Vec<Push> {
    if event != "repo:refs_changed" {
        return Vec::new();
    }
    let links = list(value, "/repository/links/clone")
        .iter()
        .map(|link| text(link, "/href"));
    let urls: Vec<&str> = links.collect();
    let changes = list(value, "/changes").iter();
    let references: Vec<&str> = changes.map(|change| text(change, "/ref/id")).collect();
    // Which branch is the default is not told: any may be.
    let all = urls
        .iter()
        .flat_map(|url| references.iter().map(move |reference| (url, reference)));
    all.filter_map(|(url, reference)| push(url, reference, "", None))
        .collect()
}

fn azure(value: &Value) -> Vec<Push> {
    if text(value, "/eventType") != "git.push" {
        return Vec::new();
    }
    let url = text(value, "/resource/repository/remoteUrl");
    let branch = plain(text(value, "/resource/repository/defaultBranch"));
    let updates = list(value, "/resource/refUpdates").iter();
    updates
        .filter_map(|update| push(url, text(update, "/name"), branch, None))
        .collect()
}

fn harbor(value: &Value) -> Vec<Push> {
    let resources = list(value, "/event_data/resources").iter();
    resources
        .filter_map(|resource| {
            let url = text(resource, "/resource_url");
            let (url, _) = url.rsplit_once(':').unwrap_or((url, ""));
            push(&format!("oci://{url}"), text(resource, "/tag"), "-", None)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn none(_: &str) -> Option<String> {
        None
    }

    fn github() -> Vec<u8> {
        json!({"ref": "refs/heads/main", "repository": {"html_url": "https://github.com/org/app", "default_branch": "main"},
            "commits": [{"added": ["a/b.yaml"], "modified": ["c"], "removed": []}]})
        .to_string()
        .into_bytes()
    }

    #[test]
    fn each_host_tells_its_pushes() {
        #[allow(clippy::type_complexity)]
        let cases: Vec<(&[(&'static str, &str)], Value, &str, &str, bool)> = vec![
            (
                &[("x-gogs-event", "push")],
                json!({"ref": "refs/heads/dev", "repository": {"html_url": "https://gitea.example.com/o/a", "default_branch": "main"}}),
                "gitea.example.com/o/a",
                "dev",
                false,
            ),
            (
                &[("x-gitlab-event", "Push Hook")],
                json!({"object_kind": "push", "ref": "refs/heads/main", "project": {"web_url": "https://gitlab.com/g/a", "default_branch": "main"}}),
                "gitlab.com/g/a",
                "main",
                true,
            ),
            (
                &[("x-gitlab-event", "Tag Push Hook")],
                json!({"object_kind": "tag_push", "ref": "refs/tags/v1", "project": {"web_url": "https://gitlab.com/g/a", "default_branch": "main"}}),
                "gitlab.com/g/a",
                "v1",
                false,
            ),
            (
                &[("x-hook-uuid", "u"), ("x-event-key", "repo:push")],
                json!({"repository": {"links": {"html": {"href": "https://bitbucket.org/t/a"}}, "mainbranch": {"name": "main"}}, "push": {"changes": [{"new": {"name": "main"}}]}}),
                "bitbucket.org/t/a",
                "main",
                true,
            ),
            (
                &[("x-event-key", "repo:refs_changed")],
                json!({"repository": {"links": {"clone": [{"href": "ssh://git@bb.example.com:7999/p/a.git"}]}}, "changes": [{"ref": {"id": "refs/heads/main"}}]}),
                "bb.example.com/p/a",
                "main",
                true,
            ),
            (
                &[("x-vss-activityid", "1")],
                json!({"eventType": "git.push", "resource": {"repository": {"remoteUrl": "https://dev.azure.com/o/p/_git/a", "defaultBranch": "refs/heads/main"}, "refUpdates": [{"name": "refs/heads/main"}]}}),
                "dev.azure.com/o/p/_git/a",
                "main",
                true,
            ),
            (
                &[("x-github-event", "package")],
                json!({"action": "published", "package": {"name": "chart", "owner": {"login": "org"}, "package_version": {"container_metadata": {"tag": {"name": "1.2.3"}}}}}),
                "ghcr.io/org/chart",
                "1.2.3",
                false,
            ),
            (
                &[("authorization", "x")],
                json!({"type": "PUSH_ARTIFACT", "event_data": {"resources": [{"tag": "1.0.0", "resource_url": "harbor.example.com/lib/chart:1.0.0"}]}}),
                "harbor.example.com/lib/chart",
                "1.0.0",
                false,
            ),
        ];
        for (sent, body, repo, revision, is_default) in cases {
            let pushes = read(&headers(sent), body.to_string().as_bytes(), &none).unwrap();
            assert_eq!(pushes.len(), 1, "{sent:?}");
            assert_eq!(
                (
                    pushes[0].repo.as_str(),
                    pushes[0].revision.as_str(),
                    pushes[0].is_default
                ),
                (repo, revision, is_default)
            );
        }
        let pushes = read(&headers(&[("x-github-event", "push")]), &github(), &none).unwrap();
        assert_eq!(
            pushes[0].changed,
            Some(vec!["a/b.yaml".to_owned(), "c".to_owned()])
        );
        assert_eq!(
            read(&headers(&[("x-github-event", "ping")]), b"{}", &none),
            Ok(Vec::new())
        );
    }

    #[test]
    fn with_a_secret_only_what_is_signed_is_taken() {
        let secret = |_: &str| Some("s3cret".to_owned());
        let body = github();
        let tag = |algorithm| {
            let tag = hmac::sign(&hmac::Key::new(algorithm, b"s3cret"), &body);
            tag.as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let event = ("x-github-event", "push");
        let good = format!("sha256={}", tag(hmac::HMAC_SHA256));
        let old = format!("sha1={}", tag(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY));
        assert!(read(&headers(&[event, ("x-hub-signature-256", &good)]), &body, &secret).is_ok());
        assert!(read(&headers(&[event, ("x-hub-signature", &old)]), &body, &secret).is_ok());
        for bad in ["", "sha256=", "sha256=00", "sha256=zz", "nonsense"] {
            let sent = headers(&[event, ("x-hub-signature-256", bad)]);
            assert_eq!(read(&sent, &body, &secret), Err(Error::Signature), "{bad}");
        }
        let gitlab = json!({"object_kind": "push"}).to_string();
        let event = ("x-gitlab-event", "Push Hook");
        assert!(
            read(
                &headers(&[event, ("x-gitlab-token", "s3cret")]),
                gitlab.as_bytes(),
                &secret
            )
            .is_ok()
        );
        assert_eq!(
            read(&headers(&[event]), gitlab.as_bytes(), &secret),
            Err(Error::Signature)
        );
    }

    #[test]
    fn nonsense_is_refused_and_nothing_breaks() {
        for name in [
            "x-github-event",
            "x-gitlab-event",
            "x-gogs-event",
            "x-hook-uuid",
            "x-event-key",
            "x-vss-activityid",
        ] {
            for body in [
                "",
                "{",
                "[]",
                "null",
                "7",
                r#"{"ref":7,"commits":{},"changes":"x","push":[]}"#,
            ] {
                let outcome = read(&headers(&[(name, "push")]), body.as_bytes(), &none);
                assert!(
                    outcome.as_ref().map_or(true, Vec::is_empty),
                    "{name} {body}: {outcome:?}"
                );
            }
        }
        assert_eq!(read(&headers(&[]), b"{}", &none), Err(Error::Unknown));
        assert_eq!(read(&headers(&[]), b"nonsense", &none), Err(Error::Unknown));
    }
}
