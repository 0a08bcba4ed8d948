//! What Git holds, and a repo-server that renders it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_api::repository::{
    ManifestRequest, ManifestResponse, ResolveRevisionRequest, ResolveRevisionResponse,
};
use argosy_api::tracking;
use argosy_object::Value;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prost::Message;
use serde_json::json;

use crate::network::End;

/// A repository with one branch. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Git(Arc<AtomicU64>);

impl Git {
    /// Number of the newest commit.
    pub(crate) fn head(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn commit(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Serves one connection of a client of the repo-server.
    pub(crate) async fn serve(self, stream: End) {
        let service = service_fn(move |request| answer(self.clone(), request));
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http2().timer(TokioTimer::new());
        // Whoever breaks a connection off has a reason.
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }
}

/// The hash of a commit.
pub(crate) fn hash(commit: u64) -> String {
    format!("{commit:040x}")
}

/// The commit of a hash.
pub(crate) fn commit(hash: &str) -> Option<u64> {
    u64::from_str_radix(hash, 16).ok()
}

type Body = BoxBody<Bytes, Infallible>;

async fn answer(git: Git, request: http::Request<Incoming>) -> Result<http::Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    // A byte that says whether it is compressed, and four of length.
    let message = bytes.get(5..).unwrap_or_default();
    let method = head.uri.path().rsplit('/').next().unwrap_or_default();
    let answer = match method {
        "GenerateManifest" => {
            ManifestRequest::decode(message).map(|request| render(&git, &request).encode_to_vec())
        }
        "ResolveRevision" => ResolveRevisionRequest::decode(message).map(|_| resolved(&git).encode_to_vec()),
        _ => Ok(Vec::new()),
    };
    let mut trailers = HeaderMap::new();
    let mut frames = Vec::new();
    match answer {
        Ok(message) => {
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(message.len() as u32);
            framed.put_slice(&message);
            frames.push(Ok(Frame::data(framed.freeze())));
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
        }
        Err(_) => {
            trailers.insert("grpc-status", HeaderValue::from_static("3"));
        }
    }
    frames.push(Ok(Frame::trailers(trailers)));
    let body = StreamBody::new(futures::stream::iter(frames));
    let mut response = http::Response::new(BodyExt::boxed(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    Ok(response)
}

fn resolved(git: &Git) -> ResolveRevisionResponse {
    let revision = hash(git.head());
    ResolveRevisionResponse {
        ambiguous_revision: format!("main ({revision})"),
        revision,
    }
}

fn render(git: &Git, request: &ManifestRequest) -> ManifestResponse {
    let number = commit(&request.revision)
        .filter(|_| request.revision.len() == 40)
        .unwrap_or_else(|| git.head());
    let config = tracking::Config {
        label_key: request.app_label_key.clone(),
        ..tracking::Config::default()
    };
    let mut manifests = Vec::new();
    for mut object in manifests_of(number) {
        if tracking::stamp(&mut object, &request.app_name, &request.namespace, &config).is_ok() {
            manifests.push(object.to_string());
        }
    }
    let digest = format!("{}-{number}", request.app_name);
    let unchanged = request.known_digest == digest;
    ManifestResponse {
        manifests: if unchanged { Vec::new() } else { manifests },
        namespace: request.namespace.clone(),
        revision: hash(number),
        source_type: "Directory".to_owned(),
        digest,
        unchanged,
        ..ManifestResponse::default()
    }
}

/// The map that only this commit has.
pub(crate) fn own_map(commit: u64) -> String {
    format!("changes-{commit}")
}

/// The names of the maps of a commit.
pub(crate) fn maps(commit: u64) -> [String; 3] {
    ["early".to_owned(), own_map(commit), "late".to_owned()]
}

/// What a commit asks for: maps in three waves, one of which no other commit has, and a hook in each phase.
fn manifests_of(commit: u64) -> Vec<Value> {
    let map = |name: &str, wave: usize| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": {"argocd.argoproj.io/sync-wave": wave.to_string()}},
            "data": {"commit": commit.to_string()},
        })
    };
    let hook = |name: &str, phase: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name,
                "annotations": {
                    "argocd.argoproj.io/hook": phase,
                    "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation",
                },
            },
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/x:1"}],
            }}},
        })
    };
    let mut all: Vec<Value> = maps(commit)
        .iter()
        .enumerate()
        .map(|(wave, name)| map(name, wave))
        .collect();
    all.extend([hook("before", "PreSync"), hook("after", "PostSync")]);
    all
}
