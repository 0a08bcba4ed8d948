//! Turns: whoever writes what follows from what stands there waits for others of this process that do so.
//!
//! What makes such writes safe is the version they carry; turns only keep requests of one server from overtaking each
//! other again and again.

use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// Objects share these; two that meet by chance wait for one write.
const PLACES: usize = 64;

/// See the module's text.
pub(super) struct Turns {
    places: [Mutex<()>; PLACES],
    state: RandomState,
}

impl Turns {
    /// Nobody has a turn.
    pub(super) fn new() -> Self {
        Turns {
            places: std::array::from_fn(|_| Mutex::new(())),
            state: RandomState::new(),
        }
    }

    /// The turn at one object; it ends with what is given.
    pub(super) async fn take(&self, plural: &str, namespace: &str, name: &str) -> MutexGuard<'_, ()> {
        let hash = self.state.hash_one((plural, namespace, name));
        #[allow(clippy::cast_possible_truncation)]
        let place = hash as usize % PLACES;
        self.places[place].lock().await
    }
}
