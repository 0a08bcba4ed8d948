//! Lua patterns, matched with a bound on the work.
//!
//! The grammar is that of the Lua 5.1 manual, 5.4.1, plus `%f`. The bound is what the machine's own matcher lacks: `('a?'):rep(n)` against
//! `('a'):rep(n)` takes 2ⁿ steps.

/// Steps one search may take; a step is one pattern item tried at one place.
const STEPS: u32 = 2_000_000;
/// Depth of alternatives that are open at the same time, so that the thread's stack suffices.
const DEPTH: u32 = 200;
const CAPTURES: usize = 32;

/// What a group caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    /// From (inclusive) and to (exclusive).
    Span(usize, usize),
    /// `()`: a place, counted from 0.
    Position(usize),
}

/// A match: its span and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) captures: Vec<Capture>,
}

#[derive(Clone, Copy)]
enum Open {
    Span(usize),
    Closed(Capture),
}

struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    groups: Vec<Open>,
    steps: u32,
    depth: u32,
}

/// The first match at or after `from`.
///
/// # Errors
/// A malformed pattern, or one that takes too many steps.
pub(super) fn find(subject: &[u8], pattern: &[u8], from: usize) -> Result<Option<Match>, String> {
    let (anchored, pattern) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut matcher = Matcher {
        subject,
        pattern,
        groups: Vec::new(),
        steps: 0,
        depth: 0,
    };
    let mut start = from;
    while start <= subject.len() {
        matcher.groups.clear();
        if let Some(end) = matcher.here(start, 0)? {
            return Ok(Some(Match {
                start,
                end,
                captures: matcher.finish()?,
            }));
        }
        if anchored {
            break;
        }
        start += 1;
    }
    Ok(None)
}

impl Matcher<'_> {
    fn finish(&self) -> Result<Vec<Capture>, String> {
        self.groups
            .iter()
            .map(|group| match group {
                Open::Closed(capture) => Ok(*capture),
                Open::Span(_) => Err("unfinished capture".to_owned()),
            })
            .collect()
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS {
            Err("pattern too complex".to_owned())
        } else {
            Ok(())
        }
    }

    /// Matches the pattern from `at` against the subject from `place`; the end of the match.
    fn here(&mut self, place: usize, at: usize) -> Result<Option<usize>, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("pattern too complex".to_owned());
        }
        let end = self.items(place, at);
        self.depth -= 1;
        end
    }

    fn items(&mut self, mut place: usize, mut at: usize) -> Result<Option<usize>, String> {
        loop {
            self.step()?;
            match self.pattern.get(at) {
                None => return Ok(Some(place)),
                Some(b'(') if self.pattern.get(at + 1) == Some(&b')') => {
                    return self.group(Open::Closed(Capture::Position(place)), place, at + 2);
                }
                Some(b'(') => return self.group(Open::Span(place), place, at + 1),
                Some(b')') => return self.close(place, at + 1),
                Some(b'$') if at + 1 == self.pattern.len() => {
                    return Ok((place == self.subject.len()).then_some(place));
                }
                Some(b'%') if self.pattern.get(at + 1) == Some(&b'b') => {
                    match self.balanced(place, at + 2)? {
                        Some(next) => (place, at) = (next, at + 4),
                        None => return Ok(None),
                    }
                }
                Some(b'%') if self.pattern.get(at + 1) == Some(&b'f') => {
                    let set = at + 2;
                    if self.pattern.get(set) != Some(&b'[') {
                        return Err("missing '[' after '%f' in pattern".to_owned());
                    }
                    let after = self.item_end(set)?;
                    let before = if place == 0 { 0 } else { self.subject[place - 1] };
                    let next = self.subject.get(place).copied().unwrap_or(0);
                    if self.in_set(before, set, after) || !self.in_set(next, set, after) {
                        return Ok(None);
                    }
                    at = after;
                }
                Some(b'%') if self.pattern.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                    match self.back_reference(place, self.pattern[at + 1])? {
                        Some(next) => (place, at) = (next, at + 2),
                        None => return Ok(None),
                    }
                }
                Some(_) => {
                    let after = self.item_end(at)?;
                    match self.pattern.get(after) {
                        Some(b'*') => return self.most(place, at, after, 0),
                        Some(b'+') => return self.most(place, at, after, 1),
                        Some(b'-') => return self.least(place, at, after),
                        Some(b'?') => {
                            if self.single(place, at, after)
                                && let Some(end) = self.here(place + 1, after + 1)?
                            {
                                return Ok(Some(end));
                            }
                            at = after + 1;
                        }
                        _ => {
                            if !self.single(place, at, after) {
                                return Ok(None);
                            }
                            place += 1;
                            at = after;
                        }
                    }
                }
            }
        }
    }

    fn group(&mut self, group: Open, place: usize, at: usize) -> Result<Option<usize>, String> {
        if self.groups.len() == CAPTURES {
            return Err("too many captures".to_owned());
        }
        let level = self.groups.len();
        self.groups.push(group);
        let end = self.here(place, at)?;
        if end.is_none() {
            self.groups.truncate(level);
        }
        Ok(end)
    }

    fn close(&mut self, place: usize, at: usize) -> Result<Option<usize>, String> {
        let open = self
            .groups
            .iter()
            .rposition(|group| matches!(group, Open::Span(_)));
        let Some(level) = open else {
            return Err("invalid pattern capture".to_owned());
        };
        let before = self.groups[level];
        if let Open::Span(start) = before {
            self.groups[level] = Open::Closed(Capture::Span(start, place));
        }
        let end = self.here(place, at)?;
        if end.is_none() {
            self.groups[level] = before;
        }
        Ok(end)
    }

    fn most(&mut self, place: usize, at: usize, after: usize, least: usize) -> Result<Option<usize>, String> {
        let mut count = 0;
        while self.single(place + count, at, after) {
            self.step()?;
            count += 1;
        }
        while count >= least {
            if let Some(end) = self.here(place + count, after + 1)? {
                return Ok(Some(end));
            }
            if count == 0 {
                break;
            }
            count -= 1;
        }
        Ok(None)
    }

    fn least(&mut self, mut place: usize, at: usize, after: usize) -> Result<Option<usize>, String> {
        loop {
            if let Some(end) = self.here(place, after + 1)? {
                return Ok(Some(end));
            }
            if !self.single(place, at, after) {
                return Ok(None);
            }
            place += 1;
        }
    }

    fn balanced(&self, place: usize, at: usize) -> Result<Option<usize>, String> {
        let (Some(&open), Some(&close)) = (self.pattern.get(at), self.pattern.get(at + 1)) else {
            return Err("unbalanced pattern".to_owned());
        };
        if self.subject.get(place) != Some(&open) {
            return Ok(None);
        }
        let mut level = 1;
        for (offset, &byte) in self.subject[place + 1..].iter().enumerate() {
            if byte == close {
                level -= 1;
                if level == 0 {
                    return Ok(Some(place + offset + 2));
                }
            } else if byte == open {
                level += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&self, place: usize, digit: u8) -> Result<Option<usize>, String> {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let Some(Open::Closed(Capture::Span(start, end))) = self.groups.get(index) else {
            return Err("invalid capture index".to_owned());
        };
        let text = &self.subject[*start..*end];
        Ok(self.subject[place..]
            .starts_with(text)
            .then(|| place + text.len()))
    }

    /// Where the single-character item at `at` ends in the pattern.
    fn item_end(&self, at: usize) -> Result<usize, String> {
        match self.pattern[at] {
            b'%' => {
                if at + 1 >= self.pattern.len() {
                    return Err("malformed pattern (ends with '%')".to_owned());
                }
                Ok(at + 2)
            }
            b'[' => {
                let mut next = at + 1;
                if self.pattern.get(next) == Some(&b'^') {
                    next += 1;
                }
                loop {
                    // The first character of a set is taken as it is, even `]`.
                    match self.pattern.get(next) {
                        None => return Err("malformed pattern (missing ']')".to_owned()),
                        Some(b'%') => next += 2,
                        Some(_) => next += 1,
                    }
                    if self.pattern.get(next) == Some(&b']') {
                        return Ok(next + 1);
                    }
                }
            }
            _ => Ok(at + 1),
        }
    }

    fn single(&self, place: usize, at: usize, after: usize) -> bool {
        let Some(&byte) = self.subject.get(place) else {
            return false;
        };
        match self.pattern[at] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[at + 1]),
            b'[' => self.in_set(byte, at, after),
            literal => literal == byte,
        }
    }

    /// Whether `byte` is in the set from `at` (its `[`) to `after` (behind its `]`).
    fn in_set(&self, byte: u8, at: usize, after: usize) -> bool {
        let mut set = &self.pattern[at + 1..after - 1];
        let negated = set.first() == Some(&b'^');
        if negated {
            set = &set[1..];
        }
        let mut found = false;
        let mut next = 0;
        while next < set.len() {
            if set[next] == b'%' && next + 1 < set.len() {
                found |= in_class(byte, set[next + 1]);
                next += 2;
            } else if next + 2 < set.len() && set[next + 1] == b'-' {
                found |= (set[next]..=set[next + 2]).contains(&byte);
                next += 3;
            } else {
                found |= set[next] == byte;
                next += 1;
            }
        }
        found != negated
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    found != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found<'a>(subject: &'a str, pattern: &str) -> Option<&'a str> {
        find(subject.as_bytes(), pattern.as_bytes(), 0)
            .unwrap()
            .map(|hit| &subject[hit.start..hit.end])
    }

    #[test]
    fn items_and_repetitions() {
        assert_eq!(found("hello 42 world", "%d+"), Some("42"));
        assert_eq!(found("hello", "l*"), Some(""));
        assert_eq!(found("<a><b>", "<.->"), Some("<a>"));
        assert_eq!(found("<a><b>", "<.*>"), Some("<a><b>"));
        assert_eq!(found("colour", "colou?r"), Some("colour"));
        assert_eq!(found("color", "colou?r"), Some("color"));
        assert_eq!(found("a]b", "[]]"), Some("]"));
        assert_eq!(found("a-b", "[%-x]"), Some("-"));
        assert_eq!(found("key = value", "^(%w+)%s*=%s*(%w+)$"), Some("key = value"));
        assert_eq!(found("xkey", "^key"), None);
        assert_eq!(found("f(a(b)c)d", "%b()"), Some("(a(b)c)"));
        assert_eq!(found("THE (quick) fox", "%f[%a]%a+%f[%A]"), Some("THE"));
        assert_eq!(found("say \"hi\" now", "([\"'])(.-)%1"), Some("\"hi\""));
        assert_eq!(found("v1beta2", "^v%d+[a-z]*%d*$"), Some("v1beta2"));
        assert_eq!(found("a.b", "%."), Some("."));
        assert_eq!(found("abc", "[^a]+"), Some("bc"));
    }

    #[test]
    fn groups_and_places() {
        let hit = find(b"k=v", b"()(%w)=(%w)()", 0).unwrap().unwrap();
        assert_eq!(
            hit.captures,
            vec![
                Capture::Position(0),
                Capture::Span(0, 1),
                Capture::Span(2, 3),
                Capture::Position(3)
            ]
        );
    }

    #[test]
    fn malformed_and_hostile_patterns_are_errors() {
        assert!(find(b"a", b"[a", 0).is_err());
        assert!(find(b"a", b"%", 0).is_err());
        assert!(find(b"a", b"(a", 0).is_err());
        assert!(find(b"a", b"a)", 0).is_err());
        let (subject, pattern) = ("a".repeat(40), format!("{}{}", "a?".repeat(40), "a".repeat(41)));
        assert!(find(subject.as_bytes(), pattern.as_bytes(), 0).is_err());
    }
}
