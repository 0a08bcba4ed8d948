//! Who may do what: Argo CD's policy language, compiled once and asked often. Pure.
//!
//! A policy is a text of lines. `p, subject, resource, action, object, allow|deny` is a rule; `g, subject, role` lets a
//! subject have what a role has. A rule fits a request when the subject has the rule's subject as a role, directly or
//! through others, and resource, action and object match: as globs in which `*` spans `/`, or as regular expressions
//! that need not match the whole. A subject may do what some rule allows and no rule denies.
//!
//! [`Policy::parse`] reads a text, [`Access::of`] collects the rules of one person from all policies that count for
//! them, and [`Access::allows`] answers. Lists narrow the access to one resource and action first ([`Access::narrow`]),
//! then to one project ([`Objects::beginning_with`]): mostly all of it or nothing of it is left, and no object is compared.

mod builtin;
mod config;
mod policy;

pub use builtin::builtin;
pub use config::Config;
pub use policy::{Error, MatchMode, Policy, Rule};

use std::collections::HashSet;
use std::sync::Arc;

use argosy_api::glob::Share;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Such as `applications`.
    pub resource: &'a str,
    /// Such as `get` or `action/apps/Deployment/restart`.
    pub action: &'a str,
    /// Such as `default/guestbook`.
    pub object: &'a str,
}

/// The answer to a request, with the rule it rests on.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// This rule allows it, and none denies it.
    Allowed(Arc<Rule>),
    /// This rule denies it.
    Denied(Arc<Rule>),
    /// No rule allows it.
    Unmatched,
}

impl Verdict {
    /// May it be done?
    pub fn allowed(&self) -> bool {
        matches!(self, Verdict::Allowed(_))
    }
}

/// The rule that decides, in words.
impl std::fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Allowed(rule) => write!(formatter, "allowed by: {}", rule.text),
            Verdict::Denied(rule) => write!(formatter, "denied by: {}", rule.text),
            Verdict::Unmatched => formatter.write_str("no rule allows it"),
        }
    }
}

/// The rules of one person: one chain for each name they go by. Names are independent: what is denied under one may be
/// allowed under another, as in Argo CD.
#[derive(Clone, Debug, Default)]
pub struct Access {
    chains: Vec<Vec<Arc<Rule>>>,
}

impl Access {
    /// The rules of whoever goes by these names (default role, own name, groups), in this order.
    pub fn of<'a>(policies: &[&Policy], names: impl IntoIterator<Item = &'a str>) -> Self {
        let chains = names
            .into_iter()
            .filter(|name| !name.is_empty())
            .map(|name| chain(policies, name))
            .filter(|chain| !chain.is_empty());
        Access {
            chains: chains.collect(),
        }
    }

    /// The same with further names.
    pub fn and(mut self, other: Access) -> Self {
        self.chains.extend(other.chains);
        self
    }

    /// May this be done?
    pub fn allows(&self, request: Request<'_>) -> bool {
        self.chains.iter().any(|chain| judge(chain, request).allowed())
    }

    /// The same with the reason: the first name under which it is allowed, or else a rule that denies it.
    pub fn explain(&self, request: Request<'_>) -> Verdict {
        let mut denied = None;
        for chain in &self.chains {
            match judge(chain, request) {
                Verdict::Allowed(rule) => return Verdict::Allowed(rule),
                Verdict::Denied(rule) => denied = denied.or(Some(rule)),
                Verdict::Unmatched => {}
            }
        }
        denied.map_or(Verdict::Unmatched, Verdict::Denied)
    }

    /// Only the rules that fit this resource and action.
    pub fn narrow(&self, resource: &str, action: &str) -> Objects {
        let fitting = |chain: &Vec<Arc<Rule>>| -> Vec<Arc<Rule>> {
            let fits = |rule: &&Arc<Rule>| rule.resource.matches(resource) && rule.action.matches(action);
            chain.iter().filter(fits).cloned().collect()
        };
        Objects(
            self.chains
                .iter()
                .map(fitting)
                .filter(|chain| !chain.is_empty())
                .collect(),
        )
    }
}

/// The objects on which one action is allowed.
#[derive(Clone, Debug)]
pub struct Objects(Vec<Vec<Arc<Rule>>>);

impl Objects {
    /// Is this one of them?
    pub fn contain(&self, object: &str) -> bool {
        self.0.iter().any(|chain| {
            let mut fitting = chain.iter().filter(|rule| rule.object.matches(object)).peekable();
            fitting.peek().is_some() && fitting.all(|rule| rule.allow)
        })
    }

    /// Those of them that begin with `prefix`, such as all that are of one project.
    pub fn beginning_with(&self, prefix: &str) -> Reach {
        let mut left = Vec::new();
        for chain in &self.0 {
            let fitting: Vec<_> = chain
                .iter()
                .map(|rule| (rule, rule.object.beginning_with(prefix)))
                .filter(|(_, share)| *share != Share::Nothing)
                .collect();
            let denied = fitting.iter().any(|(rule, _)| !rule.allow);
            let whole = fitting
                .iter()
                .any(|(rule, share)| rule.allow && *share == Share::Everything);
            if whole && !denied {
                return Reach::Everything;
            }
            if fitting.iter().any(|(rule, _)| rule.allow) {
                left.push(fitting.into_iter().map(|(rule, _)| rule.clone()).collect());
            }
        }
        match left.is_empty() {
            true => Reach::Nothing,
            false => Reach::Some(Objects(left)),
        }
    }
}

/// What is allowed of the objects that begin with one text.
#[derive(Clone, Debug)]
pub enum Reach {
    /// None of them.
    Nothing,
    /// These of them.
    Some(Objects),
    /// All of them.
    Everything,
}

impl Reach {
    /// Is this object, which begins with that text, allowed?
    pub fn contains(&self, object: &str) -> bool {
        match self {
            Reach::Nothing => false,
            Reach::Some(objects) => objects.contain(object),
            Reach::Everything => true,
        }
    }
}

/// The rules of `name` and of every role it has.
fn chain(policies: &[&Policy], name: &str) -> Vec<Arc<Rule>> {
    let (mut seen, mut open) = (HashSet::from([name]), vec![name]);
    let mut rules = Vec::new();
    while let Some(name) = open.pop() {
        for policy in policies {
            rules.extend(policy.rules_of(name).iter().cloned());
            open.extend(
                policy
                    .roles_of(name)
                    .iter()
                    .map(String::as_str)
                    .filter(|role| seen.insert(role)),
            );
        }
    }
    rules
}

fn judge(chain: &[Arc<Rule>], request: Request<'_>) -> Verdict {
    let mut allowed = None;
    for rule in chain.iter().filter(|rule| rule.fits(request)) {
        if !rule.allow {
            return Verdict::Denied(rule.clone());
        }
        allowed = allowed.or(Some(rule));
    }
    allowed.map_or(Verdict::Unmatched, |rule| Verdict::Allowed(rule.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn allows(policy: &str, mode: MatchMode, subjects: &[&str], request: (&str, &str, &str)) -> bool {
        let policy = Policy::parse(policy, mode).unwrap();
        let (resource, action, object) = request;
        let access = Access::of(&[builtin(), &policy], subjects.iter().copied());
        let whole = access.allows(Request {
            resource,
            action,
            object,
        });
        let objects = access.narrow(resource, action);
        assert_eq!(whole, objects.contain(object), "narrowing changes no answer");
        for end in (0..=object.len()).filter(|end| object.is_char_boundary(*end)) {
            let reach = objects.beginning_with(&object[..end]);
            assert_eq!(whole, reach.contains(object), "{}: {reach:?}", &object[..end]);
        }
        whole
    }

    #[test]
    fn nobody_may_do_anything_without_a_rule() {
        assert!(!allows(
            "",
            MatchMode::Glob,
            &["eve"],
            ("applications", "get", "default/a")
        ));
        assert!(!allows(
            "",
            MatchMode::Glob,
            &[""],
            ("applications", "get", "default/a")
        ));
    }

    #[test]
    fn the_built_in_roles_are_readers_and_administrators() {
        for (resource, object) in [
            ("applications", "default/a"),
            ("clusters", "https://k8s.example.com"),
            ("write-repositories", "https://git.example.com/a"),
            ("logs", "default/a"),
            ("accounts", "admin"),
        ] {
            assert!(
                allows("", MatchMode::Glob, &["role:readonly"], (resource, "get", object)),
                "{resource}"
            );
            assert!(
                allows("", MatchMode::Glob, &["admin"], (resource, "get", object)),
                "{resource}"
            );
            assert!(
                !allows(
                    "",
                    MatchMode::Glob,
                    &["role:readonly"],
                    (resource, "update", object)
                ),
                "{resource}"
            );
        }
        assert!(allows(
            "",
            MatchMode::Glob,
            &["admin"],
            ("applications", "action/apps/Deployment/restart", "p/a")
        ));
        assert!(allows(
            "",
            MatchMode::Glob,
            &["admin"],
            ("applications", "delete/apps/Deployment/ns/web", "p/a")
        ));
        assert!(allows("", MatchMode::Glob, &["admin"], ("exec", "create", "p/a")));
        assert!(!allows(
            "",
            MatchMode::Glob,
            &["role:readonly"],
            ("exec", "create", "p/a")
        ));
        assert!(
            !allows(
                "",
                MatchMode::Glob,
                &["admin"],
                ("extensions", "invoke", "metrics")
            ),
            "no extensions"
        );
    }

    #[test]
    fn a_star_spans_separators_and_braces_choose() {
        let policy = "p, dev, applications, \"{get,sync}\", team-*/*, allow";
        assert!(allows(
            policy,
            MatchMode::Glob,
            &["dev"],
            ("applications", "sync", "team-a/ns/app")
        ));
        assert!(!allows(
            policy,
            MatchMode::Glob,
            &["dev"],
            ("applications", "delete", "team-a/app")
        ));
        assert!(!allows(
            policy,
            MatchMode::Glob,
            &["dev"],
            ("applications", "get", "other/app")
        ));
    }

    #[test]
    fn regular_expressions_need_not_match_the_whole() {
        let policy = "p, dev, applications, ^(get|sync)$, team-[0-9]+/, allow";
        assert!(allows(
            policy,
            MatchMode::Regex,
            &["dev"],
            ("applications", "get", "x-team-12/app")
        ));
        assert!(!allows(
            policy,
            MatchMode::Regex,
            &["dev"],
            ("applications", "get", "team-a/app")
        ));
    }

    #[test]
    fn one_denial_outweighs_any_number_of_permissions_of_the_same_name() {
        let policy = "g, ops, role:admin\np, ops, applications, delete, prod/*, deny";
        assert!(allows(
            policy,
            MatchMode::Glob,
            &["ops"],
            ("applications", "delete", "dev/a")
        ));
        assert!(!allows(
            policy,
            MatchMode::Glob,
            &["ops"],
            ("applications", "delete", "prod/a")
        ));
        // Another of the person's names is judged by itself.
        assert!(allows(
            policy,
            MatchMode::Glob,
            &["ops", "admin"],
            ("applications", "delete", "prod/a")
        ));
    }

    #[test]
    fn projects_are_seen_as_wholes_where_that_can_be_told() {
        let of = |policy: &str, mode, prefix: &str| {
            let policy = Policy::parse(policy, mode).unwrap();
            let access = Access::of(&[builtin(), &policy], ["dev"]);
            match access.narrow("applications", "get").beginning_with(prefix) {
                Reach::Nothing => "nothing",
                Reach::Some(_) => "some",
                Reach::Everything => "everything",
            }
        };
        let team = "p, dev, applications, get, team-a/*, allow";
        assert_eq!(of(team, MatchMode::Glob, "team-a/"), "everything");
        assert_eq!(of(team, MatchMode::Glob, "team-b/"), "nothing");
        assert_eq!(
            of("g, dev, role:readonly", MatchMode::Glob, "team-a/"),
            "everything"
        );
        assert_eq!(
            of(
                "p, dev, applications, get, team-*/web, allow",
                MatchMode::Glob,
                "team-a/"
            ),
            "some"
        );
        assert_eq!(
            of(
                "p, dev, applications, get, team-a/web, allow",
                MatchMode::Glob,
                "team-a/"
            ),
            "some"
        );
        assert_eq!(
            of(
                "p, dev, applications, get, team-a/web, allow",
                MatchMode::Glob,
                "team-ab/"
            ),
            "nothing"
        );
        let but = format!("{team}\np, dev, applications, get, */secret, deny");
        assert_eq!(of(&but, MatchMode::Glob, "team-a/"), "some");
        assert_eq!(
            of(
                "p, dev, applications, get, team-a/*, deny",
                MatchMode::Glob,
                "team-a/"
            ),
            "nothing"
        );
        // A regular expression is looked at object by object.
        assert_eq!(
            of(
                "p, dev, applications, get, team-a/.*, allow",
                MatchMode::Regex,
                "team-b/"
            ),
            "some"
        );
    }

    #[test]
    fn roles_are_had_through_roles_and_cycles_end() {
        let policy = "g, alice, a\ng, a, b\ng, b, a\np, b, projects, get, *, allow";
        assert!(allows(
            policy,
            MatchMode::Glob,
            &["alice"],
            ("projects", "get", "x")
        ));
    }

    #[test]
    fn comments_quotes_and_spaces_are_as_in_csv() {
        let policy = "# people\n\n p , \"Team, One\" ,projects, get , * , allow  # readers\n";
        assert!(allows(
            policy,
            MatchMode::Glob,
            &["Team, One"],
            ("projects", "get", "x")
        ));
    }

    #[test]
    fn a_line_that_is_wrong_names_itself() {
        for (text, why) in [
            ("p, a, b", "six"),
            ("p, a, applications, get, */*, maybe", "allow"),
            ("x, a, b", "p or g"),
            ("g, a", "three"),
            ("\np, dev, applications, get, [z-a, allow", "pattern"),
        ] {
            let error = Policy::parse(text, MatchMode::Glob).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let error = Policy::parse("p, a, b, c, (, allow", MatchMode::Regex)
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
