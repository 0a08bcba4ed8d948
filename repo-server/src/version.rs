//! Versions and constraints as Helm and Argo CD read them (Masterminds semver), which is laxer than
//! SemVer 2: a leading `v`, missing parts, `x` ranges, hyphen ranges, `||`.

use semver::{BuildMetadata, Prerelease, Version};
use std::cmp::Ordering;

/// Reads `1`, `v1.2`, `1.2.3-rc.1+b` as a version; missing parts are zero.
pub fn parse(text: &str) -> Option<Version> {
    let part = Partial::parse(text)?;
    if part.wild || part.major.is_none() {
        return None;
    }
    Some(part.floor())
}

/// Whether a text is a version with all its parts, which means itself and nothing else.
pub fn is_whole(text: &str) -> bool {
    Partial::parse(text).is_some_and(|part| !part.wild && part.patch.is_some())
}

/// Picks what `wanted` means among `available`: a version is a pin and returned as it is, a constraint
/// gives the highest match, anything else must be there literally.
///
/// # Errors
/// A text that says why nothing fits.
pub fn select(wanted: &str, available: &[String]) -> Result<String, String> {
    if parse(wanted).is_some() {
        return Ok(wanted.to_owned());
    }
    let Some(constraint) = Constraint::parse(wanted) else {
        if available.iter().any(|tag| tag == wanted) {
            return Ok(wanted.to_owned());
        }
        return Err(format!(
            "failed to determine semver constraint: improper constraint: {wanted}"
        ));
    };
    available
        .iter()
        .filter_map(|tag| Some((parse(tag)?, tag)))
        .filter(|(version, _)| constraint.matches(version))
        .max_by(|(a, _), (b, _)| a.cmp_precedence(b))
        .map(|(_, tag)| tag.clone())
        .ok_or_else(|| {
            format!(
                "version matching constraint '{wanted}' not found in {} tags",
                available.len()
            )
        })
}

/// A parsed constraint: alternatives of conjunctions.
#[derive(Clone, Debug)]
pub struct Constraint(Vec<Vec<Term>>);

#[derive(Clone, Debug)]
struct Term {
    op: Op,
    part: Partial,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Tilde,
    Caret,
}

#[derive(Clone, Debug)]
struct Partial {
    major: Option<u64>,
    minor: Option<u64>,
    patch: Option<u64>,
    pre: String,
    build: String,
    /// An explicit `x`, `X` or `*` stands somewhere.
    wild: bool,
}

impl Constraint {
    /// Reads a constraint; `None` when it is not one.
    pub fn parse(text: &str) -> Option<Constraint> {
        let mut alternatives = Vec::new();
        for alternative in text.split("||") {
            let hyphened = alternative
                .split_once(" - ")
                .map(|(low, high)| format!(">={} <={}", low.trim(), high.trim()));
            let terms = terms(hyphened.as_deref().unwrap_or(alternative))?;
            if terms.is_empty() {
                return None;
            }
            alternatives.push(terms);
        }
        Some(Constraint(alternatives))
    }

    /// Whether the version satisfies it. Pre-releases match only where one of the terms names one.
    pub fn matches(&self, version: &Version) -> bool {
        self.0.iter().any(|terms| {
            let looked_at = version.pre.is_empty() || terms.iter().any(|term| !term.part.pre.is_empty());
            looked_at && terms.iter().all(|term| term.matches(version))
        })
    }
}

fn terms(text: &str) -> Option<Vec<Term>> {
    let mut terms = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let op_len = rest.find(|c: char| !"=!<>~^".contains(c)).unwrap_or(rest.len());
        let op = match &rest[..op_len] {
            "" | "=" => Op::Equal,
            "!=" => Op::NotEqual,
            ">" => Op::Greater,
            ">=" | "=>" => Op::GreaterEqual,
            "<" => Op::Less,
            "<=" | "=<" => Op::LessEqual,
            "~" | "~>" => Op::Tilde,
            "^" => Op::Caret,
            _ => return None,
        };
        rest = rest[op_len..].trim_start();
        let end = rest
            .find(|c: char| c == ',' || c.is_whitespace() || "=!<>~^".contains(c))
            .unwrap_or(rest.len());
        terms.push(Term {
            op,
            part: Partial::parse(&rest[..end])?,
        });
        rest = rest[end..].trim_start_matches(|c: char| c == ',' || c.is_whitespace());
    }
    Some(terms)
}

impl Partial {
    fn parse(text: &str) -> Option<Partial> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
        let mut parsed = [None; 3];
        let mut wild = false;
        for (count, piece) in numbers.split('.').enumerate() {
            if count == 3 {
                return None;
            }
            match piece {
                "x" | "X" | "*" => wild = true,
                digits if !wild && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                    parsed[count] = Some(digits.parse().ok()?);
                }
                _ => return None,
            }
        }
        if !pre.is_empty() && Prerelease::new(pre).is_err() {
            return None;
        }
        let [major, minor, patch] = parsed;
        Some(Partial {
            major,
            minor,
            patch,
            pre: pre.to_owned(),
            build: build.to_owned(),
            wild,
        })
    }

    fn floor(&self) -> Version {
        Version {
            major: self.major.unwrap_or(0),
            minor: self.minor.unwrap_or(0),
            patch: self.patch.unwrap_or(0),
            pre: Prerelease::new(&self.pre).unwrap_or_default(),
            build: BuildMetadata::new(&self.build).unwrap_or_default(),
        }
    }

    /// Everything from the first missing part on is free: `1.2` covers all of 1.2.x.
    fn covers(&self, version: &Version) -> bool {
        self.major.is_none_or(|n| n == version.major)
            && self.minor.is_none_or(|n| n == version.minor)
            && self.patch.is_none_or(|n| n == version.patch)
    }
}

impl Term {
    fn matches(&self, version: &Version) -> bool {
        let part = &self.part;
        let floor = part.floor();
        let order = version.cmp_precedence(&floor);
        let dirty = part.patch.is_none();
        match self.op {
            Op::Equal if dirty => part.covers(version),
            Op::Equal => order == Ordering::Equal,
            Op::NotEqual if dirty => !part.covers(version),
            Op::NotEqual => order != Ordering::Equal,
            Op::Greater if dirty => order == Ordering::Greater && !part.covers(version),
            Op::Greater => order == Ordering::Greater,
            Op::GreaterEqual => order != Ordering::Less,
            Op::Less => order == Ordering::Less,
            Op::LessEqual if dirty => order == Ordering::Less || part.covers(version),
            Op::LessEqual => order != Ordering::Greater,
            Op::Tilde => {
                order != Ordering::Less
                    && part.major.is_none_or(|n| n == version.major)
                    && part.minor.is_none_or(|n| n == version.minor)
            }
            Op::Caret => {
                if order == Ordering::Less {
                    return false;
                }
                match (part.major, part.minor, part.patch) {
                    (None, ..) => true,
                    (Some(major), ..) if major > 0 || part.minor.is_none() => version.major == major,
                    (Some(major), Some(minor), patch) if minor > 0 || patch.is_none() => {
                        version.major == major && version.minor == minor
                    }
                    _ => {
                        version.major == floor.major
                            && version.minor == floor.minor
                            && version.patch == floor.patch
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pick(wanted: &str, tags: &[&str]) -> Result<String, String> {
        select(wanted, &tags.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_version_is_a_pin_and_a_range_gives_the_highest() {
        let tags = ["v0.9.0", "v1.0.0", "v1.2.3", "v1.10.0", "v2.0.0-rc.1", "latest"];
        assert_eq!(pick("v1.0", &tags).unwrap(), "v1.0");
        assert_eq!(pick("1.x", &tags).unwrap(), "v1.10.0");
        assert_eq!(pick("*", &tags).unwrap(), "v1.10.0");
        assert_eq!(pick("^1.0.0", &tags).unwrap(), "v1.10.0");
        assert_eq!(pick("~1.2", &tags).unwrap(), "v1.2.3");
        assert_eq!(pick(">=1.0.0 <1.5.0", &tags).unwrap(), "v1.2.3");
        assert_eq!(pick("<1.0.0 || >=2.0.0-0", &tags).unwrap(), "v2.0.0-rc.1");
        assert_eq!(pick("0.1 - 1.0", &tags).unwrap(), "v1.0.0");
        // One term that names a pre-release is enough for all that must hold together.
        assert_eq!(pick(">=1.0.0-0 <3.0.0", &tags).unwrap(), "v2.0.0-rc.1");
        assert_eq!(pick(">=1.0.0 <3.0.0 || 9.0.0-0", &tags).unwrap(), "v1.10.0");
        assert_eq!(pick("latest", &tags).unwrap(), "latest");
        assert!(pick("^9", &tags).unwrap_err().contains("not found in 6 tags"));
        assert!(pick("feature/x", &tags).is_err());
    }

    #[test]
    fn caret_of_zero_versions_is_narrow() {
        let tags = ["0.2.3", "0.2.9", "0.3.0", "0.0.3", "0.0.4"];
        assert_eq!(pick("^0.2.3", &tags).unwrap(), "0.2.9");
        assert_eq!(pick("^0.0.3", &tags).unwrap(), "0.0.3");
        assert_eq!(pick("^0.0", &tags).unwrap(), "0.0.4");
        assert_eq!(pick("^0", &tags).unwrap(), "0.3.0");
    }
}
