//! Applications as lists, as streams, and one at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::annotation;
use argosy_api::git_url;
use argosy_api::meta::LabelSelector;
use argosy_api::services::application::ApplicationQuery;
use argosy_api::v1alpha1::{Application, ApplicationList, ApplicationWatchEvent};
use tokio::sync::broadcast::error::RecvError;
use tonic::Status;

use super::Answers;
use crate::auth::Caller;
use crate::gate::{Get, Granted};
use crate::selector;
use crate::service::Api;
use crate::state::{Event, project_of};

/// A refresh that was asked for is waited for at most so long; then the Application is given as it is.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(120);
/// The health of resources is waited for at most so long.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// Rights are looked at again this often while a stream lasts, even if no policy is known to have changed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Events that one watcher may be behind.
const WATCH_BUFFER: usize = 64;

/// What a query selects.
struct Filter {
    name: String,
    namespace: String,
    projects: Vec<String>,
    repo: String,
    selector: LabelSelector,
}

impl Filter {
    fn read(query: &ApplicationQuery) -> Result<Self, Status> {
        Ok(Filter {
            name: query.name().to_owned(),
            namespace: query.app_namespace().to_owned(),
            projects: query
                .projects
                .iter()
                .chain(&query.project)
                .filter(|text| !text.is_empty())
                .cloned()
                .collect(),
            repo: git_url::normalize(query.repo()),
            selector: selector::parse(query.selector())?,
        })
    }

    fn selects(&self, app: &Application) -> bool {
        let of_repo = || {
            app.spec
                .effective_sources()
                .iter()
                .any(|source| git_url::normalize(&source.repo_url) == self.repo)
        };
        (self.name.is_empty() || app.metadata.name == self.name)
            && (self.namespace.is_empty() || app.metadata.namespace == self.namespace)
            && (self.projects.is_empty() || self.projects.iter().any(|project| project == project_of(app)))
            && (self.repo.is_empty() || of_repo())
            && selector::selects(&self.selector, &app.metadata.labels)
    }
}

impl Api {
    pub(super) fn list_apps(
        &self,
        caller: &Caller,
        query: &ApplicationQuery,
    ) -> Result<ApplicationList, Status> {
        let filter = Filter::read(query)?;
        let mut visible: Vec<Granted<Arc<Application>, Get>> = self.gate.filter(caller, self.plane.apps());
        let newest = visible
            .iter()
            .filter_map(|app| app.metadata.resource_version.parse::<u64>().ok())
            .max();
        visible.retain(|app| filter.selects(app));
        visible.sort_by(|a, b| {
            (&a.metadata.name, &a.metadata.namespace).cmp(&(&b.metadata.name, &b.metadata.namespace))
        });
        let mut list = ApplicationList {
            items: visible.iter().map(|app| (***app).clone()).collect(),
            ..ApplicationList::default()
        };
        list.metadata.resource_version = newest.map(|newest| newest.to_string()).unwrap_or_default();
        Ok(list)
    }

    pub(super) async fn get_app(
        &self,
        caller: &Caller,
        query: &ApplicationQuery,
    ) -> Result<Application, Status> {
        let project = match query.project.as_slice() {
            [] => "",
            [one] => one,
            _ => {
                return Err(Status::invalid_argument(
                    "multiple projects specified - the get endpoint accepts either zero or one project",
                ));
            }
        };
        let app = self
            .gate
            .open_app::<Get>(caller, project, query.app_namespace(), query.name())?;
        let kind = match query.refresh() {
            "" => return Ok(self.with_health(&app, (**app).clone()).await),
            "hard" => "hard",
            _ => "normal",
        };
        // Watch first: an answer that comes at once must not be missed.
        let (_, mut events) = self.plane.watch_apps();
        // Whoever may look may have it looked at: the annotation asks the controller and changes nothing else.
        let asking = self.gate.refresh(&app);
        self.plane
            .update(&asking, |app| {
                app.metadata
                    .annotations
                    .insert(annotation::REFRESH.to_owned(), kind.to_owned());
                Ok(())
            })
            .await?;
        let uid = app.metadata.uid.clone();
        let refreshed = async {
            loop {
                match events.recv().await {
                    Ok(event) if event.row().metadata.uid != uid => {}
                    Ok(Event::Deleted(_)) => {
                        return Err(crate::status::not_found("applications.argoproj.io", query.name()));
                    }
                    Ok(event) if event.row().metadata.annotations.contains_key(annotation::REFRESH) => {}
                    Ok(event) => return Ok((**event.row()).clone()),
                    Err(RecvError::Lagged(_)) => {
                        let now = self.gate.open_app::<Get>(
                            caller,
                            project,
                            query.app_namespace(),
                            query.name(),
                        )?;
                        if !now.metadata.annotations.contains_key(annotation::REFRESH) {
                            return Ok((**now).clone());
                        }
                    }
                    Err(RecvError::Closed) => return Err(Status::unavailable("the server is stopping")),
                }
            }
        };
        let outcome = tokio::time::timeout(REFRESH_TIMEOUT, refreshed)
            .await
            .unwrap_or_else(|_| {
                Err(Status::deadline_exceeded(format!(
                    "the controller has not looked at {} within {} s; is it running?",
                    query.name(),
                    REFRESH_TIMEOUT.as_secs()
                )))
            });
        Ok(self.with_health(&app, outcome?).await)
    }

    /// The controller keeps the health of single resources out of the status; it is put in here, from the tree. Without
    /// a tree the rest stands.
    async fn with_health<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
        mut shown: Application,
    ) -> Application {
        if shown.status.resource_health_source != "appTree" || shown.status.resources.is_empty() {
            return shown;
        }
        let asked = tokio::time::timeout(HEALTH_TIMEOUT, self.live.tree(app)).await;
        let Ok(Ok(tree)) = asked else { return shown };
        let healths: HashMap<_, _> = tree
            .nodes
            .into_iter()
            .map(|node| {
                let found = node.resource_ref;
                (
                    (found.group, found.kind, found.namespace, found.name),
                    node.health,
                )
            })
            .collect();
        for resource in &mut shown.status.resources {
            let key = (
                resource.group.clone(),
                resource.kind.clone(),
                resource.namespace.clone(),
                resource.name.clone(),
            );
            if let Some(health) = healths.get(&key) {
                resource.health.clone_from(health);
            }
        }
        shown
    }

    pub(super) fn watch_apps(
        &self,
        caller: Caller,
        query: ApplicationQuery,
    ) -> Result<Answers<ApplicationWatchEvent>, Status> {
        let filter = Filter::read(&query)?;
        let since: u64 = query.resource_version().parse().unwrap_or_default();
        let (rows, mut events) = self.plane.watch_apps();
        let gate = self.gate.clone();
        let plane = self.plane.clone();
        let end = caller.user().and_then(|user| user.claims().exp);
        let auth = self.auth.clone();
        let (tx, rx) = tokio::sync::mpsc::channel(WATCH_BUFFER);
        tokio::spawn(async move {
            if since == 0 || !filter.name.is_empty() {
                let mut visible: Vec<Granted<Arc<Application>, Get>> = gate.filter(&caller, rows);
                visible.retain(|app| filter.selects(app));
                visible.sort_by(|a, b| {
                    (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name))
                });
                for app in visible {
                    if tx.send(Ok(event("ADDED", &app))).await.is_err() {
                        return;
                    }
                }
            } else {
                drop(rows);
            }
            let mut policies = plane.settings_changes();
            let mut view = gate.view::<Get>(&caller);
            let mut again = tokio::time::interval(LOOK_AGAIN);
            loop {
                let outcome = tokio::select! {
                    outcome = events.recv() => outcome,
                    changed = policies.changed() => {
                        if changed.is_err() || !auth.still(&caller) {
                            let _ = tx.send(Err(Status::unauthenticated("the session has ended"))).await;
                            return;
                        }
                        view = gate.view::<Get>(&caller);
                        continue;
                    }
                    _ = again.tick() => {
                        if end.is_some_and(|end| end <= auth.now()) || !auth.still(&caller) {
                            let _ = tx.send(Err(Status::unauthenticated("the session has ended"))).await;
                            return;
                        }
                        view = gate.view::<Get>(&caller);
                        continue;
                    }
                    () = tx.closed() => return,
                };
                let happened = match outcome {
                    Ok(happened) => happened,
                    Err(RecvError::Lagged(_)) => {
                        let slow = "this watch could not keep up with the changes: watch again";
                        let _ = tx.send(Err(Status::aborted(slow))).await;
                        return;
                    }
                    Err(RecvError::Closed) => return,
                };
                let row = happened.row();
                let old = row
                    .metadata
                    .resource_version
                    .parse::<u64>()
                    .is_ok_and(|version| version <= since);
                if (old && !matches!(happened, Event::Deleted(_))) || !filter.selects(row) {
                    continue;
                }
                let Some(app) = view.open(plane.shut_app(row.clone())) else {
                    continue;
                };
                if tx.send(Ok(event(happened.word(), &app))).await.is_err() {
                    return;
                }
            }
        });
        Ok(Box::pin(tokio_stream::wrappers::ReceiverStream::new(rx)))
    }
}

fn event(word: &str, app: &Granted<Arc<Application>, Get>) -> ApplicationWatchEvent {
    ApplicationWatchEvent {
        r#type: word.to_owned(),
        application: (***app).clone(),
    }
}
