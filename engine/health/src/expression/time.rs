//! A moment as text, in UTC.

use jiff::Timestamp;
use jiff::fmt::strtime;

/// `format`, in the letters of `strftime`, filled in; as it is if it has letters that are none. `at` is in Unix seconds.
pub(super) fn format(format: &str, at: i64) -> String {
    let moment = Timestamp::from_second(at);
    let text = moment.and_then(|moment| strtime::format(format, moment));
    text.unwrap_or_else(|_| format.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        assert_eq!(format("%Y-%m-%dT%XZ", 0), "1970-01-01T00:00:00Z");
        assert_eq!(format("%Y-%m-%dT%H:%M:%SZ", 951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format("%y%m%d%H%M", 1_704_067_199), "2312312359");
        assert_eq!(format("100%", -1), "100%");
    }
}
