//! Making, changing and deleting Applications.

use std::sync::Arc;

use argosy_api::finalizer;
use argosy_api::services::application::{
    ApplicationCreateRequest, ApplicationDeleteRequest, ApplicationPatchRequest, ApplicationResponse,
    ApplicationUpdateRequest, ApplicationUpdateSpecRequest,
};
use argosy_api::v1alpha1::{Application, ApplicationSpec, Stored as _};
use serde_json::Value;
use tonic::Status;

use crate::auth::Caller;
use crate::gate::{Create, Delete, Get, Granted, Update};
use crate::patch;
use crate::service::{Api, add_marks};
use crate::state::project_of;

/// What is there twice or empty means the same as what is not.
fn normalized(mut spec: ApplicationSpec) -> ApplicationSpec {
    if spec.project.is_empty() {
        spec.project = "default".to_owned();
    }
    spec.sync_policy = spec.sync_policy.filter(|policy| *policy != Default::default());
    if !spec.sources.is_empty() {
        spec.source = None;
    }
    spec
}

impl Api {
    pub(super) async fn create_app(
        &self,
        caller: &Caller,
        request: ApplicationCreateRequest,
    ) -> Result<Application, Status> {
        let (validate, upsert) = (request.validate.unwrap_or(true), request.upsert());
        let mut app = request.application;
        if app.metadata.namespace.is_empty() {
            self.plane.namespace().clone_into(&mut app.metadata.namespace);
        }
        let namespace = app.metadata.namespace.clone();
        app.spec = normalized(app.spec);
        // Status and operations are not the caller's to write here.
        app.status = Default::default();
        app.operation = None;
        app.metadata.managed_fields.clear();
        app.metadata.resource_version.clear();
        app.metadata.uid.clear();
        app.metadata.creation_timestamp = None;
        let granted = self
            .gate
            .open::<Create, _>(caller, self.plane.shut_app(Arc::new(app.clone())))?;
        if !self.plane.is_enabled(&namespace) {
            return Err(Status::invalid_argument(format!(
                "namespace '{namespace}' is not permitted"
            )));
        }
        self.validate_app(&app, validate).await?;
        if let Some(known) = self.plane.app(&namespace, &app.metadata.name) {
            // Its name is taken; by what, and that of which project, is told only to those who may see it.
            let known: Granted<_, Get> = self.gate.open_found(caller, Some(known))?;
            if known.metadata.deletion_timestamp.is_some() {
                return Err(Status::invalid_argument(
                    "application is being deleted: wait until it is gone",
                ));
            }
            let same = normalized(known.spec.clone()) == app.spec
                && known.metadata.labels == app.metadata.labels
                && contains(&known.metadata.annotations, &app.metadata.annotations)
                && known.metadata.finalizers == app.metadata.finalizers;
            if same {
                return Ok((**known).clone());
            }
            if !upsert {
                return Err(Status::invalid_argument(
                    "existing application spec is different, use upsert flag to force update",
                ));
            }
            let known = self.gate.open::<Update, _>(caller, known.shut())?;
            self.may_move(caller, &known, &app)?;
            let updated = self.plane.update(&known, |stored| {
                stored.spec.clone_from(&app.spec);
                add_marks(&mut stored.metadata, &app.metadata);
                stored.metadata.finalizers.clone_from(&app.metadata.finalizers);
                Ok(())
            });
            return updated.await.map(|app| (*app).clone());
        }
        self.plane.create(&granted, false).await.map(|app| (*app).clone())
    }

    /// An Application that moves to another project must be one the caller could make and change there.
    fn may_move<V>(
        &self,
        caller: &Caller,
        known: &Granted<Arc<Application>, V>,
        becomes: &Application,
    ) -> Result<(), Status> {
        if project_of(known) == project_of(becomes) {
            return Ok(());
        }
        let mut there = becomes.clone();
        there.metadata = known.metadata.clone();
        let there = self.plane.shut_app(Arc::new(there));
        self.gate.open::<Create, _>(caller, there.clone())?;
        self.gate.open::<Update, _>(caller, there)?;
        Ok(())
    }

    async fn replace_app(
        &self,
        caller: &Caller,
        known: &Granted<Arc<Application>, Update>,
        mut becomes: Application,
        validate: bool,
    ) -> Result<Application, Status> {
        becomes.spec = normalized(becomes.spec);
        becomes.metadata.name.clone_from(&known.metadata.name);
        becomes.metadata.namespace.clone_from(&known.metadata.namespace);
        self.may_move(caller, known, &becomes)?;
        self.validate_app(&becomes, validate).await?;
        let updated = self.plane.update(known, |stored| {
            stored.spec.clone_from(&becomes.spec);
            stored.metadata.labels.clone_from(&becomes.metadata.labels);
            stored
                .metadata
                .annotations
                .clone_from(&becomes.metadata.annotations);
            stored
                .metadata
                .finalizers
                .clone_from(&becomes.metadata.finalizers);
            Ok(())
        });
        updated.await.map(|app| (*app).clone())
    }

    pub(super) async fn update_app(
        &self,
        caller: &Caller,
        request: ApplicationUpdateRequest,
    ) -> Result<Application, Status> {
        let app = &request.application;
        let known = self.gate.open_app::<Update>(
            caller,
            request.project(),
            &app.metadata.namespace,
            &app.metadata.name,
        )?;
        let validate = request.validate.unwrap_or(true);
        self.replace_app(caller, &known, request.application, validate)
            .await
    }

    pub(super) async fn update_app_spec(
        &self,
        caller: &Caller,
        request: ApplicationUpdateSpecRequest,
    ) -> Result<ApplicationSpec, Status> {
        let known = self.gate.open_app::<Update>(
            caller,
            request.project(),
            request.app_namespace(),
            &request.name,
        )?;
        let mut becomes = (**known).clone();
        let validate = request.validate.unwrap_or(true);
        becomes.spec = request.spec;
        self.replace_app(caller, &known, becomes, validate)
            .await
            .map(|app| app.spec)
    }

    pub(super) async fn patch_app(
        &self,
        caller: &Caller,
        request: &ApplicationPatchRequest,
    ) -> Result<Application, Status> {
        let known = self.gate.open_app::<Update>(
            caller,
            request.project(),
            request.app_namespace(),
            &request.name,
        )?;
        let patch: Value = serde_json::from_str(&request.patch)
            .map_err(|error| Status::invalid_argument(format!("patch: read it as JSON: {error}")))?;
        let mut document = known.to_document();
        let wrong = |error: String| Status::invalid_argument(format!("patch: {error}"));
        match request.patch_type.as_str() {
            "json" | "" => {
                let patch = serde_json::from_value(patch).map_err(|error| wrong(error.to_string()))?;
                patch::apply(&mut document, &patch).map_err(wrong)?;
            }
            "merge" => json_patch::merge(&mut document, &patch),
            other => {
                return Err(Status::invalid_argument(format!(
                    "patchType: {other:?} is neither merge nor json"
                )));
            }
        }
        let becomes = Application::from_document(&document)
            .map_err(|error| wrong(argosy_runtime::log::chain(&error)))?;
        if becomes.metadata.name != known.metadata.name
            || becomes.metadata.namespace != known.metadata.namespace
        {
            return Err(Status::invalid_argument(
                "patch: name and namespace cannot be changed",
            ));
        }
        self.replace_app(caller, &known, becomes, true).await
    }

    pub(super) async fn delete_app(
        &self,
        caller: &Caller,
        request: &ApplicationDeleteRequest,
    ) -> Result<ApplicationResponse, Status> {
        let app = self.gate.open_app::<Delete>(
            caller,
            request.project(),
            request.app_namespace(),
            &request.name,
        )?;
        let policy = request.propagation_policy();
        let wanted = match (request.cascade, policy) {
            (Some(false), "") => None,
            (Some(false), _) => {
                return Err(Status::invalid_argument(
                    "cannot set propagation policy when cascading is disabled",
                ));
            }
            (_, "" | "foreground") => Some(finalizer::RESOURCES),
            (_, "background") => Some(finalizer::RESOURCES_BACKGROUND),
            (_, other) => {
                return Err(Status::invalid_argument(format!(
                    "invalid propagation policy: {other}"
                )));
            }
        };
        self.plane
            .update(&app, |stored| {
                if stored.metadata.deletion_timestamp.is_some() && wanted.is_some() {
                    return Ok(());
                }
                let before = stored.metadata.finalizers.clone();
                let cascades = |name: &str| finalizer::cascade([name]).is_some();
                let kept = |name: &String| !cascades(name);
                stored.metadata.finalizers.retain(kept);
                if let Some(wanted) = wanted {
                    let same = before
                        .iter()
                        .any(|name| finalizer::cascade([name.as_str()]) == finalizer::cascade([wanted]));
                    if same {
                        stored.metadata.finalizers = before;
                    } else {
                        stored.metadata.finalizers.push(wanted.to_owned());
                    }
                }
                Ok(())
            })
            .await?;
        self.plane.delete(&app).await?;
        Ok(ApplicationResponse {})
    }
}

/// Does one map hold all of another?
fn contains(
    all: &std::collections::BTreeMap<String, String>,
    some: &std::collections::BTreeMap<String, String>,
) -> bool {
    some.iter().all(|(key, value)| all.get(key) == Some(value))
}
