//! Plain HTTP: the REST API and what stands beside it.

use std::sync::Arc;
use std::time::Duration;

use argosy_runtime::bounds::{self, Limit};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tonic::Status;
use tonic::body::Body;

use crate::auth::{self, Authenticator, Identity, session};
use crate::listener::STRANGERS_BODY_LEN_MAX;
use crate::rest::{self, BODY_LEN_MAX, Head, Rest};
use crate::state::ControlPlane;
use crate::webhook::Webhooks;

/// A body is sent within so long.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Where browsers, and Argo CD's program, end a session.
pub(crate) const LOGOUT: &str = "/auth/logout";

/// Everything over HTTP that is not gRPC.
pub(crate) struct Web {
    pub plane: Arc<ControlPlane>,
    pub auth: Arc<Authenticator>,
    pub rest: Rest,
    pub webhooks: Webhooks,
    /// Content types of requests that change something; empty for any.
    pub content_types: Vec<String>,
    pub x_frame_options: String,
    pub content_security_policy: String,
}

impl Web {
    /// Answers a request.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        identity: Identity,
        secure: bool,
    ) -> Response<Body> {
        let mut response = self.route(request, identity, secure).await;
        let headers = response.headers_mut();
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value)
                && !value.is_empty()
            {
                headers.insert(name, value);
            }
        };
        set("x-frame-options", &self.x_frame_options);
        set("content-security-policy", &self.content_security_policy);
        set("x-xss-protection", "1");
        response
    }

    async fn route(&self, request: Request<Incoming>, identity: Identity, secure: bool) -> Response<Body> {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/healthz" => self.health(),
            // Where browsers and programs are sent when they have logged out.
            "/" => text(
                StatusCode::OK,
                "This is an API server. It has no web interface.\n",
            ),
            "/api/webhook" => self.webhook(request).await,
            LOGOUT => self.log_out(&request, &identity, secure).await,
            path if path == "/api/version" || path.starts_with("/api/v1/") => {
                self.api(request, identity, secure).await
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn health(&self) -> Response<Body> {
        match self.plane.is_listed() {
            true => text(StatusCode::OK, "ok"),
            false => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the control plane has not been listed yet",
            ),
        }
    }

    /// Ends the session whose token the request brings, takes the cookie away, and sends a browser on.
    async fn log_out<B>(&self, request: &Request<B>, identity: &Identity, secure: bool) -> Response<Body> {
        if auth::token(request.headers()).is_none() {
            return text(StatusCode::BAD_REQUEST, "Failed to retrieve ArgoCD auth token\n");
        }
        // A token that does not count has nothing to end.
        let user = identity.0.as_ref().ok().and_then(|caller| caller.user());
        if let Some(user) = user
            && let Err(status) = session::end(&self.plane, user.claims(), self.auth.now()).await
        {
            return rest::error_response(&status);
        }
        let mut response = text(StatusCode::SEE_OTHER, "");
        let headers = response.headers_mut();
        let settings = self.plane.settings();
        let home = HeaderValue::from_str(&settings.config.url).ok();
        let home = home.filter(|url| !url.is_empty());
        headers.insert(header::LOCATION, home.unwrap_or(HeaderValue::from_static("/")));
        for cookie in session::split_cookies("", "/", secure) {
            if let Ok(value) = HeaderValue::from_str(&cookie) {
                headers.append(header::SET_COOKIE, value);
            }
        }
        response
    }

    async fn api(&self, request: Request<Incoming>, identity: Identity, secure: bool) -> Response<Body> {
        if !self.is_acceptable(&request) {
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Invalid content type");
        }
        let (parts, body) = request.into_parts();
        // Who is not known has little to say.
        let max = identity
            .0
            .as_ref()
            .map_or(STRANGERS_BODY_LEN_MAX, |_| BODY_LEN_MAX);
        let body = match read(body, max).await {
            Ok(body) => body,
            Err(status) => return rest::error_response(identity.0.as_ref().err().unwrap_or(&status)),
        };
        let head = Head {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            identity,
            secure,
        };
        self.rest.answer(head, body).await
    }

    /// Requests that change something must have a content type that a page of another site cannot send unasked.
    fn is_acceptable<B>(&self, request: &Request<B>) -> bool {
        let types: Vec<&str> = self
            .content_types
            .iter()
            .map(|each| each.trim())
            .filter(|each| !each.is_empty())
            .collect();
        if request.method() == Method::GET || types.is_empty() {
            return true;
        }
        let sent = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let sent = sent.split(';').next().unwrap_or_default().trim();
        types.iter().any(|known| known.eq_ignore_ascii_case(sent))
    }

    async fn webhook(&self, request: Request<Incoming>) -> Response<Body> {
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "a webhook is a POST");
        }
        let (parts, body) = request.into_parts();
        match self.webhooks.receive(&parts.headers, body).await {
            (StatusCode::TOO_MANY_REQUESTS, message) => later(&message),
            (status, message) => text(status, &message),
        }
    }
}

/// For who comes when there is too much: not now, but soon.
fn later(message: &str) -> Response<Body> {
    let mut response = text(StatusCode::TOO_MANY_REQUESTS, message);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

async fn read(body: Incoming, max: usize) -> Result<Bytes, Status> {
    let reading = Limited::new(body, max).collect();
    match tokio::time::timeout(READ_TIMEOUT, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => {
            count_excess(&*error);
            Err(Status::invalid_argument(format!(
                "read the body, of at most {max} bytes: {error}"
            )))
        }
        Err(_) => Err(Status::deadline_exceeded(format!(
            "read the body: it was not sent within {} s",
            READ_TIMEOUT.as_secs()
        ))),
    }
}

/// A body that is refused for its length is counted.
pub(crate) fn count_excess(error: &(dyn std::error::Error + Send + Sync + 'static)) {
    if error.is::<LengthLimitError>() {
        bounds::exceeded(Limit::RequestBody);
    }
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = Response::new(Body::new(http_body_util::Full::new(Bytes::from(
        message.to_owned(),
    ))));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
