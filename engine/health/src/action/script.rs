//! Actions in Lua: a discovery script tells what there is, a script an action returns the changed object, or a list of objects.

use std::collections::BTreeMap;

use argosy_object::{Value, meta, yaml};

use super::{Action, ActionError, Impact, Operation, Param};
use crate::lua::{self, Script};

/// The actions of one kind as `argocd-cm` has them.
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    pub(crate) discovery: Option<Script>,
    pub(crate) actions: BTreeMap<String, Script>,
    /// The built-in actions are offered besides.
    pub(crate) merge_builtin: bool,
}

impl Definitions {
    /// Reads the text of `resource.customizations.actions.<kind>`: `discovery.lua`, `definitions` with `name` and `action.lua`,
    /// `mergeBuiltinActions`.
    ///
    /// # Errors
    /// Text that is no YAML of that shape, with what is wrong.
    pub fn parse(text: &str, open_libs: bool) -> Result<Self, String> {
        let document = yaml::parse(text, &yaml::Limits::default()).map_err(|error| error.message)?;
        if !document.is_object() {
            return Err("a map with `discovery.lua` and `definitions` is expected".to_owned());
        }
        let script = |value: &Value| value.as_str().map(|text| Script::new(text, open_libs));
        let mut definitions = Definitions {
            discovery: script(&document["discovery.lua"]),
            merge_builtin: document["mergeBuiltinActions"].as_bool().unwrap_or_default(),
            ..Definitions::default()
        };
        for (index, entry) in document["definitions"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let (Some(name), Some(script)) = (entry["name"].as_str(), script(&entry["action.lua"])) else {
                return Err(format!(
                    "definitions[{index}]: `name` and `action.lua` are expected"
                ));
            };
            // Of two with one name the first counts.
            definitions.actions.entry(name.to_owned()).or_insert(script);
        }
        Ok(definitions)
    }
}

pub(super) fn discover(script: &Script, live: &Value) -> Result<Vec<Action>, ActionError> {
    let answer = lua::table(script, live, &BTreeMap::new()).map_err(ActionError::Script)?;
    match answer {
        Value::Object(actions) => Ok(actions.iter().map(|(name, value)| action(name, value)).collect()),
        // An empty table is an empty list.
        Value::Array(items) if items.is_empty() => Ok(Vec::new()),
        _ => Err(ActionError::Script(
            "error unmarshaling action table: a table by name is expected".to_owned(),
        )),
    }
}

fn action(name: &str, value: &Value) -> Action {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let param = |param: &Value| {
        Some(Param {
            name: param["name"].as_str()?.to_owned(),
            default: param["default"].as_str().unwrap_or_default().to_owned(),
        })
    };
    Action {
        name: name.to_owned(),
        params: value["params"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(param)
            .collect(),
        disabled: value["disabled"].as_bool().unwrap_or_default(),
        icon_class: text("iconClass"),
        display_name: text("displayName"),
    }
}

pub(super) fn run(
    script: &Script,
    live: &Value,
    params: &BTreeMap<String, String>,
) -> Result<Vec<Impact>, ActionError> {
    let answer = lua::table(script, live, params).map_err(ActionError::Script)?;
    let mut impacts = match answer {
        Value::Array(items) => items.into_iter().map(impact).collect::<Result<Vec<_>, _>>()?,
        object => vec![Impact {
            operation: Operation::Patch,
            resource: object,
        }],
    };
    for impact in &mut impacts {
        if meta::kind(&impact.resource).is_empty() {
            return Err(ActionError::Script(
                "Object 'Kind' is missing in what the action returned".to_owned(),
            ));
        }
        if impact.operation == Operation::Patch {
            repair(&mut impact.resource, live);
        }
    }
    Ok(impacts)
}

fn impact(mut item: Value) -> Result<Impact, ActionError> {
    let operation = match item["operation"].as_str() {
        Some("create") => Operation::Create,
        Some("patch") => Operation::Patch,
        other => {
            return Err(ActionError::Script(format!(
                "unsupported operation: {}",
                other.unwrap_or_default()
            )));
        }
    };
    Ok(Impact {
        operation,
        resource: item["resource"].take(),
    })
}

/// Lua has one kind of empty table: where the live object has an empty map, an empty list that came back was that map.
fn repair(new: &mut Value, old: &Value) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (name, old) in old {
                if let Some(new) = new.get_mut(name) {
                    repair(new, old);
                }
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            for (new, old) in new.iter_mut().zip(old) {
                repair(new, old);
            }
        }
        (new @ Value::Array(_), Value::Object(_)) if new.as_array().is_some_and(Vec::is_empty) => {
            *new = Value::Object(serde_json::Map::new());
        }
        _ => {}
    }
}
