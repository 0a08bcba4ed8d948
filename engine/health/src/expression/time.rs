//! A moment as text, in UTC.

/// `format` with `%Y %y %m %d %H %M %S` and `%X` (`%H:%M:%S`) filled in. `at` is in Unix seconds.
pub(super) fn format(format: &str, at: i64) -> String {
    let (days, seconds) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => text.push_str(&format!("{year:04}")),
            Some('y') => text.push_str(&format!("{:02}", year.rem_euclid(100))),
            Some('m') => text.push_str(&format!("{month:02}")),
            Some('d') => text.push_str(&format!("{day:02}")),
            Some('H') => text.push_str(&format!("{hour:02}")),
            Some('M') => text.push_str(&format!("{minute:02}")),
            Some('S') => text.push_str(&format!("{second:02}")),
            Some('X') => text.push_str(&format!("{hour:02}:{minute:02}:{second:02}")),
            Some(other) => text.push(other),
            None => text.push('%'),
        }
    }
    text
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are counted from March, so that the odd day
/// of a leap year is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let from_year_0 = days + 719_468;
    let era = from_year_0.div_euclid(DAYS_OF_400_YEARS);
    let day_of_era = from_year_0.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
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
