//! When a failed operation is tried again.

use std::time::Duration;

use argosy_object::duration;

/// `syncPolicy.retry` of an Application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// Attempts after the first; negative means without end.
    pub limit: i64,
    /// The pauses between them.
    pub backoff: Backoff,
    /// Each attempt goes to the newest revision.
    pub refresh: bool,
}

/// The pauses as they are written; empty and absent mean the defaults: 5 s, doubled each time, at most 3 min.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause: seconds, or a Go duration.
    pub duration: String,
    /// How much longer the next one is.
    pub factor: Option<i64>,
    /// The longest pause: seconds, or a Go duration. Zero means no limit.
    pub max_duration: String,
}

/// The text of a duration that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse {0:?} as a duration")]
pub struct InvalidDuration(pub String);

const DURATION: Duration = Duration::from_secs(5);
const MAX_DURATION: Duration = Duration::from_secs(180);
const FACTOR: i64 = 2;

impl Strategy {
    /// True if one more attempt is allowed after this many retries.
    pub fn allows(&self, retry_count: i64) -> bool {
        self.limit < 0 || retry_count < self.limit
    }
}

impl Backoff {
    /// The pause before the next attempt, after `retry_count` retries: duration × factor^retry_count, at most max_duration.
    ///
    /// # Errors
    /// If a duration cannot be read.
    pub fn pause(&self, retry_count: i64) -> Result<Duration, InvalidDuration> {
        let first = read(&self.duration, DURATION)?;
        let longest = read(&self.max_duration, MAX_DURATION)?;
        let factor = self.factor.unwrap_or(FACTOR) as f64;
        let seconds = first.as_secs_f64() * factor.powf(retry_count as f64);
        let limit = if longest.is_zero() {
            YEAR
        } else {
            longest.as_secs_f64()
        };
        // Written so that what is no number becomes the limit, too.
        let bounded = if seconds < limit { seconds.max(0.0) } else { limit };
        Ok(Duration::from_secs_f64(bounded))
    }
}

/// What stands for "no limit"; a `Duration` must not overflow.
const YEAR: f64 = 365.0 * 24.0 * 3600.0;

/// A whole number is seconds, anything else a Go duration.
fn read(text: &str, default: Duration) -> Result<Duration, InvalidDuration> {
    if text.is_empty() {
        return Ok(default);
    }
    if let Ok(seconds) = text.parse::<i64>() {
        return Ok(Duration::from_secs(seconds.max(0) as u64));
    }
    let nanoseconds = duration::parse(text).map_err(|_| InvalidDuration(text.to_owned()))?;
    Ok(Duration::from_nanos(nanoseconds.max(0) as u64))
}

/// The text of an operation that waits for its next attempt. `at` is that moment in Unix seconds, printed in UTC.
pub fn message(failure: &str, attempt: i64, at: i64) -> String {
    format!("{failure}. Retrying attempt #{attempt} at {}.", kitchen(at))
}

/// Go's `time.Kitchen`: `3:04PM`.
fn kitchen(at: i64) -> String {
    let minutes = at.div_euclid(60).rem_euclid(24 * 60);
    let (hour, minute) = (minutes / 60, minutes % 60);
    let half = if hour < 12 { "AM" } else { "PM" };
    let hour = if hour % 12 == 0 { 12 } else { hour % 12 };
    format!("{hour}:{minute:02}{half}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_default_pauses_double_from_five_seconds_to_three_minutes() {
        let pauses: Vec<u64> = (0..7)
            .map(|count| Backoff::default().pause(count).unwrap().as_secs())
            .collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 180]);
    }

    #[test]
    fn durations_are_seconds_or_go_durations() {
        let backoff = Backoff {
            duration: "10".into(),
            factor: Some(3),
            max_duration: "1m".into(),
        };
        let pauses: Vec<u64> = (0..3)
            .map(|count| backoff.pause(count).unwrap().as_secs())
            .collect();
        assert_eq!(pauses, [10, 30, 60]);
        let wrong = Backoff {
            duration: "soon".into(),
            ..Backoff::default()
        };
        assert_eq!(wrong.pause(0), Err(InvalidDuration("soon".into())));
    }

    #[test]
    fn a_factor_without_end_does_not_overflow() {
        let backoff = Backoff {
            duration: "1h".into(),
            factor: Some(i64::MAX),
            max_duration: "0".into(),
        };
        assert!(backoff.pause(1000).unwrap() <= Duration::from_secs(365 * 24 * 3600));
    }

    #[test]
    fn a_negative_limit_is_no_limit() {
        let strategy = |limit| Strategy {
            limit,
            ..Strategy::default()
        };
        assert!(
            strategy(-1).allows(1000)
                && strategy(2).allows(1)
                && !strategy(2).allows(2)
                && !strategy(0).allows(0)
        );
    }

    #[test]
    fn the_text_names_attempt_and_time() {
        assert_eq!(
            message("no luck", 2, 15 * 3600 + 4 * 60),
            "no luck. Retrying attempt #2 at 3:04PM."
        );
        assert_eq!(
            message("no luck", 1, 0),
            "no luck. Retrying attempt #1 at 12:00AM."
        );
    }
}
