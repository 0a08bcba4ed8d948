//! `applicationset.ApplicationSetService`.

use std::pin::Pin;
use std::sync::Arc;

use argosy_api::services::applicationset::application_set_service_server::ApplicationSetService;
use argosy_api::services::applicationset::{
    ApplicationSetCreateRequest, ApplicationSetDeleteRequest, ApplicationSetGenerateRequest,
    ApplicationSetGenerateResponse, ApplicationSetGetQuery, ApplicationSetListQuery, ApplicationSetResponse,
    ApplicationSetTreeQuery, ApplicationSetWatchQuery,
};
use argosy_api::services::events::EventList;
use argosy_api::v1alpha1::{
    ApplicationSet, ApplicationSetList, ApplicationSetTree, ApplicationSetWatchEvent, ResourceNode,
    ResourceRef,
};
use futures::Stream;
use tokio::sync::broadcast::error::RecvError;
use tonic::{Code, Request, Response, Status};

use super::application::{LOOK_AGAIN, WATCH_STALL, events};
use super::{Api, add_marks};
use crate::auth::{self, Caller};
use crate::gate::{Create, Delete, Get, Granted, Update, Verb};
use crate::selector;
use crate::state::Event;

impl Api {
    fn app_set<V: Verb>(
        &self,
        caller: &Caller,
        namespace: &str,
        name: &str,
    ) -> Result<Granted<Arc<ApplicationSet>, V>, Status> {
        if !namespace.is_empty() && !self.plane.is_enabled(namespace) {
            return Err(Status::invalid_argument(format!(
                "namespace '{namespace}' is not permitted"
            )));
        }
        self.gate.open_found(caller, self.plane.app_set(namespace, name))
    }
}

/// A project that is a template could become any: who may make such a set must not be found out by its text.
fn check(set: &ApplicationSet) -> Result<(), Status> {
    if set.metadata.name.is_empty() {
        return Err(Status::invalid_argument(
            "metadata.name: an application set needs a name",
        ));
    }
    let project = &set.spec.template.spec.project;
    if project.is_empty() || project.contains("{{") {
        return Err(Status::invalid_argument(
            "the Argo CD API does not currently support creating ApplicationSets with templated `project` fields",
        ));
    }
    if set.spec.generators.is_empty() {
        return Err(Status::invalid_argument(
            "spec.generators: an application set needs at least one generator",
        ));
    }
    Ok(())
}

/// What is sent for a set that there is counts.
fn upserted(stored: &mut ApplicationSet, sent: &ApplicationSet) {
    stored.spec.clone_from(&sent.spec);
    add_marks(&mut stored.metadata, &sent.metadata);
}

#[tonic::async_trait]
impl ApplicationSetService for Api {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<ApplicationSetWatchEvent, Status>> + Send>>;

    async fn get(
        &self,
        request: Request<ApplicationSetGetQuery>,
    ) -> Result<Response<ApplicationSet>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let set = self
            .app_set::<Get>(&caller, &query.appset_namespace, &query.name)
            .map_err(|refused| match refused.code() {
                // Argo CD's program makes a set only if it is told that there is none. Of one that may not be seen it is told the same.
                Code::PermissionDenied => Status::not_found("there is no such ApplicationSet"),
                _ => refused,
            })?;
        Ok(Response::new((**set).clone()))
    }

    async fn generate(
        &self,
        request: Request<ApplicationSetGenerateRequest>,
    ) -> Result<Response<ApplicationSetGenerateResponse>, Status> {
        let caller = auth::caller(&request)?;
        let set = request.into_inner().application_set;
        let set = set.ok_or_else(|| {
            Status::invalid_argument("error creating ApplicationSets: ApplicationSets is nil in request")
        })?;
        self.gate
            .open::<Create, _>(&caller, self.plane.shut_app_set(Arc::new(set)))?;
        Err(Status::unimplemented(
            "applications of an ApplicationSet cannot be generated yet: there is no ApplicationSet controller",
        ))
    }

    async fn list(
        &self,
        request: Request<ApplicationSetListQuery>,
    ) -> Result<Response<ApplicationSetList>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let selector = selector::parse(&query.selector)?;
        let (sets, newest) = self.plane.app_sets();
        let mut visible: Vec<Granted<Arc<ApplicationSet>, Get>> = self.gate.filter(&caller, sets);
        visible.retain(|set| {
            (query.appset_namespace.is_empty() || set.metadata.namespace == query.appset_namespace)
                && (query.projects.is_empty() || query.projects.contains(&set.spec.template.spec.project))
                && selector::selects(&selector, &set.metadata.labels)
        });
        visible.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let mut list = ApplicationSetList {
            items: visible.iter().map(|set| (***set).clone()).collect(),
            ..ApplicationSetList::default()
        };
        list.metadata.resource_version = newest.to_string();
        Ok(Response::new(list))
    }

    async fn create(
        &self,
        request: Request<ApplicationSetCreateRequest>,
    ) -> Result<Response<ApplicationSet>, Status> {
        let caller = auth::caller(&request)?;
        let ApplicationSetCreateRequest {
            applicationset,
            upsert,
            dry_run,
        } = request.into_inner();
        let set = applicationset.ok_or_else(|| {
            Status::invalid_argument("error creating ApplicationSets: ApplicationSets is nil in request")
        })?;
        let mut set = set;
        if set.metadata.namespace.is_empty() {
            self.plane.namespace().clone_into(&mut set.metadata.namespace);
        }
        set.status = Default::default();
        check(&set)?;
        let granted = self
            .gate
            .open::<Create, _>(&caller, self.plane.shut_app_set(Arc::new(set.clone())))?;
        if !self.plane.is_enabled(&set.metadata.namespace) {
            return Err(Status::invalid_argument(format!(
                "namespace '{}' is not permitted",
                set.metadata.namespace
            )));
        }
        if self
            .plane
            .project_for_gate(&set.spec.template.spec.project)
            .is_none()
        {
            return Err(Status::invalid_argument(format!(
                "ApplicationSet references project {} which does not exist",
                set.spec.template.spec.project
            )));
        }
        if let Some(known) = self.plane.app_set(&set.metadata.namespace, &set.metadata.name) {
            // In whose project it is, is told only to those who may see it.
            let known = self.gate.open_found::<Get, _>(&caller, Some(known))?;
            let mut becomes = (**known).clone();
            upserted(&mut becomes, &set);
            if becomes == **known {
                return Ok(Response::new(becomes));
            }
            if !upsert {
                return Err(Status::invalid_argument(
                    "existing ApplicationSet spec is different, use upsert flag to force update",
                ));
            }
            let known = self.gate.open::<Update, _>(&caller, known.shut())?;
            if dry_run {
                return Ok(Response::new(becomes));
            }
            let updated = self
                .plane
                .update(&known, |stored| {
                    upserted(stored, &set);
                    Ok(())
                })
                .await?;
            return Ok(Response::new((*updated).clone()));
        }
        let created = self.plane.create(&granted, dry_run).await?;
        Ok(Response::new((*created).clone()))
    }

    async fn delete(
        &self,
        request: Request<ApplicationSetDeleteRequest>,
    ) -> Result<Response<ApplicationSetResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let set = self.app_set::<Delete>(&caller, &query.appset_namespace, &query.name)?;
        self.plane.delete(&set).await?;
        Ok(Response::new(ApplicationSetResponse::default()))
    }

    async fn resource_tree(
        &self,
        request: Request<ApplicationSetTreeQuery>,
    ) -> Result<Response<ApplicationSetTree>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let set = self.app_set::<Get>(&caller, &query.appset_namespace, &query.name)?;
        let parent = ResourceRef {
            group: argosy_api::v1alpha1::GROUP.to_owned(),
            version: argosy_api::v1alpha1::VERSION.to_owned(),
            kind: "ApplicationSet".to_owned(),
            name: set.metadata.name.clone(),
            namespace: set.metadata.namespace.clone(),
            uid: set.metadata.uid.clone(),
        };
        let node = |resource: &argosy_api::v1alpha1::ResourceStatus| ResourceNode {
            resource_ref: ResourceRef {
                group: resource.group.clone(),
                version: resource.version.clone(),
                kind: resource.kind.clone(),
                name: resource.name.clone(),
                namespace: resource.namespace.clone(),
                uid: String::new(),
            },
            parent_refs: vec![parent.clone()],
            health: resource.health.clone(),
            ..ResourceNode::default()
        };
        let nodes = set.status.resources.iter().map(node).collect();
        Ok(Response::new(ApplicationSetTree { nodes }))
    }

    async fn list_resource_events(
        &self,
        request: Request<ApplicationSetGetQuery>,
    ) -> Result<Response<EventList>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let set = self.app_set::<Get>(&caller, &query.appset_namespace, &query.name)?;
        self.plane
            .events_about(&set)
            .await
            .map(events::list)
            .map(Response::new)
    }

    async fn watch(
        &self,
        request: Request<ApplicationSetWatchQuery>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let selector = selector::parse(&query.selector)?;
        let since: u64 = query.resource_version.parse().unwrap_or_default();
        // As with Applications: who watches one by its name must miss nothing of it.
        let anew = since == 0 || !query.name.is_empty();
        let (rows, mut happened) = self.plane.watch_app_sets();
        let (gate, plane, auth) = (self.gate.clone(), self.plane.clone(), self.auth.clone());
        let (tx, rx) = tokio::sync::mpsc::channel(64);
        let selects = move |set: &ApplicationSet| {
            (query.name.is_empty() || set.metadata.name == query.name)
                && (query.app_set_namespace.is_empty() || set.metadata.namespace == query.app_set_namespace)
                && (query.projects.is_empty() || query.projects.contains(&set.spec.template.spec.project))
                && selector::selects(&selector, &set.metadata.labels)
        };
        let event = |word: &str, set: &ApplicationSet| ApplicationSetWatchEvent {
            r#type: word.to_owned(),
            application_set: set.clone(),
        };
        tokio::spawn(async move {
            let mut visible: Vec<Granted<Arc<ApplicationSet>, Get>> = gate.filter(&caller, rows);
            visible.retain(|set| anew && selects(set));
            visible.sort_by(|a, b| {
                let place =
                    |set: &ApplicationSet| (set.metadata.namespace.clone(), set.metadata.name.clone());
                place(a).cmp(&place(b))
            });
            for set in &visible {
                if tx
                    .send_timeout(Ok(event("ADDED", set)), WATCH_STALL)
                    .await
                    .is_err()
                {
                    return;
                }
            }
            drop(visible);
            let mut again = tokio::time::interval(LOOK_AGAIN);
            loop {
                let outcome = tokio::select! {
                    outcome = happened.recv() => Some(outcome),
                    _ = again.tick() => None,
                    () = tx.closed() => return,
                };
                if !auth.still(&caller) {
                    let _ = tx
                        .send(Err(Status::unauthenticated("the session has ended")))
                        .await;
                    return;
                }
                let Some(outcome) = outcome else { continue };
                match outcome {
                    Ok(happened) => {
                        let row = happened.row();
                        let is_old = row
                            .metadata
                            .resource_version
                            .parse::<u64>()
                            .is_ok_and(|version| version < since);
                        if is_old && !matches!(happened, Event::Deleted(_)) {
                            continue;
                        }
                        let granted = gate.open::<Get, _>(&caller, plane.shut_app_set(row.clone()));
                        if granted.is_ok()
                            && selects(row)
                            && tx
                                .send_timeout(Ok(event(happened.word(), row)), WATCH_STALL)
                                .await
                                .is_err()
                        {
                            return;
                        }
                    }
                    Err(RecvError::Lagged(_)) => {
                        let slow = "this watch could not keep up with the changes: watch again";
                        let _ = tx.send(Err(Status::aborted(slow))).await;
                        return;
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        Ok(Response::new(Box::pin(
            tokio_stream::wrappers::ReceiverStream::new(rx),
        )))
    }
}
