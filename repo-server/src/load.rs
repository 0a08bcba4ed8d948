//! How much there is to render. When it is too much, whoever comes with more is refused at once and told when to come back, instead
//! of waiting for an answer that comes too late.
//!
//! Only renders count: what is known is answered however many there are, and all who wait for one render are one.

use crate::error::{Error, Result};
use crate::metrics::Metrics;
use argosy_runtime::bounds::{self, Class};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Renders at most, under way or waiting: some 20 KiB each while it waits.
const MAX: usize = 2000;
/// Of one Application, once half of all are taken: one that asks without end keeps no other out.
const MAX_OF_APP: usize = 250;
/// With so few nobody is refused for the time that it may take: the last renders say too little about the next.
const FEW: usize = 64;
/// Renders that together say what one takes; of more, the older ones say less and less.
const SAID_BY: u32 = 10;
/// When to come back, at least and at most.
const RETURN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// All renders of the process.
pub(crate) struct Load {
    state: Mutex<State>,
    /// Renders at once; nothing leaves it to the pools of the tools.
    places: Option<Arc<Semaphore>>,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    /// Whether every Application has its turn, or who came first is rendered first.
    in_turn: bool,
    all: usize,
    by_app: HashMap<String, usize>,
    /// Seconds between the ends of two renders while there is always one under way.
    pace: f64,
    /// Renders that `pace` was learnt from, counted up to [`SAID_BY`].
    learnt_from: u32,
    /// When the last render ended, or the first of those under way began, or a worker was there for it.
    since: Option<Instant>,
}

/// One render, until this goes.
pub(crate) struct Entered {
    load: Arc<Load>,
    app: String,
    _place: Option<OwnedSemaphorePermit>,
}

impl Load {
    /// `places` renders at once; 0 is no limit.
    pub(crate) fn new(places: usize, metrics: Metrics) -> Arc<Load> {
        let state = State {
            in_turn: places == 0,
            ..State::default()
        };
        Arc::new(Load {
            state: Mutex::new(state),
            places: (places > 0).then(|| Arc::new(Semaphore::new(places))),
            metrics,
        })
    }

    /// Counts a render for an Application, and waits for a place where their number is limited. Who asks for it waits as long as
    /// `patience`, if that is known.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) async fn enter(self: &Arc<Self>, app: &str, patience: Option<Duration>) -> Result<Entered> {
        if let Err(retry_after) = self.lock().begin(app, patience, Instant::now()) {
            bounds::shed(Class::Render);
            return Err(Error::Overloaded { retry_after });
        }
        let mut entered = Entered {
            load: self.clone(),
            app: app.to_owned(),
            _place: None,
        };
        if let Some(places) = &self.places {
            let started = Instant::now();
            entered._place = places.clone().acquire_owned().await.ok();
            self.metrics.waited(started.elapsed());
        }
        Ok(entered)
    }

    /// A worker was started. What that took is no part of what renders take: a replica that starts would refuse its first callers
    /// for as long as if each of them needed a worker of its own.
    pub(crate) fn worker_started(&self) {
        self.lock().worker_started(Instant::now());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.load.lock().end(&self.app, Instant::now());
    }
}

impl State {
    /// One more; or when to come back.
    fn begin(&mut self, app: &str, patience: Option<Duration>, now: Instant) -> Result<(), Duration> {
        let of_app = self.by_app.get(app).copied().unwrap_or(0);
        let wait = Duration::from_secs_f64(self.pace * self.ahead(of_app) as f64);
        let too_many = self.all >= MAX || self.all >= MAX / 2 && of_app >= MAX_OF_APP;
        let too_late = self.all >= FEW && patience.is_some_and(|patience| wait > patience);
        if too_many || too_late {
            return Err(wait.clamp(RETURN.0, RETURN.1));
        }
        if self.all == 0 {
            self.since = Some(now);
        }
        self.all += 1;
        *self.by_app.entry(app.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Renders that come before the next one of an Application that has so many already.
    fn ahead(&self, of_app: usize) -> usize {
        if !self.in_turn {
            return self.all;
        }
        // Until it has had its turn so often, another one has had it no more than once more.
        self.by_app
            .values()
            .map(|of_other| (*of_other).min(of_app + 1))
            .sum()
    }

    fn worker_started(&mut self, now: Instant) {
        // With nothing under way, the next render says itself when it began.
        if self.all > 0 {
            self.since = Some(now);
        }
    }

    fn end(&mut self, app: &str, now: Instant) {
        let took = self
            .since
            .map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64());
        self.learnt_from = (self.learnt_from + 1).min(SAID_BY);
        self.pace += (took - self.pace) / f64::from(self.learnt_from);
        self.since = Some(now);
        self.all = self.all.saturating_sub(1);
        if let Some(of_app) = self.by_app.get_mut(app) {
            *of_app -= 1;
            if *of_app == 0 {
                self.by_app.remove(app);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Renders of different Applications that take a second each, one after the other, `left` of them still to come.
    fn busy(left: usize) -> (State, Instant) {
        let (mut state, start) = (State::default(), Instant::now());
        let apps: Vec<String> = (0..left + 20).map(|n| format!("app-{n}")).collect();
        for app in &apps {
            state.begin(app, None, start).unwrap();
        }
        let mut now = start;
        for app in &apps[..20] {
            now += SECOND;
            state.end(app, now);
        }
        (state, now)
    }

    #[test]
    fn who_would_wait_longer_than_he_can_is_told_when_to_come_back() {
        let (mut state, now) = busy(100);
        let refused = state.begin("late", Some(60 * SECOND), now).unwrap_err();
        assert_eq!(refused, 60 * SECOND, "never told to stay away longer than that");
        assert!(state.begin("patient", Some(200 * SECOND), now).is_ok());
        assert!(state.begin("endless", None, now).is_ok());
        // A few heavy renders say nothing about the next one.
        let (mut state, now) = busy(FEW - 1);
        assert!(state.begin("early", Some(SECOND), now).is_ok());
    }

    #[test]
    fn there_is_an_end_to_how_many_may_wait_and_none_for_others_because_of_one() {
        let (mut state, now) = (State::default(), Instant::now());
        for _ in 0..MAX / 2 {
            state.begin("greedy", None, now).unwrap();
        }
        assert_eq!(state.begin("greedy", None, now), Err(SECOND));
        for n in 0..MAX / 2 {
            state.begin(&format!("app-{n}"), None, now).unwrap();
        }
        assert_eq!(state.begin("one more", None, now), Err(SECOND));
        state.end("greedy", now);
        assert!(state.begin("one more", None, now).is_ok());
    }

    #[tokio::test]
    async fn what_is_refused_is_counted() {
        let load = Load::new(0, Metrics::default());
        let mut entered = Vec::new();
        for n in 0..MAX {
            entered.push(load.enter(&format!("app-{n}"), None).await.unwrap());
        }
        let before = bounds::times_shed(Class::Render);
        assert!(load.enter("one more", None).await.is_err());
        assert!(bounds::times_shed(Class::Render) > before);
        drop(entered);
        assert!(load.enter("one more", None).await.is_ok());
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let (mut state, now) = busy(3);
        for n in 20..23 {
            state.end(&format!("app-{n}"), now);
        }
        assert_eq!((state.all, state.by_app.len()), (0, 0));
        // Quiet times are not taken for slow ones.
        let later = now + 3600 * SECOND;
        state.begin("web", None, later).unwrap();
        state.end("web", later + SECOND);
        assert!(state.pace < 1.1);
    }

    #[test]
    fn one_with_many_renders_does_not_have_others_refused() {
        let (mut state, start) = (State::default(), Instant::now());
        state.in_turn = true;
        for _ in 0..500 {
            state.begin("greedy", None, start).unwrap();
        }
        state.end("greedy", start + SECOND);
        // The greedy one's next would be its five hundredth; another's first comes after one of its.
        let now = start + SECOND;
        assert_eq!(state.begin("greedy", Some(60 * SECOND), now), Err(60 * SECOND));
        assert!(state.begin("calm", Some(2 * SECOND), now).is_ok());
        // Where who came first is rendered first, all are before it.
        state.in_turn = false;
        assert!(state.begin("other", Some(60 * SECOND), now).is_err());
    }

    #[test]
    fn the_start_of_workers_is_not_taken_for_rendering() {
        // A herd comes to a replica that has just started: two workers take five seconds to be there, the renders half a second.
        let (mut state, start) = (State::default(), Instant::now());
        for n in 0..1000 {
            state
                .begin(&format!("app-{n}"), Some(60 * SECOND), start)
                .unwrap();
        }
        let there = start + 5 * SECOND;
        state.worker_started(there - SECOND);
        state.worker_started(there);
        state.end("app-0", there + SECOND / 2);
        // 999 of half a second each.
        assert!(state.begin("patient", Some(500 * SECOND), there + SECOND).is_ok());
        assert!(state.begin("hasty", Some(400 * SECOND), there + SECOND).is_err());
    }

    #[test]
    fn one_slow_render_among_the_first_does_not_speak_for_all() {
        let (mut state, mut now) = (State::default(), Instant::now());
        for n in 0..1000 {
            state.begin(&format!("app-{n}"), None, now).unwrap();
        }
        now += 30 * SECOND;
        state.end("app-0", now);
        for n in 1..10 {
            now += SECOND / 10;
            state.end(&format!("app-{n}"), now);
        }
        // 3.09 s each so far, 990 still to come.
        assert!((state.pace - 3.09).abs() < 1e-6);
        for n in 10..60 {
            now += SECOND / 10;
            state.end(&format!("app-{n}"), now);
        }
        assert!(state.begin("late", Some(200 * SECOND), now).is_ok());
    }
}
