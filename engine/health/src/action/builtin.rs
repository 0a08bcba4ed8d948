//! The built-in actions, from data.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use argosy_object::{Value, meta, yaml};
use serde_json::{Map, json};

use super::{Action, ActionError, Impact, Operation, Param};
use crate::expression::{Conditions, Found, Number, Path, Scene, Tests, Text};
use crate::rules::FileError;

const FILE: &str = include_str!("../../rules/actions.yaml");

/// Lists of actions, and which list a kind has.
#[derive(Debug, Default)]
struct Table {
    lists: Vec<Vec<Definition>>,
    kinds: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Definition {
    name: String,
    icon: String,
    title: String,
    disabled: Vec<Tests>,
    hidden: Vec<Tests>,
    params: Vec<ParamDefinition>,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct ParamDefinition {
    name: String,
    check: Check,
    default: Text,
}

/// What a parameter has to be.
#[derive(Debug, Clone, Copy)]
enum Check {
    Number,
    /// A number that is not negative.
    Count,
    /// A healthy instance of a CloudNativePG cluster: its name, its number, or `any` for the one behind the primary.
    Instance,
}

#[derive(Debug)]
struct Step {
    when: Tests,
    what: What,
}

#[derive(Debug)]
enum What {
    Set(Path, Source),
    Unset(Path),
    Append(Path, Value),
    Create(Value),
}

#[derive(Debug)]
enum Source {
    Template(Value),
    Number(Number),
    NumberOfParam(String),
}

/// The built-in actions that `live` offers, in the order of the file; the first of a name counts.
pub(super) fn discover(group: &str, kind: &str, live: &Value) -> Vec<Action> {
    let conditions = Conditions::default();
    let any = |tests: &[Tests]| tests.iter().any(|tests| tests.hold(live, &conditions).is_some());
    let offered = definitions(group, kind)
        .iter()
        .filter(|definition| !any(&definition.hidden));
    let params = BTreeMap::new();
    let action = |definition: &Definition| Action {
        name: definition.name.clone(),
        params: definition
            .params
            .iter()
            .map(|param| Param {
                name: param.name.clone(),
                default: param.default.fill(&scene(live, &conditions, &params, 0)),
            })
            .collect(),
        disabled: any(&definition.disabled),
        icon_class: definition.icon.clone(),
        display_name: definition.title.clone(),
    };
    offered.map(action).collect()
}

/// Runs a built-in action; `None` if there is none of this name.
pub(super) fn run(
    group: &str,
    kind: &str,
    live: &Value,
    name: &str,
    params: &BTreeMap<String, String>,
    now: i64,
) -> Option<Result<Vec<Impact>, ActionError>> {
    let conditions = Conditions::default();
    let hidden = |definition: &&Definition| {
        definition
            .hidden
            .iter()
            .any(|tests| tests.hold(live, &conditions).is_some())
    };
    let mut named = definitions(group, kind)
        .iter()
        .filter(|definition| definition.name == name);
    let last = named.clone().next_back();
    // Of two with one name the first that is offered; an action that is not offered can be run all the same.
    let definition = named.find(|definition| !hidden(definition)).or(last)?;
    Some(definition.run(live, params, now))
}

fn scene<'a>(
    object: &'a Value,
    conditions: &'a Conditions,
    params: &'a BTreeMap<String, String>,
    now: i64,
) -> Scene<'a> {
    Scene {
        object,
        conditions,
        found: Found::default(),
        params: Some(params),
        now,
    }
}

impl Definition {
    fn run(
        &self,
        live: &Value,
        params: &BTreeMap<String, String>,
        now: i64,
    ) -> Result<Vec<Impact>, ActionError> {
        let conditions = Conditions::default();
        let mut given = BTreeMap::new();
        for param in &self.params {
            given.insert(param.name.clone(), param.checked(live, params)?);
        }
        let scene = scene(live, &conditions, &given, now);
        let mut changed = live.clone();
        for step in &self.steps {
            if step.when.hold(live, &conditions).is_none() {
                continue;
            }
            match &step.what {
                What::Set(path, source) => {
                    if let (Some(value), Some(fields)) = (source.value(&scene), path.fields()) {
                        set(&mut changed, &fields, value);
                    }
                }
                What::Unset(path) => unset(&mut changed, &path.fields().unwrap_or_default()),
                What::Append(path, template) => {
                    let mut list = path
                        .first(&changed)
                        .and_then(Value::as_array)
                        .cloned()
                        .unwrap_or_default();
                    list.extend(filled(template, &scene));
                    set(
                        &mut changed,
                        &path.fields().unwrap_or_default(),
                        Value::Array(list),
                    );
                }
                What::Create(template) => {
                    return Ok(filled(template, &scene)
                        .map(|resource| Impact {
                            operation: Operation::Create,
                            resource,
                        })
                        .into_iter()
                        .collect());
                }
            }
        }
        Ok(vec![Impact {
            operation: Operation::Patch,
            resource: changed,
        }])
    }
}

impl ParamDefinition {
    fn checked(&self, live: &Value, params: &BTreeMap<String, String>) -> Result<String, ActionError> {
        let Some(given) = params.get(&self.name) else {
            return Err(ActionError::Param(format!("{} parameter is required", self.name)));
        };
        let number = given
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite());
        match (self.check, number) {
            (Check::Number, Some(_)) => Ok(given.clone()),
            (Check::Count, Some(number)) if number >= 0.0 => Ok(given.clone()),
            (Check::Number, None) => Err(ActionError::Param(format!("invalid number: {given}"))),
            (Check::Count, _) => Err(ActionError::Param(format!(
                "invalid number: {given} (must be >= 0)"
            ))),
            (Check::Instance, _) => instance(live, given).ok_or_else(|| {
                ActionError::Param(format!(
                    "Could not find a healthy instance matching the criteria: {given}"
                ))
            }),
        }
    }
}

fn instance(live: &Value, given: &str) -> Option<String> {
    let healthy: Vec<&str> = meta::array_field(live, &["status", "instancesStatus", "healthy"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if given == "any" {
        let primary = meta::str_field(live, &["status", "currentPrimary"]);
        let next = match healthy.iter().position(|name| Some(*name) == primary) {
            Some(place) => (place + 1) % healthy.len(),
            None => 0,
        };
        return healthy.get(next).map(|name| (*name).to_owned());
    }
    let wanted = match given.parse::<u64>() {
        Ok(number) => format!("{}-{number}", meta::name(live)),
        Err(_) => given.to_owned(),
    };
    healthy.contains(&wanted.as_str()).then_some(wanted)
}

impl Source {
    fn value(&self, scene: &Scene<'_>) -> Option<Value> {
        match self {
            Source::Template(template) => filled(template, scene),
            Source::Number(number) => number.of(scene.object).and_then(as_json),
            Source::NumberOfParam(name) => scene.params?.get(name)?.trim().parse().ok().and_then(as_json),
        }
    }
}

/// Whole numbers without a fraction, as Kubernetes wants them.
fn as_json(number: f64) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        return Some(json!(number as i64));
    }
    serde_json::Number::from_f64(number).map(Value::Number)
}

/// A template with everything filled in: `=path` stands for the value there, `<` in a map for the entries of the map there, other texts
/// are filled. What is not there, and empty maps and lists that come from it, are left out.
fn filled(template: &Value, scene: &Scene<'_>) -> Option<Value> {
    match template {
        Value::String(text) => match text.strip_prefix('=') {
            Some(path) => without_empties(Path::parse(path).ok()?.first(scene.object)?),
            None => Some(Text::parse(text).ok()?.fill(scene).into()),
        },
        Value::Array(items) => Some(items.iter().filter_map(|item| filled(item, scene)).collect()),
        Value::Object(fields) => {
            let mut map = Map::new();
            let merged = fields
                .get("<")
                .and_then(Value::as_str)
                .and_then(|path| Path::parse(path).ok());
            if let Some(Value::Object(from)) =
                merged.and_then(|path| without_empties(path.first(scene.object)?))
            {
                map = from;
            }
            for (name, value) in fields.iter().filter(|(name, _)| *name != "<") {
                if let Some(value) = filled(value, scene) {
                    map.insert(name.clone(), value);
                }
            }
            Some(Value::Object(map))
        }
        other => Some(other.clone()),
    }
}

fn without_empties(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Object(fields) if fields.is_empty() => None,
        Value::Array(items) => Some(items.iter().filter_map(without_empties).collect()),
        Value::Object(fields) => Some(Value::Object(
            fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), without_empties(value)?)))
                .collect(),
        )),
        other => Some(other.clone()),
    }
}

/// Sets a field; maps that are missing on the way are made.
fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut place = object;
    for name in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[*name];
    }
    *place = value;
}

fn unset(object: &mut Value, path: &[&str]) {
    let Some((last, way)) = path.split_last() else {
        return;
    };
    let mut place = object;
    for name in way {
        match place.get_mut(name) {
            Some(next) => place = next,
            None => return,
        }
    }
    if let Some(fields) = place.as_object_mut() {
        fields.remove(*last);
    }
}

fn definitions(group: &str, kind: &str) -> &'static [Definition] {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| match read(FILE) {
        Ok(table) => table,
        // The file is part of the program, and a test reads it.
        Err(error) => panic!("the built-in actions are broken: {error}"),
    });
    let key = format!("{group}/{kind}");
    table
        .kinds
        .get(key.trim_start_matches('/'))
        .and_then(|place| table.lists.get(*place))
        .map_or(&[], Vec::as_slice)
}

fn read(text: &str) -> Result<Table, FileError> {
    let document =
        yaml::parse(text, &yaml::Limits::default()).map_err(|error| FileError::Yaml(error.message))?;
    let mut table = Table::default();
    for entry in document.as_array().into_iter().flatten() {
        let actions = entry["actions"].as_array().into_iter().flatten();
        let list: Result<Vec<_>, FileError> = actions.map(definition).collect();
        for kind in entry["kinds"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if table.kinds.insert(kind.to_owned(), table.lists.len()).is_some() {
                return Err(FileError::Shape(
                    kind.to_owned(),
                    "one list of actions for each kind",
                ));
            }
        }
        table.lists.push(list?);
    }
    Ok(table)
}

fn definition(written: &Value) -> Result<Definition, FileError> {
    let text = |field: &str| written[field].as_str().unwrap_or_default().to_owned();
    let name = text("name");
    let tests = |field: &str| -> Result<Vec<Tests>, FileError> {
        let written = written[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        written
            .map(|tests| Tests::parse(tests).map_err(|error| FileError::Expression(name.clone(), error)))
            .collect()
    };
    let params = written["params"].as_array().into_iter().flatten().map(|param| {
        let check = match param["check"].as_str() {
            Some("number") => Check::Number,
            Some("count") => Check::Count,
            Some("instance") => Check::Instance,
            _ => return Err(FileError::Shape(name.clone(), "a known check")),
        };
        let default = param["default"].as_str().unwrap_or_default();
        Ok(ParamDefinition {
            name: param["name"].as_str().unwrap_or_default().to_owned(),
            check,
            default: Text::parse(default).map_err(|error| FileError::Expression(name.clone(), error))?,
        })
    });
    let params = params.collect::<Result<_, _>>()?;
    let steps = written["steps"].as_array().into_iter().flatten();
    let steps = steps
        .map(|written| step(written, &name))
        .collect::<Result<_, _>>()?;
    Ok(Definition {
        icon: text("icon"),
        title: text("title"),
        disabled: tests("disabled")?,
        hidden: tests("hidden")?,
        params,
        steps,
        name,
    })
}

fn step(written: &Value, action: &str) -> Result<Step, FileError> {
    let invalid = |error| FileError::Expression(action.to_owned(), error);
    let path = |field: &str| {
        let path = Path::parse(written[field].as_str().unwrap_or_default()).map_err(invalid)?;
        match path.fields() {
            Some(_) => Ok(path),
            None => Err(FileError::Shape(action.to_owned(), "a path to one place")),
        }
    };
    let what = if let Some(template) = written.get("create") {
        What::Create(template.clone())
    } else if written.get("unset").is_some() {
        What::Unset(path("unset")?)
    } else if written.get("append").is_some() {
        What::Append(path("append")?, written["value"].clone())
    } else if let Some(number) = written["number"].as_str() {
        let source = match number.strip_prefix('$') {
            Some(param) => Source::NumberOfParam(param.to_owned()),
            None => Source::Number(Number::parse(number).map_err(invalid)?),
        };
        What::Set(path("set")?, source)
    } else {
        What::Set(path("set")?, Source::Template(written["to"].clone()))
    };
    Ok(Step {
        when: Tests::parse(written["when"].as_str().unwrap_or_default()).map_err(invalid)?,
        what,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_data_file_can_be_read() {
        assert!(read(FILE).unwrap().kinds.len() >= 36);
    }

    #[test]
    fn texts_in_templates_can_be_read_too() {
        fn check(value: &Value) {
            match value {
                Value::String(text) => match text.strip_prefix('=') {
                    Some(path) => drop(Path::parse(path).unwrap()),
                    None => drop(Text::parse(text).unwrap()),
                },
                Value::Array(items) => items.iter().for_each(check),
                Value::Object(fields) => fields.values().for_each(check),
                _ => {}
            }
        }
        for definition in read(FILE).unwrap().lists.iter().flatten() {
            for step in &definition.steps {
                match &step.what {
                    What::Set(_, Source::Template(value)) | What::Append(_, value) | What::Create(value) => {
                        check(value)
                    }
                    _ => {}
                }
            }
        }
    }
}
