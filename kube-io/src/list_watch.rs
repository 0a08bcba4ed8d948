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
//! the server has shown that it sends bookmarks; otherwise the server ends it after [`Options::watch_time`] at most. If the
//! resumed one is silent too, that is a failure, and the kind counts as followed again only when something comes.
//!
//! Nor is the server trusted never to lose a change, nor its cache to keep up: [`audit`] says which looks there are. What they
//! find is handed on ([`Event::Seen`], [`Event::Audit`], for [`Looks`] to keep); whoever keeps the objects compares, and asks for a list
//! ([`ListWatch::relist`]) where something was missed.

mod audit;
mod lines;
mod looks;

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::budget::{Budget, Share, answered};
use crate::client::{Call, Client};
use crate::discovery::ApiResource;
use crate::error::Error;
use crate::target::{PAGE_LEN, PageReader, Selection, described};
use audit::{Again, Audit, Ladder, Look, Step};
use lines::{Change, Kind, Stream, open, refused};
pub use looks::{Looked, Looks};

/// The longest pause inside an initial list.
const LIST_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A stream that lived so long was good: waits start over.
const GOOD_AGE: Duration = Duration::from_secs(10);
/// A version that is forgotten so often in a row, just after the list that gave it, is a failure.
const EXPIRIES_MAX: u32 = 5;
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
    /// together. At its end, orderly or not, the objects are counted, so with [`Options::stale_max`] this bounds how late it is known that a
    /// change was missed.
    pub watch_time: Range<u64>,
    /// The least time between two counts of the objects; [`Duration::MAX`] for no looks of any kind.
    pub audit_pause: Duration,
    /// How long a watch may take to get to the version of a count. API servers say once a minute how far they are. It doubles
    /// each time that a watch was late and had missed nothing, up to a sixth of [`Options::versions_pause`].
    pub stale_max: Duration,
    /// The time between two looks at the metadata of all objects, which take the place of a count; a tenth more or less by
    /// chance, so that kinds and clusters take turns. Servers compress these pages: some hundred bytes an object, most of it who manages which fields.
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
            watch_time: 180..300,
            audit_pause: Duration::from_secs(60),
            stale_max: Duration::from_secs(120),
            versions_pause: Duration::from_secs(6 * 3600),
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
    /// An object that was there, or went, at the version that these bytes tell; of its fields there may be only the metadata.
    /// The next [`Event::Audit`] says when that can be compared with what is known.
    Seen {
        /// The object.
        object: Bytes,
        /// How it was seen.
        how: Sighting,
    },
    /// What a look at the server has told.
    Audit {
        /// The version that it is true for.
        resource_version: String,
        /// Objects of the selection, if they were counted.
        count: Option<u64>,
        /// It can be compared with what is known now: everything up to this version has been told, or will not be. Otherwise
        /// that is so before an event of a later version, or when [`Event::Progress`] gets to it.
        due: bool,
    },
    /// The last step did not work. It is tried again after a wait; what was known stays the last known.
    Failed(Error),
}

/// How an object was seen beside the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It is there at the version of that look.
    Listed,
    /// Another watch told of it; it may be gone by the time of that look.
    Told,
    /// It went at its version.
    Gone,
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
    /// The server ended the last watch with an error, and nothing has come since: that the next one is open says nothing.
    refused: bool,
    /// The server sends bookmarks.
    bookmarks: bool,
    listed: Option<Instant>,
    ladder: Ladder,
    /// A watch has ended that lived long enough: what is known may be looked at before the next one.
    ended: bool,
    /// Changes that are being told once more.
    again: Option<Again>,
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
    /// Look at the objects before the next watch.
    Audit(Audit),
    /// Before the next try.
    Waiting { until: Instant, unreachable: bool },
}

impl ListWatch {
    /// Follows `resource`. Lists wait for their bytes of `budget`, which all kinds and clusters share.
    pub fn new(client: Client, resource: ApiResource, options: Options, budget: Budget) -> Self {
        let streaming = options.streaming;
        let ladder = Ladder::new(&options, Instant::now());
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
            refused: false,
            bookmarks: false,
            listed: None,
            ladder,
            ended: false,
            again: None,
            failures: 0,
            queue: std::collections::VecDeque::new(),
        }
    }

    /// The kind that is followed.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Forgets the version, so that the next step is a full list: in pages, as what the server streams comes out of the same
    /// cache as the watch.
    pub fn relist(&mut self) {
        self.version = None;
        self.pages_next = true;
        self.ladder.was_right();
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
                    tokio::time::sleep_until(until).await;
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
        self.ladder.broke_off();
        self.ended = false;
        self.again = None;
        if self.streaming && !std::mem::take(&mut self.pages_next) {
            let permit = self.budget.list().await;
            let opening = open(self.client.clone(), self.opening(None));
            match answered(&self.budget, permit, opening).await {
                Ok((stream, permit)) => {
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
        let permit = self.budget.list().await;
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
        match answered(&self.budget, permit, self.client.stream(&call, None)).await {
            Ok(((_, body), permit)) => {
                self.state = State::PageBody {
                    reader: PageReader::new(call.what, body),
                    permit,
                }
            }
            // The continue token has expired: this list starts over, alone.
            Err(error) if error.gone() && !first => {
                // In pages again.
                self.pages_next = true;
                return self.after_expiry(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads a piece of a page.
    async fn page_body(&mut self, mut reader: PageReader, permit: Share) -> Result<(), Error> {
        let queue = &mut self.queue;
        let read = reader.read(LIST_PAUSE_MAX, |item| queue.push_back(Event::Listed(item)));
        let (ended, permit) = answered(&self.budget, permit, read).await?;
        if !ended {
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
                self.ladder.listed(&page.resource_version, Instant::now());
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
        let what = self.what("list");
        let line = stream.line(&what, LIST_PAUSE_MAX);
        let (line, permit) = answered(&self.budget, permit, line).await?;
        let Some(line) = line else {
            // Perhaps it takes longer than a watch may last. Pages have no such end.
            self.pages_next = true;
            return Err(Error::Answer {
                call: what,
                message: "the stream ended before the end of the list".to_owned(),
            });
        };
        let change = Change::read(&what, &line, false)?;
        match change.kind {
            Kind::Bookmark if change.initial_end => {
                self.version = Some(change.version.clone());
                self.ladder.listed(&change.version, Instant::now());
                self.listed = Some(Instant::now());
                self.queue.push_back(Event::ListEnd {
                    resource_version: change.version,
                });
                self.queue.push_back(Event::Live);
                self.failures = 0;
                self.refused = false;
                self.state = State::Watching(stream);
                // The permit ends here: following costs nothing.
                drop(permit);
                return Ok(());
            }
            Kind::Bookmark => self.bookmarks = true,
            Kind::Applied => self.queue.push_back(Event::Listed(change.object)),
            Kind::Deleted => self.queue.push_back(Event::Deleted(change.object)),
            Kind::Error => {
                self.pages_next = true;
                let error = refused(what, &change.object);
                return if error.gone() {
                    self.after_expiry(error)
                } else {
                    Err(error)
                };
            }
        }
        self.state = State::Initial { stream, permit };
        Ok(())
    }

    /// Begins to follow changes, or looks at the objects first.
    async fn watch(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.ended)
            && let Some(look) = self.ladder.between_watches(Instant::now())
        {
            self.audit_begins(look, false);
            return Ok(());
        }
        let stream = open(self.client.clone(), self.opening(self.version.clone())).await?;
        // That it is open says little where the one before was open too.
        if !self.silent && !self.refused {
            self.queue.push_back(Event::Live);
        }
        self.ladder.resumed(Instant::now());
        self.state = State::Watching(stream);
        Ok(())
    }

    /// Reads one change.
    async fn follow(&mut self, mut stream: Stream) -> Result<(), Error> {
        let what = self.what("watch");
        // Where bookmarks come, silence means that the stream is dead. Otherwise the server's own end is waited for.
        let silence = if self.bookmarks || self.silent {
            self.options.silence_max
        } else {
            Duration::from_secs(self.options.watch_time.end + 30)
        };
        let line = tokio::select! {
            // A watch that has something to say is not stale.
            biased;
            line = stream.line(&what, silence) => line,
            change = next_again(&mut self.again) => {
                self.state = State::Watching(stream);
                self.told_again(change);
                return Ok(());
            }
            () = at(self.ladder.stale_at()) => {
                // It may have missed everything, or its server has nothing to say. The objects tell which.
                self.audit_begins(Look::Versions, true);
                return Ok(());
            }
        };
        let good = GOOD_AGE.min(Duration::from_secs(self.options.watch_time.start));
        let lived = stream.started.elapsed() >= good;
        let line = match line {
            Ok(Some(line)) => line,
            // The orderly end. A server that ends streams at once must not be asked in circles.
            Ok(None) => {
                self.ended = lived;
                if lived {
                    self.failures = 0;
                    self.refused = false;
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
                // Where something between cuts every stream there is no orderly end.
                self.ended = lived;
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
        let change = Change::read(&what, &line, true)?;
        if change.kind == Kind::Error {
            self.ended = lived;
            let error = refused(what, &change.object);
            // A version that is gone says nothing of the watch that follows the list.
            self.refused = !error.gone();
            return Err(error);
        }
        if std::mem::take(&mut self.silent) | std::mem::take(&mut self.refused) {
            self.queue.push_back(Event::Live);
        }
        match change.kind {
            Kind::Error => {}
            Kind::Bookmark => {
                self.bookmarks = true;
                self.queue.push_back(Event::Progress {
                    resource_version: change.version.clone(),
                });
            }
            Kind::Applied => self.queue.push_back(Event::Applied(change.object)),
            Kind::Deleted => self.queue.push_back(Event::Deleted(change.object)),
        }
        if !change.version.is_empty() {
            self.ladder.told(&change.version, change.kind != Kind::Bookmark);
            self.version = Some(change.version);
        }
        self.tell_again_if_due();
        self.failures = 0;
        self.state = State::Watching(stream);
        Ok(())
    }

    fn audit_begins(&mut self, look: Look, stale: bool) {
        self.ladder.begins(look, stale, Instant::now());
        self.state = State::Audit(Audit::of(look, stale));
    }

    /// Counts the objects, or reads a page of their metadata. A server that cannot say, or an error, is no finding: the watch
    /// goes on.
    async fn audit(&mut self, audit: Audit) {
        let stale = audit.stale;
        let queue = &mut self.queue;
        let seen = |object| {
            let how = Sighting::Listed;
            queue.push_back(Event::Seen { object, how });
        };
        match audit::look(&self.client, &self.resource, &self.options, audit, seen).await {
            Ok(Step::More(audit)) => self.state = State::Audit(audit),
            Ok(Step::Counted { at, count }) => {
                if !stale {
                    let told = self.version.clone().unwrap_or_default();
                    let from = self.ladder.looked(&at, &told, Instant::now());
                    self.tell_again(from, at.clone());
                }
                self.queue.push_back(Event::Audit {
                    due: stale || self.is_told(&at),
                    resource_version: at,
                    count,
                });
            }
            Err(error) => {
                tracing::debug!(server = self.client.server(), kind = self.resource.kind, error = %error, "objects cannot be counted");
            }
        }
    }

    /// Whether everything up to this version has been told.
    fn is_told(&self, version: &str) -> bool {
        let told = self.version.as_deref().unwrap_or_default();
        told == version
            || number(told)
                .zip(number(version))
                .is_some_and(|(told, version)| told >= version)
    }

    /// Where much happens, what was told is told again before the server forgets it.
    fn tell_again_if_due(&mut self) {
        if self.again.is_none()
            && let Some(from) = self.ladder.again_due(Instant::now())
        {
            let until = self.version.clone().unwrap_or_default();
            self.tell_again(Some(from), until);
        }
    }

    fn tell_again(&mut self, from: Option<String>, until: String) {
        if let Some(from) = from
            && self.again.is_none()
        {
            self.again = Some(audit::again(
                &self.client,
                &self.resource,
                &self.options,
                from,
                until,
            ));
        }
    }

    /// Takes over what the second watch tells, or its end.
    fn told_again(&mut self, change: Option<Result<Change, Error>>) {
        let Some(mut again) = self.again.take() else {
            return;
        };
        let now = Instant::now();
        let error = match change {
            Some(Ok(change)) if change.kind != Kind::Error => {
                again.told = change.version;
                if change.kind != Kind::Bookmark {
                    let (object, how) = match change.kind {
                        Kind::Deleted => (change.object, Sighting::Gone),
                        _ => (change.object, Sighting::Told),
                    };
                    self.queue.push_back(Event::Seen { object, how });
                }
                if !again.is_done() {
                    self.again = Some(again);
                    return;
                }
                None
            }
            Some(Ok(change)) => Some(refused(self.what("watch"), &change.object)),
            Some(Err(error)) => Some(error),
            None => None,
        };
        match error {
            Some(error) if error.gone() => {
                self.ladder.forgotten(&again.until, now);
            }
            error => {
                if let Some(error) = error {
                    tracing::debug!(server = self.client.server(), kind = self.resource.kind, error = %error, "changes are not told again to their end");
                }
                // What has been told counts; the rest comes the next time.
                self.ladder.told_again(&again.told, now);
                self.queue.push_back(Event::Audit {
                    due: self.is_told(&again.told),
                    resource_version: again.told,
                    count: None,
                });
            }
        }
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
        if unreachable {
            // Time that the server was not there does not count against the watch, and whoever has come back is not asked for
            // more than the watches at once.
            self.ladder.broke_off();
            self.ended = false;
        }
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

/// The next change that is told again; never, if none are.
async fn next_again(again: &mut Option<Again>) -> Option<Result<Change, Error>> {
    match again {
        Some(again) => again.changes.next().await,
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}
