//! Sync windows of a project: may this Application sync now? Pure.
//!
//! A window opens when its schedule says so and stays open for its duration. Open `deny` windows shut out, open `allow`
//! windows let in, and where there are `allow` windows of which none is open, nobody gets in. A window may let people
//! through (`manualSync`), or a sync that began while it was allowed (`syncOverrun`).

use crate::v1alpha1::{Application, SyncWindow};
use crate::{duration, glob};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// A schedule that has no time within so many years has none at all.
const YEARS_MAX: i16 = 5;

/// Who wants to sync, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// A person asked for it.
    pub manual: bool,
    /// When the operation began, if it did already.
    pub started: Option<Timestamp>,
}

/// May `app` sync at `now`? `server` and `name` are its destination's. A window that cannot be read counts as open if it
/// denies and as shut if it allows: nobody syncs by a typing error.
pub fn permits(
    windows: &[SyncWindow],
    app: &Application,
    server: &str,
    name: &str,
    attempt: Attempt,
    now: Timestamp,
) -> bool {
    permits_at(&of_app(windows, app, server, name), attempt, now)
}

/// The windows that concern `app`; `server` and `name` are its destination's.
pub fn of_app<'a>(
    windows: &'a [SyncWindow],
    app: &Application,
    server: &str,
    name: &str,
) -> Vec<&'a SyncWindow> {
    windows
        .iter()
        .filter(|window| matches(window, app, server, name))
        .collect()
}

/// Is the window open at `now`? One that cannot be read counts as open if it denies and as shut if it allows.
pub fn is_open(window: &SyncWindow, now: Timestamp) -> bool {
    open(window, now).unwrap_or(window.kind == "deny")
}

/// Says what keeps a window from being read, if anything does.
///
/// # Errors
/// With the field and what is wrong with it.
pub fn validate(window: &SyncWindow) -> Result<(), String> {
    if window.kind != "allow" && window.kind != "deny" {
        return Err(format!(
            "kind '{}' mismatch: can only be allow or deny",
            window.kind
        ));
    }
    if Schedule::parse(&window.schedule).is_none() {
        return Err(format!("cannot parse schedule '{}'", window.schedule));
    }
    if duration::parse(&window.duration).is_err() {
        return Err(format!("cannot parse duration '{}'", window.duration));
    }
    if !window.time_zone.is_empty() && TimeZone::get(&window.time_zone).is_err() {
        return Err(format!("cannot parse time zone '{}'", window.time_zone));
    }
    if window.applications.is_empty() && window.namespaces.is_empty() && window.clusters.is_empty() {
        return Err("one of applications, namespaces or clusters must be given".to_owned());
    }
    Ok(())
}

/// Whether two windows are one: of the same kind, at the same times, for the same Applications. What else a window says may differ.
pub fn is_same(a: &SyncWindow, b: &SyncWindow) -> bool {
    let identity = |window: &SyncWindow| SyncWindow {
        manual_sync: false,
        sync_overrun: false,
        description: String::new(),
        ..window.clone()
    };
    identity(a) == identity(b)
}

fn permits_at(windows: &[&SyncWindow], attempt: Attempt, now: Timestamp) -> bool {
    let (denying, allowing): (Vec<&SyncWindow>, Vec<&SyncWindow>) =
        windows.iter().copied().partition(|window| window.kind == "deny");
    let lets_through = |shut: &[&SyncWindow]| {
        let by_hand = attempt.manual && shut.iter().all(|window| window.manual_sync);
        let overrun = shut.iter().all(|window| window.sync_overrun)
            && attempt.started.is_some_and(|started| {
                let before = Attempt {
                    started: None,
                    ..attempt
                };
                permits_at(windows, before, started)
            });
        by_hand || overrun
    };
    let denying: Vec<_> = denying
        .into_iter()
        .filter(|window| open(window, now).unwrap_or(true))
        .collect();
    if !denying.is_empty() {
        return lets_through(&denying);
    }
    if allowing.is_empty() || allowing.iter().any(|window| open(window, now).unwrap_or(false)) {
        return true;
    }
    lets_through(&allowing)
}

/// Does the window concern the Application? Its selectors are alternatives, unless it says that all must match.
fn matches(window: &SyncWindow, app: &Application, server: &str, name: &str) -> bool {
    let any = |patterns: &[String], texts: &[&str]| {
        let text = |pattern: &String| {
            texts
                .iter()
                .any(|text| !text.is_empty() && glob::matches(pattern, text))
        };
        (!patterns.is_empty()).then(|| patterns.iter().any(text))
    };
    let selectors = [
        any(&window.applications, &[&app.metadata.name]),
        any(&window.namespaces, &[&app.spec.destination.namespace]),
        any(&window.clusters, &[server, name]),
    ];
    let mut given = selectors.into_iter().flatten();
    if window.and_operator {
        let given: Vec<bool> = given.collect();
        !given.is_empty() && given.into_iter().all(|matched| matched)
    } else {
        given.any(|matched| matched)
    }
}

/// Is the window open? Nothing if it cannot be read.
fn open(window: &SyncWindow, now: Timestamp) -> Option<bool> {
    let lasts = duration::parse(&window.duration).ok()?;
    let zone = match window.time_zone.as_str() {
        "" => TimeZone::UTC,
        zone => TimeZone::get(zone).ok()?,
    };
    let schedule = Schedule::parse(&window.schedule)?;
    let from = now
        .checked_sub(jiff::SignedDuration::try_from(lasts).ok()?)
        .ok()?;
    Some(schedule.next(from, &zone).is_some_and(|opens| opens < now))
}

/// When a window opens: the five fields of cron, or a word for them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Schedule {
    /// Bits of the permitted values.
    Fields {
        minutes: u64,
        hours: u64,
        days: u64,
        months: u64,
        weekdays: u64,
        any_day: bool,
        any_weekday: bool,
    },
    /// `@every` so long.
    Every(std::time::Duration),
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    fn parse(text: &str) -> Option<Schedule> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => match other.strip_prefix("@every ") {
                Some(every) => return duration::parse(every.trim()).ok().map(Schedule::Every),
                None => other,
            },
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return None;
        };
        Some(Schedule::Fields {
            minutes: field(minutes, 0, 59, &[])?,
            hours: field(hours, 0, 23, &[])?,
            days: field(days, 1, 31, &[])?,
            months: field(months, 1, 12, &MONTHS)?,
            weekdays: field(weekdays, 0, 6, &WEEKDAYS)?,
            any_day: any(days),
            any_weekday: any(weekdays),
        })
    }

    /// The first time after `from`.
    fn next(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let Schedule::Fields {
            minutes,
            hours,
            months,
            ..
        } = self
        else {
            let Schedule::Every(every) = self else { return None };
            return from
                .checked_add(jiff::SignedDuration::try_from(*every).ok()?)
                .ok();
        };
        let start = zone.to_datetime(from);
        let mut at = start.date().at(start.hour(), start.minute(), 0, 0);
        at = minute_later(at)?;
        let last = start.year() + YEARS_MAX;
        while at.year() <= last {
            if !has(*months, at.month()) {
                at = at
                    .date()
                    .first_of_month()
                    .checked_add(jiff::Span::new().months(1))
                    .ok()?
                    .at(0, 0, 0, 0);
            } else if !self.on_day(at) {
                at = at.date().tomorrow().ok()?.at(0, 0, 0, 0);
            } else if !has(*hours, at.hour()) {
                at = at
                    .date()
                    .at(at.hour(), 0, 0, 0)
                    .checked_add(jiff::Span::new().hours(1))
                    .ok()?;
            } else if !has(*minutes, at.minute()) {
                at = minute_later(at)?;
            } else {
                return zone.to_timestamp(at).ok();
            }
        }
        None
    }

    /// Day of the month and day of the week: either will do when both are given.
    fn on_day(&self, at: DateTime) -> bool {
        let Schedule::Fields {
            days,
            weekdays,
            any_day,
            any_weekday,
            ..
        } = self
        else {
            return false;
        };
        let day = has(*days, at.day());
        let weekday = has(*weekdays, at.weekday().to_sunday_zero_offset());
        if *any_day || *any_weekday {
            day && weekday
        } else {
            day || weekday
        }
    }
}

fn minute_later(at: DateTime) -> Option<DateTime> {
    at.checked_add(jiff::Span::new().minutes(1)).ok()
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}

/// A field that leaves every day open.
fn any(text: &str) -> bool {
    text.split(',')
        .any(|part| matches!(part.split('/').next(), Some("*" | "?")))
}

/// `*`, `?`, `a`, `a-b`, each perhaps with `/step`, joined by commas.
fn field(text: &str, min: u32, max: u32, names: &[&str]) -> Option<u64> {
    let number = |text: &str| {
        let lower = text.to_ascii_lowercase();
        let named = names
            .iter()
            .position(|name| *name == lower)
            .and_then(|at| u32::try_from(at).ok());
        named.map(|at| at + min).or_else(|| text.parse().ok())
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match range {
            "*" | "?" => (min, max),
            _ => match range.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                // `a/step` goes on to the end.
                None if part.contains('/') => (number(range)?, max),
                None => (number(range)?, number(range)?),
            },
        };
        if from < min || to > max || from > to {
            return None;
        }
        for value in (from..=to).step_by(step as usize) {
            bits |= 1 << value;
        }
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn next(schedule: &str, from: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        Schedule::parse(schedule)
            .unwrap()
            .next(at(from), &zone)
            .unwrap()
            .to_string()
    }

    #[test]
    fn windows_of_the_same_times_for_the_same_applications_are_one() {
        let window = SyncWindow {
            kind: "allow".into(),
            schedule: "0 22 * * *".into(),
            duration: "1h".into(),
            applications: vec!["night-*".into()],
            ..SyncWindow::default()
        };
        let told_otherwise = SyncWindow {
            manual_sync: true,
            sync_overrun: true,
            description: "At night".into(),
            ..window.clone()
        };
        assert!(is_same(&window, &told_otherwise));
        let elsewhere = SyncWindow {
            time_zone: "Europe/Zurich".into(),
            ..window.clone()
        };
        assert!(!is_same(&window, &elsewhere));
    }

    #[test]
    fn schedules_find_their_next_time() {
        // 2026-11-29 is a Sunday.
        for (schedule, expected) in [
            ("* * * * *", "2026-11-29T15:01:00Z"),
            ("0 22 * * *", "2026-11-29T22:00:00Z"),
            ("*/20 * * * *", "2026-11-29T15:20:00Z"),
            ("30 8 * * mon-fri", "2026-11-30T08:30:00Z"),
            ("0 0 1 jan *", "2027-01-01T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            ("0 12 15 * 2", "2026-12-01T12:00:00Z"),
            ("@hourly", "2026-11-29T16:00:00Z"),
            ("@weekly", "2026-12-06T00:00:00Z"),
        ] {
            assert_eq!(
                next(schedule, "2026-11-29T15:00:30Z", "UTC"),
                expected,
                "{schedule}"
            );
        }
    }

    #[test]
    fn schedules_go_by_their_zone() {
        assert_eq!(
            next("0 22 * * *", "2026-07-01T00:00:00Z", "Europe/Berlin"),
            "2026-07-01T20:00:00Z"
        );
        assert_eq!(
            next("0 22 * * *", "2026-12-01T00:00:00Z", "Europe/Berlin"),
            "2026-12-01T21:00:00Z"
        );
    }

    #[test]
    fn what_is_no_schedule_is_none() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* * * * 7",
            "5-1 * * * *",
            "@sometimes",
            "*/0 * * * *",
        ] {
            assert_eq!(Schedule::parse(text), None, "{text}");
        }
    }

    fn window(kind: &str, schedule: &str, lasts: &str) -> SyncWindow {
        SyncWindow {
            kind: kind.into(),
            schedule: schedule.into(),
            duration: lasts.into(),
            applications: vec!["*".into()],
            ..SyncWindow::default()
        }
    }

    fn ask(windows: &[SyncWindow], manual: bool, started: Option<&str>, now: &str) -> bool {
        let mut app = Application::default();
        app.metadata.name = "web".into();
        let attempt = Attempt {
            manual,
            started: started.map(at),
        };
        permits(windows, &app, "https://c1", "one", attempt, at(now))
    }

    #[test]
    fn open_denials_shut_out_and_shut_allowances_too() {
        let night = "2026-11-29T23:00:00Z";
        let day = "2026-11-29T12:00:00Z";
        let deny = [window("deny", "0 22 * * *", "2h")];
        assert!(ask(&deny, false, None, day) && !ask(&deny, false, None, night));
        let allow = [window("allow", "0 22 * * *", "2h")];
        assert!(!ask(&allow, false, None, day) && ask(&allow, false, None, night));
        let both = [
            window("allow", "0 22 * * *", "2h"),
            window("deny", "30 22 * * *", "1h"),
        ];
        assert!(ask(&both, false, None, "2026-11-29T22:15:00Z") && !ask(&both, false, None, night));
        assert!(ask(&[], false, None, night));
    }

    #[test]
    fn people_get_through_where_every_shut_window_lets_them() {
        let mut deny = [
            window("deny", "0 22 * * *", "2h"),
            window("deny", "0 22 * * *", "3h"),
        ];
        deny[0].manual_sync = true;
        assert!(!ask(&deny, true, None, "2026-11-29T23:00:00Z"));
        deny[1].manual_sync = true;
        assert!(ask(&deny, true, None, "2026-11-29T23:00:00Z"));
        assert!(!ask(&deny, false, None, "2026-11-29T23:00:00Z"));
    }

    #[test]
    fn a_sync_that_began_in_time_may_overrun() {
        let mut deny = [window("deny", "0 22 * * *", "2h")];
        let (before, now) = (Some("2026-11-29T21:59:00Z"), "2026-11-29T22:10:00Z");
        assert!(!ask(&deny, false, before, now));
        deny[0].sync_overrun = true;
        assert!(ask(&deny, false, before, now));
        assert!(!ask(&deny, false, Some("2026-11-29T22:05:00Z"), now));
    }

    #[test]
    fn selectors_are_alternatives_unless_all_must_match() {
        let mut deny = window("deny", "* * * * *", "1h");
        (deny.applications, deny.clusters) = (vec!["other".into()], vec!["https://c*".into()]);
        assert!(!ask(
            std::slice::from_ref(&deny),
            false,
            None,
            "2026-11-29T12:00:00Z"
        ));
        deny.and_operator = true;
        assert!(ask(
            std::slice::from_ref(&deny),
            false,
            None,
            "2026-11-29T12:00:00Z"
        ));
    }

    #[test]
    fn a_window_that_cannot_be_read_lets_nobody_in() {
        assert!(!ask(
            &[window("deny", "nonsense", "1h")],
            false,
            None,
            "2026-11-29T12:00:00Z"
        ));
        assert!(!ask(
            &[window("allow", "nonsense", "1h")],
            false,
            None,
            "2026-11-29T12:00:00Z"
        ));
    }
}
