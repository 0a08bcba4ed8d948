//! gRPC's reflection, by which programs find out what this server speaks: in both of its versions, for who has logged in.

use anyhow::Context as _;
use argosy_api::services::DESCRIPTORS;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};
use tonic_reflection::server::Builder;

use crate::auth;

const V1: &str = "grpc.reflection.v1.ServerReflection";
const V1_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

/// Adds both versions, which tell of these services and of themselves.
pub(crate) fn add(routes: Routes, names: &[&str]) -> anyhow::Result<Routes> {
    let builder = || {
        let builder = Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let names = names.iter().chain([&V1, &V1_ALPHA]);
        names.fold(builder, |builder, name| builder.with_service_name(*name))
    };
    let v1 = builder().build_v1().context("prepare reflection")?;
    let v1alpha = builder().build_v1alpha().context("prepare reflection")?;
    Ok(routes
        .add_service(InterceptedService::new(v1, logged_in))
        .add_service(InterceptedService::new(v1alpha, logged_in)))
}

fn logged_in(request: Request<()>) -> Result<Request<()>, Status> {
    auth::caller(&request).map(|_| request)
}
