//! Actions on single resources.

use std::collections::BTreeMap;

use argosy_api::project;
use argosy_api::services::application::{
    ApplicationResourceRequest, ApplicationResponse, ResourceActionRunRequestV2, ResourceActionsListResponse,
};
use argosy_api::tracking;
use argosy_api::v1alpha1::{ResourceAction, ResourceActionParam};
use argosy_health::action::{self, Impact, Operation};
use argosy_kube_io::target::{Patch, Write};
use argosy_object::{Value, meta};
use tonic::Status;

use super::resource::{Found, Wanted, wanted};
use crate::auth::Caller;
use crate::gate::Get;
use crate::service::Api;
use crate::state::project_of;
use crate::state::write::difference;
use crate::status;

impl Api {
    pub(super) async fn actions(
        &self,
        caller: &Caller,
        request: &ApplicationResourceRequest,
    ) -> Result<ResourceActionsListResponse, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, request.project(), request.app_namespace(), &request.name)?;
        let (found, _) = self.find_for_action(caller, &app, &wanted!(request)).await?;
        let live = found.live().await?;
        let customizations = self.plane.settings().actions.clone();
        let found = run_script(move || action::discover(&live, &customizations)).await?;
        let actions = found.into_iter().map(|found| ResourceAction {
            name: found.name,
            params: found
                .params
                .into_iter()
                .map(|param| ResourceActionParam { name: param.name })
                .collect(),
            disabled: found.disabled,
            icon_class: found.icon_class,
            display_name: found.display_name,
        });
        Ok(ResourceActionsListResponse {
            actions: actions.collect(),
        })
    }

    pub(super) async fn run_action(
        &self,
        caller: &Caller,
        request: &ResourceActionRunRequestV2,
    ) -> Result<ApplicationResponse, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, request.project(), request.app_namespace(), &request.name)?;
        let name = format!("action/{}/{}/{}", request.group(), request.kind, request.action);
        let app = self.gate.allow_action(caller, &app, &name)?;
        let (found, home) = self.find_for_action(caller, &app, &wanted!(request)).await?;
        // The tree may have been waited for.
        let app = self.gate.allow_action(caller, &app, &name)?;
        let live = found.live().await?;
        let parameters = request.resource_action_parameters.iter();
        let parameters: BTreeMap<_, _> = parameters
            .map(|parameter| (parameter.name.clone(), parameter.value.clone()))
            .collect();
        let settings = self.plane.settings();
        let (object, action_name, now) = (live.clone(), request.action.clone(), self.auth.now());
        let customizations = settings.actions.clone();
        let impacts =
            run_script(move || action::run(&object, &action_name, &parameters, now, &customizations)).await?;
        let project = self.plane.project_for_gate(project_of(&app));
        let project =
            project.ok_or_else(|| Status::failed_precondition("the application's project does not exist"))?;
        let project = self.joined(&project);
        let cluster = self.destination(&app)?;
        // All that is to be written must be permitted before any of it is.
        for impact in &impacts {
            let object = &impact.resource;
            let resource = project::Resource {
                group: meta::group(object),
                kind: meta::kind(object),
                namespace: meta::namespace(object),
                name: meta::name(object),
            };
            let target = project::Target {
                server: &cluster.server,
                name: &cluster.name,
            };
            let own = (cluster.project == project.metadata.name).then_some(target);
            if !project::permits_resource(&project.spec, resource, target, own) {
                return Err(Status::permission_denied(format!(
                    "application {} is not permitted to manage {}/{}/{} in {}",
                    app.metadata.name, resource.group, resource.kind, resource.name, resource.namespace
                )));
            }
        }
        let instance = match app.metadata.namespace == self.plane.namespace() {
            true => app.metadata.name.clone(),
            false => format!("{}_{}", app.metadata.namespace, app.metadata.name),
        };
        for impact in impacts {
            self.carry_out(
                &found,
                &live,
                impact,
                &home,
                &instance,
                &app.spec.destination.namespace,
            )
            .await?;
        }
        Ok(ApplicationResponse {})
    }

    async fn carry_out(
        &self,
        found: &Found,
        live: &Value,
        impact: Impact,
        cluster: &argosy_api::v1alpha1::Cluster,
        instance: &str,
        namespace: &str,
    ) -> Result<(), Status> {
        let mut object = impact.resource;
        let (target, resource) = self
            .targets
            .kind(&self.plane, cluster, &meta::gvk(&object))
            .await?;
        match impact.operation {
            Operation::Create => {
                let config = self.plane.settings().config.tracking.clone();
                tracking::stamp(&mut object, instance, namespace, &config)
                    .map_err(|error| Status::failed_precondition(error.to_string()))?;
                target
                    .create(&resource, &object, &Write::default())
                    .await
                    .map_err(status::kube)?;
            }
            Operation::Patch => {
                let node = &found.node.resource_ref;
                let same = meta::name(&object) == node.name
                    && meta::namespace(&object) == node.namespace
                    && meta::kind(&object) == node.kind
                    && meta::group(&object) == node.group;
                let before = match same {
                    true => live.clone(),
                    false => {
                        let (namespace, name) = (
                            meta::namespace(&object).to_owned(),
                            meta::name(&object).to_owned(),
                        );
                        let other = target
                            .get(&resource, &namespace, &name)
                            .await
                            .map_err(status::kube)?;
                        other.ok_or_else(|| status::not_found(&resource.kind, &name))?
                    }
                };
                let patch = difference(&before, &object);
                if patch.as_object().is_some_and(serde_json::Map::is_empty) {
                    return Ok(());
                }
                let (namespace, name) = (meta::namespace(&before), meta::name(&before));
                let written = target
                    .patch(
                        &resource,
                        namespace,
                        name,
                        Patch::Merge(&patch),
                        &Write::default(),
                    )
                    .await;
                written.map_err(status::kube)?;
            }
        }
        Ok(())
    }
}

/// Scripts have a deadline of their own, and are not for threads that serve connections.
async fn run_script<T: Send + 'static>(
    script: impl FnOnce() -> Result<T, action::ActionError> + Send + 'static,
) -> Result<T, Status> {
    let outcome = tokio::task::spawn_blocking(script).await;
    let outcome = outcome.map_err(|error| Status::internal(format!("run the action: {error}")))?;
    outcome.map_err(|error| Status::invalid_argument(error.to_string()))
}
