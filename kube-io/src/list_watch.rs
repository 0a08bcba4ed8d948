//! One kind as a never-ending sequence of lists and changes.
//!
//! ```text
//!            ┌────────────── gone (410) ──────────────┐
//!            ▼                                        │
//!   start ─ list ─ Listed… ─ ListEnd ─ watch ─ Applied, Deleted, Live … ─┐
//!            ▲                          ▲                                │ end of stream,
//!            └─ failed: Failed, wait ─┐ └── failed: Failed, wait ◄───────┘ error, silence
//! ```
//!
//! The list comes as a stream (WatchList) where the server offers it, else in pages. After it changes are followed from
//! its resourceVersion, and after each break from the last one seen: a full list happens only at the start and when
//! the server has forgotten that version. Objects are handed on as the bytes that came. Errors are events too: the
//! sequence never ends by itself.
//!
//! Silence is not trusted. A connection that is dead is noticed by its pings ([`crate::client`]). A stream on a live
//! connection that sends neither event nor bookmark for [`Options::silence_max`] is broken off and resumed, once
//! it has shown that it sends bookmarks; otherwise the server ends it after [`Options::watch_time`] at most. If the
//! resumed one is silent too, that is a failure, and the kind counts as followed again only when something comes.
//!
//! Nor is the server trusted never to lose a change: between two watches the number of objects is asked for now and then
//! ([`Event::Audit`]), which costs one object; and more rarely the metadata of all of them ([`Event::Seen`]), whose versions
//! tell also which objects have changed.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::budget::{Budget, Share};
use crate::client::{BodyStream, Call, Client, WatchSlot};
use crate::discovery::ApiResource;
use crate::error::{Error, Status};
use crate::target::{PAGE_LEN, PageReader, Selection, described};

/// The longest pause inside an initial list.
const LIST_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A line of a watch holds one object.
const LINE_LEN_MAX: usize = 32 << 20;
/// A stream that lived so long was good: waits start over.
const GOOD_AGE: Duration = Duration::from_secs(10);
/// A version that is forgotten so often in a row, just after the list that gave it, is a failure.
const EXPIRIES_MAX: u32 = 5;
/// Lists without spec and status. They still tell every version.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// After an outage the streams of one server come back spread over this time.
const COMEBACK_SPREAD: Duration = Duration::from_secs(1);

/// How to follow one kind.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which objects.
    pub selection: Selection,
    /// Ask for the list as a stream first.
    pub streaming: bool,
    /// Objects in a page otherwise.
    pub page_len: u32,
    /// The longest wait for the head of an answer.
    pub answer_max: Duration,
    /// The longest silence of a stream that sends bookmarks (API servers send one a minute).
    pub silence_max: Duration,
    /// How many seconds the server is asked to keep a watch; by chance within the range, so that streams do not end
    /// together.
    pub watch_time: Range<u64>,
    /// The least time between two counts of the objects. They happen when a watch ends, so the longest time is this and
    /// that of a watch.
    pub audit_pause: Duration,
    /// The time between two looks at the versions of all objects, which take the place of a count; a tenth more or less by
    /// chance, so that kinds and clusters take turns. Servers compress these pages: a hundred bytes or two an object.
    pub versions_pause: Duration,
    /// Waits after failures: from the first to the last, doubling.
    pub wait_min: Duration,
    /// The longest of them.
    pub wait_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            selection: Selection::default(),
            streaming: true,
            page_len: PAGE_LEN,
            answer_max: Duration::from_secs(30),
            silence_max: Duration::from_secs(150),
            watch_time: 300..540,
            audit_pause: Duration::from_secs(60),
            versions_pause: Duration::from_secs(3600),
            wait_min: Duration::from_millis(500),
            wait_max: Duration::from_secs(60),
        }
    }
}

/// What happens to the kind. The bytes of an object are one JSON object; in paged lists of built-in kinds it lacks
/// `apiVersion` and `kind`.
#[derive(Clone, Debug)]
pub enum Event {
    /// A full list begins. Until [`Event::ListEnd`] it says nothing about what is missing. A list that begins again
    /// voids the one before.
    ListStart,
    /// An object of the list.
    Listed(Bytes),
    /// The list is complete: what was not in it did not exist at this version.
    ListEnd {
        /// The version that the list is true for.
        resource_version: String,
    },
    /// Changes are being followed (again).
    Live,
    /// An object appeared or changed.
    Applied(Bytes),
    /// An object went; these are its last bytes, with the version of its deletion.
    Deleted(Bytes),
    /// The server is this far and nothing has happened since the last event.
    Progress {
        /// Everything up to this version has been told.
        resource_version: String,
    },
    /// Metadata of an object that is there. The [`Event::Audit`] that follows says at which version; if none follows, the look
    /// was broken off.
    Seen(Bytes),
    /// How many objects there were at a version. Events follow from an earlier version on, so it can be compared with
    /// what is known as soon as an event of a later version comes, or [`Event::Progress`] up to it.
    Audit {
        /// The version that the count is true for.
        resource_version: String,
        /// Objects of the selection.
        count: u64,
    },
    /// The last step did not work. It is tried again after a wait; what was known stays the last known.
    Failed(Error),
}

/// The sequence. Drop it to stop.
pub struct ListWatch {
    client: Client,
    resource: ApiResource,
    options: Options,
    budget: Budget,
    state: State,
    /// The last version seen. `None` before the first list and after the server has forgotten it.
    version: Option<String>,
    streaming: bool,
    /// The last streamed list was refused: the next one comes in pages. While the server's cache of a kind cannot be
    /// filled, only pages tell the reason.
    pages_next: bool,
    /// The last watch fell silent, and nothing has come since.
    silent: bool,
    listed: Option<Instant>,
    audited: Instant,
    /// When all versions are looked at next.
    versions_due: Instant,
    failures: u32,
    queue: std::collections::VecDeque<Event>,
}

enum State {
    /// Decide: list or watch.
    Next,
    /// A page of a list is due.
    Page { token: Option<String>, permit: Share },
    /// A page is arriving.
    PageBody { reader: PageReader, permit: Share },
    /// Inside a streamed list.
    Initial { stream: Stream, permit: Share },
    /// Following changes.
    Watching(Stream),
    /// Count the objects before the next watch.
    Audit(Audit),
    /// Before the next try.
    Waiting { until: Instant, unreachable: bool },
}

/// A count of the objects that is under way.
#[derive(Default)]
struct Audit {
    /// Their versions are looked at, too.
    versions: bool,
    token: Option<String>,
    count: u64,
}

struct Stream {
    body: BodyStream,
    lines: Lines,
    _slot: WatchSlot,
    started: Instant,
    bookmarks: bool,
}

impl ListWatch {
    /// Follows `resource`. Lists wait for their bytes of `budget`, which all kinds and clusters share.
    pub fn new(client: Client, resource: ApiResource, options: Options, budget: Budget) -> Self {
        let streaming = options.streaming;
        // Not all kinds of all clusters at once after a start.
        let versions_due = Instant::now() + options.versions_pause.mul_f64(0.1 + fastrand::f64());
        ListWatch {
            client,
            resource,
            options,
            budget,
            state: State::Next,
            version: None,
            streaming,
            pages_next: false,
            silent: false,
            listed: None,
            audited: Instant::now(),
            versions_due,
            failures: 0,
            queue: std::collections::VecDeque::new(),
        }
    }

    /// The kind that is followed.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Forgets the version, so that the next step is a full list.
    pub fn relist(&mut self) {
        self.version = None;
        self.queue.clear();
        self.state = State::Next;
    }

    /// The next event. Not to be raced against something else and called again: a step that is dropped half-way loses
    /// what it had read. Give it a task of its own.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return event;
            }
            let step = match std::mem::replace(&mut self.state, State::Next) {
                State::Next if self.version.is_some() => self.watch().await,
                State::Next => self.list().await,
                State::Page { token, permit } => self.page(token, permit).await,
                State::PageBody { reader, permit } => self.page_body(reader, permit).await,
                State::Initial { stream, permit } => self.initial(stream, permit).await,
                State::Watching(stream) => self.follow(stream).await,
                State::Audit(audit) => {
                    self.audit(audit).await;
                    Ok(())
                }
                State::Waiting { until, unreachable } => {
                    tokio::time::sleep_until(until.into()).await;
                    if unreachable {
                        self.client.wait_until_reachable(COMEBACK_SPREAD).await;
                    }
                    Ok(())
                }
            };
            if let Err(error) = step {
                self.failed(error);
            }
        }
    }

    /// Begins a full list.
    async fn list(&mut self) -> Result<(), Error> {
        let permit = self.budget.list().await;
        if self.streaming && !std::mem::take(&mut self.pages_next) {
            match open(self.client.clone(), self.opening(None)).await {
                Ok(stream) => {
                    self.queue.push_back(Event::ListStart);
                    self.state = State::Initial { stream, permit };
                    return Ok(());
                }
                // The server does not know streamed lists (422), or an aggregated one does not (400).
                Err(error) if matches!(error.code(), Some(400 | 405 | 406 | 415 | 422)) => {
                    self.streaming = false
                }
                Err(error) => {
                    self.pages_next = error.status().is_some();
                    return Err(error);
                }
            }
        }
        self.queue.push_back(Event::ListStart);
        self.state = State::Page { token: None, permit };
        Ok(())
    }

    /// Asks for one page.
    async fn page(&mut self, token: Option<String>, permit: Share) -> Result<(), Error> {
        let mut call = Call::get(
            self.what("list"),
            self.resource.path(&self.options.selection.namespace, "", ""),
        );
        call.timeout = self.options.answer_max;
        self.options.selection.query(&mut call.query);
        call.query.push(("limit", self.options.page_len.to_string()));
        let first = token.is_none();
        if let Some(token) = token {
            call.query.push(("continue", token));
        }
        match self.client.stream(&call, None).await {
            Ok((_, body)) => {
                self.state = State::PageBody {
                    reader: PageReader::new(call.what, body),
                    permit,
                }
            }
            // The continue token has expired: this list starts over, alone.
            Err(error) if error.gone() && !first => {
                self.queue.push_back(Event::ListStart);
                self.state = State::Page { token: None, permit };
                return self.after_expiry(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads a piece of a page.
    async fn page_body(&mut self, mut reader: PageReader, permit: Share) -> Result<(), Error> {
        let queue = &mut self.queue;
        if !reader
            .read(LIST_PAUSE_MAX, |item| queue.push_back(Event::Listed(item)))
            .await?
        {
            self.state = State::PageBody { reader, permit };
            return Ok(());
        }
        let page = reader.finish()?;
        match page.next {
            Some(token) => {
                self.state = State::Page {
                    token: Some(token),
                    permit,
                }
            }
            None => {
                self.version = Some(page.resource_version.clone());
                self.listed = Some(Instant::now());
                self.queue.push_back(Event::ListEnd {
                    resource_version: page.resource_version,
                });
            }
        }
        Ok(())
    }

    /// Once or twice a list may start over at once; a list that always expires must not run in circles.
    fn after_expiry(&mut self, error: Error) -> Result<(), Error> {
        self.failures += 1;
        if self.failures > 2 { Err(error) } else { Ok(()) }
    }

    /// Reads a streamed list until its end is marked.
    async fn initial(&mut self, mut stream: Stream, permit: Share) -> Result<(), Error> {
        let Some(line) = stream.line(&self.what("list"), LIST_PAUSE_MAX).await? else {
            return Err(Error::Answer {
                call: self.what("list"),
                message: "the stream ended before the end of the list".to_owned(),
            });
        };
        let change = Change::read(&self.what("list"), &line, false)?;
        match change.kind {
            Kind::Bookmark if change.initial_end => {
                self.version = Some(change.version.clone());
                self.listed = Some(Instant::now());
                self.queue.push_back(Event::ListEnd {
                    resource_version: change.version,
                });
                self.queue.push_back(Event::Live);
                self.failures = 0;
                self.state = State::Watching(stream);
                // The permit ends here: following costs nothing.
                drop(permit);
                return Ok(());
            }
            Kind::Bookmark => stream.bookmarks = true,
            Kind::Applied => self.queue.push_back(Event::Listed(change.object)),
            Kind::Deleted => self.queue.push_back(Event::Deleted(change.object)),
            Kind::Error => {
                self.pages_next = true;
                return Err(self.refused(&change.object));
            }
        }
        self.state = State::Initial { stream, permit };
        Ok(())
    }

    /// Begins to follow changes.
    async fn watch(&mut self) -> Result<(), Error> {
        let stream = open(self.client.clone(), self.opening(self.version.clone())).await?;
        // That it is open says little where the one before was open too.
        if !self.silent {
            self.queue.push_back(Event::Live);
        }
        self.state = State::Watching(stream);
        Ok(())
    }

    /// Reads one change.
    async fn follow(&mut self, mut stream: Stream) -> Result<(), Error> {
        let what = self.what("watch");
        // Where bookmarks come, silence means that the stream is dead. Otherwise the server's own end is waited for.
        let silence = if stream.bookmarks || self.silent {
            self.options.silence_max
        } else {
            Duration::from_secs(self.options.watch_time.end + 30)
        };
        let line = match stream.line(&what, silence).await {
            Ok(Some(line)) => line,
            // The orderly end. A server that ends streams at once must not be asked in circles.
            Ok(None) => {
                let good = GOOD_AGE.min(Duration::from_secs(self.options.watch_time.start));
                if stream.started.elapsed() >= good {
                    self.failures = 0;
                    if self.audited.elapsed() >= self.options.audit_pause {
                        self.state = State::Audit(self.audit_due());
                    }
                } else {
                    self.failures += 1;
                    let wait = self.wait(self.options.wait_max.min(Duration::from_secs(10)));
                    self.state = State::Waiting {
                        until: Instant::now() + wait,
                        unreachable: false,
                    };
                }
                return Ok(());
            }
            Err(error) => {
                if stream.started.elapsed() >= GOOD_AGE {
                    self.failures = 0;
                }
                // Once it may be the stream; the next one shows whether it is the server.
                if matches!(error, Error::Timeout { .. }) && !std::mem::replace(&mut self.silent, true) {
                    return Ok(());
                }
                return Err(error);
            }
        };
        if std::mem::take(&mut self.silent) {
            self.queue.push_back(Event::Live);
        }
        let change = Change::read(&what, &line, true)?;
        match change.kind {
            Kind::Error => return Err(self.refused(&change.object)),
            Kind::Bookmark => {
                stream.bookmarks = true;
                self.queue.push_back(Event::Progress {
                    resource_version: change.version.clone(),
                });
            }
            Kind::Applied => self.queue.push_back(Event::Applied(change.object)),
            Kind::Deleted => self.queue.push_back(Event::Deleted(change.object)),
        }
        if !change.version.is_empty() {
            self.version = Some(change.version);
        }
        self.failures = 0;
        self.state = State::Watching(stream);
        Ok(())
    }

    /// What to ask for this time.
    fn audit_due(&mut self) -> Audit {
        let now = Instant::now();
        self.audited = now;
        let versions = now >= self.versions_due;
        if versions {
            self.versions_due = now + self.options.versions_pause.mul_f64(0.9 + fastrand::f64() / 5.0);
        }
        Audit {
            versions,
            ..Audit::default()
        }
    }

    /// Counts the objects, or reads a page of their metadata. A server that cannot say, or an error, is no finding: the watch
    /// goes on.
    async fn audit(&mut self, audit: Audit) {
        match self.counted(audit).await {
            Ok(Some(audit)) => self.state = State::Audit(audit),
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(server = self.client.server(), kind = self.resource.kind, error = %error, "objects cannot be counted");
            }
        }
    }

    /// The rest of the count, if there is one.
    async fn counted(&mut self, mut audit: Audit) -> Result<Option<Audit>, Error> {
        let mut call = Call::get(
            self.what("count"),
            self.resource.path(&self.options.selection.namespace, "", ""),
        );
        call.timeout = self.options.answer_max;
        self.options.selection.query(&mut call.query);
        let mut len = 1;
        if audit.versions {
            call.accept = Some(METADATA);
            len = self.options.page_len;
        }
        call.query.push(("limit", len.to_string()));
        if let Some(token) = audit.token.take() {
            call.query.push(("continue", token));
        }
        let (_, body) = self.client.stream(&call, None).await?;
        let mut reader = PageReader::new(call.what, body);
        let mut take = |item| {
            audit.count += 1;
            if audit.versions {
                self.queue.push_back(Event::Seen(item));
            }
        };
        while !reader.read(LIST_PAUSE_MAX, &mut take).await? {}
        let page = reader.finish()?;
        let rest = match page.next {
            Some(token) if audit.versions => {
                audit.token = Some(token);
                return Ok(Some(audit));
            }
            // With a selector the server does not count the rest.
            Some(_) => page.remaining,
            None => Some(0),
        };
        if let Some(rest) = rest {
            self.queue.push_back(Event::Audit {
                resource_version: page.resource_version,
                count: audit.count + rest,
            });
        }
        Ok(None)
    }

    /// The call of a watch: from a version, or of a list in the form of a stream.
    fn opening(&self, version: Option<String>) -> Call {
        let verb = if version.is_some() { "watch" } else { "list" };
        let path = self.resource.path(&self.options.selection.namespace, "", "");
        let mut call = Call::get(self.what(verb), path).uncompressed();
        call.timeout = self.options.answer_max;
        self.options.selection.query(&mut call.query);
        call.query.push(("watch", "true".to_owned()));
        call.query.push(("allowWatchBookmarks", "true".to_owned()));
        call.query.push((
            "timeoutSeconds",
            fastrand::u64(self.options.watch_time.clone()).to_string(),
        ));
        match version {
            Some(version) => call.query.push(("resourceVersion", version)),
            None => {
                call.query.push(("sendInitialEvents", "true".to_owned()));
                call.query
                    .push(("resourceVersionMatch", "NotOlderThan".to_owned()));
            }
        }
        call
    }

    /// An `ERROR` line of a watch.
    fn refused(&self, object: &[u8]) -> Error {
        let code = serde_json::from_slice::<Code>(object).map_or(500, |code| code.code);
        Error::Api {
            call: self.what("watch"),
            status: Box::new(Status::read(code, None, object)),
        }
    }

    /// What a failure means for the next step.
    fn failed(&mut self, error: Error) {
        let fresh = self.listed.is_some_and(|at| at.elapsed() < GOOD_AGE);
        let expired = error.gone() && self.version.take().is_some();
        if expired && !fresh {
            // The server has forgotten the version. Nothing is wrong; the list is due.
            tracing::debug!(
                server = self.client.server(),
                kind = self.resource.kind,
                "the watch has expired, listing anew"
            );
            self.state = State::Next;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if expired && self.failures <= EXPIRIES_MAX {
            // Still nothing is wrong, but a server that forgets so fast must not be asked in circles.
            let until = Instant::now() + self.wait(self.options.wait_max);
            self.state = State::Waiting {
                until,
                unreachable: false,
            };
            return;
        }
        let unreachable = self.client.down_since().is_some();
        let wait = if unreachable {
            self.options.wait_min
        } else {
            self.wait(self.options.wait_max)
        };
        let wait = error
            .status()
            .and_then(|status| status.retry_after)
            .map_or(wait, |least| wait.max(least));
        self.state = State::Waiting {
            until: Instant::now() + wait,
            unreachable,
        };
        // A watch that breaks once is everyday life; the list before it is not.
        self.queue.push_back(Event::Failed(error));
    }

    /// The wait after the failures so far: doubling, with a quarter of it by chance.
    fn wait(&self, max: Duration) -> Duration {
        let doubled = self
            .options
            .wait_min
            .saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        doubled.min(max).mul_f64(0.75 + fastrand::f64() / 4.0)
    }

    fn what(&self, verb: &str) -> String {
        described(verb, &self.resource, &self.options.selection.namespace, "")
    }
}

async fn open(client: Client, call: Call) -> Result<Stream, Error> {
    let slot = client.watch_slot()?;
    let (_, body) = client.stream(&call, Some(&slot)).await?;
    Ok(Stream {
        body,
        lines: Lines::default(),
        _slot: slot,
        started: Instant::now(),
        bookmarks: false,
    })
}

impl Stream {
    /// The next line; `None` at the orderly end.
    async fn line(&mut self, what: &str, silence_max: Duration) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(Some(line));
            }
            let piece = tokio::time::timeout(silence_max, self.body.next())
                .await
                .map_err(|_| Error::Timeout {
                    call: what.to_owned(),
                    after: silence_max,
                })?;
            match piece {
                Some(piece) => self.lines.push(&piece?).map_err(|message| Error::Answer {
                    call: what.to_owned(),
                    message: message.to_owned(),
                })?,
                // Bytes after the last line break belong to an event that never came whole.
                None => return Ok(None),
            }
        }
    }
}

/// Cuts a body into lines.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
    /// No line break before this.
    searched: usize,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        if self.buffer.len() + piece.len() > LINE_LEN_MAX && !piece.contains(&b'\n') {
            return Err("one event is larger than 32 MiB");
        }
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let found = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n');
            let Some(found) = found else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + found + 1);
            self.searched = 0;
            let line = line.freeze();
            let line = line.slice(..line.len() - 1);
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(line);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Applied,
    Deleted,
    Bookmark,
    Error,
}

/// One line of a watch.
struct Change {
    kind: Kind,
    object: Bytes,
    /// metadata.resourceVersion; empty for errors and if it was not looked for.
    version: String,
    /// The bookmark that ends a streamed list.
    initial_end: bool,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Code {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(borrow)]
    metadata: PeekMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PeekMeta<'a> {
    #[serde(borrow, default)]
    resource_version: &'a str,
    #[serde(default)]
    annotations: Option<PeekAnnotations>,
}

#[derive(Deserialize)]
struct PeekAnnotations {
    #[serde(rename = "k8s.io/initial-events-end", default)]
    initial_end: Option<String>,
}

impl Change {
    /// Reads a line. Versions of single objects are looked for only if `versions` (it costs another pass over the object).
    fn read(what: &str, line: &Bytes, versions: bool) -> Result<Change, Error> {
        let fail = |error: serde_json::Error| Error::Answer {
            call: what.to_owned(),
            message: error.to_string(),
        };
        let parsed: Line<'_> = serde_json::from_slice(line).map_err(fail)?;
        let kind = match parsed.kind {
            "ADDED" | "MODIFIED" => Kind::Applied,
            "DELETED" => Kind::Deleted,
            "BOOKMARK" => Kind::Bookmark,
            "ERROR" => Kind::Error,
            other => {
                return Err(Error::Answer {
                    call: what.to_owned(),
                    message: format!("unknown event type {other:?}"),
                });
            }
        };
        let object = line.slice_ref(parsed.object.get().as_bytes());
        if kind == Kind::Error || (!versions && kind != Kind::Bookmark) {
            return Ok(Change {
                kind,
                object,
                version: String::new(),
                initial_end: false,
            });
        }
        let peek: Peek<'_> = serde_json::from_slice(&object).map_err(fail)?;
        Ok(Change {
            kind,
            version: peek.metadata.resource_version.to_owned(),
            initial_end: kind == Kind::Bookmark
                && peek
                    .metadata
                    .annotations
                    .is_some_and(|known| known.initial_end.as_deref() == Some("true")),
            object,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(line: &'static str) -> Change {
        Change::read("watch", &Bytes::from_static(line.as_bytes()), true).unwrap()
    }

    #[test]
    fn a_line_gives_the_objects_own_bytes() {
        let change =
            read(r#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"12","name":"a"},"x":1.0}}"#);
        assert_eq!(change.kind, Kind::Applied);
        assert_eq!(change.version, "12");
        assert_eq!(
            &change.object[..],
            br#"{"metadata":{"resourceVersion":"12","name":"a"},"x":1.0}"#
        );
    }

    #[test]
    fn only_the_marked_bookmark_ends_a_streamed_list() {
        assert!(!read(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3"}}}"#).initial_end);
        assert!(
            read(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}"#)
                .initial_end
        );
        // An object that carries the annotation is just an object.
        assert!(
            !read(r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}"#)
                .initial_end
        );
    }

    #[test]
    fn lines_come_out_whole_however_the_bytes_arrive() {
        let text = b"{\"a\":1}\n\n  \n{\"b\":2}\n{\"c\"";
        for piece in 1..text.len() {
            let mut lines = Lines::default();
            let mut out = Vec::new();
            for part in text.chunks(piece) {
                lines.push(part).unwrap();
                while let Some(line) = lines.next() {
                    out.push(line);
                }
            }
            assert_eq!(out, [&b"{\"a\":1}"[..], b"{\"b\":2}"]);
        }
    }
}
