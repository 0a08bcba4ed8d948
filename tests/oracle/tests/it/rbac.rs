//! Policies made by chance, held against casbin with Argo CD's model.

use argosy_oracle::{Dice, Oracle};
use argosy_rbac::{Access, MatchMode, Policy, Reach, Request};
use serde_json::json;

const SUBJECTS: &[&str] = &[
    "alice",
    "bob",
    "group one",
    "role:a",
    "role:b",
    "role:c",
    "proj:shop:ci",
];
const RESOURCES: &[&str] = &[
    "applications",
    "clusters",
    "*",
    "app*",
    "{applications,logs}",
    "logs",
];
const ACTIONS: &[&str] = &[
    "get",
    "sync",
    "*",
    "action/*",
    "action/apps/Deployment/*",
    "update/*",
    "{get,sync}",
    "delete",
];
const OBJECTS: &[&str] = &[
    "*",
    "*/*",
    "shop/*",
    "shop/web",
    "s*/w?b",
    "shop/*/web",
    "other/*",
    "[a-s]hop/*",
    "{shop,other}/web",
    "*/secret-*",
    "!shop/*",
];
const REGEXES: &[&str] = &[
    "^get$",
    ".*",
    "shop/.*",
    "^(get|sync)$",
    "app",
    "shop|other",
    "/web$",
    "[a-m]+",
    "^action/apps/",
];
const ASKED: &[(&str, &str, &str)] = &[
    ("applications", "get", "shop/web"),
    ("applications", "sync", "shop/web"),
    ("applications", "delete", "other/web"),
    ("applications", "action/apps/Deployment/restart", "shop/web"),
    ("applications", "update/apps/Deployment/ns/web", "shop/team/web"),
    ("logs", "get", "shop/secret-1"),
    ("clusters", "get", "https://k8s.example.com"),
    ("applications", "get", "shop/ns/web"),
];

#[test]
fn policies_mean_what_casbin_says() {
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let mut dice = Dice::new(super::seed());
    let (mut asked, mut allowed) = (0, 0);
    for round in 0..super::objects() / 5 {
        let regex = round % 3 == 0;
        let lines = lines(&mut dice, regex);
        let text: String = lines
            .iter()
            .map(|line| {
                format!(
                    "{}\n",
                    line.iter()
                        .map(|field| quoted(field))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            })
            .collect();
        let mode = if regex { MatchMode::Regex } else { MatchMode::Glob };
        let policy = Policy::parse(&text, mode).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let requests: Vec<Vec<&str>> = SUBJECTS
            .iter()
            .flat_map(|subject| {
                ASKED
                    .iter()
                    .map(|(resource, action, object)| vec![*subject, *resource, *action, *object])
            })
            .collect();
        let answers = oracle
            .ask(
                "rbac",
                json!({"lines": lines, "regex": regex, "requests": requests}),
            )
            .unwrap()
            .unwrap();
        for (request, answer) in requests.iter().zip(answers.as_array().unwrap()) {
            let [subject, resource, action, object] = request[..] else {
                panic!("{request:?}")
            };
            let access = Access::of(&[&policy], [subject]);
            let ours = access.allows(Request {
                resource,
                action,
                object,
            });
            assert_eq!(ours, answer.as_bool().unwrap(), "{request:?} by\n{text}");
            // What lists are made by must answer the same.
            let objects = access.narrow(resource, action);
            assert_eq!(ours, objects.contain(object), "{request:?} by\n{text}");
            let prefix = object.split_inclusive('/').next().unwrap();
            let reach: Reach = objects.beginning_with(prefix);
            assert_eq!(
                ours,
                reach.contains(object),
                "{request:?} below {prefix} by\n{text}"
            );
            asked += 1;
            allowed += usize::from(ours);
        }
    }
    assert!(
        allowed * 20 > asked && allowed * 20 < asked * 19,
        "{allowed} of {asked} are allowed: the policies say too little"
    );
}

fn lines(dice: &mut Dice, regex: bool) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for _ in 0..1 + dice.below(8) {
        let field = |dice: &mut Dice, globs: &[&str]| {
            let from = if regex { REGEXES } else { globs };
            from[dice.below(from.len())].to_owned()
        };
        let subject = SUBJECTS[dice.below(SUBJECTS.len())].to_owned();
        let effect = if dice.below(4) == 0 { "deny" } else { "allow" };
        lines.push(vec![
            "p".to_owned(),
            subject,
            field(dice, RESOURCES),
            field(dice, ACTIONS),
            field(dice, OBJECTS),
            effect.to_owned(),
        ]);
    }
    // casbin takes each line once.
    lines.sort();
    lines.dedup();
    let mut roles = Vec::new();
    for _ in 0..dice.below(6) {
        let (one, other) = (
            SUBJECTS[dice.below(SUBJECTS.len())],
            SUBJECTS[dice.below(SUBJECTS.len())],
        );
        if one != other {
            roles.push(vec!["g".to_owned(), one.to_owned(), other.to_owned()]);
        }
    }
    roles.sort();
    roles.dedup();
    lines.extend(roles);
    lines
}

/// A field of CSV.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', ' ']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}
