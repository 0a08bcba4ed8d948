//! What programs find out by gRPC's reflection, which are clients that we did not write.

use std::collections::BTreeSet;

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, prost_types::FileDescriptorProto};
use tonic::{Code, Status};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{FileDescriptorResponse, ServerReflectionRequest};
use tonic_reflection::pb::v1alpha;

use crate::raw;
use crate::world::{World, run, with, world};

async fn ask(world: &World, token: &str, question: MessageRequest) -> Result<MessageResponse, Status> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    };
    let mut client = ServerReflectionClient::new(world.channel.clone());
    let asked = with(token, futures::stream::iter([request]));
    let mut answers = client.server_reflection_info(asked).await?.into_inner();
    Ok(answers.message().await?.unwrap().message_response.unwrap())
}

/// The files that a symbol is defined in and by, one after the other.
async fn pool(world: &World, token: &str, symbol: &str) -> DescriptorPool {
    let files = async |question| match ask(world, token, question).await.unwrap() {
        MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
            file_descriptor_proto,
        }) => {
            let files = file_descriptor_proto.iter();
            files
                .map(|bytes| FileDescriptorProto::decode(&**bytes).unwrap())
                .collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let mut found = files(MessageRequest::FileContainingSymbol(symbol.to_owned())).await;
    let mut at = 0;
    while at < found.len() {
        for name in found[at].dependency.clone() {
            if !found.iter().any(|known| known.name() == name) {
                found.extend(files(MessageRequest::FileByFilename(name)).await);
            }
        }
        at += 1;
    }
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_protos(found).unwrap();
    pool
}

#[test]
fn every_service_is_listed_and_described_down_to_its_last_message() {
    run(async {
        let world = world().await;
        let token = world.token("nobody").await;
        let listed = ask(world, &token, MessageRequest::ListServices(String::new()))
            .await
            .unwrap();
        let MessageResponse::ListServicesResponse(listed) = listed else {
            panic!("{listed:?}")
        };
        let listed: BTreeSet<String> = listed.service.into_iter().map(|service| service.name).collect();
        let methods = raw::methods();
        let services: BTreeSet<String> = methods
            .iter()
            .map(|method| method.parent_service().full_name().to_owned())
            .collect();
        let others = [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ];
        let expected: BTreeSet<String> = services
            .iter()
            .cloned()
            .chain(others.map(str::to_owned))
            .collect();
        assert_eq!(listed, expected);
        for service in &services {
            let pool = pool(world, &token, service).await;
            let described = pool.get_service_by_name(service).unwrap();
            let known = methods
                .iter()
                .filter(|method| method.parent_service().full_name() == service);
            assert_eq!(described.methods().count(), known.count(), "{service}");
        }
    });
}

#[test]
fn the_older_version_is_there_as_well_and_neither_is_for_strangers() {
    run(async {
        let world = world().await;
        let token = world.token("nobody").await;
        let question = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(
                String::new(),
            )),
        };
        let mut client =
            v1alpha::server_reflection_client::ServerReflectionClient::new(world.channel.clone());
        let asked = with(&token, futures::stream::iter([question.clone()]));
        let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
        assert!(answers.message().await.unwrap().is_some());

        let stranger = client
            .server_reflection_info(futures::stream::iter([question]))
            .await;
        assert_eq!(stranger.unwrap_err().code(), Code::Unauthenticated);
        let question = MessageRequest::ListServices(String::new());
        assert_eq!(
            ask(world, "a.b.c", question).await.unwrap_err().code(),
            Code::Unauthenticated
        );
    });
}
