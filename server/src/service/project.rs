//! `project.ProjectService`: projects, their roles and tokens.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_api::services::application::LinksResponse;
use argosy_api::services::events::EventList;
use argosy_api::services::project::project_service_server::ProjectService;
use argosy_api::services::project::{
    DetailedProjectsResponse, EmptyResponse, GlobalProjectsResponse, ListProjectLinksRequest,
    ProjectCreateRequest, ProjectQuery, ProjectTokenCreateRequest, ProjectTokenDeleteRequest,
    ProjectTokenResponse, ProjectUpdateRequest, SyncWindowsQuery, SyncWindowsResponse,
};
use argosy_api::sync_window;
use argosy_api::v1alpha1::{
    AppProject, AppProjectList, AppProjectSpec, Application, Cluster, JwtToken, JwtTokens,
};
use argosy_api::{finalizer, project as permissions};
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth::{self, Caller, session};
use crate::egress;
use crate::gate::{Create, Delete, Get, Granted, Shut, Update};
use crate::links;
use crate::service::application::events;
use crate::state::project_of;

/// Resources and actions that a role of a project may have.
const RESOURCES: &[&str] = &[
    "applications",
    "applicationsets",
    "repositories",
    "clusters",
    "exec",
    "logs",
];
const ACTIONS: &[&str] = &[
    "get", "create", "update", "delete", "sync", "override", "rollback", "*",
];
const NESTED: &[&str] = &["action/", "update/", "delete/"];

impl Api {
    fn project<V: crate::gate::Verb>(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Granted<Arc<AppProject>, V>, Status> {
        self.gate.open_found(caller, self.plane.project(name))
    }

    /// A project that is to reach further takes more than the right to change it: who adds a repository or a cluster must be
    /// one who may change that, and who changes which kinds may be deployed, one who may change all clusters of the project.
    fn may_reach(&self, caller: &Caller, known: &AppProject, becomes: &AppProject) -> Result<(), Status> {
        let ask = |resource: &'static str, object: &str| {
            let shut = Shut::new(resource, object.to_owned(), String::new(), ());
            self.gate.open::<Update, _>(caller, shut).map(|_| ())
        };
        let (known, becomes) = (&known.spec, &becomes.spec);
        let kinds = |spec: &AppProjectSpec| {
            (
                spec.cluster_resource_whitelist.clone(),
                spec.cluster_resource_blacklist.clone(),
                spec.namespace_resource_whitelist.clone(),
                spec.namespace_resource_blacklist.clone(),
            )
        };
        let all = kinds(known) != kinds(becomes);
        let had = |server: &str| {
            known
                .destinations
                .iter()
                .any(|destination| destination.server == server)
        };
        for destination in &becomes.destinations {
            if all || !had(&destination.server) {
                ask("clusters", &destination.server)?;
            }
        }
        for repository in becomes
            .source_repos
            .iter()
            .filter(|url| !known.source_repos.contains(url))
        {
            ask("repositories", repository)?;
        }
        Ok(())
    }

    /// Applications that a project permits must not be cut off by a change of it.
    fn keeps_its_apps(&self, known: &AppProject, becomes: &AppProject) -> Result<(), Status> {
        let name = &known.metadata.name;
        let (known, becomes) = (self.joined(known).spec, self.joined(becomes).spec);
        let settings = self.plane.settings();
        let own = settings.clusters.iter().map(|(_, cluster)| cluster);
        let own: Vec<_> = own
            .filter(|cluster| cluster.project == *name)
            .map(target)
            .collect();
        let lost_source = |app: &Application| {
            let sources = app.spec.effective_sources();
            let permits = |spec: &AppProjectSpec| {
                sources
                    .iter()
                    .all(|source| permissions::permits_source(spec, &source.repo_url))
            };
            permits(&known) && !permits(&becomes)
        };
        let lost_destination = |app: &Application| {
            let Ok(cluster) = self.cluster_for(app) else {
                return false;
            };
            let namespace = &app.spec.destination.namespace;
            let permits = |spec: &AppProjectSpec| {
                permissions::permits_destination(spec, target(&cluster), namespace, own.iter().copied())
            };
            permits(&known) && !permits(&becomes)
        };
        let lost = [
            (
                self.plane
                    .count_apps(|app| project_of(app) == name && lost_source(app)),
                "source",
            ),
            (
                self.plane
                    .count_apps(|app| project_of(app) == name && lost_destination(app)),
                "destination",
            ),
        ];
        let parts: Vec<String> = lost
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} applications {what} became invalid"))
            .collect();
        if parts.is_empty() {
            return Ok(());
        }
        Err(Status::invalid_argument(format!(
            "as a result of project update {}",
            parts.join(" and ")
        )))
    }

    /// The projects that this one inherits from.
    fn globals_of(&self, project: &AppProject) -> Vec<Arc<AppProject>> {
        let settings = self.plane.settings();
        let matching = settings.config.global_projects.iter().filter(|global| {
            global.project_name != project.metadata.name
                && global.label_selector.matches(&project.metadata.labels)
        });
        matching
            .filter_map(|global| self.plane.project_for_gate(&global.project_name))
            .collect()
    }
}

fn target(cluster: &Cluster) -> permissions::Target<'_> {
    permissions::Target {
        server: &cluster.server,
        name: &cluster.name,
    }
}

/// Does a project say only what a project can say?
fn validate(project: &AppProject) -> Result<(), Status> {
    let bad = |text: String| Err(Status::invalid_argument(text));
    let name = &project.metadata.name;
    if name.is_empty() {
        return bad("metadata.name: a project needs a name".into());
    }
    let spec = &project.spec;
    for (at, repository) in spec.source_repos.iter().enumerate() {
        if repository == "!*" {
            return bad(format!(
                "spec.sourceRepos[{at}]: source repository has an invalid format, '!*'"
            ));
        }
        if spec.source_repos[..at].contains(repository) {
            return bad(format!("source repository '{repository}' already added"));
        }
    }
    for (at, destination) in spec.destinations.iter().enumerate() {
        if destination.name == "!*" || destination.server == "!*" || destination.namespace == "!*" {
            return bad(format!(
                "spec.destinations[{at}]: destination has an invalid format, '!*'"
            ));
        }
        if spec.destinations[..at].contains(destination) {
            return bad(format!("destination {at} is given twice"));
        }
    }
    let mut names = BTreeSet::new();
    for role in &spec.roles {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        if !role.name.chars().all(plain) || !ends(role.name.chars().next()) || !ends(role.name.chars().last())
        {
            return bad(format!(
                "invalid role name '{}'. Must consist of alphanumeric characters, '-' or '_', and must start and end with an alphanumeric character",
                role.name
            ));
        }
        if !names.insert(&role.name) {
            return bad(format!("role '{}' already exists", role.name));
        }
        for (at, policy) in role.policies.iter().enumerate() {
            policy_line(name, &role.name, policy)?;
            if role.policies[..at].contains(policy) {
                return bad(format!(
                    "policy '{policy}' already exists for role '{}'",
                    role.name
                ));
            }
        }
        for group in &role.groups {
            if group.trim().is_empty() || group.contains(['\n', '\r', '\t']) {
                return bad(format!("invalid group name {group:?} in role '{}'", role.name));
            }
        }
    }
    for (at, window) in spec.sync_windows.iter().enumerate() {
        if spec.sync_windows[..at]
            .iter()
            .any(|other| sync_window::is_same(other, window))
        {
            return Err(Status::already_exists(format!(
                "sync window with kind '{}', schedule '{}', and duration '{}' already exists",
                window.kind, window.schedule, window.duration
            )));
        }
        sync_window::validate(window)
            .map_err(|why| Status::invalid_argument(format!("spec.syncWindows: {why}")))?;
    }
    Ok(())
}

fn policy_line(project: &str, role: &str, policy: &str) -> Result<(), Status> {
    let fields: Vec<&str> = policy.split(',').map(str::trim).collect();
    let bad = |why: &str| {
        Err(Status::invalid_argument(format!(
            "invalid policy rule '{policy}': {why}"
        )))
    };
    let [p, subject, resource, action, object, effect] = fields[..] else {
        return bad("must be of the form: 'p, sub, res, act, obj, eft'");
    };
    if p != "p" {
        return bad("must be of the form: 'p, sub, res, act, obj, eft'");
    }
    if subject != format!("proj:{project}:{role}") {
        return bad(&format!(
            "policy subject must be: 'proj:{project}:{role}', not '{subject}'"
        ));
    }
    if !RESOURCES.contains(&resource) {
        return bad(&format!(
            "resource must be one of {RESOURCES:?}, not '{resource}'"
        ));
    }
    if !ACTIONS.contains(&action) && !NESTED.iter().any(|prefix| action.starts_with(prefix)) {
        return bad(&format!("invalid action '{action}'"));
    }
    let segments = object.split('/').count();
    let own = object
        .strip_prefix(project)
        .is_some_and(|rest| rest.starts_with('/'));
    if !own || (segments != 2 && segments != 3 && resource.starts_with("application")) {
        return bad(&format!(
            "object must be of form '{project}/*', '{project}/<name>' or '{project}/<namespace>/<name>', not '{object}'"
        ));
    }
    if effect != "allow" && effect != "deny" {
        return bad("effect must be: 'allow' or 'deny'");
    }
    Ok(())
}

/// `status` lists the tokens of the roles as they are in the spec.
fn mirror_tokens(project: &mut AppProject) {
    for role in &project.spec.roles {
        if role.jwt_tokens.is_empty() {
            project.status.jwt_tokens_by_role.remove(&role.name);
        } else {
            let items = role.jwt_tokens.clone();
            project
                .status
                .jwt_tokens_by_role
                .insert(role.name.clone(), JwtTokens { items });
        }
    }
    let names: BTreeSet<_> = project.spec.roles.iter().map(|role| role.name.clone()).collect();
    project
        .status
        .jwt_tokens_by_role
        .retain(|name, _| names.contains(name));
}

#[tonic::async_trait]
impl ProjectService for Api {
    async fn create_token(
        &self,
        request: Request<ProjectTokenCreateRequest>,
    ) -> Result<Response<ProjectTokenResponse>, Status> {
        let caller = auth::caller(&request)?;
        let request = request.into_inner();
        let project = self.project::<Update>(&caller, &request.project)?;
        if request.expires_in < 0 {
            return Err(Status::invalid_argument("expiresIn must not be negative"));
        }
        let id = if request.id.is_empty() {
            session::uuid()?
        } else {
            request.id.clone()
        };
        let now = self.auth.now();
        let lasts = (request.expires_in > 0).then_some(request.expires_in);
        let token = JwtToken {
            iat: now,
            exp: lasts.map_or(0, |lasts| now.saturating_add(lasts)),
            id: id.clone(),
        };
        self.plane
            .update(&project, |project| {
                let name = &request.role;
                let role = project.spec.roles.iter_mut().find(|role| role.name == *name);
                let role = role.ok_or_else(|| {
                    Status::not_found(format!(
                        "project '{}' does not have role '{name}'",
                        request.project
                    ))
                })?;
                if role.jwt_tokens.iter().any(|known| known.id == id) {
                    return Err(Status::invalid_argument(format!(
                        "Token id '{id}' has been used."
                    )));
                }
                role.jwt_tokens.push(token.clone());
                mirror_tokens(project);
                Ok(())
            })
            .await?;
        let subject = format!("proj:{}:{}", request.project, request.role);
        let token = session::issue(&self.plane, subject, id, now, lasts)?;
        Ok(Response::new(ProjectTokenResponse { token }))
    }

    async fn delete_token(
        &self,
        request: Request<ProjectTokenDeleteRequest>,
    ) -> Result<Response<EmptyResponse>, Status> {
        let caller = auth::caller(&request)?;
        let request = request.into_inner();
        let project = self.project::<Update>(&caller, &request.project)?;
        self.plane
            .update(&project, |project| {
                let role = project
                    .spec
                    .roles
                    .iter_mut()
                    .find(|role| role.name == request.role);
                // One that is not there need not be taken away: clients delete again what they do not know to be gone.
                let Some(role) = role else { return Ok(()) };
                role.jwt_tokens.retain(|token| match request.id.as_str() {
                    "" => token.iat != request.iat,
                    id => token.id != id,
                });
                mirror_tokens(project);
                Ok(())
            })
            .await?;
        Ok(Response::new(EmptyResponse {}))
    }

    async fn create(&self, request: Request<ProjectCreateRequest>) -> Result<Response<AppProject>, Status> {
        let caller = auth::caller(&request)?;
        let ProjectCreateRequest { project, upsert } = request.into_inner();
        let mut project =
            project.ok_or_else(|| Status::invalid_argument("missing payload 'project' in request"))?;
        self.plane.namespace().clone_into(&mut project.metadata.namespace);
        project.status = Default::default();
        // Asked by name alone: the policies of a project that is to come are not its own to write.
        let granted = self
            .gate
            .open::<Create, _>(&caller, self.plane.shut_project(Arc::new(project.clone())))?;
        validate(&project)?;
        if let Some(known) = self.plane.project(&project.metadata.name) {
            let known = self.gate.open::<Get, _>(&caller, known)?;
            if known.spec == project.spec {
                return Ok(Response::new((**known).clone()));
            }
            if !upsert {
                return Err(Status::invalid_argument(
                    "existing project spec is different; use upsert flag to force update",
                ));
            }
            let known = self.gate.open::<Update, _>(&caller, known.shut())?;
            let updated = self
                .plane
                .update(&known, |stored| {
                    self.may_reach(&caller, stored, &project)?;
                    stored.spec.clone_from(&project.spec);
                    mirror_tokens(stored);
                    Ok(())
                })
                .await?;
            return Ok(Response::new((*updated).clone()));
        }
        let created = self.plane.create(&granted, false).await?;
        Ok(Response::new((*created).clone()))
    }

    async fn list(&self, request: Request<ProjectQuery>) -> Result<Response<AppProjectList>, Status> {
        let caller = auth::caller(&request)?;
        let name = request.into_inner().name;
        let mut visible: Vec<Granted<_, Get>> = self.gate.filter(&caller, self.plane.projects());
        visible.retain(|project| name.is_empty() || project.metadata.name == name);
        let items = visible.iter().map(|project| (***project).clone()).collect();
        Ok(Response::new(AppProjectList {
            items,
            ..AppProjectList::default()
        }))
    }

    async fn get_detailed_project(
        &self,
        request: Request<ProjectQuery>,
    ) -> Result<Response<DetailedProjectsResponse>, Status> {
        let caller = auth::caller(&request)?;
        let project = self.project::<Get>(&caller, &request.get_ref().name)?;
        let name = &project.metadata.name;
        // What the caller could not list is not in the details either.
        let repositories: Vec<Granted<_, Get>> = self.gate.filter(&caller, self.plane.repositories(false));
        let clusters: Vec<Granted<_, Get>> = self.gate.filter(&caller, self.plane.clusters());
        Ok(Response::new(DetailedProjectsResponse {
            global_projects: self
                .globals_of(&project)
                .iter()
                .map(|global| (**global).clone())
                .collect(),
            project: Some((**project).clone()),
            repositories: repositories
                .iter()
                .filter(|repository| repository.1.project == *name)
                .map(|repository| egress::repository(&repository.1))
                .collect(),
            clusters: clusters
                .iter()
                .filter(|cluster| cluster.1.project == *name)
                .map(|cluster| egress::cluster(&cluster.1))
                .collect(),
        }))
    }

    async fn get(&self, request: Request<ProjectQuery>) -> Result<Response<AppProject>, Status> {
        let caller = auth::caller(&request)?;
        let project = self.project::<Get>(&caller, &request.get_ref().name)?;
        Ok(Response::new((**project).clone()))
    }

    async fn get_global_projects(
        &self,
        request: Request<ProjectQuery>,
    ) -> Result<Response<GlobalProjectsResponse>, Status> {
        let caller = auth::caller(&request)?;
        let project = self.project::<Get>(&caller, &request.get_ref().name)?;
        let items = self
            .globals_of(&project)
            .iter()
            .map(|global| (**global).clone())
            .collect();
        Ok(Response::new(GlobalProjectsResponse { items }))
    }

    async fn update(&self, request: Request<ProjectUpdateRequest>) -> Result<Response<AppProject>, Status> {
        let caller = auth::caller(&request)?;
        let project = request.into_inner().project;
        let project =
            project.ok_or_else(|| Status::invalid_argument("missing payload 'project' in request"))?;
        let granted = self.project::<Update>(&caller, &project.metadata.name)?;
        validate(&project)?;
        let version = &project.metadata.resource_version;
        if !version.is_empty() && *version != granted.metadata.resource_version {
            return Err(Status::aborted(format!(
                "project {} has been changed by someone else: read it again and repeat the change",
                project.metadata.name
            )));
        }
        let updated = self
            .plane
            .update(&granted, |stored| {
                self.may_reach(&caller, stored, &project)?;
                self.keeps_its_apps(stored, &project)?;
                stored.spec.clone_from(&project.spec);
                stored.metadata.labels.clone_from(&project.metadata.labels);
                stored
                    .metadata
                    .annotations
                    .clone_from(&project.metadata.annotations);
                stored
                    .metadata
                    .finalizers
                    .clone_from(&project.metadata.finalizers);
                mirror_tokens(stored);
                Ok(())
            })
            .await?;
        Ok(Response::new((*updated).clone()))
    }

    async fn delete(&self, request: Request<ProjectQuery>) -> Result<Response<EmptyResponse>, Status> {
        let caller = auth::caller(&request)?;
        let project = self.project::<Delete>(&caller, &request.get_ref().name)?;
        let name = &project.metadata.name;
        if name == "default" {
            return Err(Status::invalid_argument(
                "name 'default' is reserved and cannot be deleted",
            ));
        }
        let users = self.plane.count_apps(|app| project_of(app) == name);
        if users > 0 {
            return Err(Status::invalid_argument(format!(
                "project is referenced by {users} applications"
            )));
        }
        let held = project
            .metadata
            .finalizers
            .iter()
            .any(|finalizer| finalizer == finalizer::RESOURCES);
        if held {
            self.plane
                .update(&project, |stored| {
                    stored
                        .metadata
                        .finalizers
                        .retain(|finalizer| finalizer != finalizer::RESOURCES);
                    Ok(())
                })
                .await?;
        }
        self.plane.delete(&project).await?;
        Ok(Response::new(EmptyResponse {}))
    }

    async fn list_events(&self, request: Request<ProjectQuery>) -> Result<Response<EventList>, Status> {
        let caller = auth::caller(&request)?;
        let project = self.project::<Get>(&caller, &request.get_ref().name)?;
        Ok(Response::new(events::list(
            self.plane.events_about(&project).await?,
        )))
    }

    async fn get_sync_windows_state(
        &self,
        request: Request<SyncWindowsQuery>,
    ) -> Result<Response<SyncWindowsResponse>, Status> {
        let caller = auth::caller(&request)?;
        let project = self.project::<Get>(&caller, &request.get_ref().name)?;
        let now = self.now();
        let windows = project
            .spec
            .sync_windows
            .iter()
            .filter(|window| sync_window::is_open(window, now));
        Ok(Response::new(SyncWindowsResponse {
            windows: windows.cloned().collect(),
        }))
    }

    async fn list_links(
        &self,
        request: Request<ListProjectLinksRequest>,
    ) -> Result<Response<LinksResponse>, Status> {
        let caller = auth::caller(&request)?;
        let project = self.project::<Get>(&caller, &request.get_ref().name)?;
        let key = "project.links";
        let about = links::About::default().project(&project);
        Ok(Response::new(about.links(key, &self.plane.settings().text(key))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::v1alpha1::ProjectRole;

    use super::*;

    fn with_policy(policy: &str) -> Result<(), Status> {
        let mut project = AppProject::default();
        project.metadata.name = "shop".into();
        project.spec.roles = vec![ProjectRole {
            name: "ci".into(),
            policies: vec![policy.into()],
            ..ProjectRole::default()
        }];
        validate(&project)
    }

    #[test]
    fn a_window_is_given_once() {
        let window = argosy_api::v1alpha1::SyncWindow {
            kind: "allow".into(),
            schedule: "0 22 * * *".into(),
            duration: "1h".into(),
            applications: vec!["night-*".into()],
            ..Default::default()
        };
        let mut project = AppProject::default();
        project.metadata.name = "shop".into();
        project.spec.sync_windows = vec![window.clone()];
        validate(&project).unwrap();
        project.spec.sync_windows.push(window);
        let refused = validate(&project).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    }

    #[test]
    fn a_role_may_be_given_what_is_the_projects_own() {
        for policy in [
            "p, proj:shop:ci, applications, sync, shop/*, allow",
            "p, proj:shop:ci, applications, action/apps/Deployment/restart, shop/web, allow",
            "p, proj:shop:ci, applications, get, shop/ns/web, deny",
            "p, proj:shop:ci, logs, get, shop/*, allow",
            "p, proj:shop:ci, repositories, get, shop/https://git.example.com/a, allow",
        ] {
            assert!(with_policy(policy).is_ok(), "{policy}: {:?}", with_policy(policy));
        }
    }

    #[test]
    fn a_role_cannot_be_given_more() {
        for policy in [
            "p, proj:shop:ci, applications, sync, */*, allow",
            "p, proj:shop:ci, applications, sync, shopping/*, allow",
            "p, proj:shop:other, applications, sync, shop/*, allow",
            "p, role:admin, applications, sync, shop/*, allow",
            "p, proj:shop:ci, projects, update, shop, allow",
            "p, proj:shop:ci, applications, fly, shop/*, allow",
            "p, proj:shop:ci, applications, sync, shop/*, perhaps",
            "g, proj:shop:ci, role:admin",
            "p, proj:shop:ci, applications, sync, shop/*, allow\np, proj:shop:ci, applications, get, */*, allow",
        ] {
            assert!(with_policy(policy).is_err(), "{policy}");
        }
    }
}
