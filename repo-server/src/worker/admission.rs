//! Who may render now: as many as there are workers, as long as the memory that they will probably take together fits, and
//! every Application its turn.
//!
//! What a source takes is known from its last renders. A source that nobody has rendered yet counts as an ordinary one. One that
//! is expected to take more than there is goes alone.

use crate::error::{Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// What a source takes that nobody has rendered yet: a worker at rest takes 50 MiB, an ordinary chart little more.
const UNKNOWN: u64 = 128 << 20;
/// So often is one that does not fit passed over by smaller ones; then it is waited for.
const PATIENCE: u32 = 16;
/// Sources that are remembered.
const MAX_CLASSES: usize = 50_000;

/// For whom a render is.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The Application.
    pub app: String,
    /// What the render is like: equal for sources that take about the same.
    pub class: String,
}

/// The door.
pub(crate) struct Admission {
    places: usize,
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Renders under way, by Application.
    running: HashMap<String, usize>,
    count: usize,
    bytes: u64,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    /// When each Application was last let in, counted in renders; forgotten when nobody waits.
    turns: HashMap<String, u64>,
    turn: u64,
    /// Largest memory of the renders of a class lately.
    peaks: HashMap<String, u64>,
}

struct Waiting {
    app: String,
    bytes: u64,
    passed: u32,
    enter: oneshot::Sender<Place>,
}

/// A place among those who render; free again when this goes.
pub(crate) struct Place {
    admission: Arc<Admission>,
    app: String,
    bytes: u64,
}

impl Admission {
    pub(crate) fn new(places: usize, bytes: u64) -> Arc<Admission> {
        Arc::new(Admission {
            places: places.max(1),
            bytes: bytes.max(1),
            state: Mutex::default(),
        })
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// [`Error::Io`] when the process ends.
    pub(crate) async fn enter(self: &Arc<Self>, caller: &Caller) -> Result<Place> {
        let (enter, entered) = oneshot::channel();
        {
            let mut state = self.lock();
            let expected = state.peaks.get(&caller.class).copied().unwrap_or(UNKNOWN);
            state.waiting.push(Waiting {
                app: caller.app.clone(),
                bytes: expected.min(self.bytes),
                passed: 0,
                enter,
            });
        }
        self.admit();
        entered
            .await
            .map_err(|e| Error::io("failed to wait for a render worker", e))
    }

    /// Places that are free, whatever memory says.
    pub(crate) fn free(&self) -> usize {
        self.places.saturating_sub(self.lock().count)
    }

    /// Remembers what a render has taken. What a class took once is forgotten by and by if it takes less now.
    pub(crate) fn learn(&self, class: &str, peak: u64) {
        let mut state = self.lock();
        if state.peaks.len() >= MAX_CLASSES {
            state.peaks.clear();
        }
        let known = state.peaks.entry(class.to_owned()).or_default();
        *known = peak.max(*known - *known / 8);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets in whoever may come. A place that nobody takes any more comes back here.
    fn admit(self: &Arc<Self>) {
        loop {
            let (enter, place) = {
                let mut state = self.lock();
                let Some(next) = state.next(self.places, self.bytes) else {
                    return;
                };
                let Waiting {
                    app, bytes, enter, ..
                } = state.waiting.remove(next);
                state.count += 1;
                state.bytes += bytes;
                *state.running.entry(app.clone()).or_default() += 1;
                state.took_turn(&app);
                let place = Place {
                    admission: self.clone(),
                    app,
                    bytes,
                };
                (enter, place)
            };
            drop(enter.send(place));
        }
    }
}

impl State {
    fn took_turn(&mut self, app: &str) {
        if self.waiting.is_empty() || self.turns.len() >= MAX_CLASSES {
            self.turns.clear();
        }
        self.turn += 1;
        self.turns.insert(app.to_owned(), self.turn);
    }

    /// Which of those who wait is let in next: of the Application with the fewest renders under way, and of those of the one whose last
    /// turn is longest ago, who came first. With few places, nearly all have none under way.
    fn next(&mut self, places: usize, bytes: u64) -> Option<usize> {
        if self.count >= places {
            return None;
        }
        // Who has gone away does not use up its Application's turn.
        self.waiting.retain(|one| !one.enter.is_closed());
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        order.sort_by_cached_key(|at| {
            let app = &self.waiting[*at].app;
            let running = self.running.get(app).copied().unwrap_or(0);
            (running, self.turns.get(app).copied().unwrap_or(0))
        });
        let mut passed = Vec::new();
        for at in order {
            let one = &self.waiting[at];
            if self.count == 0 || self.bytes + one.bytes <= bytes {
                for over in passed {
                    let over: &mut Waiting = &mut self.waiting[over];
                    over.passed += 1;
                }
                return Some(at);
            }
            if one.passed >= PATIENCE {
                return None;
            }
            passed.push(at);
        }
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut state = self.admission.lock();
            state.count -= 1;
            state.bytes -= self.bytes;
            if let Some(running) = state.running.get_mut(&self.app) {
                *running -= 1;
                if *running == 0 {
                    state.running.remove(&self.app);
                }
            }
        }
        self.admission.admit();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    const MIB: u64 = 1 << 20;

    fn caller(app: &str, class: &str) -> Caller {
        Caller {
            app: app.into(),
            class: class.into(),
        }
    }

    /// Someone at the door.
    type Entering = Pin<Box<dyn Future<Output = Result<Place>>>>;

    fn come(door: &Arc<Admission>, app: &str, class: &str) -> Entering {
        let (door, caller) = (door.clone(), caller(app, class));
        let mut entering: Entering = Box::pin(async move { door.enter(&caller).await });
        // At the door, and perhaps already in.
        assert!(place(&mut entering).is_none());
        entering
    }

    fn place(entering: &mut Entering) -> Option<Place> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place.ok(),
            Poll::Pending => None,
        }
    }

    /// Who comes to a door at which nobody is let in yet.
    fn enter_at_once(door: &Arc<Admission>, app: &str, class: &str) -> Option<Place> {
        let (door, caller) = (door.clone(), caller(app, class));
        place(&mut (Box::pin(async move { door.enter(&caller).await }) as Entering))
    }

    #[test]
    fn renders_are_let_in_while_what_they_took_last_time_fits() {
        let door = Admission::new(8, 1000 * MIB);
        door.learn("large", 600 * MIB);
        door.learn("small", 200 * MIB);
        let first = enter_at_once(&door, "a", "large").unwrap();
        let second = enter_at_once(&door, "b", "small").unwrap();
        let mut third = come(&door, "c", "large");
        let small = enter_at_once(&door, "d", "small");
        assert!(small.is_some(), "what fits goes before what does not");
        drop((second, small));
        assert!(place(&mut third).is_none());
        drop(first);
        assert!(place(&mut third).is_some());
    }

    #[test]
    fn what_is_larger_than_everything_goes_alone_and_is_not_passed_over_for_ever() {
        let door = Admission::new(8, 1000 * MIB);
        door.learn("huge", 5000 * MIB);
        door.learn("small", 10 * MIB);
        let mut stays = enter_at_once(&door, "a", "small");
        let mut huge = come(&door, "b", "huge");
        for _ in 0..PATIENCE {
            assert!(enter_at_once(&door, "c", "small").is_some());
        }
        let mut late = come(&door, "c", "small");
        stays.take();
        let alone = place(&mut huge).unwrap();
        assert!(place(&mut late).is_none());
        drop(alone);
        assert!(place(&mut late).is_some());
    }

    #[test]
    fn an_application_with_many_renders_does_not_keep_others_out() {
        let door = Admission::new(2, u64::MAX);
        let (one, two) = (
            enter_at_once(&door, "many", "").unwrap(),
            enter_at_once(&door, "many", "").unwrap(),
        );
        let mut many: Vec<Entering> = (0..50).map(|_| come(&door, "many", "")).collect();
        let mut other = come(&door, "other", "");
        drop(one);
        let other = place(&mut other).expect("it is the other's turn");
        drop(two);
        let entered: Vec<Place> = many.iter_mut().filter_map(place).collect();
        assert_eq!(entered.len(), 1);
        drop(other);
    }

    #[test]
    fn applications_with_many_renders_each_do_not_keep_another_out_of_a_single_place() {
        let door = Admission::new(1, u64::MAX);
        let inside = enter_at_once(&door, "a", "").unwrap();
        let mut many: Vec<Entering> = (0..30)
            .map(|nth| come(&door, ["a", "b", "c"][nth % 3], ""))
            .collect();
        // Each of the many has its turn once, then the late one: not the many of who came before it.
        let mut next = || {
            let entered = many
                .iter_mut()
                .map(place)
                .enumerate()
                .find(|(_, place)| place.is_some());
            let (at, place) = entered.unwrap();
            drop(many.remove(at));
            place
        };
        drop(inside);
        let second = next();
        let mut late = come(&door, "late", "");
        drop(second);
        let third = next();
        drop(third);
        let inside = place(&mut late).expect("it is the late one's turn");
        let mut later = come(&door, "later", "");
        drop(inside);
        assert!(place(&mut later).is_some());
    }

    #[test]
    fn who_goes_away_while_waiting_takes_no_place() {
        let door = Admission::new(1, u64::MAX);
        let inside = enter_at_once(&door, "a", "").unwrap();
        drop(come(&door, "b", ""));
        let mut patient = come(&door, "c", "");
        drop(inside);
        let inside = place(&mut patient).expect("it is the patient one's turn");
        assert_eq!(door.free(), 0);
        drop(inside);
        assert_eq!(door.free(), 1);
    }

    #[test]
    fn who_went_away_has_not_had_the_turn_of_its_application() {
        let door = Admission::new(1, u64::MAX);
        let inside = enter_at_once(&door, "a", "").unwrap();
        drop(come(&door, "b", ""));
        let mut again = come(&door, "b", "");
        let mut other = come(&door, "c", "");
        drop(inside);
        let inside = place(&mut again).expect("it came before the other one");
        drop(inside);
        assert!(place(&mut other).is_some());
    }

    #[test]
    fn what_a_source_took_once_is_forgotten_by_and_by() {
        let door = Admission::new(1, u64::MAX);
        door.learn("chart", 800 * MIB);
        for _ in 0..20 {
            door.learn("chart", 100 * MIB);
        }
        assert_eq!(door.lock().peaks["chart"], 100 * MIB);
    }
}
