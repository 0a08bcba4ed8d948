//! Trees, and single resources in them: looked at, changed, deleted. What is not in an Application's tree is not the
//! Application's, whatever a request says.

use std::sync::Arc;

use argosy_api::annotation::parse_bool;
use argosy_api::cluster_secret;
use argosy_api::services::application::{
    ApplicationResourceDeleteRequest, ApplicationResourcePatchRequest, ApplicationResourceRequest,
    ApplicationResourceResponse, ApplicationResponse, ManagedResourcesResponse, ResourcesQuery,
};
use argosy_api::v1alpha1::{
    Application, ApplicationTree, Cluster, GROUP, ResourceNode, ResourceRef, VERSION,
};
use argosy_kube_io::target::{Delete as Deletion, Patch, Propagation, Write};
use argosy_kube_io::{ApiResource, Target};
use argosy_object::{GroupVersionKind, Value};
use futures::StreamExt as _;
use tonic::Status;

use super::Answers;
use crate::auth::Caller;
use crate::egress;
use crate::gate::{Get, Granted};
use crate::service::Api;
use crate::status;

/// Trees that one watcher may be behind.
const WATCH_BUFFER: usize = 4;

/// Which resource of an Application a request means.
pub(super) struct Wanted<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

macro_rules! wanted {
    ($request:expr) => {
        Wanted {
            group: $request.group(),
            version: &$request.version,
            kind: &$request.kind,
            namespace: $request.namespace(),
            name: &$request.resource_name,
        }
    };
}
pub(super) use wanted;

impl Wanted<'_> {
    fn is(&self, node: &ResourceNode) -> bool {
        let found = &node.resource_ref;
        found.group == self.group
            && found.kind == self.kind
            && found.name == self.name
            && (found.namespace == self.namespace
                || (self.namespace.is_empty() && found.namespace.is_empty()))
    }

    /// The action in policies that is about this resource alone.
    pub(super) fn action(&self, verb: &str) -> String {
        format!(
            "{verb}/{}/{}/{}/{}",
            self.group, self.kind, self.namespace, self.name
        )
    }
}

/// A resource that is in the tree of an Application, and the way to it.
pub(super) struct Found {
    pub target: Target,
    pub resource: ApiResource,
    pub node: ResourceNode,
}

impl Found {
    pub(super) async fn live(&self) -> Result<Value, Status> {
        let node = &self.node.resource_ref;
        let live = self
            .target
            .get(&self.resource, &node.namespace, &node.name)
            .await
            .map_err(status::kube)?;
        let live = live.filter(|live| node.uid.is_empty() || argosy_object::meta::uid(live) == node.uid);
        live.ok_or_else(|| status::not_found(&node.kind, &node.name))
    }
}

impl Api {
    pub(super) async fn tree(
        &self,
        caller: &Caller,
        query: &ResourcesQuery,
    ) -> Result<ApplicationTree, Status> {
        let app = self.gate.open_app::<Get>(
            caller,
            query.project(),
            query.app_namespace(),
            &query.application_name,
        )?;
        self.live_tree(caller, &app).await
    }

    pub(super) async fn watch_tree(
        &self,
        caller: Caller,
        query: ResourcesQuery,
    ) -> Result<Answers<ApplicationTree>, Status> {
        let open = {
            let gate = self.gate.clone();
            move |caller: &Caller| {
                gate.open_app::<Get>(
                    caller,
                    query.project(),
                    query.app_namespace(),
                    &query.application_name,
                )
            }
        };
        let app = open(&caller)?;
        let mut trees = self.live.watch_tree(&app).await?;
        let auth = self.auth.clone();
        let (tx, rx) = tokio::sync::mpsc::channel(WATCH_BUFFER);
        tokio::spawn(async move {
            let mut again = tokio::time::interval(std::time::Duration::from_secs(30));
            loop {
                let tree = tokio::select! {
                    tree = trees.next() => tree,
                    () = tx.closed() => return,
                    _ = again.tick() => {
                        if auth.still(&caller) && open(&caller).is_ok() {
                            continue;
                        }
                        let _ = tx.send(Err(Status::permission_denied(crate::gate::DENIED))).await;
                        return;
                    }
                };
                let Some(tree) = tree else { return };
                let last = tree.is_err();
                if tx.send(tree).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(Box::pin(tokio_stream::wrappers::ReceiverStream::new(rx)))
    }

    pub(super) async fn managed(
        &self,
        caller: &Caller,
        query: &ResourcesQuery,
    ) -> Result<ManagedResourcesResponse, Status> {
        let app = self.gate.open_app::<Get>(
            caller,
            query.project(),
            query.app_namespace(),
            &query.application_name,
        )?;
        let settings = self.plane.settings();
        let any = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let items = self.live_managed(caller, &app).await?.into_iter().filter(|item| {
            any(query.group(), &item.group)
                && any(query.kind(), &item.kind)
                && any(query.namespace(), &item.namespace)
                && any(query.name(), &item.name)
        });
        let masked = items.map(|item| egress::resource_diff(item, &settings.config.sensitive_annotations));
        Ok(ManagedResourcesResponse {
            items: masked.collect(),
        })
    }

    /// The resource, if it is the Application's.
    pub(super) async fn find<V>(
        &self,
        caller: &Caller,
        app: &Granted<Arc<Application>, V>,
        wanted: &Wanted<'_>,
    ) -> Result<Found, Status> {
        let tree = self.live_tree(caller, app).await?;
        let node = tree
            .nodes
            .into_iter()
            .chain(tree.orphaned_nodes)
            .find(|node| wanted.is(node));
        let node = node.ok_or_else(|| {
            Status::invalid_argument(format!(
                "{} {} {} not found as part of application {}",
                wanted.kind, wanted.group, wanted.name, app.metadata.name
            ))
        })?;
        if node.resource_ref.uid.is_empty() {
            return Err(Status::invalid_argument(format!(
                "{} {} {} is missing in the cluster",
                wanted.kind, wanted.group, wanted.name
            )));
        }
        let version = if wanted.version.is_empty() {
            &node.resource_ref.version
        } else {
            wanted.version
        };
        let gvk = GroupVersionKind::new(wanted.group, version, wanted.kind);
        let cluster = self.destination(app)?;
        let (target, resource) = self.targets.kind(&self.plane, &cluster, &gvk).await?;
        Ok(Found {
            target,
            resource,
            node,
        })
    }

    /// What an action is on, and the cluster that has it: a resource of an Application, or the Application itself, which the
    /// control plane's own cluster has.
    pub(super) async fn find_for_action<V>(
        &self,
        caller: &Caller,
        app: &Granted<Arc<Application>, V>,
        wanted: &Wanted<'_>,
    ) -> Result<(Found, Cluster), Status> {
        let metadata = &app.metadata;
        if (wanted.group, wanted.kind, wanted.name) != (GROUP, "Application", metadata.name.as_str()) {
            return Ok((self.find(caller, app, wanted).await?, self.destination(app)?));
        }
        let cluster = cluster_secret::in_cluster();
        let gvk = GroupVersionKind::new(GROUP, VERSION, "Application");
        let (target, resource) = self.targets.kind(&self.plane, &cluster, &gvk).await?;
        let node = ResourceNode {
            resource_ref: ResourceRef {
                group: GROUP.to_owned(),
                version: VERSION.to_owned(),
                kind: "Application".to_owned(),
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            },
            ..ResourceNode::default()
        };
        let found = Found {
            target,
            resource,
            node,
        };
        Ok((found, cluster))
    }

    pub(super) fn masked(&self, object: Value) -> ApplicationResourceResponse {
        let settings = self.plane.settings();
        ApplicationResourceResponse {
            manifest: egress::manifest(object, &settings.config.sensitive_annotations),
        }
    }

    pub(super) async fn resource(
        &self,
        caller: &Caller,
        request: &ApplicationResourceRequest,
    ) -> Result<ApplicationResourceResponse, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, request.project(), request.app_namespace(), &request.name)?;
        let found = self.find(caller, &app, &wanted!(request)).await?;
        Ok(self.masked(found.live().await?))
    }

    /// May the caller do this to one resource? The right to do it to the Application counts only where the installation
    /// says that it is inherited.
    pub(super) fn may_touch<V>(
        &self,
        caller: &Caller,
        app: &Granted<Arc<Application>, V>,
        verb: &str,
        wanted: &Wanted<'_>,
    ) -> Result<(), Status> {
        let settings = self.plane.settings();
        let inherits = settings
            .texts
            .get("server.rbac.disableApplicationFineGrainedRBACInheritance")
            .is_some_and(|text| parse_bool(text) == Some(false));
        if inherits && self.gate.allow_action(caller, app, verb).is_ok() {
            return Ok(());
        }
        self.gate
            .allow_action(caller, app, &wanted.action(verb))
            .map(|_| ())
    }

    pub(super) async fn patch_live(
        &self,
        caller: &Caller,
        request: &ApplicationResourcePatchRequest,
    ) -> Result<ApplicationResourceResponse, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, request.project(), request.app_namespace(), &request.name)?;
        let wanted = wanted!(request);
        self.may_touch(caller, &app, "update", &wanted)?;
        let found = self.find(caller, &app, &wanted).await?;
        // The tree may have been waited for.
        self.may_touch(caller, &app, "update", &wanted)?;
        let patch: Value = serde_json::from_str(&request.patch)
            .map_err(|error| Status::invalid_argument(format!("patch: read it as JSON: {error}")))?;
        let patch = match request.patch_type.as_str() {
            "application/json-patch+json" => Patch::Json(&patch),
            "application/merge-patch+json" => Patch::Merge(&patch),
            "application/strategic-merge-patch+json" => Patch::Strategic(&patch),
            other => {
                return Err(Status::invalid_argument(format!(
                    "patchType: {other:?} is no kind of patch"
                )));
            }
        };
        let node = &found.node.resource_ref;
        let written = found
            .target
            .patch(
                &found.resource,
                &node.namespace,
                &node.name,
                patch,
                &Write::default(),
            )
            .await;
        Ok(self.masked(written.map_err(status::kube)?.object))
    }

    pub(super) async fn delete_live(
        &self,
        caller: &Caller,
        request: &ApplicationResourceDeleteRequest,
    ) -> Result<ApplicationResponse, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, request.project(), request.app_namespace(), &request.name)?;
        let wanted = wanted!(request);
        self.may_touch(caller, &app, "delete", &wanted)?;
        let found = self.find(caller, &app, &wanted).await?;
        // The tree may have been waited for.
        self.may_touch(caller, &app, "delete", &wanted)?;
        let node = &found.node.resource_ref;
        let deletion = Deletion {
            uid: Some(node.uid.clone()),
            propagation: match (request.orphan(), request.force()) {
                (true, _) => Propagation::Orphan,
                (false, true) => Propagation::Background,
                (false, false) => Propagation::Foreground,
            },
            grace_period: request.force().then_some(0),
            ..Deletion::default()
        };
        found
            .target
            .delete(&found.resource, &node.namespace, &node.name, &deletion)
            .await
            .map_err(status::kube)?;
        Ok(ApplicationResponse {})
    }
}
