//! Live state of an Application, as its handlers want it. Where there is none yet, because Argo CD's controller has written
//! none to Redis or not lately, the controller is asked to look, as Argo CD does.

use std::sync::Arc;
use std::time::Duration;

use argosy_api::annotation;
use argosy_api::condition::ConditionType;
use argosy_api::v1alpha1::{Application, ApplicationTree, ResourceDiff};
use tokio::sync::broadcast::error::RecvError;
use tonic::Status;

use crate::auth::Caller;
use crate::gate::{Get, Granted};
use crate::service::Api;
use crate::state::Event;
use crate::status;

/// A look that was asked for is waited for at most so long.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(120);

/// What a look finds is written soon after it, not before the look is said to be done.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
/// Whether it is there is looked up this often.
const WRITTEN_AGAIN: Duration = Duration::from_millis(200);

impl Api {
    /// Everything an Application owns.
    pub(super) async fn live_tree<V>(
        &self,
        caller: &Caller,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<ApplicationTree, Status> {
        if let Some(tree) = self.live.tree(app).await? {
            return Ok(tree);
        }
        let app = self.have_it_written(caller, app).await?;
        let tree = soon(|| self.live.tree(&app)).await?;
        tree.ok_or_else(|| missing("resource tree", &app))
    }

    /// Desired and live state of what an Application manages.
    pub(super) async fn live_managed<V>(
        &self,
        caller: &Caller,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<Vec<ResourceDiff>, Status> {
        if let Some(managed) = self.live.managed(app).await? {
            return Ok(managed);
        }
        let app = self.have_it_written(caller, app).await?;
        let managed = soon(|| self.live.managed(&app)).await?;
        managed.ok_or_else(|| missing("managed resources", &app))
    }

    /// Of an Application that cannot be compared nothing is written however often the controller looks: its conditions say
    /// why.
    async fn have_it_written<V>(
        &self,
        caller: &Caller,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<Granted<Arc<Application>, Get>, Status> {
        let hopeless =
            [ConditionType::ComparisonError, ConditionType::InvalidSpecError].map(ConditionType::as_str);
        let reasons = app.status.conditions.iter();
        let reasons = reasons.filter(|found| hopeless.contains(&found.r#type.as_str()));
        let reasons: Vec<_> = reasons
            .map(|found| format!("{}: {}", found.r#type, found.message))
            .collect();
        if !reasons.is_empty() {
            return Err(Status::unknown(reasons.join(";")));
        }
        self.refreshed(caller, app, "normal").await
    }

    /// Has the controller look, and waits until it has. `kind` is how deep. What has become of the Application is the
    /// caller's to see if it still is after the wait, in which sessions end, rights change and projects as well.
    pub(super) async fn refreshed<V>(
        &self,
        caller: &Caller,
        app: &Granted<Arc<Application>, V>,
        kind: &str,
    ) -> Result<Granted<Arc<Application>, Get>, Status> {
        self.looked_at(app, kind).await?;
        if !self.auth.still(caller) {
            return Err(Status::unauthenticated("the session has ended"));
        }
        self.gate
            .open_app(caller, "", &app.metadata.namespace, &app.metadata.name)
    }

    async fn looked_at<V>(&self, app: &Granted<Arc<Application>, V>, kind: &str) -> Result<(), Status> {
        // Watch first: an answer that comes at once must not be missed.
        let mut events = self.plane.app_events();
        // Whoever may look may have it looked at: the annotation asks the controller and changes nothing else.
        let asking = self.gate.refresh(app);
        self.plane
            .update(&asking, |app| {
                app.metadata
                    .annotations
                    .insert(annotation::REFRESH.to_owned(), kind.to_owned());
                Ok(())
            })
            .await?;
        let uid = &app.metadata.uid;
        let is_asked = |app: &Application| app.metadata.annotations.contains_key(annotation::REFRESH);
        let gone = || status::not_found("applications.argoproj.io", &app.metadata.name);
        let looked_at = async {
            loop {
                match events.recv().await {
                    Ok(event) if event.row().metadata.uid != *uid => {}
                    Ok(Event::Deleted(_)) => return Err(gone()),
                    Ok(event) if is_asked(event.row()) => {}
                    Ok(_) => return Ok(()),
                    Err(RecvError::Lagged(_)) => {
                        let now = self.plane.as_it_is(app).ok_or_else(gone)?;
                        if !is_asked(&now) {
                            return Ok(());
                        }
                    }
                    Err(RecvError::Closed) => return Err(Status::unavailable("the server is stopping")),
                }
            }
        };
        let in_time = tokio::time::timeout(REFRESH_TIMEOUT, looked_at).await;
        in_time.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!(
                "the controller has not looked at {} within {} s; is it running?",
                app.metadata.name,
                REFRESH_TIMEOUT.as_secs()
            )))
        })
    }
}

/// Reads until there is something, for a few seconds.
async fn soon<T, F>(read: impl Fn() -> F) -> Result<Option<T>, Status>
where
    F: Future<Output = Result<Option<T>, Status>>,
{
    let end = tokio::time::Instant::now() + WRITTEN_WITHIN;
    loop {
        let found = read().await?;
        if found.is_some() || tokio::time::Instant::now() >= end {
            return Ok(found);
        }
        tokio::time::sleep(WRITTEN_AGAIN).await;
    }
}

fn missing(what: &str, app: &Application) -> Status {
    Status::unknown(format!(
        "error getting cached app {what}: cache: key is missing; the controller has looked at {} and written none: does it write to \
         this Redis, with the same --redis-compress and --redis-key-prefix?",
        app.metadata.name
    ))
}
