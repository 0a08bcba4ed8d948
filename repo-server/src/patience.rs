//! Hosts that have said to be left alone for a while (`Retry-After`): they are, by all who ask as the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long a host is left alone that asks for it without saying how long.
const UNSAID: Duration = Duration::from_secs(60);
/// At most; some say a day.
const MAX: Duration = Duration::from_secs(3600);
/// Hosts that are remembered.
const MAX_HOSTS: usize = 10_000;

/// Until when who is left alone by whom: origin, and name of the credentials.
#[derive(Default)]
pub(crate) struct Patience(Mutex<HashMap<(String, String), Instant>>);

impl Patience {
    /// How long an origin is still to be left alone.
    pub(crate) fn left(&self, origin: &str, whom: &str) -> Option<Duration> {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (origin.to_owned(), whom.to_owned());
        let left = hosts.get(&key)?.checked_duration_since(Instant::now());
        if left.is_none() {
            hosts.remove(&key);
        }
        left
    }

    /// An origin has asked for patience; gives how long it is left alone.
    pub(crate) fn have(&self, origin: &str, whom: &str, retry_after: Option<Duration>) -> Duration {
        let after = retry_after.unwrap_or(UNSAID).min(MAX);
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_HOSTS {
            let now = Instant::now();
            hosts.retain(|_, until| *until > now);
        }
        if hosts.len() < MAX_HOSTS {
            hosts.insert((origin.to_owned(), whom.to_owned()), Instant::now() + after);
        }
        after
    }
}

/// Reads a `Retry-After`: seconds, or a date.
pub(crate) fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    let date = SystemTime::from(date.timestamp());
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        // 21 October 2015, 07:28:00.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_480);
        let read = |text: &str| retry_after(text, now);
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        let date = "Wed, 21 Oct 2015 07:28:30 GMT";
        assert_eq!(read(date), Some(Duration::from_secs(30)));
        assert_eq!(read("Wed, 21 Oct 2015 07:27:30 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn who_asks_as_somebody_else_is_not_held_back() {
        let patience = Patience::default();
        let minute = Duration::from_secs(60);
        assert_eq!(patience.have("https://a", "x", None), minute);
        assert_eq!(patience.have("https://b", "x", Some(minute * 1440)), MAX);
        assert!(patience.left("https://a", "x").is_some_and(|left| left <= minute));
        assert_eq!(patience.left("https://a", "y"), None);
        patience.have("https://a", "x", Some(Duration::ZERO));
        assert_eq!(patience.left("https://a", "x"), None);
    }
}
