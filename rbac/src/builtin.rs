//! The roles that every installation has.

use std::sync::LazyLock;

use crate::policy::{MatchMode, Policy, Rule};

/// Resources of which readers see everything; objects of those in the second list are `project/name`.
const GLOBAL: &[&str] = &[
    "accounts",
    "certificates",
    "clusters",
    "gpgkeys",
    "projects",
    "repositories",
    "write-repositories",
];
const IN_PROJECTS: &[&str] = &["applications", "applicationsets", "logs"];

/// What administrators may do besides.
const ADMIN: &[(&str, &[&str])] = &[
    (
        "applications",
        &[
            "create", "update", "update/*", "delete", "delete/*", "sync", "rollback", "override", "action/*",
        ],
    ),
    ("applicationsets", &["create", "update", "delete"]),
    ("accounts", &["update"]),
    ("certificates", &["create", "update", "delete"]),
    ("clusters", &["create", "update", "delete"]),
    ("gpgkeys", &["create", "delete"]),
    ("projects", &["create", "update", "delete"]),
    ("repositories", &["create", "update", "delete"]),
    ("write-repositories", &["create", "update", "delete"]),
    ("exec", &["create"]),
];

/// `role:readonly`, `role:admin`, and the account `admin` in it.
pub fn builtin() -> &'static Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| {
        let object = |resource: &str| {
            if IN_PROJECTS.contains(&resource) || resource == "exec" {
                "*/*"
            } else {
                "*"
            }
        };
        let mut text = String::from("g, role:admin, role:readonly\ng, admin, role:admin\n");
        for resource in GLOBAL.iter().chain(IN_PROJECTS) {
            text += &format!("p, role:readonly, {resource}, get, {}, allow\n", object(resource));
        }
        for (resource, actions) in ADMIN {
            for action in *actions {
                text += &format!(
                    "p, role:admin, {resource}, {action}, {}, allow\n",
                    object(resource)
                );
            }
        }
        // The text is ours, and globs whatever the installation's own rules are.
        Policy::parse(&text, MatchMode::Glob).unwrap_or_default()
    });
    &POLICY
}

impl Rule {
    /// Is what the rule is about allowed by it, or denied?
    pub fn is_permission(&self) -> bool {
        self.allow
    }
}
