//! Starting and ending operations.

use argosy_api::annotation::parse_bool;
use argosy_api::integrity;
use argosy_api::services::application::{
    ApplicationRollbackRequest, ApplicationSyncRequest, OperationTerminateRequest, OperationTerminateResponse,
};
use argosy_api::services::repository::ResolveRevisionRequest;
use argosy_api::v1alpha1::{
    Application, ApplicationSource, Operation, OperationInitiator, OperationPhase, SyncOperation,
    SyncStrategy, SyncStrategyApply,
};
use tonic::Status;

use crate::auth::Caller;
use crate::gate::{Get, Granted, Sync};
use crate::service::Api;
use crate::state::project_of;
use crate::status;

/// The revision that a source follows.
fn target_of(source: &ApplicationSource) -> &str {
    match source.target_revision.as_str() {
        "" => "HEAD",
        target => target,
    }
}

/// Does any source get another revision than the one that it follows? None is the one that it follows.
fn leads_elsewhere(sources: &[ApplicationSource], wanted: &[String]) -> bool {
    let mut pairs = sources.iter().zip(wanted);
    pairs.any(|(source, wanted)| !wanted.is_empty() && wanted != target_of(source))
}

/// Does the controller sync it by itself?
fn is_automated(app: &Application) -> bool {
    let automated = app
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.automated.as_ref());
    automated.is_some_and(|automated| automated.enabled != Some(false))
}

impl Api {
    /// Writes the operation, unless there is one.
    async fn start(
        &self,
        app: &Granted<std::sync::Arc<Application>, Sync>,
        operation: Operation,
    ) -> Result<Application, Status> {
        let started = self.plane.update(app, |stored| {
            if stored.metadata.deletion_timestamp.is_some() {
                return Err(Status::failed_precondition("application is deleting"));
            }
            if stored.operation.is_some() {
                return Err(Status::failed_precondition(
                    "another operation is already in progress",
                ));
            }
            stored.operation = Some(operation.clone());
            stored.status.operation_state = None;
            Ok(())
        });
        started.await.map(|app| (*app).clone())
    }

    /// What a revision stands for, in one source.
    async fn resolve(
        &self,
        app: &Application,
        index: usize,
        wanted: &str,
        dry_run: bool,
    ) -> Result<String, Status> {
        let sources = app.spec.effective_sources();
        let source = sources.get(index).ok_or_else(|| {
            Status::invalid_argument(format!("the application has no source at position {}", index + 1))
        })?;
        let automated = is_automated(app);
        let target = target_of(source);
        let wanted = if wanted.is_empty() { target } else { wanted };
        if automated && !dry_run && wanted != target {
            return Err(Status::failed_precondition(format!(
                "Cannot sync to {wanted}: auto-sync currently set to {target}"
            )));
        }
        let request = ResolveRevisionRequest {
            repo: Some(
                self.plane
                    .settings()
                    .repository(&source.repo_url, project_of(app)),
            ),
            app: Some(app.clone()),
            ambiguous_revision: wanted.to_owned(),
            source_index: i64::try_from(index).unwrap_or_default(),
            // Whoever asks for a sync has just pushed, and means that.
            no_revision_cache: true,
        };
        let resolved = self.repo.resolve_revision(request).await.map_err(status::repo)?;
        Ok(resolved.revision)
    }

    pub(super) async fn sync_app(
        &self,
        caller: &Caller,
        request: ApplicationSyncRequest,
    ) -> Result<Application, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, request.project(), request.app_namespace(), &request.name)?;
        if !self.window_lets_in(&app, true) {
            return Err(Status::permission_denied("cannot sync: blocked by sync window"));
        }
        let app = self.gate.open::<Sync, _>(caller, app.shut())?;
        let dry_run = request.dry_run();
        if !request.manifests.is_empty() {
            self.gate.allow_action(caller, &app, "override")?;
            if is_automated(&app) && !dry_run {
                return Err(Status::failed_precondition(
                    "cannot use local sync when Automatic Sync Policy is enabled unless for dry run",
                ));
            }
        }
        if app.metadata.deletion_timestamp.is_some() {
            return Err(Status::failed_precondition("application is deleting"));
        }
        let (revision, revisions) = self.wanted_revisions(caller, &app, &request).await?;
        let policy = app.spec.sync_policy.clone().unwrap_or_default();
        let options = match &request.sync_options {
            Some(options) => options.items.clone(),
            None => policy.sync_options.clone(),
        };
        let replaces = |options: &[String]| options.iter().any(|option| option == "Replace=true");
        if replaces(&options) && !self.options.replace_allowed {
            return Err(Status::failed_precondition(
                "sync with replace was disabled on the API Server level via the server configuration",
            ));
        }
        if !request.manifests.is_empty() && self.demands_integrity(&app) {
            return Err(Status::failed_precondition(
                "Cannot use local manifests when source integrity is enforced",
            ));
        }
        for manifest in &request.manifests {
            serde_json::from_str::<serde_json::Value>(manifest)
                .map_err(|error| Status::invalid_argument(format!("manifests: read one as JSON: {error}")))?;
        }
        let mut operation = Operation {
            sync: Some(SyncOperation {
                revision,
                revisions,
                prune: request.prune(),
                dry_run,
                sync_strategy: request.strategy.clone(),
                resources: request.resources.clone(),
                manifests: request.manifests.clone(),
                sync_options: options,
                ..SyncOperation::default()
            }),
            initiated_by: OperationInitiator {
                username: caller.name().to_owned(),
                ..OperationInitiator::default()
            },
            info: request.infos.clone(),
            ..Operation::default()
        };
        if let Some(retry) = request.retry_strategy.clone().or(policy.retry) {
            operation.retry = retry;
        }
        self.start(&app, operation).await
    }

    /// Does the project demand signatures of any of the repositories? A demand that contradicts itself is one.
    fn demands_integrity(&self, app: &Application) -> bool {
        let project = self.plane.project_for_gate(project_of(app));
        let integrity = project.and_then(|project| integrity::effective(&self.joined(&project).spec));
        integrity.is_some_and(|integrity| {
            let sources = app.spec.effective_sources();
            let mut of_git = sources
                .iter()
                .filter(|source| source.chart.is_empty() && !source.repo_url.starts_with("oci://"));
            of_git.any(|source| !matches!(integrity::demand(&integrity, &source.repo_url), Ok(None)))
        })
    }

    /// The revision, or one for each source where there are several.
    async fn wanted_revisions(
        &self,
        caller: &Caller,
        app: &Granted<std::sync::Arc<Application>, Sync>,
        request: &ApplicationSyncRequest,
    ) -> Result<(String, Vec<String>), Status> {
        let sources = app.spec.effective_sources();
        let mut wanted: Vec<String> = sources
            .iter()
            .map(|source| source.target_revision.clone())
            .collect();
        if app.spec.has_multiple_sources() {
            if request.source_positions.len() != request.revisions.len() {
                return Err(Status::invalid_argument(
                    "revisions and sourcePositions must be as many",
                ));
            }
            for (position, revision) in request.source_positions.iter().zip(&request.revisions) {
                let index = usize::try_from(position.saturating_sub(1))
                    .ok()
                    .filter(|index| *index < wanted.len());
                let index = index.ok_or_else(|| {
                    Status::invalid_argument(format!(
                        "source position {position} is out of range: sources count from 1 to {}",
                        wanted.len()
                    ))
                })?;
                wanted[index].clone_from(revision);
            }
        } else if !request.revision().is_empty()
            && let Some(first) = wanted.first_mut()
        {
            request.revision().clone_into(first);
        }
        let settings = self.plane.settings();
        if settings.config.require_override_for_revision_sync && leads_elsewhere(&sources, &wanted) {
            self.gate.allow_action(caller, app, "override")?;
        }
        let mut revisions = Vec::new();
        for (index, wanted) in wanted.iter().enumerate() {
            revisions.push(match request.manifests.is_empty() {
                true => self.resolve(app, index, wanted, request.dry_run()).await?,
                false => wanted.clone(),
            });
        }
        Ok(match app.spec.has_multiple_sources() {
            true => (String::new(), revisions),
            false => (revisions.into_iter().next().unwrap_or_default(), Vec::new()),
        })
    }

    pub(super) async fn rollback_app(
        &self,
        caller: &Caller,
        request: &ApplicationRollbackRequest,
    ) -> Result<Application, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, request.project(), request.app_namespace(), &request.name)?;
        let enforced = self
            .plane
            .settings()
            .texts
            .get("server.rbac.rollback.enforce.enable")
            .is_some_and(|text| parse_bool(text) == Some(true));
        let app = match enforced {
            true => self.gate.allow_action(caller, &app, "rollback")?,
            false => self.gate.open::<Sync, _>(caller, app.shut())?,
        };
        if app.metadata.deletion_timestamp.is_some() {
            return Err(Status::failed_precondition("application is deleting"));
        }
        if is_automated(&app) {
            return Err(Status::failed_precondition(
                "rollback cannot be initiated when auto-sync is enabled",
            ));
        }
        let entry = app.status.history.iter().find(|entry| entry.id == request.id);
        let entry = entry.ok_or_else(|| {
            Status::invalid_argument(format!(
                "application {} does not have deployment with id {}",
                request.name, request.id
            ))
        })?;
        if entry.sources.is_empty() && entry.source == Default::default() {
            return Err(Status::failed_precondition(format!(
                "cannot rollback to revision deployed with Argo CD v0.12 or lower. sync to revision instead: {}",
                entry.revision
            )));
        }
        let policy = app.spec.sync_policy.clone().unwrap_or_default();
        let operation = Operation {
            sync: Some(SyncOperation {
                revision: entry.revision.clone(),
                revisions: entry.revisions.clone(),
                prune: request.prune(),
                dry_run: request.dry_run(),
                sync_options: policy.sync_options,
                sync_strategy: Some(SyncStrategy {
                    apply: Some(SyncStrategyApply::default()),
                    hook: None,
                }),
                source: Some(entry.source.clone()).filter(|source| *source != Default::default()),
                sources: entry.sources.clone(),
                ..SyncOperation::default()
            }),
            initiated_by: OperationInitiator {
                username: caller.name().to_owned(),
                ..OperationInitiator::default()
            },
            ..Operation::default()
        };
        self.start(&app, operation).await
    }

    pub(super) async fn terminate(
        &self,
        caller: &Caller,
        request: &OperationTerminateRequest,
    ) -> Result<OperationTerminateResponse, Status> {
        let app =
            self.gate
                .open_app::<Sync>(caller, request.project(), request.app_namespace(), &request.name)?;
        self.plane
            .update(&app, |stored| {
                let state = stored
                    .status
                    .operation_state
                    .as_mut()
                    .filter(|_| stored.operation.is_some());
                let state = state.ok_or_else(|| {
                    Status::invalid_argument("Unable to terminate operation. No operation is in progress")
                })?;
                state.phase = OperationPhase::Terminating.into();
                Ok(())
            })
            .await?;
        Ok(OperationTerminateResponse {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_is_not_the_one_followed_leads_elsewhere() {
        let source = |revision: &str| ApplicationSource {
            target_revision: revision.into(),
            ..ApplicationSource::default()
        };
        let sources = [source("main"), source("")];
        let elsewhere = |one: &str, two: &str| leads_elsewhere(&sources, &[one.into(), two.into()]);
        assert!(!elsewhere("main", ""));
        assert!(!elsewhere("", "HEAD"));
        assert!(elsewhere("v1", ""));
        assert!(elsewhere("main", "v1"));
    }
}
