//! Patterns of names: the globs of projects and settings, and the shell patterns of kinds.
//!
//! Two languages meet here, because Argo CD speaks both. [`Glob`] is the one of gobwas: `*` stops at separators, `**`
//! does not, `{a,b}` chooses. [`Glob::path`] is Go's `path/filepath`: no braces, and classes as a shell has them. Either
//! becomes a small automaton, so that no pattern takes more than pattern length times text length.

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    program: Vec<Step>,
}

/// A pattern that is not well formed. It matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read pattern {pattern:?}: {why}")]
pub struct Malformed {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Char(char),
    Any {
        except: Option<char>,
    },
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Go on at both.
    Fork(usize, usize),
    Jump(usize),
    Accept,
}

impl Glob {
    /// A pattern whose `*` and `?` do not match this separator.
    ///
    /// # Errors
    /// When a class is not closed, is empty, or is more than one range.
    pub fn new(pattern: &str, separator: Option<char>) -> Result<Self, Malformed> {
        let mut compiler = Compiler::new(pattern, separator);
        compiler.sequence(false)?;
        Ok(compiler.finish())
    }

    /// A shell pattern whose `*` and `?` do not match `/`.
    ///
    /// # Errors
    /// When a class is not closed, or the pattern ends in a backslash.
    pub fn path(pattern: &str) -> Result<Self, Malformed> {
        let mut compiler = Compiler::new(pattern, Some('/'));
        compiler.shell()?;
        Ok(compiler.finish())
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        let reached = self.run(text);
        reached.list.iter().any(|&at| self.program[at] == Step::Accept)
    }

    /// Where the automaton is after a text.
    fn run(&self, text: &str) -> States {
        let mut now = States::new(self.program.len());
        let mut next = States::new(self.program.len());
        now.add(&self.program, 0);
        for c in text.chars() {
            next.clear();
            for &at in &now.list {
                let goes_on = match &self.program[at] {
                    Step::Char(own) => *own == c,
                    Step::Any { except } => *except != Some(c),
                    Step::Class { negated, ranges } => {
                        ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
                    }
                    Step::Fork(..) | Step::Jump(_) | Step::Accept => false,
                };
                if goes_on {
                    next.add(&self.program, at + 1);
                }
            }
            std::mem::swap(&mut now, &mut next);
            if now.list.is_empty() {
                break;
            }
        }
        now
    }

    /// What of the texts that begin with `prefix` matches.
    pub fn beginning_with(&self, prefix: &str) -> Share {
        let reached = self.run(prefix);
        let all_the_rest = |&at: &usize| {
            // A star at the end: any character, and back to before it, or the end.
            self.program[at] == Step::Any { except: None }
                && at > 0
                && self.program.get(at + 1) == Some(&Step::Jump(at - 1))
                && self.program.get(at + 2) == Some(&Step::Accept)
        };
        match reached.list.as_slice() {
            [] => Share::Nothing,
            list if list.iter().any(all_the_rest) => Share::Everything,
            _ => Share::Something,
        }
    }
}

/// How much of some texts matches a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// None of them.
    Nothing,
    /// It may be any part of them.
    Something,
    /// All of them.
    Everything,
}

/// Whether a text matches a pattern; a malformed pattern matches nothing, as in Argo CD.
pub fn matches(pattern: &str, text: &str) -> bool {
    pattern == "*" || Glob::new(pattern, None).is_ok_and(|glob| glob.matches(text))
}

/// The same with a separator that `*` and `?` do not match.
pub fn matches_with_separator(pattern: &str, text: &str, separator: char) -> bool {
    Glob::new(pattern, Some(separator)).is_ok_and(|glob| glob.matches(text))
}

/// Whether a text matches a shell pattern.
pub fn matches_path(pattern: &str, text: &str) -> bool {
    Glob::path(pattern).is_ok_and(|glob| glob.matches(text))
}

/// Whether a text is in a list of globs and, between slashes, regular expressions.
pub fn matches_list<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    patterns.into_iter().any(|pattern| {
        let expression = pattern.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        expression
            .is_some_and(|expression| regex::Regex::new(expression).is_ok_and(|regex| regex.is_match(text)))
            || matches(pattern, text)
    })
}

/// The set of places an automaton is at.
struct States {
    list: Vec<usize>,
    seen: Vec<bool>,
}

impl States {
    fn new(len: usize) -> Self {
        Self {
            list: Vec::new(),
            seen: vec![false; len],
        }
    }

    fn clear(&mut self) {
        self.list.clear();
        self.seen.fill(false);
    }

    fn add(&mut self, program: &[Step], start: usize) {
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut self.seen[at], true) {
                continue;
            }
            match program[at] {
                Step::Jump(to) => open.push(to),
                Step::Fork(one, other) => open.extend([one, other]),
                _ => self.list.push(at),
            }
        }
    }
}

struct Compiler<'a> {
    pattern: &'a str,
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    separator: Option<char>,
    program: Vec<Step>,
}

impl<'a> Compiler<'a> {
    fn new(pattern: &'a str, separator: Option<char>) -> Self {
        Self {
            pattern,
            rest: pattern.chars().peekable(),
            separator,
            program: Vec::new(),
        }
    }

    fn finish(mut self) -> Glob {
        self.program.push(Step::Accept);
        Glob {
            program: self.program,
        }
    }

    fn malformed(&self, why: &'static str) -> Malformed {
        Malformed {
            pattern: self.pattern.to_owned(),
            why,
        }
    }

    /// Any number of what follows.
    fn star(&mut self, except: Option<char>) {
        let at = self.program.len();
        self.program
            .extend([Step::Fork(at + 1, at + 3), Step::Any { except }, Step::Jump(at)]);
    }

    /// Items up to the end, or inside braces up to `,` or `}`, which stay.
    fn sequence(&mut self, in_braces: bool) -> Result<(), Malformed> {
        while let Some(&c) = self.rest.peek() {
            if in_braces && matches!(c, ',' | '}') {
                return Ok(());
            }
            self.rest.next();
            match c {
                '*' if self.rest.next_if_eq(&'*').is_some() => self.star(None),
                '*' => self.star(self.separator),
                '?' => self.program.push(Step::Any {
                    except: self.separator,
                }),
                '[' => self.class()?,
                '{' => self.choice()?,
                // A backslash at the end stands for nothing.
                '\\' => self.program.extend(self.rest.next().map(Step::Char)),
                c => self.program.push(Step::Char(c)),
            }
        }
        Ok(())
    }

    /// `{a,b}`, the brace being read. Braces that are never closed are closed by the end.
    fn choice(&mut self) -> Result<(), Malformed> {
        let mut ends = Vec::new();
        loop {
            let fork = self.program.len();
            self.program.push(Step::Accept);
            self.sequence(true)?;
            ends.push(self.program.len());
            self.program.push(Step::Accept);
            let more = self.rest.next() == Some(',');
            let next = self.program.len();
            // The last alternative has no other to fork to.
            self.program[fork] = if more {
                Step::Fork(fork + 1, next)
            } else {
                Step::Jump(fork + 1)
            };
            if !more {
                break;
            }
        }
        let after = self.program.len();
        for end in ends {
            self.program[end] = Step::Jump(after);
        }
        Ok(())
    }

    /// `[a-z]`, `[abc]` and their negations with `!`: one range or one list.
    fn class(&mut self) -> Result<(), Malformed> {
        let negated = self.rest.next_if_eq(&'!').is_some();
        let Some(first) = self.rest.next() else {
            return Err(self.malformed("a class is not closed"));
        };
        let mut ranges = Vec::new();
        if self.rest.next_if_eq(&'-').is_some() {
            let Some(high) = self.rest.next() else {
                return Err(self.malformed("a class is not closed"));
            };
            if high < first {
                return Err(self.malformed("a range runs backwards"));
            }
            ranges.push((first, high));
            if self.rest.next() != Some(']') {
                return Err(self.malformed("a class holds more than a range"));
            }
        } else {
            let mut c = Some(first);
            loop {
                match c {
                    None => return Err(self.malformed("a class is not closed")),
                    Some(']') => break,
                    Some('\\') => ranges.extend(self.rest.next().map(|c| (c, c))),
                    Some(c) => ranges.push((c, c)),
                }
                c = self.rest.next();
            }
            if ranges.is_empty() {
                return Err(self.malformed("a class is empty"));
            }
        }
        self.program.push(Step::Class { negated, ranges });
        Ok(())
    }

    fn shell(&mut self) -> Result<(), Malformed> {
        while let Some(c) = self.rest.next() {
            match c {
                '*' => self.star(self.separator),
                '?' => self.program.push(Step::Any {
                    except: self.separator,
                }),
                '[' => self.shell_class()?,
                '\\' => match self.rest.next() {
                    Some(c) => self.program.push(Step::Char(c)),
                    None => return Err(self.malformed("it ends in a backslash")),
                },
                c => self.program.push(Step::Char(c)),
            }
        }
        Ok(())
    }

    /// Any number of characters and ranges, `^` for negation.
    fn shell_class(&mut self) -> Result<(), Malformed> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        let mut ranges = Vec::new();
        loop {
            if !ranges.is_empty() && self.rest.next_if_eq(&']').is_some() {
                break;
            }
            let low = self.shell_char()?;
            let high = if self.rest.next_if_eq(&'-').is_some() {
                self.shell_char()?
            } else {
                low
            };
            ranges.push((low, high));
        }
        self.program.push(Step::Class { negated, ranges });
        Ok(())
    }

    fn shell_char(&mut self) -> Result<char, Malformed> {
        match self.rest.next() {
            Some('\\') => self
                .rest
                .next()
                .ok_or_else(|| self.malformed("it ends in a backslash")),
            Some(']' | '-') => Err(self.malformed("a class is empty or a range has no end")),
            Some(c) => Ok(c),
            None => Err(self.malformed("a class is not closed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stop_at_separators_and_double_stars_do_not() {
        let slash = |pattern, text| matches_with_separator(pattern, text, '/');
        assert!(slash("https://example.com/*", "https://example.com/team"));
        assert!(!slash("https://example.com/*", "https://example.com/team/app"));
        assert!(slash("https://example.com/**", "https://example.com/team/app"));
        assert!(slash("https://example.com/*/app", "https://example.com/team/app"));
        assert!(!slash("a?c", "a/c"));
        assert!(matches("team-*", "team-a/b"));
        assert!(matches("*", ""));
    }

    #[test]
    fn braces_choose_and_nest() {
        assert!(matches("{dev,prod}-*", "prod-eu"));
        assert!(!matches("{dev,prod}-*", "test-eu"));
        assert!(matches("a{b{c,d},}e", "abde"));
        assert!(matches("a{b{c,d},}e", "ae"));
        assert!(matches("a,b", "a,b"));
    }

    #[test]
    fn a_class_is_one_range_or_one_list() {
        assert!(matches("v[0-9]", "v7"));
        assert!(!matches("v[!0-9]", "v7"));
        assert!(matches("v[abc]", "vb"));
        assert!(!matches("v[a-zA-Z]", "vb"));
        assert!(Glob::new("v[0-", None).is_err());
        assert!(!matches("v[", "v["));
    }

    #[test]
    fn backslashes_take_the_next_character_as_it_is() {
        assert!(matches(r"a\*b", "a*b"));
        assert!(!matches(r"a\*b", "axb"));
    }

    #[test]
    fn shell_patterns_know_no_braces() {
        assert!(matches_path("*", "Deployment"));
        assert!(matches_path("*.example.com", "a.example.com"));
        assert!(!matches_path("{a,b}", "a"));
        assert!(matches_path("[^A-CX]onfig", "Donfig"));
        assert!(!matches_path("[^A-CX]onfig", "Xonfig"));
        assert!(!matches_path("[]a]", "a"));
        assert!(matches_path("", ""));
    }

    #[test]
    fn lists_hold_globs_and_regular_expressions() {
        let list = ["team-*", "/^ns[0-9]+$/"];
        assert!(matches_list(list, "team-a"));
        assert!(matches_list(list, "ns42"));
        assert!(!matches_list(list, "nsx"));
    }

    #[test]
    fn hostile_patterns_stay_linear() {
        let pattern = "a*".repeat(60) + "b";
        assert!(!matches(&pattern, &"a".repeat(500)));
    }
}
