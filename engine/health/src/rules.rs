//! Built-in health rules of custom resources, as data: `rules/*.yaml`, written from the status conventions that the projects document.
//!
//! A rule set belongs to some kinds (`*` in a name stands for anything); its rules are asked in order and the first that holds decides.
//! A rule is `[Status, test, text]` in the language of [`crate::expression`]; without a text it says what the condition it found says.
//! A set without an `otherwise` has no opinion when no rule holds.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use argosy_object::{Value, yaml};
use globset::{GlobBuilder, GlobMatcher};

use crate::expression::{Conditions, Invalid, Path, Scene, Tests, Text};
use crate::status::{Health, Status};

/// The data files, by theme.
const FILES: &[(&str, &str)] = &[
    ("kubernetes", include_str!("../rules/kubernetes.yaml")),
    ("argo", include_str!("../rules/argo.yaml")),
    ("flux", include_str!("../rules/flux.yaml")),
    ("clusters", include_str!("../rules/clusters.yaml")),
    ("network", include_str!("../rules/network.yaml")),
    ("security", include_str!("../rules/security.yaml")),
    ("observability", include_str!("../rules/observability.yaml")),
    ("data", include_str!("../rules/data.yaml")),
    ("messaging", include_str!("../rules/messaging.yaml")),
    ("workloads", include_str!("../rules/workloads.yaml")),
    ("platforms", include_str!("../rules/platforms.yaml")),
];

#[derive(Debug)]
struct RuleSet {
    conditions: Conditions,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    status: Status,
    tests: Tests,
    text: Option<Text>,
}

#[derive(Debug, Default)]
struct Table {
    sets: Vec<RuleSet>,
    exact: BTreeMap<String, usize>,
    patterns: Vec<(String, GlobMatcher, usize)>,
}

/// A data file that does not say what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{0}")]
    Yaml(String),
    #[error("{0}: {1} is expected")]
    Shape(String, &'static str),
    #[error("{0}: {1}")]
    Expression(String, #[source] Invalid),
}

/// What the built-in rules say of `live`: `None` if there are none for its kind, `Some(None)` if they have no opinion.
pub(crate) fn assess(group: &str, kind: &str, live: &Value) -> Option<Option<Health>> {
    let set = table().find(group, kind)?;
    let decided = set.rules.iter().find_map(|rule| {
        let found = rule.tests.hold(live, &set.conditions)?;
        let scene = Scene {
            object: live,
            conditions: &set.conditions,
            found,
            params: None,
            now: 0,
        };
        let text = match &rule.text {
            Some(text) => text.fill(&scene),
            None => found
                .condition
                .and_then(|condition| condition.get("message"))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        };
        Some(Health::new(rule.status, text))
    });
    Some(decided)
}

/// The kinds that have built-in rules, as `group/Kind`, sorted; patterns with `*`.
#[must_use]
pub fn builtin_kinds() -> Vec<&'static str> {
    let table = table();
    let mut kinds: Vec<&str> = table.exact.keys().map(String::as_str).collect();
    kinds.extend(table.patterns.iter().map(|(pattern, ..)| pattern.as_str()));
    kinds.sort_unstable();
    kinds
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| match read(FILES) {
        Ok(table) => table,
        // The files are part of the program, and a test reads them.
        Err(error) => panic!("the built-in health rules are broken: {error}"),
    })
}

impl Table {
    fn find(&self, group: &str, kind: &str) -> Option<&RuleSet> {
        let key = format!("{group}/{kind}");
        let place = self.exact.get(key.trim_start_matches('/')).copied().or_else(|| {
            let fits = |(_, glob, _): &&(String, GlobMatcher, usize)| glob.is_match(&key);
            self.patterns.iter().find(fits).map(|(.., place)| *place)
        })?;
        self.sets.get(place)
    }
}

fn read(files: &[(&str, &str)]) -> Result<Table, FileError> {
    let mut table = Table::default();
    for (name, text) in files {
        let document = yaml::parse(text, &yaml::Limits::default())
            .map_err(|error| FileError::Yaml(format!("{name}: {}", error.message)))?;
        let entries = document
            .as_array()
            .ok_or_else(|| FileError::Shape((*name).to_owned(), "a list"))?;
        for entry in entries {
            let kinds: Vec<&str> = strings(&entry["kinds"]);
            let place = format!("{name}: {}", kinds.join(", "));
            if kinds.is_empty() {
                return Err(FileError::Shape(place, "`kinds`"));
            }
            let set = rule_set(entry, &place)?;
            table.sets.push(set);
            for kind in kinds {
                let index = table.sets.len() - 1;
                if kind.contains('*') {
                    let glob = GlobBuilder::new(kind)
                        .build()
                        .map_err(|error| FileError::Yaml(format!("{place}: {error}")))?;
                    table
                        .patterns
                        .push((kind.to_owned(), glob.compile_matcher(), index));
                } else if table.exact.insert(kind.to_owned(), index).is_some() {
                    return Err(FileError::Shape(place, "one rule set for each kind"));
                }
            }
        }
    }
    // The longer pattern says more.
    table
        .patterns
        .sort_by(|(a, ..), (b, ..)| (b.len(), a).cmp(&(a.len(), b)));
    Ok(table)
}

fn rule_set(entry: &Value, place: &str) -> Result<RuleSet, FileError> {
    let mut conditions = Conditions::default();
    for (name, path) in entry["conditions"].as_object().into_iter().flatten() {
        let path = path.as_str().unwrap_or_default();
        let path = Path::parse(path).map_err(|error| FileError::Expression(place.to_owned(), error))?;
        let name = if name == "default" { "" } else { name };
        conditions.0.insert(name.to_owned(), path);
    }
    let rules = entry["rules"].as_array().into_iter().flatten();
    let otherwise = entry.get("otherwise").map(|otherwise| {
        let mut parts = otherwise.as_array().cloned().unwrap_or_default();
        parts.insert(1.min(parts.len()), Value::from(""));
        Value::Array(parts)
    });
    let rules: Result<Vec<Rule>, FileError> = rules
        .chain(&otherwise)
        .map(|written| rule(written, place))
        .collect();
    Ok(RuleSet {
        conditions,
        rules: rules?,
    })
}

fn rule(written: &Value, place: &str) -> Result<Rule, FileError> {
    let parts: Vec<&str> = strings(written);
    let (status, tests, text) = match parts[..] {
        [status, tests] => (status, tests, None),
        [status, tests, text] => (status, tests, Some(text)),
        _ => {
            return Err(FileError::Shape(
                format!("{place}: {written}"),
                "[Status, test, text]",
            ));
        }
    };
    let invalid = |error| FileError::Expression(place.to_owned(), error);
    Ok(Rule {
        status: status
            .parse()
            .map_err(|_| FileError::Shape(format!("{place}: {status}"), "a health status"))?,
        tests: Tests::parse(tests).map_err(invalid)?,
        text: text.map(Text::parse).transpose().map_err(invalid)?,
    })
}

fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_data_files_can_be_read_and_cover_what_fleets_use() {
        let table = read(FILES).unwrap();
        assert!(table.exact.len() >= 200, "{}", table.exact.len());
        assert!(builtin_kinds().contains(&"cert-manager.io/Certificate"));
    }

    #[test]
    fn a_broken_file_is_reported_with_place_and_expression() {
        let error = |text: &str| read(&[("x", text)]).unwrap_err().to_string();
        assert!(error("- {kinds: [a/B], rules: [[Healthy, '@']]}").contains("the type of a condition"));
        assert!(error("- {kinds: [a/B], rules: [[Fine, '']]}").contains("a health status"));
        assert!(error("- {rules: []}").contains("`kinds`"));
    }

    fn say(rules: &str, live: Value) -> Option<String> {
        let table = read(&[("x", &format!("- kinds: [a/B]\n  rules:\n{rules}"))]).unwrap();
        let set = table.find("a", "B").unwrap();
        set.rules.iter().find_map(|rule| {
            let found = rule.tests.hold(&live, &set.conditions)?;
            let scene = Scene {
                object: &live,
                conditions: &set.conditions,
                found,
                params: None,
                now: 0,
            };
            Some(
                rule.text
                    .as_ref()
                    .map(|text| text.fill(&scene))
                    .unwrap_or_default(),
            )
        })
    }

    #[test]
    fn fields_are_compared_as_numbers_where_they_are_numbers() {
        let live = json!({"status": {"ready": 9, "size": "10", "phase": "Wait for it"}});
        assert_eq!(
            say("  - [Healthy, '.status.ready < .status.size', 'a']", live.clone()).as_deref(),
            Some("a")
        );
        assert_eq!(
            say(
                "  - [Healthy, '.status.ready = .status.size - 1', 'b']",
                live.clone()
            )
            .as_deref(),
            Some("b")
        );
        assert_eq!(
            say(
                "  - [Healthy, '.status.ready >= .status.size', 'c']",
                live.clone()
            ),
            None
        );
        assert_eq!(
            say(
                "  - [Healthy, '.status.phase = Wait*', '{.status.phase}!']",
                live.clone()
            )
            .as_deref(),
            Some("Wait for it!")
        );
        assert_eq!(
            say("  - [Healthy, '.status.none != x', 'd']", live.clone()).as_deref(),
            Some("d")
        );
        assert_eq!(
            say(
                "  - [Healthy, '.status.none?7 = 7 & #.status.none = 0', 'e']",
                live
            )
            .as_deref(),
            Some("e")
        );
    }

    #[test]
    fn one_condition_has_to_satisfy_type_status_and_brackets_together() {
        let live = json!({"metadata": {"generation": 2}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "Old", "observedGeneration": 1},
            {"type": "Ready", "status": "True", "reason": "New", "message": "fine", "observedGeneration": 2},
        ]}});
        let fresh = "'@Ready [.observedGeneration = .metadata.generation]'";
        assert_eq!(
            say(
                &format!("  - [Healthy, {fresh}, '{{reason}}: {{message}}']"),
                live.clone()
            )
            .as_deref(),
            Some("New: fine")
        );
        assert_eq!(
            say(
                "  - [Healthy, '@Ready = True [.reason = Old]', 'x']",
                live.clone()
            ),
            None
        );
        assert_eq!(
            say(
                "  - [Healthy, '! @Synced & @*dy = False|Unknown', '{@Ready.reason}']",
                live
            )
            .as_deref(),
            Some("Old")
        );
    }
}
