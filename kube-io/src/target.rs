//! Reads and guarded writes of documents on one cluster.
//!
//! Every write passes the [`Fence`] of its target, if there is one: it is refused before anything is sent when the
//! cluster is not held, and the server is given a time limit that ends within the hold. Throttling (429, or 503 with
//! `Retry-After`) is waited out within the call's own time; everything else is returned as it came, with the server's
//! message kept.

use std::sync::Arc;
use std::time::Duration;

use argosy_object::Value;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use tokio::time::Instant;

use crate::client::{Answer, BodyStream, Call, Client, decode};
use crate::discovery::ApiResource;
use crate::error::{Class, Error};
use crate::fence::{Carried, Fence, Flight};
use crate::items::Splitter;

/// The field manager of every write, the one that Argo CD uses, so that ownership of fields carries over.
pub const FIELD_MANAGER: &str = "argocd-controller";
/// Objects in one page of a list.
pub const PAGE_LEN: u32 = 500;
/// A throttled call is sent at most so often.
const SENDS_MAX: u32 = 5;
/// One of so many parts of the time that is left of a hold is for what a write waits for before it leaves: a connection, a place.
const WAY_THERE: u32 = 4;
/// The wait after a 429 that names none.
const THROTTLED_WAIT: Duration = Duration::from_secs(1);

/// Guarded calls on one cluster. Clones are cheap and share connections.
#[derive(Clone)]
pub struct Target {
    client: Client,
    fence: Option<Arc<dyn Fence>>,
    impersonate: Option<Arc<Impersonate>>,
    timeout: Duration,
    field_manager: Arc<str>,
}

/// Speak as somebody else; the account needs the `impersonate` permission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonate {
    /// Such as `system:serviceaccount:shop:deployer`.
    pub user: String,
    /// Groups of that user, if the server should not know better.
    pub groups: Vec<String>,
}

/// How the server treats fields that it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drops them silently.
    Ignore,
    /// Drops them and says so in [`Written::warnings`].
    #[default]
    Warn,
    /// Refuses the object.
    Strict,
}

/// How a write is done.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// Let the server go through everything and store nothing.
    pub dry_run: bool,
    /// Unknown fields.
    pub field_validation: FieldValidation,
    /// Another field manager than the target's.
    pub field_manager: Option<String>,
    /// Write this subresource (`status`, `scale`) instead of the object.
    pub subresource: Option<&'static str>,
}

/// A change of an object.
#[derive(Clone, Copy, Debug)]
pub enum Patch<'a> {
    /// JSON merge patch (RFC 7386).
    Merge(&'a Value),
    /// Strategic merge patch; only for built-in kinds.
    Strategic(&'a Value),
    /// JSON patch (RFC 6902), an array of operations.
    Json(&'a Value),
    /// Server-side apply of the object. Creates it if it is not there.
    Apply {
        /// The whole object as wanted, with apiVersion and kind.
        object: &'a Value,
        /// Take over fields that others manage.
        force: bool,
    },
}

/// The outcome of a write.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object as stored (or as it would be, in a dry run).
    pub object: Value,
    /// Whether it was not there before.
    pub created: bool,
    /// What the server warned about, such as deprecated versions and unknown fields.
    pub warnings: Vec<String>,
}

/// What becomes of dependents, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// The object stays, marked, until its dependents are gone.
    #[default]
    Foreground,
    /// The object goes at once, its dependents later.
    Background,
    /// Dependents stay.
    Orphan,
}

/// How and under which conditions an object is deleted.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// Only this incarnation.
    pub uid: Option<String>,
    /// Only if it has not changed since.
    pub resource_version: Option<String>,
    /// Dependents.
    pub propagation: Propagation,
    /// Seconds that pods get to end.
    pub grace_period: Option<i64>,
    /// Let the server go through everything and delete nothing.
    pub dry_run: bool,
}

/// The answer to a deletion.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// It is marked and goes when its finalizers are done, its dependents are gone, or its pod has ended.
    Marked(Box<Value>),
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// One namespace; empty for all, and for cluster-scoped kinds.
    pub namespace: String,
    /// Label selector; empty for all.
    pub labels: String,
    /// Field selector, such as `metadata.name=argocd-cm`; empty for all.
    pub fields: String,
}

/// The objects of a list, each as JSON that has not been looked at yet.
#[derive(Clone, Debug, Default)]
pub struct RawList {
    /// One JSON object each; in lists of built-in kinds without `apiVersion` and `kind`.
    pub items: Vec<Bytes>,
    /// The version that the list is true for.
    pub resource_version: String,
}

impl FieldValidation {
    fn name(self) -> &'static str {
        match self {
            FieldValidation::Ignore => "Ignore",
            FieldValidation::Warn => "Warn",
            FieldValidation::Strict => "Strict",
        }
    }
}

impl Propagation {
    fn name(self) -> &'static str {
        match self {
            Propagation::Foreground => "Foreground",
            Propagation::Background => "Background",
            Propagation::Orphan => "Orphan",
        }
    }
}

impl Selection {
    /// The objects of one namespace, or all if it is empty.
    pub fn namespace(namespace: &str) -> Self {
        Selection {
            namespace: namespace.to_owned(),
            ..Selection::default()
        }
    }

    pub(crate) fn query(&self, query: &mut Vec<(&'static str, String)>) {
        if !self.labels.is_empty() {
            query.push(("labelSelector", self.labels.clone()));
        }
        if !self.fields.is_empty() {
            query.push(("fieldSelector", self.fields.clone()));
        }
    }
}

impl Target {
    /// Unguarded calls over these connections.
    pub fn new(client: Client) -> Self {
        Target {
            client,
            fence: None,
            impersonate: None,
            timeout: Duration::from_secs(60),
            field_manager: Arc::from(FIELD_MANAGER),
        }
    }

    /// The same with every write behind `fence`.
    pub fn with_fence(mut self, fence: Arc<dyn Fence>) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The same, speaking as somebody else.
    pub fn with_impersonation(mut self, who: Impersonate) -> Self {
        self.impersonate = Some(Arc::new(who));
        self
    }

    /// The same with another limit for each call, waits for throttling included.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same with another field manager.
    pub fn with_field_manager(mut self, name: &str) -> Self {
        self.field_manager = Arc::from(name);
        self
    }

    /// The connections underneath.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The object, or `None` if it does not exist. That the *kind* is not served is an error: it says nothing about the
    /// object.
    pub async fn get(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        let call = self.read("get", resource, namespace, name)?;
        match self.run(call, false).await {
            Ok(answer) => decode("get", &answer.body).map(|object| Some(stamped(object, resource))),
            Err(error) if error.not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A subresource of an object, such as `scale`.
    pub async fn get_subresource(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        subresource: &str,
    ) -> Result<Option<Value>, Error> {
        let mut call = self.read("get", resource, namespace, name)?;
        call.path = resource.path(namespace, name, subresource);
        match self.run(call, false).await {
            Ok(answer) => decode("get", &answer.body).map(Some),
            Err(error) if error.not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the object (POST: a name that is taken is an error). Its namespace and name are those in its metadata.
    pub async fn create(
        &self,
        resource: &ApiResource,
        object: &Value,
        write: &Write,
    ) -> Result<Written, Error> {
        let (namespace, name) = self.place(resource, object)?;
        let what = described("create", resource, &namespace, &name);
        let mut call = self.written(what, Method::POST, resource.path(&namespace, "", ""), write);
        call.body = encoded(object);
        let answer = self.run(call, true).await?;
        self.outcome(resource, answer)
    }

    /// Replaces the object (PUT). With a resourceVersion in its metadata only if it has not changed since.
    pub async fn replace(
        &self,
        resource: &ApiResource,
        object: &Value,
        write: &Write,
    ) -> Result<Written, Error> {
        let (namespace, name) = self.place(resource, object)?;
        let what = described("replace", resource, &namespace, &name);
        let path = resource.path(
            &namespace,
            required(&what, &name)?,
            write.subresource.unwrap_or_default(),
        );
        let mut call = self.written(what, Method::PUT, path, write);
        call.body = encoded(object);
        let answer = self.run(call, true).await?;
        self.outcome(resource, answer)
    }

    /// Changes the object. A resourceVersion or uid inside the patch is a precondition.
    pub async fn patch(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        patch: Patch<'_>,
        write: &Write,
    ) -> Result<Written, Error> {
        let (verb, content_type, body) = match patch {
            Patch::Merge(body) => ("patch", "application/merge-patch+json", body),
            Patch::Strategic(body) => ("patch", "application/strategic-merge-patch+json", body),
            Patch::Json(body) => ("patch", "application/json-patch+json", body),
            Patch::Apply { object, .. } => ("apply", "application/apply-patch+yaml", object),
        };
        let what = described(verb, resource, namespace, name);
        let path = resource.path(
            namespace,
            required(&what, name)?,
            write.subresource.unwrap_or_default(),
        );
        let mut call = self.written(what, Method::PATCH, path, write);
        call.content_type = content_type;
        call.body = encoded(body);
        if let Patch::Apply { force: true, .. } = patch {
            call.query.push(("force", "true".to_owned()));
        }
        let answer = self.run(call, true).await?;
        self.outcome(resource, answer)
    }

    /// Deletes the object under preconditions. That it is already gone is no error.
    pub async fn delete(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        delete: &Delete,
    ) -> Result<Deleted, Error> {
        let what = described("delete", resource, namespace, name);
        let path = resource.path(namespace, required(&what, name)?, "");
        let mut options = serde_json::json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": delete.propagation.name(),
        });
        let mut conditions = serde_json::Map::new();
        if let Some(uid) = &delete.uid {
            conditions.insert("uid".to_owned(), Value::String(uid.clone()));
        }
        if let Some(version) = &delete.resource_version {
            conditions.insert("resourceVersion".to_owned(), Value::String(version.clone()));
        }
        if !conditions.is_empty() {
            options["preconditions"] = Value::Object(conditions);
        }
        if let Some(seconds) = delete.grace_period {
            options["gracePeriodSeconds"] = Value::from(seconds);
        }
        if delete.dry_run {
            options["dryRun"] = serde_json::json!(["All"]);
        }
        let mut call = self.bare(what, Method::DELETE, path);
        call.body = encoded(&options);
        let what = call.what.clone();
        let answer = match self.run(call, true).await {
            Ok(answer) => answer,
            Err(error) if error.not_found() => return Ok(Deleted::Gone),
            Err(error) => return Err(error),
        };
        let object: Value = decode(&what, &answer.body)?;
        // The server sends a Status when the object is gone, and some servers the last state of it.
        let marked = object.pointer("/metadata/deletionTimestamp").is_some();
        let has_finalizers = object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty());
        let graceful = object
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .is_some_and(|seconds| seconds > 0);
        if object.get("kind").and_then(Value::as_str) == Some("Status")
            || !(marked && (has_finalizers || graceful))
        {
            return Ok(Deleted::Gone);
        }
        Ok(Deleted::Marked(Box::new(stamped(object, resource))))
    }

    /// All objects of a selection, page by page, as undecoded JSON. The whole list is held; for live state use
    /// [`crate::list_watch`].
    pub async fn list(&self, resource: &ApiResource, selection: &Selection) -> Result<RawList, Error> {
        let what = described("list", resource, &selection.namespace, "");
        let mut list = RawList::default();
        let mut next = None;
        loop {
            let mut call = self.bare(
                what.clone(),
                Method::GET,
                resource.path(&selection.namespace, "", ""),
            );
            selection.query(&mut call.query);
            call.query.push(("limit", PAGE_LEN.to_string()));
            if let Some(token) = next.take() {
                call.query.push(("continue", token));
            }
            let (_, body) = self.client.stream(&call, None).await?;
            let mut reader = PageReader::new(call.what, body);
            while !reader.read(self.timeout, |item| list.items.push(item)).await? {}
            let page = reader.finish()?;
            list.resource_version = page.resource_version;
            match page.next {
                Some(token) => next = Some(token),
                None => return Ok(list),
            }
        }
    }

    fn read(&self, verb: &str, resource: &ApiResource, namespace: &str, name: &str) -> Result<Call, Error> {
        let what = described(verb, resource, namespace, name);
        let path = resource.path(namespace, required(&what, name)?, "");
        Ok(self.bare(what, Method::GET, path))
    }

    fn bare(&self, what: String, method: Method, path: String) -> Call {
        let mut call = Call::get(what, path);
        call.method = method;
        call.timeout = self.timeout;
        if let Some(who) = &self.impersonate {
            call.headers = impersonation(who);
        }
        call
    }

    fn written(&self, what: String, method: Method, path: String, write: &Write) -> Call {
        let mut call = self.bare(what, method, path);
        let manager = write.field_manager.as_deref().unwrap_or(&self.field_manager);
        call.query.push(("fieldManager", manager.to_owned()));
        call.query
            .push(("fieldValidation", write.field_validation.name().to_owned()));
        if write.dry_run {
            call.query.push(("dryRun", "All".to_owned()));
        }
        call
    }

    /// Sends the call, for as long as the server throttles and time is left.
    async fn run(&self, mut call: Call, write: bool) -> Result<Answer, Error> {
        let deadline = Instant::now() + self.timeout;
        let query = call.query.len();
        let mut sends = 0;
        loop {
            call.timeout = deadline.saturating_duration_since(Instant::now());
            let flight = match (&self.fence, write) {
                (Some(fence), true) => {
                    let flight = Flight::begin(fence);
                    let Some(left) = fence.remaining() else {
                        fence.refused();
                        flight.over();
                        return Err(Error::Fenced { call: call.what });
                    };
                    call.timeout = call.timeout.min(left);
                    // The server gives up when we must, so that nothing of ours lands later. It counts from when the call
                    // arrives: a part of the time is for the way there.
                    let given = call.timeout.min(left / WAY_THERE * (WAY_THERE - 1));
                    call.query.truncate(query);
                    call.query
                        .push(("timeout", format!("{}ms", given.as_millis().max(1))));
                    let fence = fence.clone();
                    call.fence = Some(Carried { fence, given });
                    Some(flight)
                }
                _ => None,
            };
            let answer = self.client.call(&call).await;
            if let (Some(flight), Some(fence)) = (flight, &self.fence) {
                match &answer {
                    Ok(_) => flight.over(),
                    Err(error) if error.code().is_some_and(|code| code < 500) => flight.over(),
                    Err(Error::Fenced { .. }) => {
                        fence.refused();
                        flight.over();
                    }
                    // It may have left and arrive yet.
                    Err(_) => drop(flight),
                }
            }
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            sends += 1;
            let wait = match (error.code(), error.class()) {
                (Some(429), Class::Retry { after }) => after.unwrap_or(THROTTLED_WAIT),
                (Some(503), Class::Retry { after: Some(after) }) => after,
                _ => return Err(error),
            };
            let wait = wait.mul_f64(1.0 + fastrand::f64() / 4.0);
            if sends >= SENDS_MAX || Instant::now() + wait >= deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn outcome(&self, resource: &ApiResource, answer: Answer) -> Result<Written, Error> {
        Ok(Written {
            created: answer.code == 201,
            warnings: warnings(&answer.headers),
            object: stamped(decode("read what was written", &answer.body)?, resource),
        })
    }

    fn place(&self, resource: &ApiResource, object: &Value) -> Result<(String, String), Error> {
        let name = argosy_object::meta::name(object).to_owned();
        let namespace = argosy_object::meta::namespace(object).to_owned();
        if resource.namespaced && namespace.is_empty() {
            return Err(Error::Request {
                call: described("write", resource, "", &name),
                message: "the object names no namespace".to_owned(),
            });
        }
        Ok((namespace, name))
    }
}

/// What a page says besides its items.
pub(crate) struct Page {
    pub(crate) resource_version: String,
    pub(crate) next: Option<String>,
    /// Objects after this page, if the server says so.
    pub(crate) remaining: Option<u64>,
}

/// Reads one page of a list, item by item as the bytes arrive.
pub(crate) struct PageReader {
    what: String,
    body: BodyStream,
    splitter: Splitter,
}

impl PageReader {
    pub(crate) fn new(what: String, body: BodyStream) -> Self {
        PageReader {
            what,
            body,
            splitter: Splitter::default(),
        }
    }

    /// Reads the next piece and hands on the items that are complete. True at the end of the body.
    pub(crate) async fn read(&mut self, pause_max: Duration, item: impl FnMut(Bytes)) -> Result<bool, Error> {
        let piece = tokio::time::timeout(pause_max, self.body.next())
            .await
            .map_err(|_| Error::Timeout {
                call: self.what.clone(),
                after: pause_max,
            })?;
        let Some(piece) = piece else { return Ok(true) };
        let outcome = self.splitter.push(&piece?, item);
        outcome.map_err(|malformed| self.malformed(malformed))?;
        Ok(false)
    }

    /// What stood around the items.
    pub(crate) fn finish(mut self) -> Result<Page, Error> {
        let frame = std::mem::take(&mut self.splitter)
            .finish()
            .map_err(|malformed| self.malformed(malformed))?;
        let frame: Value = decode(&self.what, &frame)?;
        let text = |pointer: &str| {
            frame
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Ok(Page {
            resource_version: text("/metadata/resourceVersion"),
            next: Some(text("/metadata/continue")).filter(|token| !token.is_empty()),
            remaining: frame
                .pointer("/metadata/remainingItemCount")
                .and_then(Value::as_u64),
        })
    }

    fn malformed(&self, malformed: crate::items::Malformed) -> Error {
        Error::Answer {
            call: self.what.clone(),
            message: malformed.0.to_owned(),
        }
    }
}

fn impersonation(who: &Impersonate) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    let mut add = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.push((HeaderName::from_static(name), value));
        }
    };
    add("impersonate-user", &who.user);
    for group in &who.groups {
        add("impersonate-group", group);
    }
    headers
}

/// `patch apps/v1 deployments shop/web`.
pub(crate) fn described(verb: &str, resource: &ApiResource, namespace: &str, name: &str) -> String {
    let mut what = format!("{verb} {} {}", resource.api_version(), resource.plural);
    match (namespace.is_empty(), name.is_empty()) {
        (true, true) => {}
        (true, false) => what = format!("{what} {name}"),
        (false, true) => what = format!("{what} in {namespace}"),
        (false, false) => what = format!("{what} {namespace}/{name}"),
    }
    what
}

fn required<'a>(what: &str, name: &'a str) -> Result<&'a str, Error> {
    if name.is_empty() {
        // Without a name the path is that of the collection: a delete would empty it.
        return Err(Error::Request {
            call: what.to_owned(),
            message: "the object has no name".to_owned(),
        });
    }
    Ok(name)
}

fn encoded(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

/// Objects in answers always carry their kind, except in some old corners of the API.
fn stamped(mut object: Value, resource: &ApiResource) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.entry("apiVersion")
            .or_insert_with(|| Value::String(resource.api_version()));
        map.entry("kind")
            .or_insert_with(|| Value::String(resource.kind.clone()));
    }
    object
}

/// The texts of `Warning: 299 - "…"` headers.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &HeaderValue| {
        let value = value.to_str().ok()?;
        let (_, rest) = value.split_once('"')?;
        let mut out = String::new();
        let mut characters = rest.chars();
        while let Some(character) = characters.next() {
            match character {
                '"' => break,
                '\\' => out.extend(characters.next()),
                other => out.push(other),
            }
        }
        Some(out)
    };
    headers
        .get_all(http::header::WARNING)
        .iter()
        .filter_map(text)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn warnings_are_unquoted() {
        let mut headers = HeaderMap::new();
        headers.append(
            http::header::WARNING,
            HeaderValue::from_static(r#"299 - "unknown field \"spec.x\"""#),
        );
        headers.append(
            http::header::WARNING,
            HeaderValue::from_static(r#"299 - "deprecated""#),
        );
        assert_eq!(warnings(&headers), [r#"unknown field "spec.x""#, "deprecated"]);
    }

    #[test]
    fn a_call_is_described_by_verb_kind_and_object() {
        let pods = ApiResource::known("", "v1", "Pod", "pods", true);
        assert_eq!(described("patch", &pods, "shop", "web"), "patch v1 pods shop/web");
        assert_eq!(described("list", &pods, "", ""), "list v1 pods");
    }
}
