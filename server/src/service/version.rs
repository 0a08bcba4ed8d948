//! `version.VersionService`.

use argosy_api::services::version::VersionMessage;
use argosy_api::services::version::version_service_server::VersionService;
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth;

/// The version of Argo CD whose API this is: clients compare it.
const COMPATIBLE: &str = "v3.6.0";

/// The machine's architecture as Go, and so Argo CD and Kubernetes, call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[tonic::async_trait]
impl VersionService for Api {
    async fn version(&self, request: Request<()>) -> Result<Response<VersionMessage>, Status> {
        let version = format!("{COMPATIBLE}+argosy.{}", env!("CARGO_PKG_VERSION"));
        // Who has not logged in learns no more than that.
        let known =
            auth::caller(&request).is_ok_and(|caller| caller.user().is_some() || self.options.auth_disabled);
        if !known {
            return Ok(Response::new(VersionMessage {
                version,
                ..VersionMessage::default()
            }));
        }
        Ok(Response::new(VersionMessage {
            version,
            platform: format!("{}/{}", std::env::consts::OS, architecture()),
            compiler: "rustc".to_owned(),
            kustomize_version: "v5.8.1".to_owned(),
            helm_version: "v4.2.4".to_owned(),
            ..VersionMessage::default()
        }))
    }
}
