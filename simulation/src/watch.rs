//! A watch: where it stands in the history of a kind, and what it says next.
//!
//! A watch holds no queue of events. It has a place in the kind's history and reads on from there, so a slow reader costs
//! nothing; one that falls behind what is remembered is told 410.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{BufMut as _, Bytes, BytesMut};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, Scope};
use crate::fault::Fault;
use crate::refusal::Refusal;
use crate::registry::GroupResource;
use crate::request::Form;
use crate::selector::Selector;
use crate::store::{Change, ChangeKind, Entry};
use crate::{convert, read, table};

/// Events handed out at once.
const BATCH: usize = 128;
/// So long before its end a watch says how far it is, as a kube-apiserver does it.
const LAST_BOOKMARK: SignedDuration = SignedDuration::from_secs(2);

/// The state of one watch.
pub struct Watch {
    resource: GroupResource,
    version: String,
    prefix: String,
    selector: Selector,
    form: Form,
    /// The server's version when it began.
    begun: u64,
    /// Everything up to this version was told.
    seen: u64,
    /// What existed when the watch began and is yet to be told.
    initial: VecDeque<Entry>,
    /// The initial objects are to be ended with a marked bookmark.
    mark_end: bool,
    bookmarks: bool,
    next_bookmark: Timestamp,
    ends: Timestamp,
    over: bool,
    first_table: bool,
    told: u64,
    /// Changes so far, told or not.
    changes: u64,
    fault: Option<Fault>,
}

impl Watch {
    pub(crate) fn begin(
        server: &mut ApiServer,
        scope: &Scope<'_>,
        form: Form,
        selector: Selector,
        asked: Option<u64>,
    ) -> Self {
        let query = scope.query;
        let streamed_list = query.get("sendInitialEvents") == Some("true");
        // Without a version the watch begins with what there is.
        let from_now = query.get("sendInitialEvents") == Some("false") && asked.is_none();
        let with_initial = streamed_list || (asked.is_none_or(|asked| asked == 0) && !from_now);
        let prefix = match scope.place.namespace.as_str() {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        let current = server.store.version();
        let mut initial = VecDeque::new();
        if with_initial && let Some(table) = server.store.table(&scope.resource()) {
            let entries = table.objects.iter().filter(|(key, _)| key.starts_with(&prefix));
            initial.extend(entries.map(|(_, entry)| entry.clone()));
        }
        let seconds = query.number("timeoutSeconds").filter(|seconds| *seconds > 0);
        // A kube-apiserver ends watches after 30 to 60 minutes by itself.
        let seconds = seconds.unwrap_or_else(|| 1800 + server.random.u64(..1800));
        let ends = scope.now + seconds_of(seconds);
        Self {
            resource: scope.resource(),
            version: scope.place.version.clone(),
            prefix,
            selector,
            form,
            begun: current,
            seen: if with_initial {
                current
            } else {
                asked.unwrap_or(current)
            },
            initial,
            mark_end: streamed_list && query.flag("allowWatchBookmarks"),
            bookmarks: query.flag("allowWatchBookmarks"),
            next_bookmark: next_bookmark(server, scope.now, ends),
            ends,
            over: false,
            first_table: true,
            told: 0,
            changes: 0,
            fault: None,
        }
    }

    /// Has something befall the watch.
    pub(crate) fn befall(&mut self, fault: Option<Fault>) {
        self.fault = fault;
    }

    /// One more change: whether it is left out.
    fn loses_one(&mut self) -> bool {
        self.changes += 1;
        match self.fault {
            Some(Fault::LoseChanges { after, count }) if self.form != Form::Metadata => {
                (after + 1..=after + count).contains(&self.changes)
            }
            _ => false,
        }
    }

    /// Events told so far.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Whether the watch has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// When the watch has something to say even if nothing changes: a bookmark, or its end.
    #[must_use]
    pub fn next_due(&self) -> Timestamp {
        if self.bookmarks {
            self.next_bookmark.min(self.ends)
        } else {
            self.ends
        }
    }
}

/// Bookmarks come in turn, and one soon before the end.
fn next_bookmark(server: &ApiServer, now: Timestamp, ends: Timestamp) -> Timestamp {
    let next = now + seconds_of(u64::from(server.options.bookmark_seconds));
    let last = ends - LAST_BOOKMARK;
    if last > now { next.min(last) } else { next }
}

fn seconds_of(seconds: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX / 2).min(1 << 31))
}

impl ApiServer {
    /// The next lines of a watch, each one event; none if nothing is to be said now. `Watch::is_over` then tells whether it has ended.
    pub fn next_events(&mut self, watch: &mut Watch, now: Timestamp) -> Vec<Bytes> {
        if watch.fault == Some(Fault::StallWatch) {
            return self.stalled_events(watch, now);
        }
        let told = watch.told;
        let lines = self.true_events(watch, now);
        match watch.fault {
            Some(Fault::SilenceWatch { events }) => {
                let mut lines = lines;
                lines.truncate(usize::try_from(events.saturating_sub(told)).unwrap_or(usize::MAX));
                lines
            }
            Some(Fault::CutWatch { events, torn }) if watch.told >= events => {
                let mut lines = lines;
                lines.truncate(usize::try_from(events.saturating_sub(told)).unwrap_or(usize::MAX));
                if torn && let Some(last) = lines.last_mut() {
                    *last = last.slice(..last.len() / 2);
                }
                watch.over = true;
                lines
            }
            Some(Fault::FailWatch { events, code }) if watch.told >= events => {
                let mut lines = lines;
                lines.truncate(usize::try_from(events.saturating_sub(told)).unwrap_or(usize::MAX));
                lines.push(event("ERROR", &Refusal::fault(code, None).body()));
                watch.over = true;
                lines
            }
            _ => lines,
        }
    }

    /// Where the watch began, again and again.
    fn stalled_events(&mut self, watch: &mut Watch, now: Timestamp) -> Vec<Bytes> {
        watch.over |= now >= watch.ends;
        if watch.over || !watch.bookmarks || now < watch.next_bookmark {
            return Vec::new();
        }
        watch.next_bookmark = next_bookmark(self, now, watch.ends);
        let kind = self.registry.get(&watch.resource);
        let bookmark = kind.map(|kind| Teller { kind, now }.bookmark(watch, watch.seen, false));
        bookmark.into_iter().collect()
    }

    fn true_events(&mut self, watch: &mut Watch, now: Timestamp) -> Vec<Bytes> {
        let mut lines = Vec::new();
        if watch.over {
            return lines;
        }
        if now >= watch.ends {
            watch.over = true;
            return lines;
        }
        let Some(kind) = self
            .registry
            .get(&watch.resource)
            .cloned()
            .filter(|kind| kind.version(&watch.version).is_some())
        else {
            // The kind is not served any more.
            watch.over = true;
            return lines;
        };
        let teller = Teller { kind: &kind, now };
        while lines.len() < BATCH {
            let Some(entry) = watch.initial.pop_front() else {
                break;
            };
            if watch.selector.is_everything() || watch.selector.matches(&entry.content.value()) {
                lines.push(teller.line(watch, "ADDED", &entry));
            }
        }
        if !watch.initial.is_empty() {
            watch.told += lines.len() as u64;
            return lines;
        }
        if std::mem::take(&mut watch.mark_end) {
            lines.push(teller.bookmark(watch, watch.seen, true));
        }
        match self
            .store
            .table(&watch.resource)
            .map(|table| (table.changes_after(watch.seen), table.oldest()))
        {
            None => {}
            Some((Some(changes), _)) => {
                for change in changes.take(BATCH) {
                    watch.seen = change.version;
                    let unheard = change.unheard && change.version > watch.begun;
                    if change.key.starts_with(&watch.prefix) && !watch.loses_one() && !unheard {
                        lines.extend(teller.change(watch, change));
                    }
                }
            }
            Some((None, oldest)) => {
                let refusal =
                    Refusal::expired(format!("too old resource version: {} ({oldest})", watch.seen));
                lines.push(event("ERROR", &refusal.body()));
                watch.over = true;
            }
        }
        if watch.bookmarks && now >= watch.next_bookmark && !watch.over {
            // Nothing of this kind is newer than the server's last change.
            let up_to_date = self
                .store
                .table(&watch.resource)
                .and_then(|table| table.changes_after(watch.seen)?.next())
                .is_none();
            if up_to_date {
                watch.seen = watch.seen.max(self.store.version());
            }
            lines.push(teller.bookmark(watch, watch.seen, false));
            watch.next_bookmark = next_bookmark(self, now, watch.ends);
        }
        watch.told += lines.len() as u64;
        lines
    }

    /// Has a waker called when the watch may have something to say because of a change.
    pub fn wake_on_change(&mut self, watch: &Watch, waker: &Waker) {
        self.store.wait(&watch.resource, waker);
    }
}

struct Teller<'a> {
    kind: &'a crate::registry::ResourceType,
    now: Timestamp,
}

impl Teller<'_> {
    /// What a change is for a watch with a selector: an object may come into sight or go out of it.
    fn change(&self, watch: &mut Watch, change: &Change) -> Option<Bytes> {
        let entry = Entry {
            version: change.version,
            content: change.content.clone(),
        };
        if watch.selector.is_everything() {
            let word = match change.kind {
                ChangeKind::Added => "ADDED",
                ChangeKind::Modified => "MODIFIED",
                ChangeKind::Deleted => "DELETED",
            };
            return Some(self.line(watch, word, &entry));
        }
        let selected = |entry: &Entry| watch.selector.matches(&entry.content.value());
        let before = change.before.as_ref().is_some_and(selected);
        let after = change.kind != ChangeKind::Deleted && selected(&entry);
        match (before, after) {
            (false, true) => Some(self.line(watch, "ADDED", &entry)),
            (true, true) => Some(self.line(watch, "MODIFIED", &entry)),
            (true, false) => {
                // It goes as it was last seen, with the version of the change.
                let mut last = change.before.as_ref()?.content.value();
                last["metadata"]["resourceVersion"] = change.version.to_string().into();
                let last = Entry {
                    version: change.version,
                    content: crate::store::Content::of(&last),
                };
                Some(self.line(watch, "DELETED", &last))
            }
            (false, false) => None,
        }
    }

    fn line(&self, watch: &mut Watch, word: &str, entry: &Entry) -> Bytes {
        let object = match watch.form {
            Form::Plain => read::object_json(self.kind, &watch.version, entry),
            Form::Metadata => read::partial(&entry.content.value(), "PartialObjectMetadata")
                .to_string()
                .into(),
            Form::Table => {
                let objects = [convert::between(self.kind, &watch.version, entry.content.value())];
                let mut table = table::of(self.kind, &watch.version, &objects, self.now, "");
                if !std::mem::take(&mut watch.first_table) {
                    table["columnDefinitions"] = Value::Null;
                }
                table["metadata"]["resourceVersion"] = entry.version.to_string().into();
                table.to_string().into()
            }
        };
        event(word, &object)
    }

    fn bookmark(&self, watch: &Watch, version: u64, ends_initial: bool) -> Bytes {
        let mut object = json!({
            "kind": self.kind.kind, "apiVersion": self.kind.api_version(&watch.version),
            "metadata": {"resourceVersion": version.to_string()},
        });
        if ends_initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if watch.form == Form::Metadata {
            object = read::partial(&object, "PartialObjectMetadata");
        }
        event("BOOKMARK", object.to_string().as_bytes())
    }
}

fn event(word: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put(&b"{\"type\":\""[..]);
    line.put(word.as_bytes());
    line.put(&b"\",\"object\":"[..]);
    line.put(object);
    line.put(&b"}\n"[..]);
    line.freeze()
}
