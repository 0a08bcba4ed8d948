//! Applications as lists, as streams, and one at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::services::application::ApplicationQuery;
use argosy_api::v1alpha1::{Application, ApplicationList, ApplicationWatchEvent, HealthStatus};
use futures::StreamExt as _;
use tokio::sync::broadcast::error::RecvError;
use tonic::Status;

use super::Answers;
use super::page::Page;
use super::select::Selection;
use crate::auth::Caller;
use crate::gate::{Get, Granted};
use crate::live::Live;
use crate::service::Api;
use crate::state::Event;

/// The health of resources is waited for at most so long.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// Whether a session still counts is looked at again this often while a stream lasts, even if nothing is known to have
/// changed.
pub(in crate::service) const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Events that one watcher may be behind.
const WATCH_BUFFER: usize = 64;
/// A watcher that takes nothing for so long is let go.
pub(in crate::service) const WATCH_STALL: Duration = Duration::from_secs(30);

impl Api {
    pub(super) fn list_apps(
        &self,
        caller: &Caller,
        query: &ApplicationQuery,
    ) -> Result<ApplicationList, Status> {
        let selection = Selection::read(query)?;
        let page = Page::read(query)?;
        let (visible, newest) = self.gate.view::<Get>(caller).apps(|app| selection.selects(app));
        let visible: Vec<_> = visible.into_iter().map(Granted::into_inner).collect();
        let mut list = page.of(&visible);
        list.metadata.resource_version = newest.to_string();
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
            "" => return Ok(with_health(&self.live, &app, (**app).clone()).await),
            "hard" => "hard",
            _ => "normal",
        };
        let app = self.refreshed(caller, &app, kind).await?;
        Ok(with_health(&self.live, &app, (**app).clone()).await)
    }

    pub(super) fn watch_apps(
        &self,
        caller: Caller,
        query: ApplicationQuery,
    ) -> Result<Answers<ApplicationWatchEvent>, Status> {
        let selection = Selection::read(&query)?.here(self.plane.namespace());
        let since: u64 = query.resource_version().parse().unwrap_or_default();
        let anew = since == 0 || !query.name().is_empty();
        let resumed = self
            .gate
            .view::<Get>(&caller)
            .apps_since(since, |app| selection.selects(app));
        if !anew && query.resume() && !resumed.complete {
            return Err(Status::out_of_range(format!(
                "what happened since version {since} is not known any more: list again, and watch from there"
            )));
        }
        let mut first = resumed.apps;
        first.retain(|app| anew || is_after(app, since));
        first.sort_by(|a, b| {
            let place = |app: &Application| (app.metadata.namespace.clone(), app.metadata.name.clone());
            place(a).cmp(&place(b))
        });
        let word = if anew { "ADDED" } else { "MODIFIED" };
        let mut first: Vec<_> = first.into_iter().map(|app| (word, app)).collect();
        // Argo CD's program deletes an Application and then watches for its end, which may have come meanwhile.
        let is_gone = !query.name().is_empty() && first.is_empty();
        if !anew || is_gone {
            first.extend(resumed.gone.into_iter().map(|app| ("DELETED", app)));
        }
        let mut events = resumed.events;
        let (gate, plane, auth) = (self.gate.clone(), self.plane.clone(), self.auth.clone());
        let end = caller.user().and_then(|user| user.claims().exp);
        // What waits for a watcher is shared with all others; its own copy is made when it goes out.
        let (tx, rx) = tokio::sync::mpsc::channel::<Result<Told, Status>>(WATCH_BUFFER);
        tokio::spawn(async move {
            for told in first {
                if tx.send_timeout(Ok(told), WATCH_STALL).await.is_err() {
                    return;
                }
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
                        continue;
                    }
                    _ = again.tick() => {
                        if end.is_some_and(|end| end <= auth.now()) || !auth.still(&caller) {
                            let _ = tx.send(Err(Status::unauthenticated("the session has ended"))).await;
                            return;
                        }
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
                if !is_after(row, since) && !matches!(happened, Event::Deleted(_)) {
                    continue;
                }
                // Most watchers see little: what is out of reach is found out first, and costs least.
                let Some(app) = view.open_app(row).filter(|app| selection.selects(app)) else {
                    continue;
                };
                if tx
                    .send_timeout(Ok((happened.word(), app)), WATCH_STALL)
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        let told = tokio_stream::wrappers::ReceiverStream::new(rx);
        if query.name().is_empty() {
            return Ok(Box::pin(
                told.map(|told| told.map(|(word, app)| event(word, (**app).clone()))),
            ));
        }
        // Who watches one Application waits for its resources, too.
        let live = self.live.clone();
        Ok(Box::pin(told.then(move |told| {
            let live = live.clone();
            async move {
                let (word, app) = told?;
                let shown = match word {
                    "DELETED" => (**app).clone(),
                    _ => with_health(&live, &app, (**app).clone()).await,
                };
                Ok(event(word, shown))
            }
        })))
    }
}

/// What happened to an Application, as Kubernetes says it.
type Told = (&'static str, Granted<Arc<Application>, Get>);

/// Is an Application's version later than this one? What is no number is taken as later.
fn is_after(app: &Application, since: u64) -> bool {
    app.metadata
        .resource_version
        .parse::<u64>()
        .map_or(true, |version| version > since)
}

fn event(word: &str, application: Application) -> ApplicationWatchEvent {
    ApplicationWatchEvent {
        r#type: word.to_owned(),
        application,
    }
}

/// The controller keeps the health of single resources out of the status; it is put in here, from the tree. Without a tree the
/// rest stands.
async fn with_health<V>(
    live: &Live,
    app: &Granted<Arc<Application>, V>,
    mut shown: Application,
) -> Application {
    if shown.status.resource_health_source != "appTree" || shown.status.resources.is_empty() {
        return shown;
    }
    let asked = tokio::time::timeout(HEALTH_TIMEOUT, live.tree(app)).await;
    let Ok(Ok(Some(tree))) = asked else {
        return shown;
    };
    let healths: HashMap<_, _> = tree
        .nodes
        .into_iter()
        .map(|node| {
            let found = node.resource_ref;
            // What stands in the tree without being in the cluster has nothing that could be looked at.
            let is_missing = found.uid.is_empty() && node.resource_version.is_empty();
            (
                (found.group, found.kind, found.namespace, found.name),
                node.health.or_else(|| is_missing.then(missing_health)),
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

fn missing_health() -> HealthStatus {
    HealthStatus {
        status: "Missing".to_owned(),
        message: "Resource has not been created".to_owned(),
        ..HealthStatus::default()
    }
}
