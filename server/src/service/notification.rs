//! `notification.NotificationService`: what `argocd-notifications-cm` configures.

use argosy_api::services::notification::notification_service_server::NotificationService;
use argosy_api::services::notification::{
    Service, ServiceList, ServicesListRequest, Template, TemplateList, TemplatesListRequest, Trigger,
    TriggerList, TriggersListRequest,
};
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth;

/// The ConfigMap.
const CONFIG_MAP: &str = "argocd-notifications-cm";

impl Api {
    /// Names after `prefix` among the keys. Whoever is logged in may know them, as in Argo CD.
    fn notification_names<T>(&self, request: &Request<T>, prefix: &str) -> Result<Vec<String>, Status> {
        auth::caller(request)?;
        let keys = self.plane.config_map_keys(CONFIG_MAP);
        Ok(keys
            .iter()
            .filter_map(|key| key.strip_prefix(prefix).map(str::to_owned))
            .collect())
    }
}

#[tonic::async_trait]
impl NotificationService for Api {
    async fn list_triggers(
        &self,
        request: Request<TriggersListRequest>,
    ) -> Result<Response<TriggerList>, Status> {
        let names = self.notification_names(&request, "trigger.")?;
        let items = names.into_iter().map(|name| Trigger { name }).collect();
        Ok(Response::new(TriggerList { items }))
    }

    async fn list_services(
        &self,
        request: Request<ServicesListRequest>,
    ) -> Result<Response<ServiceList>, Status> {
        let names = self.notification_names(&request, "service.")?;
        let items = names.into_iter().map(|name| Service { name }).collect();
        Ok(Response::new(ServiceList { items }))
    }

    async fn list_templates(
        &self,
        request: Request<TemplatesListRequest>,
    ) -> Result<Response<TemplateList>, Status> {
        let names = self.notification_names(&request, "template.")?;
        let items = names.into_iter().map(|name| Template { name }).collect();
        Ok(Response::new(TemplateList { items }))
    }
}
