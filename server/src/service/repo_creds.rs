//! `repocreds.RepoCredsService`: credentials for all repositories whose URL begins alike.

use argosy_api::repository_secret::secret_type;
use argosy_api::services::repocreds::repo_creds_service_server::RepoCredsService;
use argosy_api::services::repocreds::{
    RepoCredsCreateRequest, RepoCredsDeleteRequest, RepoCredsQuery, RepoCredsResponse, RepoCredsUpdateRequest,
};
use argosy_api::v1alpha1::{RepoCreds, RepoCredsList};
use tonic::{Request, Response, Status};

use super::Api;
use super::repository::unescaped;
use crate::auth::{self, Caller};
use crate::egress;
use crate::gate::{Create, Delete, Get, Granted, Shut, Update, Verb};

type Stored = (String, RepoCreds);

fn kind(write: bool) -> &'static str {
    if write {
        secret_type::REPO_WRITE_CREDS
    } else {
        secret_type::REPO_CREDS
    }
}

impl Api {
    fn known_template(&self, write: bool, url: &str) -> Option<Shut<Stored>> {
        let settings = self.plane.settings();
        let all = if write {
            &settings.write_templates
        } else {
            &settings.templates
        };
        let found = all.iter().find(|(_, template)| template.url == url).cloned();
        found.map(|(secret, template)| self.plane.shut_template(write, secret, template))
    }

    fn template<V: Verb>(
        &self,
        caller: &Caller,
        write: bool,
        url: &str,
    ) -> Result<Granted<Stored, V>, Status> {
        self.gate
            .open_found(caller, self.known_template(write, &unescaped(url)))
    }

    fn list_templates_of(
        &self,
        request: &Request<RepoCredsQuery>,
        write: bool,
    ) -> Result<Response<RepoCredsList>, Status> {
        let caller = auth::caller(request)?;
        let visible: Vec<Granted<Stored, Get>> = self.gate.filter(&caller, self.plane.templates(write));
        let url = unescaped(&request.get_ref().url);
        let items = visible
            .iter()
            .filter(|template| url.is_empty() || template.1.url == url);
        Ok(Response::new(RepoCredsList {
            items: items.map(|template| egress::template(&template.1)).collect(),
            ..RepoCredsList::default()
        }))
    }

    async fn create_template(
        &self,
        request: Request<RepoCredsCreateRequest>,
        write: bool,
    ) -> Result<Response<RepoCreds>, Status> {
        let caller = auth::caller(&request)?;
        let RepoCredsCreateRequest { creds, upsert } = request.into_inner();
        let creds = creds.ok_or_else(|| Status::invalid_argument("missing payload in request"))?;
        if creds.url.trim().is_empty() {
            return Err(Status::invalid_argument("must specify URL"));
        }
        let shut = self.plane.shut_template(write, String::new(), creds.clone());
        let granted = self.gate.open::<Create, _>(&caller, shut)?;
        match self.known_template(write, &creds.url) {
            None => self.plane.write_template(&granted, kind(write), true).await?,
            Some(known) => {
                let known = self.gate.open::<Get, _>(&caller, known)?;
                if known.1 == creds {
                    return Ok(Response::new(egress::template(&creds)));
                }
                if !upsert {
                    return Err(Status::invalid_argument(
                        "existing repository credentials spec is different; use upsert flag to force update",
                    ));
                }
                let shut = self.plane.shut_template(write, known.0.clone(), creds.clone());
                let granted = self.gate.open::<Update, _>(&caller, shut)?;
                self.plane.write_template(&granted, kind(write), false).await?;
            }
        }
        Ok(Response::new(egress::template(&creds)))
    }

    async fn update_template(
        &self,
        request: Request<RepoCredsUpdateRequest>,
        write: bool,
    ) -> Result<Response<RepoCreds>, Status> {
        let caller = auth::caller(&request)?;
        let creds = request.into_inner().creds;
        let creds = creds.ok_or_else(|| Status::invalid_argument("missing payload in request"))?;
        let known = self.template::<Update>(&caller, write, &creds.url)?;
        let becomes = RepoCreds {
            url: known.1.url.clone(),
            ..creds
        };
        let shut = self.plane.shut_template(write, known.0.clone(), becomes);
        let granted = self.gate.open::<Update, _>(&caller, shut)?;
        self.plane.write_template(&granted, kind(write), false).await?;
        Ok(Response::new(egress::template(&granted.1)))
    }

    async fn delete_template_of(
        &self,
        request: Request<RepoCredsDeleteRequest>,
        write: bool,
    ) -> Result<Response<RepoCredsResponse>, Status> {
        let caller = auth::caller(&request)?;
        let granted = self.template::<Delete>(&caller, write, &request.get_ref().url)?;
        self.plane.delete_template(&granted).await?;
        Ok(Response::new(RepoCredsResponse {}))
    }
}

#[tonic::async_trait]
impl RepoCredsService for Api {
    async fn list_repository_credentials(
        &self,
        request: Request<RepoCredsQuery>,
    ) -> Result<Response<RepoCredsList>, Status> {
        self.list_templates_of(&request, false)
    }

    async fn list_write_repository_credentials(
        &self,
        request: Request<RepoCredsQuery>,
    ) -> Result<Response<RepoCredsList>, Status> {
        self.list_templates_of(&request, true)
    }

    async fn create_repository_credentials(
        &self,
        request: Request<RepoCredsCreateRequest>,
    ) -> Result<Response<RepoCreds>, Status> {
        self.create_template(request, false).await
    }

    async fn create_write_repository_credentials(
        &self,
        request: Request<RepoCredsCreateRequest>,
    ) -> Result<Response<RepoCreds>, Status> {
        self.create_template(request, true).await
    }

    async fn update_repository_credentials(
        &self,
        request: Request<RepoCredsUpdateRequest>,
    ) -> Result<Response<RepoCreds>, Status> {
        self.update_template(request, false).await
    }

    async fn update_write_repository_credentials(
        &self,
        request: Request<RepoCredsUpdateRequest>,
    ) -> Result<Response<RepoCreds>, Status> {
        self.update_template(request, true).await
    }

    async fn delete_repository_credentials(
        &self,
        request: Request<RepoCredsDeleteRequest>,
    ) -> Result<Response<RepoCredsResponse>, Status> {
        self.delete_template_of(request, false).await
    }

    async fn delete_write_repository_credentials(
        &self,
        request: Request<RepoCredsDeleteRequest>,
    ) -> Result<Response<RepoCredsResponse>, Status> {
        self.delete_template_of(request, true).await
    }
}
