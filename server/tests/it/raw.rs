//! gRPC with messages as bytes, for calls that are made from descriptors.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use prost_reflect::{DescriptorPool, MethodDescriptor};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Every method of the API, from the committed `.proto` files.
pub(crate) fn methods() -> Vec<MethodDescriptor> {
    let protos = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/proto");
    let files = [
        "account/account.proto",
        "application/application.proto",
        "applicationset/applicationset.proto",
        "certificate/certificate.proto",
        "cluster/cluster.proto",
        "settings/settings.proto",
        "gpgkey/gpgkey.proto",
        "notification/notification.proto",
        "project/project.proto",
        "repocreds/repocreds.proto",
        "repository/service.proto",
        "session/session.proto",
        "version/version.proto",
    ];
    let set = protox::compile(files, [protos]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(set).unwrap();
    let mut methods: Vec<_> = pool
        .services()
        .filter(|service| service.name() != "RepoServerService")
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .collect();
    methods.sort_by(|a, b| a.full_name().cmp(b.full_name()));
    methods
}

/// `/package.Service/Method`.
pub(crate) fn path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// How long a stream is listened to that has nothing to say.
pub(crate) const A_WHILE: Duration = Duration::from_millis(700);

/// Calls a method; of a stream the first message. None: the stream ended without one, or went on without one for a
/// while.
pub(crate) async fn call(
    channel: &Channel,
    method: &MethodDescriptor,
    message: Vec<u8>,
    token: Option<&str>,
) -> Result<Option<Bytes>, Status> {
    call_within(A_WHILE, channel, method, message, token).await
}

/// The same; a stream is listened to for so long.
pub(crate) async fn call_within(
    wait: Duration,
    channel: &Channel,
    method: &MethodDescriptor,
    message: Vec<u8>,
    token: Option<&str>,
) -> Result<Option<Bytes>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let path = path(method).parse().unwrap();
    let mut request = Request::new(message);
    if let Some(token) = token {
        request
            .metadata_mut()
            .insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    if method.is_client_streaming() {
        let request = request.map(|message| futures::stream::iter([message]));
        return grpc
            .client_streaming(request, path, Raw)
            .await
            .map(|answer| Some(answer.into_inner()));
    }
    if !method.is_server_streaming() {
        return grpc
            .unary(request, path, Raw)
            .await
            .map(|answer| Some(answer.into_inner()));
    }
    let mut stream = grpc.server_streaming(request, path, Raw).await?.into_inner();
    match tokio::time::timeout(wait, stream.message()).await {
        Ok(outcome) => outcome,
        Err(_) => Ok(None),
    }
}

/// Bytes in, bytes out.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let len = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(len)))
    }
}
