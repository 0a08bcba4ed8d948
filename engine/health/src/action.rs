//! Actions: what a person may do to one live object, and what comes out.
//!
//! An operator's Lua scripts come first: those of the settings for exactly this kind, then a bundled set, then the built-in actions
//! ([`builtin`], data in `rules/actions.yaml`). Nothing here writes to a cluster: an action answers with the objects to patch or create.

mod builtin;
mod script;

use std::collections::BTreeMap;

use argosy_object::{Value, meta};
use serde::Serialize;

use crate::customizations::Customizations;

pub use script::Definitions;

/// An action that an object offers. Serialised as Argo CD's `ResourceAction`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Its name.
    pub name: String,
    /// What it has to be given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    /// It is offered, and makes no sense now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Classes of its icon.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub icon_class: String,
    /// What people read instead of its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
}

/// A parameter of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What is offered for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default: String,
}

/// What is to be done with one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Impact {
    /// How it gets into the cluster.
    pub operation: Operation,
    /// The whole object as it shall be.
    pub resource: Value,
}

/// How an object gets into the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// It is new.
    Create,
    /// It replaces the live one, by a patch of what differs.
    Patch,
}

/// Why an action could not be listed or run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ActionError {
    /// Nobody knows an action of this name for the kind.
    #[error("built-in script does not exist: no action {name:?} for {kind}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The kind, as `group/Kind`.
        kind: String,
    },
    /// A parameter is missing or is not what it should be.
    #[error("{0}")]
    Param(String),
    /// A script failed, or returned something else than it should.
    #[error("{0}")]
    Script(String),
}

/// The actions that `live` offers, by name. The first that names an action decides about it.
///
/// # Errors
/// A discovery script that fails.
pub fn discover(live: &Value, customizations: &Customizations) -> Result<Vec<Action>, ActionError> {
    let gvk = meta::gvk(live);
    let mut found: BTreeMap<String, Action> = BTreeMap::new();
    let (scripts, builtin) = customizations.discovery(&gvk.group, &gvk.kind);
    for script in scripts {
        for action in script::discover(script, live)? {
            found.entry(action.name.clone()).or_insert(action);
        }
    }
    if builtin {
        for action in builtin::discover(&gvk.group, &gvk.kind, live) {
            found.entry(action.name.clone()).or_insert(action);
        }
    }
    Ok(found.into_values().collect())
}

/// Runs the action `name` on `live`. `now`, in Unix seconds, is the time that built-in actions write down.
///
/// # Errors
/// An unknown action, a bad parameter, a script that fails.
pub fn run(
    live: &Value,
    name: &str,
    params: &BTreeMap<String, String>,
    now: i64,
    customizations: &Customizations,
) -> Result<Vec<Impact>, ActionError> {
    let gvk = meta::gvk(live);
    if let Some(script) = customizations.action(&gvk.group, &gvk.kind, name) {
        return script::run(script, live, params);
    }
    builtin::run(&gvk.group, &gvk.kind, live, name, params, now).unwrap_or_else(|| {
        Err(ActionError::Unknown {
            name: name.to_owned(),
            kind: format!("{}/{}", gvk.group, gvk.kind)
                .trim_start_matches('/')
                .to_owned(),
        })
    })
}
