//! Pushes that Git hosts and registries tell: a hint that some Applications may be worth a look, and nothing more.
//!
//! A payload becomes a set of ([`Push`]) repository and revision; sets are merged while they wait, and every second what
//! has gathered is matched against all Applications once. However many hooks come in, an Application is asked to be
//! looked at at most once a second, and each waiting push is a few texts in a set of bounded size. What comes in beyond what can be
//! taken is told to come again.

mod lean;
mod payload;
mod room;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::annotation;
use argosy_api::v1alpha1::{Application, ApplicationSource};
use argosy_runtime::bounds::{self, Class};
use argosy_runtime::tasks::{Tasks, busy};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use hyper::body::Body;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::Metrics;
use crate::state::ControlPlane;
use room::{Room, Unread};

/// A payload is sent within so long.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Pushes that may wait; Argo CD's length of the queue.
const WAITING_MAX: usize = 50_000;
/// Bytes of changed files that may wait. A push whose files go beyond is taken without them: then it concerns every path.
const FILES_LEN_MAX: usize = 16 << 20;
/// How long pushes gather.
const GATHER: Duration = Duration::from_secs(1);

/// Something was pushed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Push {
    /// Host and path of the repository, without scheme, user, port and `.git`.
    pub repo: String,
    /// Branch or tag.
    pub revision: String,
    /// It is the branch that is meant if none is named.
    pub is_default: bool,
    /// Files that changed, if the host tells.
    pub changed: Option<Vec<String>>,
}

/// Takes webhooks.
#[derive(Clone)]
pub(crate) struct Webhooks {
    plane: Arc<ControlPlane>,
    metrics: Arc<Metrics>,
    waiting: Arc<Waiting>,
    room: Arc<Room>,
}

#[derive(Default)]
struct Waiting {
    gathered: Mutex<Gathered>,
    some: Notify,
}

/// What has come in since Applications were last looked through. Its size is bounded, whatever comes in.
#[derive(Default)]
struct Gathered {
    pushes: HashSet<Push>,
    files_len: usize,
}

impl Gathered {
    /// Takes pushes in; false if there is no room.
    fn take(&mut self, pushes: Vec<Push>) -> bool {
        if self.pushes.len() + pushes.len() > WAITING_MAX {
            return false;
        }
        for mut push in pushes {
            let len: usize = push.changed.iter().flatten().map(String::len).sum();
            if self.files_len + len > FILES_LEN_MAX {
                push.changed = None;
            } else {
                self.files_len += len;
            }
            self.pushes.insert(push);
        }
        true
    }
}

impl Webhooks {
    /// Starts the task that looks through Applications.
    pub(crate) fn start(tasks: &Tasks, plane: Arc<ControlPlane>, metrics: Arc<Metrics>) -> Self {
        let waiting = Arc::new(Waiting::default());
        let hooks = Webhooks {
            plane: plane.clone(),
            metrics,
            waiting: waiting.clone(),
            room: Arc::new(Room::new()),
        };
        tasks.spawn_restarting("webhooks", move || {
            let (plane, waiting) = (plane.clone(), waiting.clone());
            async move {
                loop {
                    waiting.some.notified().await;
                    tokio::time::sleep(GATHER).await;
                    let pushes = std::mem::take(&mut *waiting.gathered.lock()).pushes;
                    if pushes.is_empty() {
                        continue;
                    }
                    let asked = plane.ask_for_looks(|app| touches(app, &pushes)).await;
                    tracing::info!(pushes = pushes.len(), applications = asked, "webhooks");
                }
            }
        });
        hooks
    }

    /// Reads one and takes it in: the status and text of the answer.
    pub(crate) async fn receive<B>(&self, headers: &HeaderMap, body: B) -> (StatusCode, String)
    where
        B: Body<Data = Bytes>,
    {
        let max = self.plane.settings().config.webhook_payload_bytes_max;
        let reading = self.room.read(body, usize::try_from(max).unwrap_or(usize::MAX));
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(Ok(held)) => {
                // Reading a large one takes a processor for a while.
                let (hooks, headers, bytes) = (self.clone(), headers.clone(), held.bytes.clone());
                let taken = busy(move || hooks.take(&headers, &bytes)).await;
                taken.unwrap_or_else(|error| {
                    tracing::error!(error, "reading a webhook failed");
                    (
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "Webhook processing failed".to_owned(),
                    )
                })
            }
            Ok(Err(Unread::NoRoom)) => {
                bounds::shed(Class::Webhook);
                let text = "Webhook processing failed: too many large payloads at the same time";
                (StatusCode::TOO_MANY_REQUESTS, text.to_owned())
            }
            Ok(Err(Unread::TooLarge)) => (
                StatusCode::BAD_REQUEST,
                format!(
                    "Webhook processing failed: payload must be valid JSON under {} MB",
                    max >> 20
                ),
            ),
            Err(_) => (
                StatusCode::REQUEST_TIMEOUT,
                "Webhook processing failed: the payload took too long".to_owned(),
            ),
        }
    }

    /// Takes one in: the status and text of the answer.
    fn take(&self, headers: &HeaderMap, body: &[u8]) -> (StatusCode, String) {
        let secret = |key: &str| {
            let secret = self.plane.own_secret("argocd-secret");
            secret
                .map(|secret| secret.text(key))
                .filter(|text| !text.is_empty())
        };
        let pushes = match payload::read(headers, body, &secret) {
            Ok(pushes) => pushes,
            Err(error) => return (error.status(), format!("Webhook processing failed: {error}")),
        };
        let repos: Vec<String> = pushes.iter().map(|push| push.repo.clone()).collect();
        if !self.waiting.gathered.lock().take(pushes) {
            bounds::shed(Class::Webhook);
            return (
                StatusCode::TOO_MANY_REQUESTS,
                "Queue is full, discarding webhook payload".to_owned(),
            );
        }
        for repo in repos {
            self.metrics.webhook(&repo);
        }
        self.waiting.some.notify_one();
        (StatusCode::OK, String::new())
    }
}

/// Could any of the pushes change what an Application wants?
fn touches(app: &Application, pushes: &HashSet<Push>) -> bool {
    let mut sources = app.spec.effective_sources();
    if let Some(hydrator) = &app.spec.source_hydrator {
        sources.push(ApplicationSource {
            repo_url: hydrator.dry_source.repo_url.clone(),
            target_revision: hydrator.dry_source.target_revision.clone(),
            path: hydrator.dry_source.path.clone(),
            ..ApplicationSource::default()
        });
    }
    let paths = app.metadata.annotations.get(annotation::MANIFEST_GENERATE_PATHS);
    sources.iter().any(|source| {
        let repo = repo_of(&source.repo_url);
        pushes.iter().any(|push| {
            push.repo == repo
                && is_revision(&source.target_revision, push)
                && is_in_paths(paths.map(String::as_str), source, push)
        })
    })
}

/// Host and path of a repository, however its URL is written.
fn repo_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let is_url = rest.len() != url.len();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (host, path) = match rest.split_once(if is_url { '/' } else { ':' }) {
        Some(parts) => parts,
        None => rest.split_once('/').unwrap_or((rest, "")),
    };
    let host = host.split(':').next().unwrap_or_default().to_lowercase();
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    format!("{host}/{path}").to_lowercase()
}

fn is_revision(wanted: &str, push: &Push) -> bool {
    let plain = wanted
        .strip_prefix("refs/heads/")
        .or_else(|| wanted.strip_prefix("refs/tags/"))
        .unwrap_or(wanted);
    if wanted.is_empty() || wanted == "HEAD" {
        return push.is_default;
    }
    if plain == push.revision {
        return true;
    }
    let tag = push.revision.trim_start_matches('v');
    matches!((semver::VersionReq::parse(wanted), semver::Version::parse(tag)), (Ok(range), Ok(tag)) if range.matches(&tag))
}

fn is_in_paths(paths: Option<&str>, source: &ApplicationSource, push: &Push) -> bool {
    let (Some(paths), Some(changed)) = (paths.filter(|paths| !paths.is_empty()), &push.changed) else {
        return true;
    };
    // A host that tells no file of a push has not told which there are.
    if changed.is_empty() {
        return true;
    }
    let paths = annotation::manifest_generate_paths(paths, &source.path);
    changed.iter().any(|file| {
        let file = file.trim_start_matches('/');
        paths.iter().any(|path| {
            let path = path.trim_matches('/');
            path.is_empty()
                || path == "."
                || file == path
                || file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
                || argosy_api::glob::matches_path(path, file)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(revision: &str, is_default: bool, changed: Option<&[&str]>) -> Push {
        Push {
            repo: "git.example.com/team/app".into(),
            revision: revision.into(),
            is_default,
            changed: changed.map(|files| files.iter().map(|file| (*file).to_owned()).collect()),
        }
    }

    fn app(url: &str, revision: &str, paths: Option<&str>) -> Application {
        let mut app = Application::default();
        app.spec.source = Some(ApplicationSource {
            repo_url: url.into(),
            target_revision: revision.into(),
            path: "deploy".into(),
            ..ApplicationSource::default()
        });
        if let Some(paths) = paths {
            app.metadata
                .annotations
                .insert(annotation::MANIFEST_GENERATE_PATHS.into(), paths.into());
        }
        app
    }

    #[test]
    fn a_flood_fills_a_bounded_room_and_loses_no_repository_of_what_it_took() {
        let push = |repo: usize, files: Option<Vec<String>>| Push {
            repo: format!("git.example.com/{repo}"),
            revision: "main".to_owned(),
            is_default: true,
            changed: files,
        };
        let mut gathered = Gathered::default();
        let large = || Some(vec!["x".repeat(1 << 20); 10]);
        for repo in 0..20 {
            assert!(gathered.take(vec![push(repo, large())]));
        }
        let with_files = gathered
            .pushes
            .iter()
            .filter(|push| push.changed.is_some())
            .count();
        assert_eq!(
            (gathered.pushes.len(), with_files),
            (20, 1),
            "the others concern every path"
        );
        let mut repo = 20;
        while gathered.take(vec![push(repo, None)]) {
            repo += 1;
        }
        assert_eq!(gathered.pushes.len(), WAITING_MAX);
    }

    #[test]
    fn a_repository_is_the_same_however_its_url_is_written() {
        for url in [
            "https://git.example.com/team/app",
            "https://user:pass@git.example.com:8443/team/app.git",
            "ssh://git@git.example.com:22/team/app.git/",
            "git@git.example.com:team/app.git",
            "HTTPS://Git.Example.com/Team/App",
        ] {
            assert!(
                touches(
                    &app(url, "main", None),
                    &HashSet::from([push("main", true, None)])
                ),
                "{url}"
            );
        }
        assert!(!touches(
            &app("https://git.example.com/team/app2", "main", None),
            &HashSet::from([push("main", true, None)])
        ));
    }

    #[test]
    fn only_the_revision_that_was_pushed_matters() {
        let touched = |wanted: &str, push: Push| {
            touches(
                &app("https://git.example.com/team/app", wanted, None),
                &HashSet::from([push]),
            )
        };
        assert!(touched("", push("main", true, None)));
        assert!(touched("HEAD", push("main", true, None)));
        assert!(!touched("HEAD", push("feature", false, None)));
        assert!(touched("refs/heads/feature", push("feature", false, None)));
        assert!(touched("^1.2", push("v1.3.0", false, None)));
        assert!(!touched("^1.2", push("v2.0.0", false, None)));
    }

    #[test]
    fn files_outside_of_the_paths_change_nothing() {
        let touched = |changed: &[&str]| {
            let app = app("https://git.example.com/team/app", "main", Some(".;/shared"));
            touches(&app, &HashSet::from([push("main", true, Some(changed))]))
        };
        assert!(touched(&["deploy/values.yaml"]));
        assert!(touched(&["README.md", "shared/base.yaml"]));
        assert!(!touched(&["README.md", "deployment/x.yaml"]));
        assert!(touched(&[]), "a host that tells no files");
    }
}
