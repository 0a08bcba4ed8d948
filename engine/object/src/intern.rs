//! One copy in the process of every string that thousands of resources share: namespaces, kinds, names of Applications.
//!
//! An entry lives as long as somebody holds it. Users are counted in the entry itself; the table's own hold is not a
//! use. Two rules make that safe without `unsafe`: a count may leave zero only under the table's shard lock, and an
//! entry is taken out only under the same lock, when its count is still zero.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use dashmap::DashMap;

static TABLE: LazyLock<DashMap<Slot, ()>> = LazyLock::new(DashMap::new);

/// A string that the process holds once. Cheap to clone and to compare; reads as a `str`.
pub struct Name(Arc<Entry>);

struct Entry {
    users: AtomicUsize,
    text: Box<str>,
}

/// The table's hold on an entry, found by its text.
struct Slot(Arc<Entry>);

/// The one copy of this string.
pub fn intern(text: &str) -> Name {
    // Almost always it is there already, and a shared lock is enough.
    if let Some(found) = TABLE.get(text) {
        return Name::enter(&found.key().0);
    }
    let slot = Slot(Arc::new(Entry {
        users: AtomicUsize::new(0),
        text: text.into(),
    }));
    // Another thread may have come first: `entry` keeps the key that is there.
    let entry = TABLE.entry(slot).or_insert(());
    Name::enter(&entry.key().0)
}

/// How many different strings are held now.
pub fn interned() -> usize {
    TABLE.len()
}

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Adds a user. The caller holds the shard's lock, or is a user already.
    fn enter(entry: &Arc<Entry>) -> Self {
        entry.users.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(entry))
    }
}

impl Clone for Name {
    fn clone(&self) -> Self {
        Self::enter(&self.0)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            TABLE.remove_if(self.as_str(), |slot, ()| {
                slot.0.users.load(Ordering::Acquire) == 0
            });
        }
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        intern(text)
    }
}

impl Default for Name {
    fn default() -> Self {
        intern("")
    }
}

impl PartialEq for Name {
    /// Equal texts are the same entry while both are held.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Name {
    /// As the text, so that a map of names can be asked with a `str`.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Slot {}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl Borrow<str> for Slot {
    fn borrow(&self) -> &str {
        &self.0.text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn held(text: &str) -> bool {
        TABLE.contains_key(text)
    }

    #[test]
    fn equal_texts_are_one_copy() {
        let (one, two) = (intern("intern-test-one"), intern("intern-test-one"));
        assert_eq!(one, two);
        assert!(std::ptr::eq(one.as_str(), two.as_str()));
        assert_ne!(one, intern("intern-test-two"));
    }

    #[test]
    fn the_last_user_takes_the_entry_along() {
        let one = intern("intern-test-drop");
        let two = one.clone();
        drop(one);
        assert!(held("intern-test-drop"));
        drop(two);
        assert!(!held("intern-test-drop"));
    }

    #[test]
    fn threads_that_come_and_go_leave_nothing_behind() {
        let texts: Vec<String> = (0..8).map(|n| format!("intern-test-threads-{n}")).collect();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let texts = &texts;
                scope.spawn(move || {
                    for round in 0..5_000 {
                        let name = intern(&texts[(round + thread) % texts.len()]);
                        let other = name.clone();
                        assert_eq!(name, other);
                    }
                });
            }
        });
        assert!(texts.iter().all(|text| !held(text)));
    }
}
