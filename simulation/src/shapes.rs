//! What the Go types behind the built-in kinds look like, as far as answers show it.
//!
//! A kube-apiserver decodes a document into a Go struct and writes that struct out again. So unknown fields vanish, empty optional lists
//! and maps are not written, and structs that are no pointers are always written. The recorded OpenAPI schemas tell which is which: a
//! field whose default is `{}` is such a struct, and a required field is written even if it is empty.

use std::collections::HashMap;
use std::sync::LazyLock;

use argosy_object::{GroupVersionKind, quantity};
use serde_json::{Map, Value, json};

use crate::recorded;

/// One Go struct.
#[derive(Debug, Default)]
pub(crate) struct Struct {
    /// Such as `PodSpec`.
    pub(crate) name: String,
    fields: HashMap<String, Field>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) of: Of,
    /// Written even when it is empty.
    required: bool,
    /// A struct that is no pointer.
    embedded: bool,
}

/// The type of a value.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    /// By the name of its definition.
    Struct(String),
    List(Box<Of>),
    Map(Box<Of>),
    Text,
    Whole(&'static str),
    Number,
    Flag,
    /// A quantity, written in its canonical form.
    Quantity,
    /// Whatever.
    Any,
}

/// All definitions, and the ones of kinds.
struct Shapes {
    structs: HashMap<String, Struct>,
    kinds: HashMap<GroupVersionKind, String>,
}

static SHAPES: LazyLock<Shapes> = LazyLock::new(load);

/// The struct of a kind.
pub(crate) fn kind(gvk: &GroupVersionKind) -> Option<&'static Struct> {
    SHAPES.structs.get(SHAPES.kinds.get(gvk)?)
}

/// `metadata`.
pub(crate) fn object_meta() -> &'static Struct {
    named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("the recording has ObjectMeta")
}

fn named(name: &str) -> Option<&'static Struct> {
    SHAPES.structs.get(name)
}

impl Struct {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.get(name)
    }

    /// What an empty value of this struct is written as.
    pub(crate) fn empty(&self) -> Value {
        let mut empty = Map::new();
        for (name, field) in &self.fields {
            match &field.of {
                Of::Struct(below) if field.embedded => {
                    empty.insert(
                        name.clone(),
                        named(below).map_or_else(|| json!({}), Struct::empty),
                    );
                }
                _ if field.required => drop(empty.insert(name.clone(), field.zero())),
                _ => {}
            }
        }
        Value::Object(empty)
    }
}

impl Field {
    /// What is written for a value that nobody gave.
    fn zero(&self) -> Value {
        match self.of {
            Of::Text => json!(""),
            Of::Whole(_) | Of::Number => json!(0),
            Of::Flag => json!(false),
            _ => Value::Null,
        }
    }
}

/// What was found while a document was read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Unknown fields, as warnings name them.
    pub(crate) unknown: Vec<String>,
    /// The first value of a wrong type: what a Go decoder says.
    pub(crate) mismatch: Option<String>,
}

/// Brings `value` into the form in which the struct is written.
pub(crate) fn normalise(value: &mut Value, shape: &Struct, path: &str, reading: &mut Reading) {
    let Value::Object(fields) = value else { return };
    let names: Vec<String> = fields.keys().cloned().collect();
    for name in names {
        let here = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let Some(field) = shape.field(&name) else {
            reading.unknown.push(here);
            fields.remove(&name);
            continue;
        };
        let Some(below) = fields.get_mut(&name) else {
            continue;
        };
        if below.is_null() {
            fields.remove(&name);
            continue;
        }
        if field.required && below.as_array().is_some_and(Vec::is_empty) {
            *below = Value::Null;
            continue;
        }
        descend(below, &field.of, (&shape.name, &here), reading);
        if !field.required && is_left_out(&name, below, &field.of) {
            fields.remove(&name);
        }
    }
    for (name, field) in &shape.fields {
        if fields.contains_key(name) {
            continue;
        }
        match &field.of {
            Of::Struct(below) if field.embedded => {
                fields.insert(name.clone(), named(below).map_or_else(|| json!({}), filled));
            }
            _ if field.required => drop(fields.insert(name.clone(), field.zero())),
            _ => {}
        }
    }
}

/// An empty struct with the empty structs inside it, and nothing else.
fn filled(shape: &Struct) -> Value {
    let mut value = json!({});
    normalise(&mut value, shape, "", &mut Reading::default());
    value
}

fn descend(value: &mut Value, of: &Of, at: (&str, &str), reading: &mut Reading) {
    let (owner, path) = at;
    match (of, &mut *value) {
        (Of::Struct(name), Value::Object(_)) => {
            if let Some(shape) = named(name) {
                normalise(value, shape, path, reading);
            }
        }
        (Of::List(item), Value::Array(items)) => {
            for (index, one) in items.iter_mut().enumerate() {
                descend(one, item, (owner, &format!("{path}[{index}]")), reading);
            }
        }
        (Of::Map(item), Value::Object(fields)) => {
            for (name, one) in fields.iter_mut() {
                if one.is_null() && matches!(**item, Of::Text) {
                    *one = json!("");
                }
                // A wrong value of a map is reported at the map.
                match **item {
                    Of::Struct(_) => descend(one, item, (owner, &format!("{path}.{name}")), reading),
                    _ => descend(one, item, (owner, path), reading),
                }
            }
        }
        (Of::Quantity, Value::String(_) | Value::Number(_)) => {
            if let Some(canonical) = quantity::canonical_value(value) {
                *value = canonical.into();
            }
        }
        (Of::Whole(_), Value::Number(number)) if number.is_i64() || number.is_u64() => {}
        (Of::Any, _)
        | (Of::Text, Value::String(_))
        | (Of::Number, Value::Number(_))
        | (Of::Flag, Value::Bool(_))
        | (_, Value::Null) => {}
        (_, wrong) => {
            let word = match wrong {
                Value::String(_) => "string".to_owned(),
                Value::Number(number) if matches!(of, Of::Whole(_)) => format!("number {number}"),
                Value::Number(_) => "number".to_owned(),
                Value::Bool(_) => "bool".to_owned(),
                Value::Array(_) => "array".to_owned(),
                Value::Object(_) => "object".to_owned(),
                Value::Null => "null".to_owned(),
            };
            // A Go decoder names fields without list positions.
            let plain = without_positions(path);
            reading.mismatch.get_or_insert_with(|| {
                format!(
                    "json: cannot unmarshal {word} into Go struct field {owner}.{plain} of type {}",
                    go_name(of)
                )
            });
        }
    }
}

fn without_positions(path: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside => plain.push(c),
            _ => {}
        }
    }
    plain
}

fn go_name(of: &Of) -> String {
    match of {
        Of::Struct(name) => {
            let mut parts = name.rsplit('.');
            let (kind, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{package}.{kind}")
        }
        Of::List(item) => format!("[]{}", go_name(item)),
        Of::Map(item) => format!("map[string]{}", go_name(item)),
        Of::Text => "string".into(),
        Of::Whole(name) => (*name).into(),
        Of::Number => "float64".into(),
        Of::Flag => "bool".into(),
        Of::Quantity => "resource.Quantity".into(),
        Of::Any => "interface {}".into(),
    }
}

/// Scalars behind pointers: their zero values mean something and are written.
const POINTERS: [&str; 52] = [
    "replicas",
    "minReplicas",
    "maxUnavailable",
    "maxSurge",
    "minAvailable",
    "partition",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "shareProcessNamespace",
    "hostUsers",
    "allowPrivilegeEscalation",
    "privileged",
    "readOnlyRootFilesystem",
    "runAsNonRoot",
    "runAsUser",
    "runAsGroup",
    "fsGroup",
    "suspend",
    "parallelism",
    "completions",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "terminationGracePeriodSeconds",
    "deletionGracePeriodSeconds",
    "gracePeriodSeconds",
    "priority",
    "tolerationSeconds",
    "optional",
    "immutable",
    "storageClassName",
    "ingressClassName",
    "appProtocol",
    "allocateLoadBalancerNodePorts",
    "controller",
    "blockOwnerDeletion",
    "progressDeadlineSeconds",
    "revisionHistoryLimit",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
    "startingDeadlineSeconds",
    "ready",
    "started",
    "serving",
    "terminating",
    "expirationSeconds",
    "defaultMode",
    "mode",
    "leaseDurationSeconds",
    "leaseTransitions",
    "averageUtilization",
    "active",
];

/// Fields that are written even when they are empty, though the schema does not say so.
const ALWAYS_WRITTEN: [(&str, &str); 4] = [
    ("Role", "rules"),
    ("ClusterRole", "rules"),
    ("CustomResourceDefinitionStatus", "conditions"),
    ("HorizontalPodAutoscalerStatus", "currentMetrics"),
];

/// Whether a Go encoder leaves the field out.
fn is_left_out(name: &str, value: &Value, of: &Of) -> bool {
    match (of, value) {
        (Of::List(_), Value::Array(items)) => items.is_empty(),
        (Of::Map(_), Value::Object(fields)) => fields.is_empty(),
        (Of::Text, Value::String(text)) => text.is_empty() && !POINTERS.contains(&name),
        (Of::Whole(_) | Of::Number, Value::Number(number)) => {
            number.as_i64() == Some(0) && !POINTERS.contains(&name)
        }
        (Of::Flag, Value::Bool(flag)) => !flag && !POINTERS.contains(&name),
        _ => false,
    }
}

fn load() -> Shapes {
    let recorded = recorded::all();
    let schemas = recorded["schemas"]
        .as_object()
        .expect("the recording has schemas");
    let mut shapes = Shapes {
        structs: HashMap::new(),
        kinds: HashMap::new(),
    };
    for (name, schema) in schemas {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        for kind in kinds.into_iter().flatten() {
            let text = |field: &str| kind[field].as_str().unwrap_or_default();
            let gvk = GroupVersionKind::new(text("group"), text("version"), text("kind"));
            shapes.kinds.insert(gvk, name.clone());
        }
        if let Some(properties) = schema["properties"].as_object() {
            let short = name.rsplit('.').next().unwrap_or_default().to_owned();
            let required = |field: &str, of_field: &Value| {
                let required = schema["required"].as_array();
                let zero = [json!(0), json!(""), json!(false)].contains(&of_field["default"]);
                zero || ALWAYS_WRITTEN.contains(&(short.as_str(), field))
                    || required.is_some_and(|required| required.iter().any(|name| name == field))
            };
            let fields = properties.iter().map(|(field, schema)| {
                let of = of(schema, schemas);
                let embedded = matches!(of, Of::Struct(_)) && schema["default"] == json!({});
                (
                    field.clone(),
                    Field {
                        of,
                        required: required(field, schema),
                        embedded,
                    },
                )
            });
            shapes.structs.insert(
                name.clone(),
                Struct {
                    name: short.clone(),
                    fields: fields.collect(),
                },
            );
        }
    }
    shapes
}

fn of(schema: &Value, all: &Map<String, Value>) -> Of {
    let reference = schema["$ref"]
        .as_str()
        .or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(name) = reference.and_then(|reference| reference.rsplit('/').next()) {
        return match all.get(name) {
            Some(target) if target["properties"].is_object() => Of::Struct(name.to_owned()),
            _ if name.ends_with(".Quantity") => Of::Quantity,
            // Times, ports and the like have spellings of their own.
            _ => Of::Any,
        };
    }
    match schema["type"].as_str() {
        Some("array") => Of::List(Box::new(of(&schema["items"], all))),
        Some("object") if schema["additionalProperties"].is_object() => {
            Of::Map(Box::new(of(&schema["additionalProperties"], all)))
        }
        Some("string") => Of::Text,
        Some("integer") if schema["format"] == "int64" => Of::Whole("int64"),
        Some("integer") => Of::Whole("int32"),
        Some("number") => Of::Number,
        Some("boolean") => Of::Flag,
        _ => Of::Any,
    }
}
