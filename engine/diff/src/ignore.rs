//! `ignoreDifferences`: what a person said not to compare.
//!
//! Rules come from an Application and, by kind, from `argocd-cm`; both are lists of [`IgnoreRule`]. Each names fields in one of three ways: JSON
//! pointers, jq path expressions, or field managers whose fields are not ours to judge.

mod jq;
pub(crate) mod path;
mod plain;

use argosy_object::{Value, meta, pointer};
use globset::{GlobBuilder, GlobMatcher};

pub use path::keep_live;

/// One rule as written. Empty name and namespace match any; group and kind may be patterns (`*`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IgnoreRule {
    /// API group, empty for core; `*` and `?` match.
    pub group: String,
    /// Kind; `*` and `?` match.
    pub kind: String,
    /// Name of the object, exactly; empty for any.
    pub name: String,
    /// Namespace of the object, exactly; empty for any.
    pub namespace: String,
    /// Fields, as JSON pointers.
    pub json_pointers: Vec<String>,
    /// Fields, as jq path expressions.
    pub jq_path_expressions: Vec<String>,
    /// Field managers.
    pub managed_fields_managers: Vec<String>,
}

/// Something that could not be taken into account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What: the expression, the annotation.
    pub what: String,
    /// Why not.
    pub problem: String,
}

impl Finding {
    pub(crate) fn new(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            problem: problem.into(),
        }
    }
}

/// A rule that cannot be applied to one side can mostly not be applied to the other: it is told once.
pub(crate) fn each_once(findings: &mut Vec<Finding>) {
    let mut told: Vec<Finding> = Vec::new();
    for finding in findings.drain(..) {
        if !told.contains(&finding) {
            told.push(finding);
        }
    }
    *findings = told;
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.what, self.problem)
    }
}

/// Rules, compiled once and used for many objects from many threads.
#[derive(Default)]
pub struct IgnoreRules {
    rules: Vec<Compiled>,
}

struct Compiled {
    group: GlobMatcher,
    kind: GlobMatcher,
    rule: IgnoreRule,
    expressions: Vec<jq::Expression>,
}

impl std::fmt::Debug for IgnoreRules {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_list()
            .entries(self.rules.iter().map(|compiled| &compiled.rule))
            .finish()
    }
}

impl IgnoreRules {
    /// No rules.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Compiles `rules`. An expression or pattern that is wrong is left out and reported; the rest of its rule holds.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = IgnoreRule>) -> (Self, Vec<Finding>) {
        let (mut compiled, mut findings) = (Vec::new(), Vec::new());
        for rule in rules {
            let (group, kind) = match (glob(&rule.group), glob(&rule.kind)) {
                (Ok(group), Ok(kind)) => (group, kind),
                (Err(finding), _) | (_, Err(finding)) => {
                    findings.push(finding);
                    continue;
                }
            };
            let mut expressions = Vec::new();
            for text in &rule.jq_path_expressions {
                match jq::Expression::compile(text) {
                    Ok(expression) => expressions.push(expression),
                    Err(problem) => findings.push(Finding::new(text, problem)),
                }
            }
            for text in rule.json_pointers.iter().filter(|text| !text.starts_with('/')) {
                findings.push(Finding::new(
                    text,
                    "is no JSON pointer: it does not start with a slash",
                ));
            }
            compiled.push(Compiled {
                group,
                kind,
                rule,
                expressions,
            });
        }
        (Self { rules: compiled }, findings)
    }

    /// Whether there is no rule at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules that hold for an object.
    pub(crate) fn for_object(&self, object: &Value) -> Applicable<'_> {
        if self.rules.is_empty() {
            return Applicable { rules: Vec::new() };
        }
        let (group, kind) = (meta::group(object), meta::kind(object));
        let (namespace, name) = (meta::namespace(object), meta::name(object));
        let holds = |compiled: &&Compiled| {
            compiled.group.is_match(group)
                && compiled.kind.is_match(kind)
                && (compiled.rule.name.is_empty() || compiled.rule.name == name)
                && (compiled.rule.namespace.is_empty() || compiled.rule.namespace == namespace)
        };
        Applicable {
            rules: self.rules.iter().filter(holds).collect(),
        }
    }

    /// `document` without what the rules for it name. For normal forms that are hashed; [`crate::compare`] does it by itself.
    #[must_use]
    pub fn strip(&self, document: &Value) -> (Value, Vec<Finding>) {
        let (mut stripped, mut findings) = (document.clone(), Vec::new());
        let rules = self.for_object(document);
        for manager in rules.managers() {
            crate::managed::fields_of(document, manager).remove_from(&mut stripped);
        }
        rules.remove_from(&mut stripped, &mut findings);
        (stripped, findings)
    }
}

fn glob(pattern: &str) -> Result<GlobMatcher, Finding> {
    GlobBuilder::new(pattern)
        .literal_separator(false)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| Finding::new(pattern, error.to_string()))
}

/// The rules for one object.
pub(crate) struct Applicable<'a> {
    rules: Vec<&'a Compiled>,
}

impl<'a> Applicable<'a> {
    /// Field managers to leave out.
    pub(crate) fn managers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let rules = self.rules.clone();
        rules
            .into_iter()
            .flat_map(|compiled| compiled.rule.managed_fields_managers.iter().map(String::as_str))
    }

    /// Takes out what pointers and expressions name.
    pub(crate) fn remove_from(&self, document: &mut Value, findings: &mut Vec<Finding>) {
        for compiled in &self.rules {
            for text in &compiled.rule.json_pointers {
                pointer::remove(document, text);
            }
            for expression in &compiled.expressions {
                match expression.paths(document) {
                    Ok(paths) => path::remove(document, paths),
                    Err(problem) => findings.push(Finding::new(&expression.text, problem)),
                }
            }
        }
    }

    /// The places in `document` that pointers and expressions name.
    pub(crate) fn paths(&self, document: &Value) -> Vec<path::Steps> {
        let mut paths = Vec::new();
        for compiled in &self.rules {
            paths.extend(
                compiled
                    .rule
                    .json_pointers
                    .iter()
                    .filter_map(|text| path::from_pointer(document, text)),
            );
            for expression in &compiled.expressions {
                paths.extend(expression.paths(document).unwrap_or_default());
            }
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "annotations": {"a/b": "x"}},
            "spec": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                {"name": "b", "image": "b:1"}
            ]}}}
        })
    }

    fn strip(rule: IgnoreRule) -> Value {
        let (rules, findings) = IgnoreRules::new([rule]);
        assert_eq!(findings, []);
        let (stripped, findings) = rules.strip(&deployment());
        assert_eq!(findings, []);
        stripped
    }

    fn jq(expression: &str) -> Value {
        strip(IgnoreRule {
            group: "apps".into(),
            kind: "Deployment".into(),
            jq_path_expressions: vec![expression.into()],
            ..IgnoreRule::default()
        })
    }

    #[test]
    fn a_pointer_removes_one_field() {
        let stripped = strip(IgnoreRule {
            group: "apps".into(),
            kind: "Deployment".into(),
            json_pointers: vec![
                "/spec/replicas".into(),
                "/metadata/annotations/a~1b".into(),
                "/spec/none".into(),
            ],
            ..IgnoreRule::default()
        });
        assert_eq!(stripped.pointer("/spec/replicas"), None);
        assert_eq!(stripped["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn an_expression_removes_all_fields_it_leads_to() {
        let stripped = jq(".spec.template.spec.containers[].image");
        assert_eq!(stripped.pointer("/spec/template/spec/containers/0/image"), None);
        assert_eq!(stripped.pointer("/spec/template/spec/containers/1/image"), None);
        assert_eq!(
            stripped.pointer("/spec/template/spec/containers/1/name"),
            Some(&json!("b"))
        );
    }

    #[test]
    fn select_touches_no_neighbour() {
        let stripped =
            jq(".spec.template.spec.containers[] | select(.name == \"a\").env[] | select(.name == \"X\")");
        assert_eq!(
            stripped.pointer("/spec/template/spec/containers/0/env"),
            Some(&json!([{"name": "Y", "value": "2"}]))
        );
        assert_eq!(
            stripped.pointer("/spec/template/spec/containers/1/image"),
            Some(&json!("b:1"))
        );
    }

    #[test]
    fn several_items_of_a_list_are_removed_at_their_own_places() {
        let stripped = jq(".spec.template.spec.containers[0], .spec.template.spec.containers[1]");
        assert_eq!(
            stripped.pointer("/spec/template/spec/containers"),
            Some(&json!([]))
        );
        let stripped = jq(".spec.template.spec.containers[-1]");
        assert_eq!(stripped.pointer("/spec/template/spec/containers/1"), None);
        assert!(stripped.pointer("/spec/template/spec/containers/0").is_some());
    }

    #[test]
    fn what_is_not_there_is_no_problem() {
        assert_eq!(jq(".spec.none[]?.x"), deployment());
        assert_eq!(jq(".spec.none.deep.x"), deployment());
        assert_eq!(jq(".spec.none[].x"), deployment());
        assert_eq!(jq(".metadata.annotations[\"c\"]"), deployment());
    }

    #[test]
    fn in_is_understood() {
        let stripped = jq(".spec.template.spec.containers[] | select(.name | IN(\"b\", \"c\"))");
        assert_eq!(
            stripped
                .pointer("/spec/template/spec/containers")
                .unwrap()
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn a_wrong_expression_is_reported_and_the_rest_holds() {
        let (rules, findings) = IgnoreRules::new([IgnoreRule {
            group: "apps".into(),
            kind: "*".into(),
            json_pointers: vec!["/spec/replicas".into()],
            jq_path_expressions: vec![".spec.[".into(), ".spec.template".into()],
            ..IgnoreRule::default()
        }]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].what, ".spec.[");
        assert_eq!(rules.strip(&deployment()).0["spec"], json!({}));
    }

    #[test]
    fn an_expression_that_could_run_for_ever_is_refused() {
        for text in [
            "def f: f; f",
            "repeat(.)",
            "until(false; .)",
            ".x | while(true; .)",
            "recurse(.)",
            "range(1e12)",
            "input",
            "$ENV.HOME",
            "env.HOME",
            "\"\\(repeat(.))\"",
            "reduce .. as $x (\"a\"; . + .)",
            ". as [$x, $y] | .a",
            ".a * 1000000",
            "{a: .b}",
            ".a |= 1",
            ".a | tostring | tostring | tostring",
            "@base64 \"x\"",
            "label $x | .a",
        ] {
            let rule = IgnoreRule {
                group: "*".into(),
                kind: "*".into(),
                jq_path_expressions: vec![text.into()],
                ..IgnoreRule::default()
            };
            assert_eq!(IgnoreRules::new([rule]).1.len(), 1, "{text}");
        }
        for text in [
            ".spec.range",
            ".env[] | select(.name == \"input\")",
            ".. | .repeat?",
            ".def",
            ".a[0], .b[-1], .c[1:2]",
            ".a[] | select(.port | tostring == \"80\")",
            ".a[] | select(has(\"x\") and (.x | test(\"^y\")) | not).z",
            ".a[] | select(.x | IN(\"a\", \"b\", \"c\")) | .z // empty",
            ".a[] | select(contains({name: \"x\", list: [1, -2, []]}))",
            ".a[] | if .x == null then .y else .z end",
            "try .a[] catch empty",
            ".a[] | select(.name as $name | [\"x\", \"y\"] | index($name))",
            ".a[] | select([.name] | inside([\"x\", \"y\"]))",
            ".a[] | select(.name == \"x\" + \"-y\")",
            ".a[] | select(.name == \"\\(.kind)-y\")",
        ] {
            let rule = IgnoreRule {
                group: "*".into(),
                kind: "*".into(),
                jq_path_expressions: vec![text.into()],
                ..IgnoreRule::default()
            };
            assert_eq!(IgnoreRules::new([rule]).1, [], "{text}");
        }
    }

    #[test]
    fn an_expression_keeps_short_scalars_alone() {
        let strip = |text: &str| {
            let (rules, findings) = IgnoreRules::new([IgnoreRule {
                group: "apps".into(),
                kind: "*".into(),
                jq_path_expressions: vec![text.into()],
                ..IgnoreRule::default()
            }]);
            assert_eq!(findings, [], "{text}");
            let mut document = deployment();
            document["spec"] = json!({"long": "x".repeat(2_000), "items": [
                {"name": "a", "kind": "A"}, {"name": "b-B", "kind": "b"}, {"name": "c", "kind": "c"},
            ]});
            let (stripped, findings) = rules.strip(&document);
            let items = stripped["spec"]["items"].as_array().cloned().unwrap_or_default();
            let names: Vec<String> = items.iter().map(|item| item["name"].to_string()).collect();
            (names.join(" "), findings)
        };
        for (text, left) in [
            (
                ".spec.items[] | select(.name as $name | [\"a\", \"c\"] | index($name))",
                "\"b-B\"",
            ),
            (
                ".spec.items[] | select([.name] | inside([\"a\", \"c\"]))",
                "\"b-B\"",
            ),
            (".spec.items[] | select(.name == .kind)", "\"a\" \"b-B\""),
            (".spec.items[] | select(.name == .kind + \"-B\")", "\"a\" \"c\""),
            (".spec.items[] | select(.name == \"\\(.kind)-B\")", "\"a\" \"c\""),
        ] {
            assert_eq!(strip(text), (left.to_owned(), Vec::new()), "{text}");
        }
        for (text, problem) in [
            (". as $all | .spec.items[]", "keeps a list or an object"),
            ("select([..] | length > 3) | .spec", "keeps a list or an object"),
            (
                "select(.spec.long + \"x\" == \"\") | .spec",
                "keeps a text of more than 1024 bytes",
            ),
        ] {
            let (left, findings) = strip(text);
            assert_eq!(findings, [Finding::new(text, problem)]);
            assert_eq!(left, "\"a\" \"b-B\" \"c\"");
        }
    }

    #[test]
    fn an_expression_that_takes_too_long_is_given_up_and_the_others_hold() {
        let expressions = [
            ".. | .. | .. | .. | .. | .. | select(false)",
            "(.. | .. | .. | .. | .. | ..)? | select(false)",
            ".. | (.. | (.. | (.. | (.. | ..)?)?)?)? | select(false)",
            "first(recurse | recurse | recurse | recurse | recurse | recurse | select(false))",
            "select(any(..; any(..; any(..; any(..; any(..; false))))))",
        ];
        let (rules, findings) = IgnoreRules::new([IgnoreRule {
            group: "apps".into(),
            kind: "*".into(),
            json_pointers: vec!["/spec/replicas".into()],
            jq_path_expressions: expressions
                .iter()
                .map(|text| (*text).to_owned())
                .chain([".spec.template".to_owned()])
                .collect(),
            ..IgnoreRule::default()
        }]);
        assert_eq!(findings, []);
        let deep = (0..60).fold(json!({}), |below, _| json!({"below": below}));
        let mut document = deployment();
        document["spec"]["template"]["deep"] = deep;
        let (stripped, findings) = rules.strip(&document);
        assert_eq!(stripped["spec"], json!({}));
        let expected: Vec<Finding> = expressions
            .iter()
            .map(|text| Finding::new(*text, "takes more than 100000 steps"))
            .collect();
        assert_eq!(findings, expected);
    }

    #[test]
    fn group_and_kind_are_patterns_name_and_namespace_are_not() {
        let rule = |group: &str, kind: &str, name: &str, namespace: &str| IgnoreRule {
            group: group.into(),
            kind: kind.into(),
            name: name.into(),
            namespace: namespace.into(),
            json_pointers: vec!["/spec".into()],
            ..IgnoreRule::default()
        };
        let holds = |rule| {
            IgnoreRules::new([rule])
                .0
                .strip(&deployment())
                .0
                .get("spec")
                .is_none()
        };
        assert!(holds(rule("*", "*", "", "")));
        assert!(holds(rule("ap*", "Deploy*", "web", "shop")));
        assert!(!holds(rule("", "Deployment", "", "")));
        assert!(!holds(rule("apps", "Deployment", "we*", "")));
        assert!(!holds(rule("apps", "Deployment", "", "other")));
    }
}
