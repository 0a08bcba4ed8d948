//! Looks that do not trust a watch, as a ladder: what is cheap often, what is dear seldom or with a reason.
//!
//! | look | finds | when |
//! |---|---|---|
//! | the number of objects, and the version of that | what came and went unheard, and a watch that does not get to that version | whenever a watch has ended or broken |
//! | changes told once more, by a second watch that tells metadata | what this watch was not told | with each count, and once a minute while much happens |
//! | the metadata of all objects | what no watch is told | rarely, where a watch does not get on, and where changes are forgotten too soon to be told again |
//!
//! [`Ladder`] says which is due and asks nobody; the rest of this file asks.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use tokio::time::Instant;

use super::lines::{Change, open};
use super::{Options, number};
use crate::client::{Call, Client};
use crate::discovery::ApiResource;
use crate::error::Error;
use crate::target::{PageReader, Selection, described};

/// Objects without spec and status. They still tell every version. Whoever does not know the form sends whole ones.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The longest pause inside a page.
const PAGE_PAUSE: Duration = Duration::from_secs(60);
/// How long a watch for changes once more is asked to last. API servers say two seconds before the end how far they are.
const AGAIN_SECONDS: u64 = 5;
/// API servers remember a hundred changes of a kind at least, and all of the last 75 seconds.
const AGAIN_CHANGES: u32 = 50;
const AGAIN_PAUSE: Duration = Duration::from_secs(60);
/// Where changes are forgotten before they can be told again, all objects are looked at, but only so many times as often as
/// they are anyhow.
const FORGOTTEN_TIMES: u32 = 6;
/// The same where a watch does not get on and nothing was missed all the same.
const STALE_TIMES: u32 = 6;
/// A watch that has been resumed has this part of the time at least to get on.
const RESUMED_PART: u32 = 4;

/// Which look is due.
pub(super) struct Ladder {
    audit_pause: Duration,
    versions_pause: Duration,
    stale_max: Duration,
    /// How long a watch may take now: longer where it was slow and had missed nothing.
    patience: Duration,
    counted: Instant,
    /// When the metadata of all objects is looked at next, and when it was last.
    versions_due: Instant,
    versions_seen: Instant,
    /// What the watch has yet to get to, and until when.
    awaited: Option<(u64, Instant)>,
    /// Changes up to this version have been told once more, or are in the list.
    again: Option<String>,
    again_at: Instant,
    /// Changes since then.
    changes: u32,
}

/// A look at all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// How many there are.
    Count,
    /// Their metadata.
    Versions,
}

impl Ladder {
    pub(super) fn new(options: &Options, now: Instant) -> Self {
        Ladder {
            audit_pause: options.audit_pause,
            versions_pause: options.versions_pause,
            stale_max: options.stale_max,
            patience: options.stale_max,
            counted: now,
            // Not all kinds of all clusters at once after a start.
            versions_due: now + options.versions_pause.mul_f64(0.1 + fastrand::f64()),
            versions_seen: now,
            awaited: None,
            again: None,
            again_at: now,
            changes: 0,
        }
    }

    /// A watch has ended: what to look at before the next one.
    pub(super) fn between_watches(&self, now: Instant) -> Option<Look> {
        if now.duration_since(self.counted) < self.audit_pause {
            None
        } else if now >= self.versions_due {
            Some(Look::Versions)
        } else {
            Some(Look::Count)
        }
    }

    /// A look begins, perhaps because the watch is stale. Where it fails, the next one comes at its time.
    pub(super) fn begins(&mut self, look: Look, stale: bool, now: Instant) {
        self.counted = now;
        if stale {
            let most = self.stale_max.max(self.versions_pause / STALE_TIMES);
            self.patience = (self.patience * 2).min(most);
        }
        if look == Look::Versions {
            self.awaited = None;
            self.versions_due = now + self.versions_pause.mul_f64(0.9 + fastrand::f64() / 5.0);
            self.versions_seen = now;
        }
    }

    /// There is an answer of this version, and the watch has told everything up to `told`. Gives where changes are to be told
    /// again from. What is awaited already stays so: a watch that breaks again and again must get there, too.
    pub(super) fn looked(&mut self, at: &str, told: &str, now: Instant) -> Option<String> {
        if self.awaited.is_none()
            && let Some(at) = number(at)
            && number(told).is_some_and(|told| told < at)
        {
            self.awaited = Some((at, now + self.patience));
        }
        self.again.clone()
    }

    /// The watch has told something: everything up to this version, by a change or not.
    pub(super) fn told(&mut self, version: &str, is_change: bool) {
        self.changes += u32::from(is_change);
        if let Some((awaited, _)) = self.awaited
            && number(version).is_some_and(|told| told >= awaited)
        {
            self.awaited = None;
            self.patience = self.stale_max;
        }
    }

    /// The watch has been opened again.
    pub(super) fn resumed(&mut self, now: Instant) {
        if let Some((_, until)) = &mut self.awaited {
            *until = (*until).max(now + self.stale_max / RESUMED_PART);
        }
    }

    /// Something was missed: looks at a watch that does not get on are worth their while.
    pub(super) fn was_right(&mut self) {
        self.patience = self.stale_max;
    }

    /// When a watch that has told nothing of the last look's version is no longer believed.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        self.awaited.map(|(_, until)| until)
    }

    /// Where changes are to be told again from, if so many have come that the server may soon forget them.
    pub(super) fn again_due(&self, now: Instant) -> Option<String> {
        let due = self.changes >= AGAIN_CHANGES && now.duration_since(self.again_at) >= AGAIN_PAUSE;
        self.again.clone().filter(|_| due)
    }

    /// Changes up to this version have been told again.
    pub(super) fn told_again(&mut self, version: &str, now: Instant) {
        self.again = Some(version.to_owned());
        self.again_at = now;
        self.changes = 0;
    }

    /// They have been forgotten.
    pub(super) fn forgotten(&mut self, told: &str, now: Instant) {
        self.told_again(told, now);
        let due = self.versions_seen + self.versions_pause / FORGOTTEN_TIMES;
        self.versions_due = self.versions_due.min(due);
    }

    /// The server was not there, or the version is gone: what was to be waited for is asked for anew at its time.
    pub(super) fn broke_off(&mut self) {
        self.awaited = None;
    }

    /// There is a list of this version.
    pub(super) fn listed(&mut self, version: &str, now: Instant) {
        self.awaited = None;
        if self.audit_pause < Duration::MAX {
            self.told_again(version, now);
        }
    }
}

/// A look that is under way.
pub(super) struct Audit {
    pub(super) look: Look,
    /// Because a watch does not get on.
    pub(super) stale: bool,
    pub(super) token: Option<String>,
    pub(super) count: u64,
}

impl Audit {
    pub(super) fn of(look: Look, stale: bool) -> Self {
        Audit {
            look,
            stale,
            token: None,
            count: 0,
        }
    }
}

/// What a step of a look has come to.
pub(super) enum Step {
    /// There is more to read.
    More(Audit),
    /// So many objects at this version. With a selector the server may not say.
    Counted { at: String, count: Option<u64> },
}

/// Counts the objects, by one of them and what the server says of the rest; or reads a page of their metadata, each of which
/// goes to `seen`.
pub(super) async fn look(
    client: &Client,
    resource: &ApiResource,
    options: &Options,
    mut audit: Audit,
    mut seen: impl FnMut(Bytes),
) -> Result<Step, Error> {
    let selection = &options.selection;
    let mut call = Call::get(
        described("count", resource, &selection.namespace, ""),
        resource.path(&selection.namespace, "", ""),
    );
    call.timeout = options.answer_max;
    call.accept = Some(METADATA_LIST);
    selection.query(&mut call.query);
    let len = match audit.look {
        Look::Count => 1,
        Look::Versions => options.page_len,
    };
    call.query.push(("limit", len.to_string()));
    if let Some(token) = audit.token.take() {
        call.query.push(("continue", token));
    }
    let (_, body) = client.stream(&call, None).await?;
    let mut reader = PageReader::new(call.what, body);
    let mut take = |item| {
        audit.count += 1;
        if audit.look == Look::Versions {
            seen(item);
        }
    };
    while !reader.read(PAGE_PAUSE, &mut take).await? {}
    let page = reader.finish()?;
    let rest = match page.next {
        Some(token) if audit.look == Look::Versions => {
            audit.token = Some(token);
            return Ok(Step::More(audit));
        }
        Some(_) => page.remaining,
        None => Some(0),
    };
    Ok(Step::Counted {
        at: page.resource_version,
        count: rest.map(|rest| audit.count + rest),
    })
}

/// Changes that are told once more.
pub(super) struct Again {
    pub(super) changes: BoxStream<'static, Result<Change, Error>>,
    /// As far as they have been told.
    pub(super) told: String,
    /// As far as they are wanted.
    pub(super) until: String,
}

impl Again {
    /// Whether it has got there.
    pub(super) fn is_done(&self) -> bool {
        number(&self.told) >= number(&self.until)
    }
}

/// Opens a second watch from a version that lies back. It tells metadata and ends soon.
pub(super) fn again(
    client: &Client,
    resource: &ApiResource,
    options: &Options,
    from: String,
    until: String,
) -> Again {
    let Selection { namespace, .. } = &options.selection;
    let what = described("watch", resource, namespace, "");
    let mut call = Call::get(what.clone(), resource.path(namespace, "", "")).uncompressed();
    call.timeout = options.answer_max;
    call.accept = Some(METADATA);
    options.selection.query(&mut call.query);
    for (name, value) in [
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", &AGAIN_SECONDS.to_string()),
        ("resourceVersion", &from),
    ] {
        call.query.push((name, value.to_owned()));
    }
    let pause = options.answer_max + Duration::from_secs(AGAIN_SECONDS);
    let changes = stream::once(open(client.clone(), call))
        .map_ok(move |opened| {
            stream::try_unfold((opened, what.clone()), move |(mut opened, what)| async move {
                let Some(line) = opened.line(&what, pause).await? else {
                    return Ok(None);
                };
                let change = Change::read(&what, &line, true)?;
                Ok(Some((change, (opened, what))))
            })
        })
        .try_flatten();
    Again {
        changes: changes.boxed(),
        told: from,
        until,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn ladder(now: Instant) -> Ladder {
        Ladder::new(&Options::default(), now)
    }

    #[test]
    fn objects_are_counted_when_a_watch_has_ended_and_looked_at_rarely() {
        let mut now = Instant::now();
        let mut ladder = ladder(now);
        assert_eq!(ladder.between_watches(now), None, "just listed");
        let (mut counts, mut looks) = (0, 0);
        let day = now + 24 * 60 * MINUTE;
        while now < day {
            now += 5 * MINUTE;
            let due = ladder.between_watches(now);
            match due {
                Some(Look::Count) => counts += 1,
                Some(Look::Versions) => looks += 1,
                None => panic!("nothing is due after five minutes"),
            }
            ladder.begins(due.unwrap_or(Look::Count), false, now);
        }
        assert_eq!(counts + looks, 24 * 12);
        assert!((3..=5).contains(&looks), "{looks}");
    }

    #[test]
    fn a_watch_that_does_not_get_to_the_version_of_a_count_is_stale_in_time() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        ladder.begins(Look::Count, false, now);
        ladder.looked("20", "20", now);
        assert_eq!(ladder.stale_at(), None, "it is there already");
        ladder.looked("30", "20", now);
        assert_eq!(ladder.stale_at(), Some(now + 2 * MINUTE));
        ladder.told("29", true);
        assert!(ladder.stale_at().is_some());
        ladder.told("30", false);
        assert_eq!(ladder.stale_at(), None);
    }

    #[test]
    fn a_watch_that_broke_has_to_get_to_nothing_any_more() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        ladder.looked("30", "20", now);
        ladder.broke_off();
        assert_eq!(ladder.stale_at(), None);
        ladder.looked("30", "20", now);
        ladder.listed("40", now);
        assert_eq!(ladder.stale_at(), None);
    }

    #[test]
    fn a_watch_that_is_cut_again_and_again_has_to_get_on_all_the_same() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        ladder.looked("30", "20", now);
        ladder.begins(Look::Count, false, now + MINUTE);
        ladder.looked("40", "20", now + MINUTE);
        ladder.resumed(now + MINUTE);
        assert_eq!(ladder.stale_at(), Some(now + 2 * MINUTE));
        ladder.resumed(now + 2 * MINUTE);
        assert_eq!(ladder.stale_at(), Some(now + 2 * MINUTE + MINUTE / 2));
    }

    #[test]
    fn a_watch_that_was_slow_and_missed_nothing_is_given_more_time() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        let patience = |ladder: &mut Ladder| {
            ladder.looked("30", "20", now);
            ladder.stale_at().map(|at| at - now)
        };
        for minutes in [2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(patience(&mut ladder), Some(minutes * MINUTE));
            ladder.begins(Look::Versions, true, now);
        }
        ladder.was_right();
        assert_eq!(patience(&mut ladder), Some(2 * MINUTE));
        ladder.begins(Look::Versions, true, now);
        ladder.looked("30", "20", now);
        ladder.told("30", false);
        assert_eq!(patience(&mut ladder), Some(2 * MINUTE), "it got there");
    }

    #[test]
    fn changes_are_told_again_from_the_list_and_then_from_one_count_to_the_next() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        ladder.listed("8", now);
        assert_eq!(ladder.looked("10", "10", now).as_deref(), Some("8"));
        // The second watch failed.
        assert_eq!(ladder.looked("20", "20", now).as_deref(), Some("8"));
        ladder.told_again("20", now);
        assert_eq!(ladder.looked("30", "30", now).as_deref(), Some("20"));
        ladder.listed("35", now);
        assert_eq!(ladder.looked("40", "40", now).as_deref(), Some("35"));
    }

    #[test]
    fn who_wants_no_looks_is_told_nothing_again() {
        let now = Instant::now();
        let options = Options {
            audit_pause: Duration::MAX,
            ..Options::default()
        };
        let mut ladder = Ladder::new(&options, now);
        ladder.listed("8", now);
        for version in 9..200 {
            ladder.told(&version.to_string(), true);
        }
        let later = now + 600 * MINUTE;
        assert_eq!(ladder.again_due(later), None);
        assert_eq!(ladder.between_watches(later), None);
    }

    #[test]
    fn where_much_happens_changes_are_told_again_before_they_are_forgotten() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        ladder.listed("10", now);
        for version in 11..11 + AGAIN_CHANGES {
            assert_eq!(ladder.again_due(now + MINUTE), None);
            ladder.told(&version.to_string(), true);
        }
        assert_eq!(ladder.again_due(now + MINUTE / 2), None, "not all the time");
        assert_eq!(ladder.again_due(now + MINUTE).as_deref(), Some("10"));
        ladder.told_again("60", now + MINUTE);
        assert_eq!(ladder.again_due(now + 2 * MINUTE), None);
    }

    #[test]
    fn what_is_forgotten_brings_the_look_at_all_forward_but_not_too_often() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        ladder.begins(Look::Versions, false, now);
        ladder.forgotten("10", now + MINUTE);
        assert_eq!(ladder.between_watches(now + 59 * MINUTE), Some(Look::Count));
        assert_eq!(ladder.between_watches(now + 60 * MINUTE), Some(Look::Versions));
    }
}
