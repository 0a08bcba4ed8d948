//! The REST API: HTTP requests become calls of the same services that gRPC calls, by a table of routes.
//!
//! Messages are JSON as Go writes them; errors have the code of gRPC in the body and the HTTP status that belongs to it.
//! Streams are JSON values, one a line, or server-sent events for those who accept them.

mod fields;
mod input;
mod routes;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, Stream, StreamExt as _};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::{Code, Status};

use argosy_api::repository::RETRY_AFTER;

use crate::auth::{Identity, session as sessions};
use crate::service::Api;
use input::Input;

/// The largest JSON body.
pub(crate) const BODY_LEN_MAX: usize = 20 << 20;
/// A comment goes out on an event stream this often, so that nobody in between takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A request whose route is known.
pub(crate) struct Call {
    input: Input,
    headers: HeaderMap,
    identity: Identity,
    /// The `fields` of the query.
    fields: Option<String>,
    secure: bool,
}

type Handler = Box<dyn Fn(Call) -> BoxFuture<'static, Result<Answer, Status>> + Send + Sync>;

enum Answer {
    One { value: Vec<u8>, cookies: Vec<String> },
    Many(BoxStream<'static, Result<Value, Status>>),
}

enum Segment {
    Literal(&'static str),
    One(&'static str),
    Rest(&'static str),
}

/// One row of the table.
struct Route {
    method: Method,
    segments: Vec<Segment>,
    body: &'static str,
    handler: Handler,
}

impl Route {
    fn new(method: Method, path: &'static str, body: &'static str, handler: Handler) -> Self {
        let segment =
            |text: &'static str| match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                None => Segment::Literal(text),
                Some(name) => name.strip_suffix("=**").map_or(Segment::One(name), Segment::Rest),
            };
        Route {
            method,
            segments: path.trim_start_matches('/').split('/').map(segment).collect(),
            body,
            handler,
        }
    }

    /// The parameters of a path that fits, and how literally it does.
    fn fit(&self, path: &[&str]) -> Option<(usize, Vec<(&'static str, String)>)> {
        let (mut literal, mut parameters) = (0, Vec::new());
        let mut at = 0;
        for segment in &self.segments {
            match segment {
                Segment::Rest(name) => {
                    let rest = path
                        .get(at..)?
                        .iter()
                        .map(|text| decoded(text))
                        .collect::<Option<Vec<_>>>()?;
                    parameters.push((*name, rest.join("/")));
                    at = path.len();
                    continue;
                }
                Segment::Literal(text) => {
                    if path.get(at) != Some(text) {
                        return None;
                    }
                    literal += 1;
                }
                Segment::One(name) => {
                    let text = decoded(path.get(at)?)?;
                    if text.is_empty() {
                        return None;
                    }
                    parameters.push((*name, text));
                }
            }
            at += 1;
        }
        (at >= path.len()).then_some((literal, parameters))
    }
}

/// All routes.
pub(crate) struct Rest {
    routes: Vec<Route>,
}

/// Everything of a request but its body.
pub(crate) struct Head {
    /// The method.
    pub method: Method,
    /// The path as it was sent, still encoded.
    pub path: String,
    /// The query as it was sent.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// Who sent it.
    pub identity: Identity,
    /// It came over TLS.
    pub secure: bool,
}

impl Rest {
    /// The routes of the API.
    pub(crate) fn new(api: &Arc<Api>) -> Self {
        Rest {
            routes: routes::routes(api),
        }
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, head: Head, body: Bytes) -> Response<Body> {
        let events = head
            .headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|accept| accept.contains("text/event-stream"));
        match self.dispatch(head, &body).await {
            Ok(Answer::One { value, cookies }) => {
                let mut response = json_response(StatusCode::OK, value);
                for cookie in cookies {
                    if let Ok(value) = HeaderValue::from_str(&cookie) {
                        response.headers_mut().append(header::SET_COOKIE, value);
                    }
                }
                response
            }
            Ok(Answer::Many(stream)) => stream_response(stream, events),
            Err(status) => error_response(&status),
        }
    }

    async fn dispatch(&self, head: Head, body: &[u8]) -> Result<Answer, Status> {
        let path: Vec<&str> = head.path.trim_start_matches('/').split('/').collect();
        let fitting = self
            .routes
            .iter()
            .filter_map(|route| route.fit(&path).map(|fit| (route, fit)));
        let mut fitting: Vec<_> = fitting.collect();
        if fitting.is_empty() {
            return Err(Status::not_found("Not Found"));
        }
        fitting.retain(|(route, _)| route.method == head.method);
        let found = fitting.into_iter().max_by_key(|(_, (literal, _))| *literal);
        let (route, (_, parameters)) = found.ok_or_else(|| Status::unimplemented("Method Not Allowed"))?;

        let (mut input, mut fields) = (Input::default(), None);
        for (key, text) in url::form_urlencoded::parse(head.query.as_bytes()) {
            match &*key {
                "fields" => fields = Some(text.into_owned()),
                // A whole message in the body leaves nothing for the query to say.
                _ if route.body == "*" => {}
                key => input.set(key, &text, true),
            }
        }
        if !route.body.is_empty() {
            let empty = body.iter().all(u8::is_ascii_whitespace);
            let value: Value = match empty {
                true => json!({}),
                false => serde_json::from_slice(body)
                    .map_err(|error| Status::invalid_argument(format!("read the body as JSON: {error}")))?,
            };
            let value = Input::json(value);
            match (route.body, &mut input) {
                ("*", input) => *input = value,
                (field, Input::Fields(fields)) => drop(fields.insert(field.to_owned(), value)),
                _ => {}
            }
        }
        for (name, text) in &parameters {
            input.set(name, text, false);
        }
        let call = Call {
            input,
            headers: head.headers,
            identity: head.identity,
            fields,
            secure: head.secure,
        };
        (route.handler)(call).await
    }
}

impl Call {
    fn request<T: DeserializeOwned>(self) -> Result<(tonic::Request<T>, Option<String>), Status> {
        let message = T::deserialize(self.input)
            .map_err(|error| Status::invalid_argument(format!("read the request: {error}")))?;
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(self.headers);
        request.extensions_mut().insert(self.identity);
        Ok((request, self.fields))
    }
}

async fn unary<Q, A, F>(call: Call, rpc: F) -> Result<Answer, Status>
where
    Q: DeserializeOwned,
    A: Serialize,
    F: AsyncFnOnce(tonic::Request<Q>) -> Result<tonic::Response<A>, Status>,
{
    let (request, fields) = call.request()?;
    let answer = rpc(request).await?.into_inner();
    let value = match fields {
        None => serde_json::to_vec(&answer),
        Some(fields) => serde_json::to_value(&answer)
            .and_then(|value| serde_json::to_vec(&fields::Selection::parse(&fields).apply(value))),
    };
    let value = value.map_err(|error| Status::internal(format!("write the answer: {error}")))?;
    // A message without fields is an empty object; `()` would be null.
    let value = if value == b"null" { b"{}".to_vec() } else { value };
    Ok(Answer::One {
        value,
        cookies: Vec::new(),
    })
}

/// Logging in and out: the token goes into cookies as well.
async fn session<Q, F>(call: Call, rpc: F) -> Result<Answer, Status>
where
    Q: DeserializeOwned,
    F: AsyncFnOnce(
        tonic::Request<Q>,
    ) -> Result<tonic::Response<argosy_api::services::session::SessionResponse>, Status>,
{
    let secure = call.secure;
    let (request, _) = call.request()?;
    let answer = rpc(request).await?.into_inner();
    let value = serde_json::to_vec(&answer).unwrap_or_default();
    let cookies = sessions::split_cookies(&answer.token, "/", secure);
    Ok(Answer::One { value, cookies })
}

async fn stream<Q, A, S, F>(call: Call, rpc: F) -> Result<Answer, Status>
where
    Q: DeserializeOwned,
    A: Serialize,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
    F: AsyncFnOnce(tonic::Request<Q>) -> Result<tonic::Response<S>, Status>,
{
    let (request, fields) = call.request()?;
    let selection = fields.map(|fields| fields::Selection::parse(&fields));
    let stream = rpc(request).await?.into_inner().map(move |item| {
        let value = serde_json::to_value(item?)
            .map_err(|error| Status::internal(format!("write the answer: {error}")))?;
        let value = json!({"result": value});
        Ok(match &selection {
            Some(selection) => selection.apply(value),
            None => value,
        })
    });
    Ok(Answer::Many(stream.boxed()))
}

/// Percent-decodes a text.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// An answer with a JSON body.
pub(crate) fn json_response(status: StatusCode, value: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::new(http_body_util::Full::new(Bytes::from(value))));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error as REST clients know it.
pub(crate) fn error_response(status: &Status) -> Response<Body> {
    let body = json!({"error": status.message(), "code": status.code() as i32, "message": status.message()});
    let mut response = json_response(http_status(status.code()), body.to_string().into_bytes());
    if let Some(seconds) = retry_after(status) {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// After how many seconds a refused call may be made again: as long as whoever refused it says.
fn retry_after(status: &Status) -> Option<u64> {
    let told = status.metadata().get(RETRY_AFTER);
    let told: Option<u64> = told.and_then(|text| text.to_str().ok()?.parse().ok());
    match (status.code(), told) {
        (Code::ResourceExhausted | Code::Unavailable, Some(millis)) => Some(millis.div_ceil(1000).max(1)),
        (Code::ResourceExhausted, None) => Some(1),
        _ => None,
    }
}

/// The HTTP status of a gRPC code.
pub(crate) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn stream_response(stream: BoxStream<'static, Result<Value, Status>>, events: bool) -> Response<Body> {
    let framed = move |value: &Value| match events {
        true => Bytes::from(format!("data: {value}\n\n")),
        false => Bytes::from(format!("{value}\n")),
    };
    let lines = stream.map(move |item| match item {
        Ok(value) => framed(&value),
        Err(status) => {
            let (code, message) = (status.code(), status.message());
            let http = http_status(code);
            framed(
                &json!({"error": {"grpc_code": code as i32, "http_code": http.as_u16(), "message": message,
                "http_status": http.canonical_reason()}}),
            )
        }
    });
    let frames: Pin<Box<dyn Stream<Item = Bytes> + Send>> = match events {
        true => Box::pin(with_keep_alive(lines.boxed())),
        false => Box::pin(lines),
    };
    let body = StreamBody::new(frames.map(|bytes| Ok::<_, Status>(Frame::data(bytes))));
    let mut response = Response::new(Body::new(body.boxed_unsync()));
    let kind = if events {
        "text/event-stream"
    } else {
        "application/json"
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn with_keep_alive(lines: BoxStream<'static, Bytes>) -> impl Stream<Item = Bytes> + Send {
    futures::stream::unfold(lines, |mut lines| async {
        match tokio::time::timeout(KEEP_ALIVE, lines.next().boxed()).await {
            Ok(Some(line)) => Some((line, lines)),
            Ok(None) => None,
            Err(_) => Some((Bytes::from_static(b":\n\n"), lines)),
        }
    })
}
