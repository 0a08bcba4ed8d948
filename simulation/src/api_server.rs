//! One simulated API server: a request and the time in, an answer out.
//!
//! ```text
//!   request ─ fault? ─ who? ─ document (discovery, OpenAPI, version)
//!                         └─ place ─ may they? ─ read   ─ get, list, watch
//!                                              └ write  ─ create, update, patch, apply, delete
//! ```
//!
//! Nothing here waits, sleeps or opens a socket: [`crate::serve`] does that for clients, and a test may drive the same server by
//! itself, with its own clock. What happens by itself (controllers, the garbage collector) happens in [`ApiServer::advance`].

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_object::meta;
use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::{self, User};
use crate::controllers::Controllers;
use crate::discovery::Documents;
use crate::fault::{Faults, Injury};
use crate::recorded;
use crate::refusal::Refusal;
use crate::registry::{GroupResource, Registry, ResourceType};
use crate::request::{self, Place, Query, Request};
use crate::store::{Content, Key, Population, Store};
use crate::watch::Watch;
use crate::{openapi, read, write};

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides uids, generated names and the like: the same seed and the same requests give the same answers.
    pub seed: u64,
    /// Nodes on which Pods run. Without any, Pods stay Pending.
    pub nodes: u32,
    /// How many changes of each kind are remembered for watches.
    pub history_max: usize,
    /// Whether workloads, namespaces and garbage are looked after.
    pub controllers: bool,
    /// Seconds between the bookmarks of a watch.
    pub bookmark_seconds: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            nodes: 2,
            history_max: 4096,
            controllers: true,
            bookmark_seconds: 60,
        }
    }
}

/// What a request gets.
pub enum Answer {
    /// A whole answer.
    Document(Response<Bytes>),
    /// A stream of events, to be asked with [`ApiServer::next_events`].
    Watch(Box<Watch>),
    /// Nothing: the connection breaks.
    Broken,
}

/// A simulated API server.
pub struct ApiServer {
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) documents: Documents,
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) random: fastrand::Rng,
    pub(crate) controllers: Controllers,
    pub(crate) faults: Faults,
    requests: u64,
    asked: BTreeMap<(&'static str, String), u64>,
    /// The time of the last request or step.
    clock: Timestamp,
}

impl ApiServer {
    /// A fresh server with the namespaces of a new cluster.
    #[must_use]
    pub fn new(options: Options, now: Timestamp) -> Self {
        let mut server = Self {
            store: Store::new(options.history_max, options.seed),
            registry: Registry::builtin(),
            documents: Documents::default(),
            users: access::default_users(),
            random: fastrand::Rng::with_seed(options.seed),
            controllers: Controllers::default(),
            faults: Faults::new(options.seed),
            requests: 0,
            asked: BTreeMap::new(),
            clock: now,
            options,
        };
        server.begin(now);
        server
    }

    fn begin(&mut self, now: Timestamp) {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.create_own("/api/v1/namespaces", &namespace, now);
        }
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
        });
        self.create_own("/api/v1/namespaces/default/services", &service, now);
        for index in 0..self.options.nodes {
            let name = format!("node-{index}");
            let node = crate::controllers::node(&name, now);
            self.create_own("/api/v1/nodes", &node, now);
        }
    }

    /// Creates an object as the cluster's own machinery does.
    pub(crate) fn create_own(&mut self, path: &str, object: &Value, now: Timestamp) -> Option<Value> {
        let query = "fieldManager=kube-apiserver";
        self.own(
            "POST",
            &format!("{path}?{query}"),
            "application/json",
            object,
            now,
        )
    }

    /// A request of the cluster's own machinery; none if it is refused.
    pub(crate) fn own(
        &mut self,
        method: &str,
        target: &str,
        media: &str,
        body: &Value,
        now: Timestamp,
    ) -> Option<Value> {
        let request = http::Request::builder()
            .method(method)
            .uri(target)
            .header(http::header::CONTENT_TYPE, media)
            .body(Bytes::from(body.to_string()))
            .ok()?;
        match self.dispatch(&request, &User::machinery(), now) {
            Ok(Answer::Document(response)) => serde_json::from_slice(response.body()).ok(),
            Ok(_) => None,
            Err(refusal) => {
                tracing::debug!(%method, %target, %refusal, "own request refused");
                None
            }
        }
    }

    /// Answers a request.
    pub fn handle(&mut self, request: &Request, now: Timestamp) -> Answer {
        self.requests += 1;
        self.count_in(request);
        self.clock = now;
        if let Some(injury) = self.faults.injure(request) {
            match injury {
                Injury::Refuse(refusal) => return Answer::Document(refused(&refusal)),
                Injury::Break => return Answer::Broken,
                Injury::Compact => self.compact(),
            }
        }
        let answer = access::authenticate(&self.users, request.headers())
            .and_then(|user| self.dispatch(request, &user, now));
        match answer {
            Ok(Answer::Watch(mut watch)) => {
                watch.befall(self.faults.of_watch(request));
                Answer::Watch(watch)
            }
            Ok(answer) => answer,
            Err(refusal) => Answer::Document(refused(&refusal)),
        }
    }

    fn count_in(&mut self, request: &Request) {
        let query = Query::of(request);
        let Some(place) = Place::parse(request.uri().path()) else {
            return;
        };
        let verb = match query.get("sendInitialEvents") {
            Some("true") => Ok("list"),
            _ => request::verb(request.method(), &place, &query),
        };
        if let Ok(verb) = verb {
            *self.asked.entry((verb, place.plural)).or_default() += 1;
        }
    }

    /// Lets happen what is due by itself: controllers and the garbage collector. True if anything changed.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        if !self.options.controllers {
            return false;
        }
        self.clock = now;
        let before = self.store.version();
        crate::controllers::run(self, now);
        self.store.version() != before
    }

    /// Whether [`Self::advance`] has anything to do now.
    #[must_use]
    pub fn has_work(&self, now: Timestamp) -> bool {
        self.options.controllers && self.controllers.is_due(now)
    }

    /// When [`Self::advance`] next has something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.controllers.next_due()
    }

    /// The rules by which requests go wrong.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Does something that no rule lets go wrong: a test that looks at what is there.
    pub fn undisturbed<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let rules = std::mem::replace(&mut self.faults, Faults::new(0));
        let done = act(self);
        self.faults = rules;
        done
    }

    /// How long the answer to this request shall be held back.
    pub fn delay(&mut self, request: &Request) -> std::time::Duration {
        self.faults.delay(request)
    }

    pub(crate) fn clock(&self) -> Timestamp {
        self.clock
    }

    /// Requests answered so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// How often clients have asked this: a verb (a list that comes as a watch is a `list`) on a kind by its plural name, or
    /// on all kinds if that is empty. Whatever became of it.
    #[must_use]
    pub fn asked(&self, verb: &str, plural: &str) -> u64 {
        let counted = |(known, of): &(&str, String)| *known == verb && (plural.is_empty() || of == plural);
        let counts = self.asked.iter().filter(|(what, _)| counted(what));
        counts.map(|(_, times)| times).sum()
    }

    /// The number of the last change.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.store.version()
    }

    /// How many objects of a kind there are.
    #[must_use]
    pub fn count(&self, group: &str, plural: &str) -> usize {
        self.store
            .table(&GroupResource::new(group, plural))
            .map_or(0, |table| table.objects.len())
    }

    /// Lets a bearer token speak for a user.
    pub fn admit(&mut self, token: &str, user: User) {
        self.users.insert(token.to_owned(), user);
    }

    /// Forgets the history: who resumes a watch from before gets 410, and so does who continues a list.
    pub fn compact(&mut self) {
        self.store.compact();
        self.store.wake_all();
    }

    /// Puts (or with `None` removes) an object behind the back of all watches, as a watch that lost an event would see it.
    pub fn alter_silently(
        &mut self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        object: Option<&Value>,
    ) {
        let key = key(namespace, name);
        let content = object.map(|object| move |version: u64| content_of(object, version));
        self.store
            .alter_silently(&GroupResource::new(group, plural), &key, content);
    }

    /// Changes (or with `None` removes) an object, and the watches that are open do not hear of it. It is in the history: a watch
    /// that begins later, from before it, tells it.
    pub fn alter_unheard(
        &mut self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        object: Option<&Value>,
    ) {
        let resource = GroupResource::new(group, plural);
        let key = Key::from(key(namespace, name));
        let version = self.store.next_version();
        match (object, self.store.get(&resource, &key)) {
            (Some(object), _) => self.store.put(&resource, key, content_of(object, version)),
            (None, Some(last)) => {
                let last = content_of(&last.content.value(), version);
                self.store.remove(&resource, &key, last);
            }
            (None, None) => return,
        }
        self.store.leave_unheard(&resource);
    }

    /// From now on the watches that are open do not hear of so many of a hundred changes, by chance. Watches that begin later, from
    /// before such a change, do.
    pub fn lose_changes(&mut self, percent: u8) {
        self.store.loss_percent = percent;
    }

    /// Puts an object of a population in place without history. Kinds of CustomResourceDefinitions must be served already.
    pub fn seed(
        &mut self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        population: &Arc<dyn Population>,
        index: u32,
    ) {
        let key = Key::from(key(namespace, name));
        let population = Arc::clone(population);
        self.store.seed(resource, key, |version| Content::Generated {
            population,
            index,
            version,
        });
    }

    fn dispatch(&mut self, request: &Request, user: &User, now: Timestamp) -> Result<Answer, Refusal> {
        let path = request.uri().path();
        let query = Query::of(request);
        if let Some(document) = self.document(request, path)? {
            access::may_read_documents(user, path)?;
            return Ok(Answer::Document(document));
        }
        let Some(place) = Place::parse(path) else {
            access::may_read_documents(user, path)?;
            return Ok(Answer::Document(page_not_found()));
        };
        let verb = request::verb(request.method(), &place, &query)?;
        access::authorise(self, user, verb, &place)?;
        let Some(kind) = self.registry.find(&place.group, &place.plural).cloned() else {
            return self.unknown(&place);
        };
        let Some(version) = kind.version(&place.version) else {
            return self.unknown(&place);
        };
        if !kind.namespaced && !place.namespace.is_empty() {
            return Err(Refusal::no_such_resource());
        }
        if place.subresource.is_empty() {
            if !version.has_verb(if verb == "watch" { "list" } else { verb }) {
                return Err(Refusal::method_not_allowed());
            }
        } else if version.subresource(&place.subresource).is_none() {
            return Err(Refusal::no_such_resource());
        }
        let scope = Scope {
            kind: &kind,
            place: &place,
            query: &query,
            user,
            now,
        };
        let mut answer = match verb {
            "get" | "list" | "watch" => read::read(self, &scope, verb, request)?,
            _ => write::write(self, &scope, verb, request).map(Answer::Document)?,
        };
        if let (Some(text), Answer::Document(response)) = (&version.deprecated, &mut answer)
            && let Ok(warning) = format!("299 - {text:?}").parse()
        {
            response.headers_mut().append(http::header::WARNING, warning);
        }
        Ok(answer)
    }

    fn unknown(&self, place: &Place) -> Result<Answer, Refusal> {
        if place.group.is_empty()
            || self
                .registry
                .types()
                .any(|kind| kind.group == place.group && !kind.custom)
        {
            return Err(Refusal::no_such_resource());
        }
        Ok(Answer::Document(page_not_found()))
    }

    /// The documents that a server has beside resources.
    fn document(&mut self, request: &Request, path: &str) -> Result<Option<Response<Bytes>>, Refusal> {
        let trimmed = path.trim_end_matches('/');
        Ok(Some(match trimmed {
            "/version" => json_response(StatusCode::OK, recorded::version().to_string().into()),
            "/healthz" | "/readyz" | "/livez" | "/healthz/ping" => text("ok"),
            "/openapi/v2" => openapi::v2(self, request.headers()),
            "/openapi/v3" => openapi::index(self),
            _ if trimmed.starts_with("/openapi/v3/") => {
                match openapi::v3(self, &trimmed["/openapi/v3/".len()..]) {
                    Some(document) => document,
                    None => page_not_found(),
                }
            }
            _ => return self.documents.answer(&self.registry, trimmed, request),
        }))
    }
}

/// One request on a kind, understood.
pub(crate) struct Scope<'a> {
    pub(crate) kind: &'a Arc<ResourceType>,
    pub(crate) place: &'a Place,
    pub(crate) query: &'a Query,
    pub(crate) user: &'a User,
    pub(crate) now: Timestamp,
}

impl Scope<'_> {
    pub(crate) fn resource(&self) -> GroupResource {
        self.kind.resource()
    }

    pub(crate) fn key(&self) -> String {
        key(&self.place.namespace, &self.place.name)
    }

    pub(crate) fn not_found(&self) -> Refusal {
        Refusal::not_found(self.kind, &self.place.name)
    }

    /// The time as objects carry it.
    pub(crate) fn stamp(&self) -> String {
        stamp(self.now)
    }
}

/// Seconds in RFC 3339.
pub(crate) fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Where an object is kept below its kind.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

fn content_of(object: &Value, version: u64) -> Content {
    let mut object = object.clone();
    bare_head(&mut object);
    object["metadata"]["resourceVersion"] = version.to_string().into();
    Content::of(&object)
}

/// Takes `apiVersion` and `kind` off, as objects are stored.
pub(crate) fn bare_head(object: &mut Value) {
    meta::remove_field(object, &["apiVersion"]);
    meta::remove_field(object, &["kind"]);
}

pub(crate) fn json_response(code: StatusCode, body: Bytes) -> Response<Bytes> {
    response(code, "application/json", body)
}

pub(crate) fn response(code: StatusCode, media: &str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    if let Ok(media) = media.parse() {
        response.headers_mut().insert(http::header::CONTENT_TYPE, media);
    }
    response
}

fn text(text: &'static str) -> Response<Bytes> {
    response(
        StatusCode::OK,
        "text/plain; charset=utf-8",
        Bytes::from_static(text.as_bytes()),
    )
}

fn page_not_found() -> Response<Bytes> {
    let body = Bytes::from_static(b"404 page not found\n");
    response(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", body)
}

/// A refusal as it goes out.
pub(crate) fn refused(refusal: &Refusal) -> Response<Bytes> {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, refusal.body());
    if let Some(seconds) = refusal.retry_after {
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, seconds.into());
    }
    response
}
