//! Custom resources along the schema of their CustomResourceDefinition: unknown fields go, defaults come, wrong values are refused.

use argosy_object::{Value, meta};
use serde_json::Map;

use crate::refusal::Cause;
use crate::registry::ResourceType;
use crate::shapes::{self, Reading};

fn schema<'a>(kind: &'a ResourceType, version: &str) -> Option<&'a Value> {
    kind.version(version)
        .map(|version| &version.schema)
        .filter(|schema| schema.is_object())
}

/// Takes out what the schema does not know, and nulls that it does not allow.
pub(crate) fn normalise(kind: &ResourceType, version: &str, object: &mut Value, reading: &mut Reading) {
    if let Some(metadata) = object.get_mut("metadata") {
        shapes::normalise(metadata, shapes::object_meta(), "metadata", reading);
    }
    let Some(schema) = schema(kind, version) else {
        return;
    };
    prune_root(object, schema, "", reading);
}

/// The fields of a whole document; `apiVersion`, `kind` and `metadata` are always known.
fn prune_root(object: &mut Value, schema: &Value, path: &str, reading: &mut Reading) {
    let Value::Object(fields) = object else { return };
    let mut own = Map::new();
    for name in ["apiVersion", "kind", "metadata"] {
        if let Some(value) = fields.remove(name) {
            own.insert(name.to_owned(), value);
        }
    }
    prune(object, schema, path, reading);
    if let Value::Object(fields) = object {
        fields.extend(own);
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema[name] == true
}

fn prune(value: &mut Value, schema: &Value, path: &str, reading: &mut Reading) {
    match value {
        Value::Object(fields) => {
            let open = flag(schema, "x-kubernetes-preserve-unknown-fields");
            let additional = schema.get("additionalProperties");
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                let here = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                let below = schema["properties"].get(&name);
                let Some(below) = below.or_else(|| additional.filter(|additional| additional.is_object()))
                else {
                    if !open && additional.is_none_or(|additional| *additional != true) {
                        reading.unknown.push(here);
                        fields.remove(&name);
                    }
                    continue;
                };
                let Some(field) = fields.get_mut(&name) else {
                    continue;
                };
                if field.is_null() && !flag(below, "nullable") {
                    fields.remove(&name);
                } else if flag(below, "x-kubernetes-embedded-resource") {
                    prune_root(field, below, &here, reading);
                } else {
                    prune(field, below, &here, reading);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, &schema["items"], &format!("{path}[{index}]"), reading);
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of the schema.
pub(crate) fn default(kind: &ResourceType, version: &str, object: &mut Value) {
    if let Some(schema) = schema(kind, version) {
        fill(object, schema);
    }
}

fn fill(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, below) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = below.get("default")
                    && !fields.contains_key(name)
                {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    fill(field, below);
                }
            }
            if schema["additionalProperties"].is_object() {
                let named = schema["properties"].as_object();
                for (name, field) in fields.iter_mut() {
                    if named.is_none_or(|named| !named.contains_key(name)) {
                        fill(field, &schema["additionalProperties"]);
                    }
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, &schema["items"])),
        _ => {}
    }
}

/// What the schema forbids.
pub(crate) fn validate(kind: &ResourceType, version: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(schema) = schema(kind, version) {
        // The document's own fields are checked elsewhere.
        let mut document = object.clone();
        for name in ["apiVersion", "kind", "metadata"] {
            meta::remove_field(&mut document, &[name]);
        }
        check(&document, schema, "", &mut causes);
    }
    causes
}

fn type_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && flag(schema, "nullable") {
        return;
    }
    let is = type_word(value);
    if let Some(allowed) = schema["enum"]
        .as_array()
        .filter(|allowed| !allowed.contains(value))
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            field: path.to_owned(),
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                allowed.join(", ")
            ),
        });
    }
    if let Some(wanted) = schema["type"].as_str() {
        let fits = is == wanted
            || (wanted == "number" && is == "integer")
            || (wanted == "integer" && value.as_f64().is_some_and(|number| number.fract() == 0.0));
        if !fits {
            causes.push(Cause {
                reason: "FieldValueTypeInvalid",
                field: if path.is_empty() {
                    "<nil>".to_owned()
                } else {
                    path.to_owned()
                },
                message: format!("Invalid value: {is:?}: {path} in body must be of type {wanted}: {is:?}"),
            });
            return;
        }
    } else if flag(schema, "x-kubernetes-int-or-string") && !matches!(is, "integer" | "string") {
        causes.push(Cause {
            reason: "FieldValueTypeInvalid",
            field: path.to_owned(),
            message: format!("Invalid value: {is:?}: {path} in body must be of type integer,string: {is:?}"),
        });
        return;
    }
    let mut wrong = |reason: &'static str, text: String| {
        causes.push(Cause {
            reason,
            field: path.to_owned(),
            message: text,
        });
    };
    let invalid = |rule: String| format!("Invalid value: {value}: {path} in body should {rule}");
    if let Some(number) = value.as_f64() {
        if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
            wrong(
                "FieldValueInvalid",
                invalid(format!("be greater than or equal to {least}")),
            );
        }
        if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
            wrong(
                "FieldValueInvalid",
                invalid(format!("be less than or equal to {most}")),
            );
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
            wrong(
                "FieldValueInvalid",
                invalid(format!("be at least {least} chars long")),
            );
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            wrong(
                "FieldValueTooLong",
                format!("Too long: may not be more than {most} bytes"),
            );
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && regex::Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
        {
            wrong("FieldValueInvalid", invalid(format!("match '{pattern}'")));
        }
    }
    if let Some(items) = value.as_array() {
        let count = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
            wrong(
                "FieldValueInvalid",
                invalid(format!("have at least {least} items")),
            );
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            wrong(
                "FieldValueTooMany",
                format!("Too many: {count}: must have at most {most} items"),
            );
        }
        for (index, item) in items.iter().enumerate() {
            check(item, &schema["items"], &format!("{path}[{index}]"), causes);
        }
    }
    if let Some(fields) = value.as_object() {
        for (name, field) in fields {
            let below = schema["properties"]
                .get(name)
                .or_else(|| schema.get("additionalProperties"));
            if let Some(below) = below.filter(|below| below.is_object()) {
                check(field, below, &join(path, name), causes);
            }
        }
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let is_head = path.is_empty() && matches!(name, "metadata" | "kind" | "apiVersion");
            if !is_head && !fields.contains_key(name) {
                causes.push(Cause::required(join(path, name), ""));
            }
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
