//! Objects made by chance from schemas. The same seed makes the same objects.

use argosy_object::schema::{List, Schema, Schemas, Type};
use argosy_object::{GroupVersionKind, Map, Value, api_version};
use serde_json::json;

/// Chance (splitmix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Dice that fall the same way for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.roll() % end as u64) as usize
    }

    /// True in `percent` of 100 throws.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// One of `texts`.
    pub fn text(&mut self, texts: &[&'static str]) -> &'static str {
        texts[self.below(texts.len())]
    }
}

/// Fields that tell list items apart; an item without, or with another's, is refused by everybody.
const KEYS: [&str; 12] = [
    "containerPort",
    "devicePath",
    "ip",
    "key",
    "mountPath",
    "name",
    "port",
    "protocol",
    "resourceName",
    "topologyKey",
    "type",
    "uid",
];

/// Values that the API server puts into these fields of some kind, under some field or beside some other one, if nobody states them: whoever
/// compares has to know where. Chance alone would rarely come upon them.
const DEFAULTED: [(&str, &str); 36] = [
    ("backoffLimit", "6"),
    ("completionMode", "\"NonIndexed\""),
    ("completions", "1"),
    ("concurrencyPolicy", "\"Allow\""),
    ("defaultMode", "420"),
    ("dnsPolicy", "\"ClusterFirst\""),
    ("externalTrafficPolicy", "\"Cluster\""),
    ("failurePolicy", "\"Fail\""),
    ("failureThreshold", "3"),
    ("image", "\"nginx:1.2\""),
    ("imagePullPolicy", "\"Always\""),
    ("imagePullPolicy", "\"IfNotPresent\""),
    ("internalTrafficPolicy", "\"Cluster\""),
    ("matchPolicy", "\"Equivalent\""),
    ("maxSurge", "\"25%\""),
    ("maxSurge", "0"),
    ("maxUnavailable", "\"25%\""),
    ("maxUnavailable", "1"),
    ("namespaceSelector", "{}"),
    ("objectSelector", "{}"),
    ("parallelism", "1"),
    ("partition", "0"),
    ("periodSeconds", "10"),
    ("podManagementPolicy", "\"OrderedReady\""),
    ("podReplacementPolicy", "\"Failed\""),
    ("podReplacementPolicy", "\"TerminatingOrFailed\""),
    ("policyTypes", "[\"Ingress\",\"Egress\"]"),
    ("policyTypes", "[\"Ingress\"]"),
    ("progressDeadlineSeconds", "600"),
    ("reclaimPolicy", "\"Delete\""),
    ("replicas", "1"),
    ("revisionHistoryLimit", "10"),
    ("sessionAffinity", "\"None\""),
    ("terminationGracePeriodSeconds", "30"),
    ("timeoutSeconds", "1"),
    ("volumeMode", "\"Filesystem\""),
];

/// How deep objects go.
const DEPTH_MAX: usize = 9;
/// How many values an object may have, roughly.
const VALUES_MAX: usize = 120;

/// Makes objects of the kinds that `schemas` know.
#[derive(Debug)]
pub struct Generator<'a> {
    schemas: &'a Schemas,
    /// Decides.
    pub dice: Dice,
    left: usize,
}

impl<'a> Generator<'a> {
    /// A generator.
    #[must_use]
    pub fn new(schemas: &'a Schemas, seed: u64) -> Self {
        Self {
            schemas,
            dice: Dice::new(seed),
            left: 0,
        }
    }

    /// An object of a kind, without status.
    pub fn object(&mut self, kind: &GroupVersionKind) -> Value {
        self.left = VALUES_MAX;
        let mut object = match self.schemas.root(kind) {
            Some(schema) => self.fields(schema, 0),
            None => Map::new(),
        };
        object.remove("status");
        object.insert(
            "apiVersion".into(),
            api_version(&kind.group, &kind.version).into(),
        );
        object.insert("kind".into(), (&*kind.kind).into());
        object.insert("metadata".into(), self.metadata());
        Value::Object(object)
    }

    fn metadata(&mut self) -> Value {
        let mut metadata = json!({"name": "x", "namespace": "shop"});
        for name in ["labels", "annotations"] {
            if self.dice.chance(60) {
                let texts = (0..self.dice.below(4)).map(|_| (self.word(), Value::from(self.word())));
                metadata[name] = Value::Object(texts.collect());
            }
        }
        if self.dice.chance(20) {
            metadata["finalizers"] = self.set(&mut |it| format!("example.com/{}", it.word()).into());
        }
        metadata
    }

    fn word(&mut self) -> String {
        self.dice.text(&["a", "b", "c", "d", "e"]).to_owned()
    }

    fn fields(&mut self, schema: Schema<'_>, depth: usize) -> Map {
        let names: Vec<&str> = schema.fields().map(|(name, _)| name).collect();
        // Few of many fields, most of few.
        let percent = if names.len() > 12 { 22 } else { 45 };
        let mut fields = Map::new();
        for name in names {
            // Without these an object is none, whatever else it says.
            let wanted = matches!(name, "spec" | "template" | "containers") && depth < 5
                || matches!(name, "port" | "containerPort" | "ip");
            if !(wanted || self.dice.chance(percent)) || matches!(name, "status" | "managedFields") {
                continue;
            }
            if let Some(field) = schema.field(name)
                && let Some(value) = self.field_value(name, field, depth + 1)
            {
                fields.insert(name.to_owned(), value);
            }
        }
        fields
    }

    /// The value of a field; now and then one that a field of this name has somewhere if nobody states one.
    fn field_value(&mut self, name: &str, schema: Schema<'_>, depth: usize) -> Option<Value> {
        let known: Vec<&'static str> = DEFAULTED
            .iter()
            .filter(|(known, _)| *known == name)
            .map(|(_, value)| *value)
            .collect();
        if known.is_empty() || self.left == 0 || !self.dice.chance(40) {
            return self.value(schema, depth);
        }
        let value: Value = serde_json::from_str(self.dice.text(&known)).ok()?;
        // Some names are those of an object elsewhere.
        if (schema.kind() == Type::Object) != value.is_object() {
            return self.value(schema, depth);
        }
        self.left -= 1;
        Some(value)
    }

    /// A value; nothing if there is no room for one.
    pub fn value(&mut self, schema: Schema<'_>, depth: usize) -> Option<Value> {
        if self.left == 0 || depth > DEPTH_MAX {
            return None;
        }
        self.left -= 1;
        Some(match schema.kind() {
            Type::Object => match schema.additional() {
                Some(values) => {
                    let mut map = Map::new();
                    for _ in 0..self.dice.below(3) {
                        if let Some(value) = self.value(values, depth + 1) {
                            map.insert(self.word(), value);
                        }
                    }
                    Value::Object(map)
                }
                None => Value::Object(self.fields(schema, depth)),
            },
            Type::Array => self.list(schema, depth)?,
            Type::String => self.dice.text(&["a", "b", "c", "d", "e", ""]).into(),
            Type::Integer => (*self.dice.pick(&[0, 1, 2, 3, 30, 80, 443])).into(),
            Type::Number => (*self.dice.pick(&[json!(1), json!(0.5)])).clone(),
            Type::Boolean => self.dice.chance(60).into(),
            Type::IntOrString => self
                .dice
                .pick(&[json!(80), json!("http"), json!("25%"), json!(1)])
                .clone(),
            Type::Quantity => self
                .dice
                .pick(&[
                    json!("1"),
                    json!("1000m"),
                    json!("100m"),
                    json!("0.1"),
                    json!("1Gi"),
                    json!("1024Mi"),
                    json!("1G"),
                    json!("1000M"),
                    json!(2),
                    json!("2"),
                ])
                .clone(),
            Type::Duration => self.dice.text(&["60s", "1m0s", "5s"]).into(),
            Type::Time => self
                .dice
                .text(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
                .into(),
            Type::Bytes => self.dice.text(&["YQ==", "Yg==", ""]).into(),
            Type::Any => json!({"a": self.word()}),
        })
    }

    fn list(&mut self, schema: Schema<'_>, depth: usize) -> Option<Value> {
        let items = schema.items()?;
        let count = 1 + self.dice.below(3);
        let mut list: Vec<Value> = Vec::new();
        let keys: Vec<&str> = match schema.list() {
            List::Map(keys) => keys.iter().map(String::as_str).collect(),
            _ => schema.patch_merge_key().into_iter().collect(),
        };
        if schema.list() == List::Set || (keys.is_empty() && schema.patch_strategy() == Some("merge")) {
            return Some(self.set(&mut |it| it.word().into()));
        }
        for _ in 0..count {
            let Some(mut item) = self.value(items, depth + 1) else {
                continue;
            };
            if item.is_object() {
                for key in &keys {
                    let schema = items.field(key)?;
                    // The one key that may be left out.
                    if *key == "protocol" && self.dice.chance(50) {
                        continue;
                    }
                    item[*key] = match (schema.kind(), *key) {
                        (_, "protocol") => self.dice.text(&["TCP", "UDP"]).into(),
                        (Type::Integer, _) => (1 + self.dice.below(4)).into(),
                        _ => self.word().into(),
                    };
                }
            }
            let key = |item: &Value| {
                let part = |key: &&str| match (item.get(*key), *key) {
                    (Some(value), _) => value.to_string(),
                    (None, "protocol") => "\"TCP\"".to_owned(),
                    (None, _) => String::new(),
                };
                keys.iter().map(part).collect::<Vec<_>>()
            };
            if keys.is_empty() || list.iter().all(|present| key(present) != key(&item)) {
                list.push(item);
            }
        }
        Some(Value::Array(list))
    }

    fn set(&mut self, member: &mut dyn FnMut(&mut Self) -> Value) -> Value {
        let mut members: Vec<Value> = Vec::new();
        for _ in 0..self.dice.below(4) {
            let member = member(self);
            if !members.contains(&member) {
                members.push(member);
            }
        }
        Value::Array(members)
    }

    /// `object` with one place changed: a value, a field or item less, one more, or two items exchanged. The place is below `spec` or the
    /// like, not what names the object.
    pub fn mutated(&mut self, object: &Value) -> Value {
        let kind = argosy_object::meta::gvk(object);
        let mut mutated = object.clone();
        let Some(root) = self.schemas.root(&kind) else {
            return mutated;
        };
        for _ in 0..40 {
            self.left = 12;
            let fields: Vec<&str> = root
                .fields()
                .map(|(name, _)| name)
                .filter(|name| !matches!(*name, "apiVersion" | "kind" | "status"))
                .collect();
            let name = if self.dice.chance(15) {
                "metadata"
            } else {
                *self.dice.pick(&fields)
            };
            let (Some(schema), Some(value)) = (root.field(name), mutated.get_mut(name)) else {
                continue;
            };
            if name == "metadata" {
                let word = self.word();
                let part = self.dice.text(&["labels", "annotations"]);
                let present = value.get_mut(part).and_then(Value::as_object_mut);
                match present {
                    Some(texts) if texts.contains_key(&word) && self.dice.chance(50) => {
                        texts.remove(&word);
                    }
                    _ => value[part][&word] = self.word().into(),
                }
            } else if !self.mutate(value, schema, 1) {
                continue;
            }
            if mutated != *object {
                return mutated;
            }
        }
        mutated
    }

    /// Whether something was changed.
    fn mutate(&mut self, value: &mut Value, schema: Schema<'_>, depth: usize) -> bool {
        let deeper = self.dice.chance(75);
        match value {
            Value::Object(fields) if deeper && !fields.is_empty() => {
                let at = self.dice.below(fields.len());
                let name = fields.keys().nth(at).cloned().unwrap_or_default();
                if depth > 1 && KEYS.contains(&name.as_str()) {
                    return false;
                }
                match (schema.child(&name), fields.get_mut(&name)) {
                    (Some(schema), Some(value)) => self.mutate(value, schema, depth + 1),
                    _ => false,
                }
            }
            Value::Object(fields) => {
                let remove = self.dice.chance(50) && !fields.is_empty();
                if remove {
                    let at = self.dice.below(fields.len());
                    let name = fields.keys().nth(at).cloned().unwrap_or_default();
                    if depth > 1 && KEYS.contains(&name.as_str()) {
                        return false;
                    }
                    return fields.remove(&name).is_some();
                }
                let names: Vec<String> = match schema.additional() {
                    Some(_) => vec![self.word()],
                    None => schema.fields().map(|(name, _)| name.to_owned()).collect(),
                };
                if names.is_empty() {
                    return false;
                }
                let name = self.dice.pick(&names).clone();
                if depth > 1 && KEYS.contains(&name.as_str()) && fields.contains_key(&name) {
                    return false;
                }
                let Some(value) = schema
                    .child(&name)
                    .and_then(|schema| self.field_value(&name, schema, depth + 1))
                else {
                    return false;
                };
                fields.insert(name, value);
                true
            }
            Value::Array(items) if deeper && !items.is_empty() => {
                let at = self.dice.below(items.len());
                match schema.items() {
                    Some(schema) => self.mutate(&mut items[at], schema, depth + 1),
                    None => false,
                }
            }
            Value::Array(items) => match self.dice.below(3) {
                0 if !items.is_empty() => {
                    items.remove(self.dice.below(items.len()));
                    true
                }
                1 if items.len() > 1 => {
                    items.swap(0, 1);
                    true
                }
                _ => match self.list(schema, depth) {
                    Some(Value::Array(mut more)) if !more.is_empty() => {
                        let more = more.remove(0);
                        let same = |item: &Value| {
                            KEYS.iter()
                                .any(|key| item.get(*key).is_some() && item.get(*key) == more.get(*key))
                        };
                        if items.iter().any(same) {
                            return false;
                        }
                        items.push(more);
                        true
                    }
                    _ => false,
                },
            },
            scalar => {
                self.left += 1;
                match self.value(schema, depth) {
                    Some(other) if other != *scalar => {
                        *scalar = other;
                        true
                    }
                    _ => false,
                }
            }
        }
    }
}
