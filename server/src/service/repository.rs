//! `repository.RepositoryService`: repositories, and what is in them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use argosy_api::git_url;
use argosy_api::meta::Time;
use argosy_api::refs;
use argosy_api::repository_secret::{self, secret_type};
use argosy_api::services::repository::repository_service_server::RepositoryService;
use argosy_api::services::repository::{
    AppInfo, HelmChartsRequest, HelmChartsResponse, ListAppsRequest, ListRefsRequest, Refs, RepoAccessQuery,
    RepoAppDetailsQuery, RepoAppDetailsResponse, RepoAppsQuery, RepoAppsResponse, RepoCreateRequest,
    RepoQuery, RepoResponse, RepoServerAppDetailsQuery, RepoUpdateRequest, TestRepositoryRequest,
};
use argosy_api::v1alpha1::{ConnectionState, Repository, RepositoryList};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth::{self, Caller};
use crate::egress;
use crate::gate::{Create, Delete, Get, Granted, Update, Verb};
use crate::state::project_of;
use crate::status;

/// Whether a repository can be reached is asked at most this often.
const CONNECTION_TTL: Duration = Duration::from_secs(3600);
/// Repositories that are tried at the same time for one list.
const TRIED_AT_ONCE: usize = 8;
/// How long a list waits for each.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);

type Stored = (String, Repository);

/// What was last known of whether repositories can be reached.
#[derive(Default)]
pub(crate) struct ConnectionStates(Mutex<HashMap<(String, String), (Instant, ConnectionState)>>);

/// Clients send URLs escaped once more than HTTP needs it. No URL of a repository has these escapes otherwise.
pub(super) fn unescaped(text: &str) -> String {
    let lower = text.to_lowercase();
    if !lower.contains("%2f") && !lower.contains("%3a") {
        return text.to_owned();
    }
    let pairs = format!("a={text}");
    url::form_urlencoded::parse(pairs.as_bytes())
        .next()
        .map_or_else(|| text.to_owned(), |(_, text)| text.into_owned())
}

impl Api {
    /// The repository of this URL that the caller may do `V` with. One of the named project comes first; without a
    /// project, the only one there is.
    fn repository<V: Verb>(
        &self,
        caller: &Caller,
        write: bool,
        url: &str,
        project: &str,
    ) -> Result<Granted<Stored, V>, Status> {
        let url = unescaped(url);
        let mut of_url = self
            .plane
            .repositories_of(write, |repository| git_url::same(&repository.repo, &url));
        if !project.is_empty() {
            of_url.retain(|(of, _)| of == project);
        } else if of_url.len() > 1 {
            let global: Vec<_> = of_url.iter().filter(|(of, _)| of.is_empty()).cloned().collect();
            if global.is_empty() {
                let mut visible = of_url
                    .into_iter()
                    .filter_map(|(_, shut)| self.gate.open::<V, _>(caller, shut).ok());
                let found = visible
                    .next()
                    .ok_or_else(|| Status::permission_denied(crate::gate::DENIED))?;
                return match visible.next() {
                    None => Ok(found),
                    Some(_) => Err(Status::failed_precondition(format!(
                        "repository retrieval is ambiguous for {url}: name the project"
                    ))),
                };
            }
            of_url = global;
        }
        self.gate
            .open_found(caller, of_url.into_iter().next().map(|(_, shut)| shut))
    }

    /// A repository for reading from, with credentials: a known one that the caller may see, or one that is not known,
    /// which has no credentials of its own to give away.
    fn readable(&self, caller: &Caller, url: &str, project: &str) -> Result<Repository, Status> {
        let url = unescaped(url);
        let known = self
            .plane
            .repositories_of(false, |repository| git_url::same(&repository.repo, &url));
        // One of the project comes first; one that is nobody's is everybody's.
        let has = |of: &str| known.iter().any(|(known, _)| known == of);
        let scope = match project.is_empty() || has(project) {
            true => project,
            false => "",
        };
        if (project.is_empty() && !known.is_empty()) || has(scope) {
            let granted = self.repository::<Get>(caller, false, &url, scope)?;
            return Ok(self
                .plane
                .settings()
                .repository(&granted.1.repo, &granted.1.project));
        }
        // A template may have credentials for it, and templates are no project's: so the caller must be allowed to use
        // repositories of that URL that are nobody's, whichever project is named.
        let unknown = Repository {
            repo: url.clone(),
            ..Repository::default()
        };
        let unknown = self.plane.shut_repository(false, String::new(), unknown);
        self.gate.open_found::<Get, _>(caller, Some(unknown))?;
        Ok(self.plane.settings().repository(&url, project))
    }

    /// Is the repository one that Applications of the project may have?
    fn in_sources(&self, project: &str, url: &str) -> Result<(), Status> {
        let project = if project.is_empty() { "default" } else { project };
        let url = unescaped(url);
        let found = self.plane.project_for_gate(project);
        let permits =
            found.is_some_and(|found| argosy_api::project::permits_source(&self.joined(&found).spec, &url));
        if permits {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "repository '{}' not permitted in project '{project}'",
            egress::bare_url(&url)
        )))
    }

    async fn test(&self, repository: &Repository) -> Result<(), Status> {
        let request = TestRepositoryRequest {
            repo: Some(repository.clone()),
        };
        let answer = self.repo.test_repository(request).await.map_err(|error| {
            Status::failed_precondition(format!(
                "error testing repository connectivity: {}",
                error.message()
            ))
        })?;
        if answer.verified_repository {
            return Ok(());
        }
        Err(Status::failed_precondition(
            "the repository could not be verified",
        ))
    }

    async fn connection(&self, stored: &Repository, anew: bool) -> ConnectionState {
        let key = (stored.repo.clone(), stored.project.clone());
        if !anew
            && let Some((at, state)) = self.connections.0.lock().get(&key)
            && at.elapsed() < CONNECTION_TTL
        {
            return state.clone();
        }
        let full = self.plane.settings().repository(&stored.repo, &stored.project);
        let tested = tokio::time::timeout(TRY_TIMEOUT, self.test(&full)).await;
        let (word, message) = match tested {
            Ok(Ok(())) => ("Successful", String::new()),
            Ok(Err(status)) => (
                "Failed",
                format!("Unable to connect to repository: {}", status.message()),
            ),
            Err(_) => (
                "Failed",
                "Unable to connect to repository: it did not answer in time".to_owned(),
            ),
        };
        let state = ConnectionState {
            status: word.to_owned(),
            message,
            attempted_at: Some(Time::from_timestamp(self.now())),
        };
        self.connections
            .0
            .lock()
            .insert(key, (Instant::now(), state.clone()));
        state
    }

    async fn shown_repository(&self, stored: &Repository, anew: bool) -> Repository {
        let settings = self.plane.settings();
        let templates: Vec<_> = settings
            .templates
            .iter()
            .map(|(_, template)| template.clone())
            .collect();
        let mut shown = egress::repository(stored);
        shown.inherited_creds = !repository_secret::has_credentials(stored)
            && repository_secret::template_for(&templates, &stored.repo).is_some();
        if shown.r#type.is_empty() {
            shown.r#type = "git".to_owned();
        }
        shown.connection_state = self.connection(stored, anew).await;
        shown
    }

    async fn list_all(
        &self,
        request: Request<RepoQuery>,
        write: bool,
    ) -> Result<Response<RepositoryList>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let mut visible: Vec<Granted<Stored, Get>> =
            self.gate.filter(&caller, self.plane.repositories(write));
        visible.retain(|stored| query.app_project.is_empty() || stored.1.project == query.app_project);
        let shown: Vec<_> = visible
            .iter()
            .map(|stored| self.shown_repository(&stored.1, query.force_refresh))
            .collect();
        let mut items: Vec<Repository> = futures::stream::iter(shown)
            .buffered(TRIED_AT_ONCE)
            .collect()
            .await;
        items.sort_by(|a, b| (&a.repo, &a.project).cmp(&(&b.repo, &b.project)));
        Ok(Response::new(RepositoryList {
            items,
            ..RepositoryList::default()
        }))
    }

    async fn create_any(
        &self,
        request: Request<RepoCreateRequest>,
        write: bool,
    ) -> Result<Response<Repository>, Status> {
        let caller = auth::caller(&request)?;
        let RepoCreateRequest { repo, upsert, .. } = request.into_inner();
        let repo = repo.ok_or_else(|| Status::invalid_argument("missing payload in request"))?;
        if repo.repo.trim().is_empty() {
            return Err(Status::invalid_argument(
                "repo: the URL of the repository is missing",
            ));
        }
        let kind = if write {
            secret_type::REPOSITORY_WRITE
        } else {
            secret_type::REPOSITORY
        };
        let granted = self.gate.open::<Create, _>(
            &caller,
            self.plane.shut_repository(write, String::new(), repo.clone()),
        )?;
        let mut known = self.plane.repositories_of(write, |known| {
            git_url::same(&known.repo, &repo.repo) && known.project == repo.project
        });
        if let Some((_, known)) = known.pop() {
            let known = self.gate.open::<Get, _>(&caller, known)?;
            if same_settings(&known.1, &repo) {
                return Ok(Response::new(self.shown_repository(&known.1, false).await));
            }
            if !upsert {
                return Err(Status::invalid_argument(
                    "existing repository spec is different; use upsert flag to force update",
                ));
            }
            let secret = known.0.clone();
            let granted = self
                .gate
                .open::<Update, _>(&caller, self.plane.shut_repository(write, secret, repo.clone()))?;
            self.reachable(&repo).await?;
            self.plane.write_repository(&granted, kind, false).await?;
        } else {
            self.reachable(&repo).await?;
            self.plane.write_repository(&granted, kind, true).await?;
        }
        Ok(Response::new(self.shown_repository(&repo, true).await))
    }

    /// A repository that is to be stored must be one that works.
    async fn reachable(&self, repo: &Repository) -> Result<(), Status> {
        let mut full = repo.clone();
        if !repository_secret::has_credentials(&full) {
            let settings = self.plane.settings();
            let templates: Vec<_> = settings
                .templates
                .iter()
                .map(|(_, template)| template.clone())
                .collect();
            if let Some(template) = repository_secret::template_for(&templates, &full.repo) {
                repository_secret::inherit(&mut full, template);
            }
        }
        self.test(&full)
            .await
            .map_err(|status| Status::invalid_argument(status.message()))
    }

    async fn update_any(
        &self,
        request: Request<RepoUpdateRequest>,
        write: bool,
    ) -> Result<Response<Repository>, Status> {
        let caller = auth::caller(&request)?;
        let repo = request.into_inner().repo;
        let repo = repo.ok_or_else(|| Status::invalid_argument("missing payload in request"))?;
        let known = self.repository::<Update>(&caller, write, &repo.repo, &repo.project)?;
        // It must not be moved where the caller could not have put it: asked again for what it becomes.
        let becomes = self.plane.shut_repository(
            write,
            known.0.clone(),
            Repository {
                repo: known.1.repo.clone(),
                project: known.1.project.clone(),
                ..repo
            },
        );
        let granted = self.gate.open::<Update, _>(&caller, becomes)?;
        let kind = if write {
            secret_type::REPOSITORY_WRITE
        } else {
            secret_type::REPOSITORY
        };
        self.plane.write_repository(&granted, kind, false).await?;
        Ok(Response::new(self.shown_repository(&granted.1, true).await))
    }

    async fn delete_any(
        &self,
        request: Request<RepoQuery>,
        write: bool,
    ) -> Result<Response<RepoResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let granted = self.repository::<Delete>(&caller, write, &query.repo, &query.app_project)?;
        self.plane.delete_repository(&granted).await?;
        Ok(Response::new(RepoResponse {}))
    }

    async fn get_any(
        &self,
        request: Request<RepoQuery>,
        write: bool,
    ) -> Result<Response<Repository>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let granted = self.repository::<Get>(&caller, write, &query.repo, &query.app_project)?;
        Ok(Response::new(
            self.shown_repository(&granted.1, query.force_refresh).await,
        ))
    }

    async fn validate_any(
        &self,
        request: Request<RepoAccessQuery>,
        write: bool,
    ) -> Result<Response<RepoResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let repository = Repository {
            repo: unescaped(&query.repo),
            username: query.username,
            password: query.password,
            ssh_private_key: query.ssh_private_key,
            insecure: query.insecure,
            tls_client_cert_data: query.tls_client_cert_data,
            tls_client_cert_key: query.tls_client_cert_key,
            r#type: query.r#type,
            name: query.name,
            enable_oci: query.enable_oci,
            github_app_private_key: query.github_app_private_key,
            github_app_id: query.github_app_id,
            github_app_installation_id: query.github_app_installation_id,
            github_app_enterprise_base_url: query.github_app_enterprise_base_url,
            proxy: query.proxy,
            project: query.project,
            gcp_service_account_key: query.gcp_service_account_key,
            force_http_basic_auth: query.force_http_basic_auth,
            use_azure_workload_identity: query.use_azure_workload_identity,
            bearer_token: query.bearer_token,
            insecure_oci_force_http: query.insecure_oci_force_http,
            azure_service_principal_client_id: query.azure_service_principal_client_id,
            azure_service_principal_client_secret: query.azure_service_principal_client_secret,
            azure_service_principal_tenant_id: query.azure_service_principal_tenant_id,
            azure_active_directory_endpoint: query.azure_active_directory_endpoint,
            ..Repository::default()
        };
        let granted = self.gate.open::<Create, _>(
            &caller,
            self.plane.shut_repository(write, String::new(), repository),
        )?;
        self.reachable(&granted.1).await?;
        Ok(Response::new(RepoResponse {}))
    }
}

/// Do two descriptions mean the same repository with the same credentials?
fn same_settings(one: &Repository, other: &Repository) -> bool {
    let plain = |repository: &Repository| Repository {
        connection_state: ConnectionState::default(),
        inherited_creds: false,
        r#type: if repository.r#type.is_empty() {
            "git".to_owned()
        } else {
            repository.r#type.clone()
        },
        repo: git_url::normalize(&repository.repo),
        ..repository.clone()
    };
    plain(one) == plain(other)
}

#[tonic::async_trait]
impl RepositoryService for Api {
    async fn list(&self, request: Request<RepoQuery>) -> Result<Response<RepositoryList>, Status> {
        self.list_all(request, false).await
    }

    async fn list_repositories(
        &self,
        request: Request<RepoQuery>,
    ) -> Result<Response<RepositoryList>, Status> {
        self.list_all(request, false).await
    }

    async fn list_write_repositories(
        &self,
        request: Request<RepoQuery>,
    ) -> Result<Response<RepositoryList>, Status> {
        self.list_all(request, true).await
    }

    async fn get(&self, request: Request<RepoQuery>) -> Result<Response<Repository>, Status> {
        self.get_any(request, false).await
    }

    async fn get_write(&self, request: Request<RepoQuery>) -> Result<Response<Repository>, Status> {
        self.get_any(request, true).await
    }

    async fn list_refs(&self, request: Request<RepoQuery>) -> Result<Response<Refs>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let repo = self.readable(&caller, &query.repo, &query.app_project)?;
        let request = ListRefsRequest { repo: Some(repo) };
        Ok(Response::new(
            self.repo.list_refs(request).await.map_err(status::repo)?,
        ))
    }

    async fn list_oci_tags(&self, request: Request<RepoQuery>) -> Result<Response<Refs>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let repo = self.readable(&caller, &query.repo, &query.app_project)?;
        let request = ListRefsRequest { repo: Some(repo) };
        let tags = self.repo.list_oci_tags(request).await.map_err(status::repo)?;
        Ok(Response::new(tags))
    }

    async fn list_apps(&self, request: Request<RepoAppsQuery>) -> Result<Response<RepoAppsResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let repo = self.readable(&caller, &query.repo, &query.app_project)?;
        // To look for Applications is to have plugins look at what is in the repository, so it is for who may have it deployed.
        let new = self.plane.new_app(&query.app_project, &query.app_name);
        let may = self.gate.open::<Create, _>(&caller, new.clone()).is_ok()
            || self.gate.open::<Update, _>(&caller, new).is_ok();
        if !may {
            return Err(Status::permission_denied(crate::gate::DENIED));
        }
        self.in_sources(&query.app_project, &query.repo)?;
        let settings = self.plane.settings();
        let request = ListAppsRequest {
            repo: Some(repo),
            revision: query.revision,
            enabled_source_types: settings.config.enabled.to_map(),
        };
        let found = self.repo.list_apps(request).await.map_err(status::repo)?;
        let items = found
            .apps
            .into_iter()
            .map(|(path, r#type)| AppInfo { r#type, path })
            .collect();
        Ok(Response::new(RepoAppsResponse { items }))
    }

    async fn get_app_details(
        &self,
        request: Request<RepoAppDetailsQuery>,
    ) -> Result<Response<RepoAppDetailsResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let source = query
            .source
            .ok_or_else(|| Status::invalid_argument("missing payload in request"))?;
        // The source of an Application that the caller sees may be looked into; any other only by who may create one.
        let mut sources = vec![source.clone()];
        let (mut project, name) = (query.app_project.clone(), query.app_name.clone());
        // Where there are several namespaces, Applications go by both.
        let (namespace, plain) = name.split_once('/').unwrap_or(("", &name));
        match self.gate.open_app::<Get>(&caller, &project, namespace, plain) {
            Ok(app) => {
                project_of(&app).clone_into(&mut project);
                sources = app.spec.effective_sources();
                let known = sources
                    .iter()
                    .chain(app.status.history.iter().map(|entry| &entry.source))
                    .any(|known| *known == source)
                    || app
                        .status
                        .history
                        .iter()
                        .any(|entry| entry.sources.contains(&source));
                if !known {
                    self.gate.open::<Update, _>(&caller, app.shut())?;
                }
            }
            Err(denied) => {
                let new = self.plane.new_app(&project, &name);
                self.gate.open::<Create, _>(&caller, new).map_err(|_| denied)?;
            }
        }
        self.in_sources(&project, &source.repo_url)?;
        let repo = self.readable(&caller, &source.repo_url, &query.app_project)?;
        let project = if project.is_empty() { "default" } else { &project };
        let settings = self.plane.settings();
        let refs = refs::targets(&sources, &[], |url| settings.repository(url, project));
        let refs = refs.map_err(|error| Status::failed_precondition(error.to_string()))?;
        let request = RepoServerAppDetailsQuery {
            repo: Some(repo),
            source: Some(source),
            kustomize_options: Some(settings.config.kustomize.clone()),
            app_name: name,
            tracking_method: settings.config.tracking.method.as_str().to_owned(),
            enabled_source_types: settings.config.enabled.to_map(),
            helm_options: Some(settings.config.helm.clone()),
            ref_sources: refs,
            ..RepoServerAppDetailsQuery::default()
        };
        Ok(Response::new(
            self.repo.get_app_details(request).await.map_err(status::repo)?,
        ))
    }

    async fn get_helm_charts(
        &self,
        request: Request<RepoQuery>,
    ) -> Result<Response<HelmChartsResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let repo = self.readable(&caller, &query.repo, &query.app_project)?;
        let request = HelmChartsRequest { repo: Some(repo) };
        Ok(Response::new(
            self.repo.get_helm_charts(request).await.map_err(status::repo)?,
        ))
    }

    async fn create(&self, request: Request<RepoCreateRequest>) -> Result<Response<Repository>, Status> {
        self.create_any(request, false).await
    }

    async fn create_repository(
        &self,
        request: Request<RepoCreateRequest>,
    ) -> Result<Response<Repository>, Status> {
        self.create_any(request, false).await
    }

    async fn create_write_repository(
        &self,
        request: Request<RepoCreateRequest>,
    ) -> Result<Response<Repository>, Status> {
        self.create_any(request, true).await
    }

    async fn update(&self, request: Request<RepoUpdateRequest>) -> Result<Response<Repository>, Status> {
        self.update_any(request, false).await
    }

    async fn update_repository(
        &self,
        request: Request<RepoUpdateRequest>,
    ) -> Result<Response<Repository>, Status> {
        self.update_any(request, false).await
    }

    async fn update_write_repository(
        &self,
        request: Request<RepoUpdateRequest>,
    ) -> Result<Response<Repository>, Status> {
        self.update_any(request, true).await
    }

    async fn delete(&self, request: Request<RepoQuery>) -> Result<Response<RepoResponse>, Status> {
        self.delete_any(request, false).await
    }

    async fn delete_repository(&self, request: Request<RepoQuery>) -> Result<Response<RepoResponse>, Status> {
        self.delete_any(request, false).await
    }

    async fn delete_write_repository(
        &self,
        request: Request<RepoQuery>,
    ) -> Result<Response<RepoResponse>, Status> {
        self.delete_any(request, true).await
    }

    async fn validate_access(
        &self,
        request: Request<RepoAccessQuery>,
    ) -> Result<Response<RepoResponse>, Status> {
        self.validate_any(request, false).await
    }

    async fn validate_write_access(
        &self,
        request: Request<RepoAccessQuery>,
    ) -> Result<Response<RepoResponse>, Status> {
        self.validate_any(request, true).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_were_escaped_twice_are_read() {
        assert_eq!(
            unescaped("https%3A%2F%2Fgit.example.com%2Fa.git"),
            "https://git.example.com/a.git"
        );
        assert_eq!(
            unescaped("https://git.example.com/a+b"),
            "https://git.example.com/a+b"
        );
    }
}
