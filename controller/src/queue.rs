//! What is to be looked at: one entry an Application, whatever the number of reasons.
//!
//! ```text
//! mark ──────────────► ready ── next() ──► in hand ── done() ──► idle
//! mark_after ► waiting ──┘ when due            │ marked meanwhile
//!                          ▲                   └──────► ready
//!                          └────────────────────────────┘
//! ```
//!
//! A mark made while its Application is in hand is kept and makes it ready again when the worker is done: no mark is
//! lost, and an Application is never in two hands. Reasons merge: the deepest refresh asked for wins. Delayed marks
//! are kept one for each (Application, reason).
//!
//! What people ask for goes first, the rest in the order of its first mark; after [`PERSONS_IN_A_ROW`] entries of
//! people one of the rest gets its turn, so neither starves the other. Of one group ([`Groups`]) only so many are in hand at a
//! time; the others step aside until one of them is done.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::context::AppKey;

/// So many entries of people are served before one of the others.
const PERSONS_IN_A_ROW: u32 = 8;

/// How deep a refresh looks, from the shallowest to the deepest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refresh {
    /// Compare what was rendered last with the cluster.
    #[default]
    Nothing,
    /// Compare with the revision that was compared last, rendered anew if what goes into rendering changed.
    Recent,
    /// Ask the repo-server for what the target revision stands for; its own short memory of that will do.
    Latest,
    /// As [`Refresh::Latest`], but the repo-server asks the host.
    ForceResolve,
}

/// Why an Application is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A person asked for a refresh, a sync, or changed the spec.
    Person,
    /// The Application object appeared or changed in another way.
    Application,
    /// Its project changed.
    Project,
    /// The settings changed.
    Settings,
    /// A live resource of it changed.
    Live,
    /// Its cluster appeared, went, or changed as a whole.
    Cluster,
    /// Nothing happened for the resync period.
    Periodic,
    /// An operation ended.
    Operation,
    /// A self-heal's pause is over.
    SelfHeal,
    /// Something that failed is tried again.
    Retry,
    /// A live change that came during an operation and was put off.
    DuringOperation,
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(u16);

impl Reasons {
    /// The set of one.
    pub fn only(reason: Reason) -> Self {
        Reasons(1 << reason as u16)
    }

    /// Is it among them?
    pub fn contains(self, reason: Reason) -> bool {
        self.0 & (1 << reason as u16) != 0
    }

    /// Is there no other reason than that live resources changed?
    pub fn only_live(self) -> bool {
        self.0 == Reasons::only(Reason::Live).0
    }

    fn union(self, other: Reasons) -> Self {
        Reasons(self.0 | other.0)
    }
}

/// One Application in a worker's hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Which one.
    pub key: AppKey,
    /// The deepest refresh that was asked for.
    pub refresh: Refresh,
    /// Why.
    pub reasons: Reasons,
    /// How long it was ready before it was taken.
    pub waited: Duration,
}

/// Tells the group of an Application; none if it does not matter.
pub type GroupOf = Box<dyn Fn(&AppKey) -> Option<String> + Send + Sync>;

/// What may take long together: Applications of one cluster, whose API server may be slow.
pub struct Groups {
    /// Which group an Application is of.
    pub of: GroupOf,
    /// So many of a group may be in hand at a time.
    pub most: usize,
}

/// The queue. Share it in an `Arc`.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    groups: Option<Groups>,
    /// Wakes whoever waits in [`Queue::next`].
    changed: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<AppKey, Entry>,
    persons: VecDeque<AppKey>,
    others: VecDeque<AppKey>,
    persons_in_a_row: u32,
    /// Delayed marks by the time they are due.
    due: BTreeSet<(Instant, AppKey, Reason)>,
    /// The same by Application and reason, with the refresh they ask for.
    delayed: HashMap<AppKey, Vec<(Reason, Instant, Refresh)>>,
    processing: usize,
    /// Groups of which something is in hand, or has stepped aside.
    groups: HashMap<String, Group>,
}

#[derive(Default)]
struct Group {
    in_hand: usize,
    /// Whose turn it was when enough of the group were in hand.
    aside: VecDeque<AppKey>,
}

#[derive(Default)]
struct Entry {
    /// What was marked and not yet taken.
    marked: Option<(Refresh, Reasons, Instant)>,
    in_hand: bool,
    /// The group that it counts for while it is in hand.
    group: Option<String>,
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// An empty queue that is fair between groups.
    pub fn fair(groups: Groups) -> Arc<Self> {
        Arc::new(Queue {
            groups: Some(groups),
            ..Queue::default()
        })
    }

    /// Asks for a look at `key` now.
    pub fn mark(&self, key: &AppKey, refresh: Refresh, reason: Reason) {
        self.state.lock().mark(key, refresh, Reasons::only(reason));
        self.changed.notify_one();
    }

    /// Asks for a look at `key` after `delay`. When the same reason waits already, the earlier time and the deeper
    /// refresh stand.
    pub fn mark_after(&self, key: &AppKey, delay: Duration, refresh: Refresh, reason: Reason) {
        self.delay(key, delay, refresh, reason, false);
    }

    /// Asks for a look at `key` after `delay`, in place of what waited for the same reason.
    pub fn reschedule(&self, key: &AppKey, delay: Duration, refresh: Refresh, reason: Reason) {
        self.delay(key, delay, refresh, reason, true);
    }

    /// Drops everything that waits for `key`, ready or delayed; a worker that has it in hand keeps it.
    pub fn forget(&self, key: &AppKey) {
        let mut state = self.state.lock();
        for (reason, at, _) in state.delayed.remove(key).unwrap_or_default() {
            state.due.remove(&(at, key.clone(), reason));
        }
        if let Some(entry) = state.entries.get_mut(key) {
            entry.marked = None;
            if !entry.in_hand {
                state.entries.remove(key);
            }
        }
    }

    /// The next Application to look at; waits for one. Give it back with [`Queue::done`]. One caller at a time: the
    /// queue wakes one waiter only.
    pub async fn next(&self) -> Work {
        loop {
            let due = {
                let mut state = self.state.lock();
                let now = Instant::now();
                state.wake_due(now);
                if let Some(work) = state.take(now, self.groups.as_ref()) {
                    return work;
                }
                state.due.first().map(|(at, ..)| *at)
            };
            match due {
                Some(at) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// The worker is done with `key`; if it was marked meanwhile it is ready again.
    pub fn done(&self, key: &AppKey) {
        {
            let mut state = self.state.lock();
            let Some(entry) = state.entries.get_mut(key) else {
                return;
            };
            if std::mem::take(&mut entry.in_hand) {
                let (marked, group) = (entry.marked, entry.group.take());
                state.processing -= 1;
                match marked {
                    Some((_, reasons, _)) => state.enqueue(key, reasons),
                    None => drop(state.entries.remove(key)),
                }
                group.into_iter().for_each(|group| state.leave(group));
            }
        }
        self.changed.notify_one();
    }

    /// Applications that are ready and wait for a worker.
    pub fn len(&self) -> usize {
        let state = self.state.lock();
        // The lines have empty places in them.
        let entries = state.entries.values();
        entries
            .filter(|entry| entry.marked.is_some() && !entry.in_hand)
            .count()
    }

    /// True if nothing is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Since when the first of those that are ready is.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let state = self.state.lock();
        let waiting = state.entries.values().filter(|entry| !entry.in_hand);
        waiting
            .filter_map(|entry| entry.marked.map(|(_, _, since)| since))
            .min()
    }

    /// Applications in workers' hands.
    pub fn processing(&self) -> usize {
        self.state.lock().processing
    }

    fn delay(&self, key: &AppKey, delay: Duration, refresh: Refresh, reason: Reason, replace: bool) {
        {
            let mut state = self.state.lock();
            let mut at = Instant::now() + delay;
            let mut refresh = refresh;
            let delayed = state.delayed.entry(key.clone()).or_default();
            let old = delayed
                .iter()
                .position(|(other, ..)| *other == reason)
                .map(|i| delayed.swap_remove(i));
            if let Some((_, old_at, old_refresh)) = old
                && !replace
            {
                at = at.min(old_at);
                refresh = refresh.max(old_refresh);
            }
            delayed.push((reason, at, refresh));
            if let Some((_, old_at, _)) = old {
                state.due.remove(&(old_at, key.clone(), reason));
            }
            state.due.insert((at, key.clone(), reason));
        }
        self.changed.notify_one();
    }
}

impl State {
    fn mark(&mut self, key: &AppKey, refresh: Refresh, reasons: Reasons) {
        let entry = self.entries.entry(key.clone()).or_default();
        let fresh = entry.marked.is_none();
        let (old, old_reasons, since) = entry.marked.unwrap_or((refresh, reasons, Instant::now()));
        let merged = old_reasons.union(reasons);
        entry.marked = Some((old.max(refresh), merged, since));
        if entry.in_hand {
            return;
        }
        if fresh {
            self.enqueue(key, merged);
        } else if merged.contains(Reason::Person) && !old_reasons.contains(Reason::Person) {
            // It moves up; its old place is passed over when its turn comes.
            self.persons.push_back(key.clone());
        }
    }

    fn enqueue(&mut self, key: &AppKey, reasons: Reasons) {
        let line = if reasons.contains(Reason::Person) {
            &mut self.persons
        } else {
            &mut self.others
        };
        line.push_back(key.clone());
    }

    fn wake_due(&mut self, now: Instant) {
        while self.due.first().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, key, reason)) = self.due.pop_first() else {
                return;
            };
            let Some(delayed) = self.delayed.get_mut(&key) else {
                continue;
            };
            let Some(found) = delayed.iter().position(|(other, ..)| *other == reason) else {
                continue;
            };
            let (_, _, refresh) = delayed.swap_remove(found);
            if delayed.is_empty() {
                self.delayed.remove(&key);
            }
            self.mark(&key, refresh, Reasons::only(reason));
        }
    }

    /// One of the group is done, so another may be taken: the next of those that have stepped aside, who goes first in line.
    fn leave(&mut self, name: String) {
        if let Some(group) = self.groups.get_mut(&name) {
            group.in_hand -= 1;
        }
        while let Some(group) = self.groups.get_mut(&name) {
            let in_hand = group.in_hand;
            match group.aside.pop_front() {
                Some(key) if self.goes_first(&key) => return,
                Some(_) => {}
                None if in_hand > 0 => return,
                None => drop(self.groups.remove(&name)),
            }
        }
    }

    /// Puts an Application at the head of its line. False if nobody wants it looked at any more, or somebody does already.
    fn goes_first(&mut self, key: &AppKey) -> bool {
        let entry = self.entries.get(key).filter(|entry| !entry.in_hand);
        let Some((_, reasons, _)) = entry.and_then(|entry| entry.marked) else {
            return false;
        };
        let line = match reasons.contains(Reason::Person) {
            true => &mut self.persons,
            false => &mut self.others,
        };
        line.push_front(key.clone());
        true
    }

    /// Who stepped aside for somebody that was forgotten before its turn came is called back when there is nothing else.
    fn call_back(&mut self, groups: Option<&Groups>) -> bool {
        let most = groups.map_or(0, |groups| groups.most);
        loop {
            let mut free = self.groups.values_mut().filter(|group| group.in_hand < most);
            let called = free.find_map(|group| group.aside.pop_front());
            let Some(key) = called else { return false };
            if self.goes_first(&key) {
                return true;
            }
        }
    }

    fn take(&mut self, now: Instant, groups: Option<&Groups>) -> Option<Work> {
        loop {
            let others_turn = self.persons_in_a_row >= PERSONS_IN_A_ROW && !self.others.is_empty();
            let person = if others_turn {
                None
            } else {
                self.persons.pop_front()
            };
            let is_person = person.is_some();
            let key = match person {
                Some(key) => key,
                None => match self.others.pop_front() {
                    Some(key) => key,
                    None if self.call_back(groups) => continue,
                    None => return None,
                },
            };
            // A place that was left by moving up, or by being forgotten, is empty.
            let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.in_hand) else {
                continue;
            };
            let is_here = |(_, reasons, _): (_, Reasons, _)| is_person || !reasons.contains(Reason::Person);
            if !entry.marked.is_some_and(is_here) {
                continue;
            }
            entry.group = groups.and_then(|groups| (groups.of)(&key));
            if let (Some(groups), Some(name)) = (groups, &entry.group) {
                let group = self.groups.entry(name.clone()).or_default();
                if group.in_hand >= groups.most {
                    group.aside.push_back(key);
                    continue;
                }
                group.in_hand += 1;
            }
            let Some((refresh, reasons, since)) = entry.marked.take() else {
                continue;
            };
            entry.in_hand = true;
            self.processing += 1;
            // An empty place was nobody's turn.
            self.persons_in_a_row = if is_person { self.persons_in_a_row + 1 } else { 0 };
            return Some(Work {
                key,
                refresh,
                reasons,
                waited: now.saturating_duration_since(since),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(name: &str) -> AppKey {
        AppKey::new("argocd", name)
    }

    /// What `next` gives, or nothing if it waits.
    async fn now(queue: &Queue) -> Option<Work> {
        tokio::time::timeout(Duration::ZERO, queue.next()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn reasons_merge_into_one_entry_with_the_deepest_refresh() {
        let queue = Queue::new();
        queue.mark(&key("a"), Refresh::Nothing, Reason::Live);
        queue.mark(&key("a"), Refresh::Latest, Reason::Application);
        queue.mark(&key("a"), Refresh::Recent, Reason::Cluster);
        let work = now(&queue).await.unwrap();
        assert_eq!((work.key.clone(), work.refresh), (key("a"), Refresh::Latest));
        assert!(work.reasons.contains(Reason::Live) && work.reasons.contains(Reason::Cluster));
        assert_eq!(now(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_on_an_application_in_hand_makes_it_ready_again_and_not_before() {
        let queue = Queue::new();
        queue.mark(&key("a"), Refresh::Nothing, Reason::Live);
        let first = now(&queue).await.unwrap();
        queue.mark(&key("a"), Refresh::Recent, Reason::Live);
        assert_eq!(now(&queue).await, None, "it is in hand");
        queue.done(&first.key);
        assert_eq!(now(&queue).await.unwrap().refresh, Refresh::Recent);
        queue.done(&first.key);
        assert_eq!(now(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_mark_comes_when_it_is_due() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.mark_after(
            &key("a"),
            Duration::from_secs(120),
            Refresh::Recent,
            Reason::Periodic,
        );
        queue.mark_after(
            &key("b"),
            Duration::from_secs(2),
            Refresh::Nothing,
            Reason::SelfHeal,
        );
        assert_eq!(queue.next().await.key, key("b"));
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        assert_eq!(queue.next().await.key, key("a"));
        assert_eq!(start.elapsed(), Duration::from_secs(120));
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_reason_waits_once_for_the_earlier_time_unless_it_is_rescheduled() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.mark_after(&key("a"), Duration::from_secs(1), Refresh::Nothing, Reason::Live);
        queue.mark_after(&key("a"), Duration::from_secs(9), Refresh::Recent, Reason::Live);
        let work = queue.next().await;
        assert_eq!(
            (start.elapsed(), work.refresh),
            (Duration::from_secs(1), Refresh::Recent)
        );
        queue.done(&work.key);
        assert_eq!(now(&queue).await, None, "the later one is merged, not kept");

        queue.mark_after(
            &key("a"),
            Duration::from_secs(1),
            Refresh::Nothing,
            Reason::Periodic,
        );
        queue.reschedule(
            &key("a"),
            Duration::from_secs(5),
            Refresh::Nothing,
            Reason::Periodic,
        );
        queue.next().await;
        assert_eq!(start.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn people_go_first_but_do_not_starve_the_rest() {
        let queue = Queue::new();
        for i in 0..3 {
            queue.mark(&key(&format!("live-{i}")), Refresh::Nothing, Reason::Live);
        }
        for i in 0..12 {
            queue.mark(&key(&format!("person-{i:02}")), Refresh::Latest, Reason::Person);
        }
        let mut order = Vec::new();
        while let Some(work) = now(&queue).await {
            order.push(work.key.name.to_string());
            queue.done(&work.key);
        }
        assert_eq!(order.len(), 15);
        assert_eq!(
            &order[..8],
            (0..8).map(|i| format!("person-{i:02}")).collect::<Vec<_>>()
        );
        assert_eq!(order[8], "live-0");
        assert_eq!(order[14], "live-2");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_get_their_turn_behind_places_that_were_left() {
        let queue = Queue::new();
        let persons = (0..30).map(|i| key(&format!("person-{i:02}")));
        for person in persons.clone() {
            queue.mark(&person, Refresh::Nothing, Reason::Live);
        }
        queue.mark(&key("live"), Refresh::Nothing, Reason::Live);
        for person in persons {
            queue.mark(&person, Refresh::Latest, Reason::Person);
        }
        assert_eq!(queue.len(), 31);
        let mut order = Vec::new();
        while let Some(work) = now(&queue).await {
            order.push(work.key.name.to_string());
            queue.done(&work.key);
        }
        assert_eq!(order.iter().position(|name| name == "live"), Some(8));
        assert_eq!(order.len(), 31);
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_that_moves_up_is_served_once() {
        let queue = Queue::new();
        queue.mark(&key("b"), Refresh::Nothing, Reason::Live);
        queue.mark(&key("a"), Refresh::Nothing, Reason::Live);
        queue.mark(&key("a"), Refresh::Latest, Reason::Person);
        let mut order = Vec::new();
        while let Some(work) = now(&queue).await {
            order.push(work.key.name.to_string());
            queue.done(&work.key);
        }
        assert_eq!(order, ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_takes_long_leaves_something_to_the_others() {
        let queue = Queue::fair(Groups {
            of: Box::new(|key| key.name.split_once('-').map(|(group, _)| group.to_owned())),
            most: 2,
        });
        for name in [
            "slow-1", "slow-2", "slow-3", "slow-4", "slow-5", "quick-1", "alone",
        ] {
            queue.mark(&key(name), Refresh::Nothing, Reason::Live);
        }
        let mut order = Vec::new();
        while let Some(work) = now(&queue).await {
            order.push(work.key.name.to_string());
        }
        assert_eq!(order, ["slow-1", "slow-2", "quick-1", "alone"]);
        assert_eq!((queue.len(), queue.processing()), (3, 4));
        // Who has stepped aside may still be forgotten, or move up.
        queue.forget(&key("slow-3"));
        queue.mark(&key("slow-5"), Refresh::Latest, Reason::Person);
        queue.mark(&key("quick-1"), Refresh::Nothing, Reason::Live);
        queue.done(&key("slow-1"));
        assert_eq!(now(&queue).await.unwrap().key, key("slow-5"));
        assert_eq!(now(&queue).await, None);
        queue.done(&key("slow-2"));
        assert_eq!(now(&queue).await.unwrap().key, key("slow-4"));
        for name in ["slow-4", "slow-5", "quick-1"] {
            queue.done(&key(name));
        }
        assert_eq!(now(&queue).await.unwrap().key, key("quick-1"));
        queue.done(&key("quick-1"));
        queue.done(&key("alone"));
        assert_eq!((queue.len(), queue.processing()), (0, 0));
        assert!(queue.state.lock().groups.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_steps_aside_for_somebody_that_is_forgotten_still_comes() {
        let queue = Queue::fair(Groups {
            of: Box::new(|_| Some("one".to_owned())),
            most: 1,
        });
        for name in ["a", "b", "c"] {
            queue.mark(&key(name), Refresh::Nothing, Reason::Live);
        }
        assert_eq!(now(&queue).await.unwrap().key, key("a"));
        assert_eq!(now(&queue).await, None);
        queue.done(&key("a"));
        queue.forget(&key("b"));
        assert_eq!(now(&queue).await.unwrap().key, key("c"));
        queue.done(&key("c"));
        assert!(queue.state.lock().groups.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_does_not_come() {
        let queue = Queue::new();
        queue.mark(&key("a"), Refresh::Nothing, Reason::Live);
        queue.mark_after(
            &key("a"),
            Duration::from_secs(1),
            Refresh::Nothing,
            Reason::Periodic,
        );
        queue.forget(&key("a"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(now(&queue).await, None);
        queue.mark(&key("a"), Refresh::Nothing, Reason::Application);
        assert!(now(&queue).await.is_some());
    }

    /// Many markers against a few workers: after the last mark of each Application there is a look that begins later.
    #[tokio::test(start_paused = true)]
    async fn no_mark_is_lost() {
        let queue = Queue::new();
        let looked: Arc<Mutex<HashMap<AppKey, Instant>>> = Arc::default();
        let hands: Arc<Mutex<std::collections::HashSet<AppKey>>> = Arc::default();
        let dispatcher = {
            let (queue, looked, hands) = (queue.clone(), looked.clone(), hands.clone());
            tokio::spawn(async move {
                loop {
                    let work = queue.next().await;
                    let (queue, looked, hands) = (queue.clone(), looked.clone(), hands.clone());
                    tokio::spawn(async move {
                        assert!(
                            hands.lock().insert(work.key.clone()),
                            "{} is in two hands",
                            work.key
                        );
                        looked.lock().insert(work.key.clone(), Instant::now());
                        tokio::time::sleep(Duration::from_millis(7)).await;
                        hands.lock().remove(&work.key);
                        queue.done(&work.key);
                    });
                }
            })
        };
        let mut marked = HashMap::new();
        for i in 0_u64..2000 {
            let app = key(&format!("app-{}", i * 7919 % 13));
            match i % 3 {
                0 => queue.mark(&app, Refresh::Nothing, Reason::Live),
                1 => queue.mark(&app, Refresh::Recent, Reason::Person),
                _ => queue.mark_after(
                    &app,
                    Duration::from_millis(i % 5),
                    Refresh::Latest,
                    Reason::Periodic,
                ),
            }
            marked.insert(app, Instant::now());
            tokio::time::sleep(Duration::from_millis(i % 4)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (app, at) in marked {
            assert!(looked.lock()[&app] >= at, "the last mark of {app} was lost");
        }
        dispatcher.abort();
    }
}
