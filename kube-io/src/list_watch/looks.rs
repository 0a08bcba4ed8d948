//! What looks at the server have told of a kind, until it can be compared with what is known.
//!
//! A look tells how things are at a version, and the watch may not have got there yet. So it waits until the watch has told
//! everything up to that version, and not one event longer.

use argosy_object::Document;

use super::{Event, number};

/// What a look at the server has told of one kind, whose objects are told apart by `K`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked<K> {
    /// At this version.
    pub at: String,
    /// So many objects there were.
    pub count: Option<u64>,
    /// Objects that were there, or went, at these versions, and are not known so.
    pub seen: Vec<(K, String)>,
    /// Objects that were there and are not known, with their uids.
    pub strangers: Vec<(K, String)>,
}

/// The looks at one kind.
pub struct Looks<K> {
    waiting: Vec<Looked<K>>,
    /// Objects that are not known as they were seen. The next look is about them.
    unlike: Vec<(K, String)>,
    /// Objects that are not known, and their uids.
    strangers: Vec<(K, String)>,
    /// Lists in a row that could not be read whole, or one if an object could not be read since the last list.
    torn: u32,
    /// So many counts are not compared.
    passed_over: u32,
    /// It is time to see whether a list can be read whole now.
    list_is_due: bool,
}

/// Counts that pass before the next list, after lists that could not be read whole: twice as many each time, up to this power of two.
const PASSED_OVER_MAX: u32 = 6;

impl<K> Default for Looks<K> {
    fn default() -> Self {
        Looks {
            waiting: Vec::new(),
            unlike: Vec::new(),
            strangers: Vec::new(),
            torn: 0,
            passed_over: 0,
            list_is_due: false,
        }
    }
}

impl<K> Looks<K> {
    /// An object was seen in this version, and is not known so.
    pub fn unlike(&mut self, seen: (K, String)) {
        self.unlike.push(seen);
    }

    /// An object was seen as it is known: what was seen of it before was told since.
    pub fn alike(&mut self, key: &K)
    where
        K: PartialEq,
    {
        self.unlike.retain(|(unlike, _)| unlike != key);
    }

    /// An object was seen that is not known.
    pub fn stranger(&mut self, seen: (K, String)) {
        self.strangers.push(seen);
    }

    /// A list has come to its end. Where an object of it could not be read the count will differ, and another list would most
    /// likely find the same.
    pub fn listed(&mut self, whole: bool) {
        self.torn = if whole { 0 } else { self.torn.saturating_add(1) };
        self.passed_over = match self.torn.min(PASSED_OVER_MAX) {
            0 => 0,
            torn => 1 << torn,
        };
    }

    /// An object that has changed cannot be read. What is known of the kind is not all there is until a list says so.
    pub fn unreadable(&mut self) {
        if self.torn == 0 {
            self.listed(false);
        }
    }

    /// Whether the kind is to be listed because what could not be read may be readable by now.
    pub fn list_is_due(&mut self) -> bool {
        std::mem::take(&mut self.list_is_due)
    }

    /// What can be compared now that `event` is about to be told.
    pub fn due(&mut self, event: &Event) -> Vec<Looked<K>> {
        match event {
            Event::Audit {
                resource_version,
                count,
                due,
            } => {
                let passes_over = count.is_some() && self.passed_over > 0;
                self.passed_over -= u32::from(passes_over);
                self.list_is_due = count.is_some() && self.torn > 0 && !passes_over;
                let mut looked = Looked {
                    at: resource_version.clone(),
                    count: count.filter(|_| self.torn == 0),
                    seen: std::mem::take(&mut self.unlike),
                    strangers: std::mem::take(&mut self.strangers),
                };
                if self.torn > 0 {
                    // What cannot be read is not known.
                    looked.strangers.clear();
                }
                if count.is_some() {
                    // One of them is enough to wait for. Who was a stranger earlier may have gone by the time of this one.
                    looked
                        .seen
                        .extend(self.waiting.drain(..).flat_map(|earlier| earlier.seen));
                }
                if *due {
                    return vec![looked];
                }
                self.waiting.push(looked);
                Vec::new()
            }
            // The list tells everything.
            Event::ListStart => {
                self.waiting.clear();
                self.unlike.clear();
                self.strangers.clear();
                Vec::new()
            }
            _ => self
                .waiting
                .extract_if(.., |looked| passes(event, &looked.at))
                .collect(),
        }
    }
}

/// Whether everything up to this version has been told when `event` is about to be.
fn passes(event: &Event, version: &str) -> bool {
    match event {
        Event::Progress { resource_version } => number(resource_version) >= number(version),
        Event::Applied(bytes) | Event::Deleted(bytes) => {
            let path = ["metadata", "resourceVersion"];
            let told = Document::read(bytes, |object| object.str_at(&path).and_then(number));
            told.is_ok_and(|told| told > number(version))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use argosy_object::ResourceKey;

    use super::*;

    fn audit(at: &str, count: Option<u64>, due: bool) -> Event {
        Event::Audit {
            resource_version: at.to_owned(),
            count,
            due,
        }
    }

    fn applied(version: &str) -> Event {
        Event::Applied(format!(r#"{{"metadata":{{"name":"a","resourceVersion":"{version}"}}}}"#).into())
    }

    fn progress(version: &str) -> Event {
        Event::Progress {
            resource_version: version.to_owned(),
        }
    }

    fn map(name: &str) -> (ResourceKey, String) {
        (
            ResourceKey::new("", "ConfigMap", "default", name),
            "19".to_owned(),
        )
    }

    #[test]
    fn a_look_waits_until_its_version_is_told_and_no_event_longer() {
        let mut looks = Looks::<ResourceKey>::default();
        assert_eq!(looks.due(&audit("20", Some(3), false)), []);
        assert_eq!(looks.due(&applied("20")), [], "this one is of what was counted");
        assert_eq!(looks.due(&progress("19")), []);
        let due = looks.due(&applied("21"));
        assert_eq!((due.len(), due[0].at.as_str()), (1, "20"));
        assert_eq!(looks.due(&applied("22")), []);
        looks.due(&audit("30", Some(3), false));
        assert_eq!(looks.due(&progress("30")).len(), 1);
    }

    #[test]
    fn what_is_told_already_is_compared_at_once() {
        let mut looks = Looks::<ResourceKey>::default();
        looks.unlike(map("a"));
        let due = looks.due(&audit("20", None, true));
        assert_eq!(due[0].seen, [map("a")]);
        assert_eq!(looks.due(&audit("21", None, true))[0].seen, []);
    }

    #[test]
    fn a_count_takes_over_what_earlier_looks_wait_with() {
        let mut looks = Looks::<ResourceKey>::default();
        looks.unlike(map("a"));
        looks.due(&audit("20", None, false));
        looks.unlike(map("b"));
        looks.due(&audit("30", Some(2), false));
        let due = looks.due(&progress("40"));
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].seen, [map("b"), map("a")]);
    }

    #[test]
    fn lists_are_rare_where_they_cannot_be_read_whole() {
        let mut looks = Looks::<ResourceKey>::default();
        let mut until_listed = |whole| {
            looks.listed(whole);
            let due = |_: &i32| {
                let looked = looks.due(&audit("20", Some(3), true));
                assert_eq!(
                    looked[0].count.is_some(),
                    whole,
                    "a count differs where something is missing"
                );
                looks.list_is_due()
            };
            (0..100).find(due)
        };
        for counts in [2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(until_listed(false), Some(counts));
        }
        assert_eq!(until_listed(true), None);
        assert_eq!(until_listed(false), Some(2));
    }

    #[test]
    fn an_object_that_cannot_be_read_has_the_kind_listed_in_time() {
        let mut looks = Looks::<ResourceKey>::default();
        for _ in 0..3 {
            looks.unreadable();
        }
        let due = |_: &i32| {
            looks.due(&audit("20", Some(3), true));
            looks.list_is_due()
        };
        assert_eq!((0..100).find(due), Some(2));
    }

    #[test]
    fn a_list_takes_the_place_of_all_looks() {
        let mut looks = Looks::<ResourceKey>::default();
        looks.unlike(map("a"));
        looks.due(&audit("20", Some(1), false));
        looks.due(&Event::ListStart);
        assert_eq!(looks.due(&progress("40")), []);
    }
}
