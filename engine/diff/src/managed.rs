//! `metadata.managedFields`: who owns which field.

mod versions;

use std::fmt::Write as _;

use argosy_object::{Map, Path, Value, meta};
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;

use crate::node::{ListRule, Node};
use crate::{LAST_APPLIED, scalar};

pub(crate) use versions::lost;

pub use versions::differ_between_versions;

/// Fields owned by one manager, in the API's own form: `f:` a field, `k:` an item by key, `v:` a member by value, `i:` an item by position,
/// `.` the thing itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fields(Map);

/// The fields that `manager` owns in `live`, however it wrote them; those of `status` included.
pub(crate) fn fields_of(live: &Value, manager: &str) -> Fields {
    collect(live, |entry| {
        entry.get("manager").and_then(Value::as_str) == Some(manager)
    })
}

/// The fields of those managers that `belongs` says yes to.
fn collect(live: &Value, belongs: impl Fn(&Value) -> bool) -> Fields {
    let mut fields = Map::new();
    for entry in meta::array_field(live, &["metadata", "managedFields"])
        .iter()
        .filter(|entry| belongs(entry))
    {
        if let Some(Value::Object(more)) = entry.get("fieldsV1") {
            unite(&mut fields, more);
        }
    }
    Fields(fields)
}

fn unite(fields: &mut Map, more: &Map) {
    for (name, below) in more {
        match (
            fields
                .entry(name.clone())
                .or_insert_with(|| Value::Object(Map::new())),
            below,
        ) {
            (Value::Object(fields), Value::Object(more)) => unite(fields, more),
            (slot, below) => *slot = below.clone(),
        }
    }
}

/// A place in somebody's fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owned<'f>(&'f Map);

impl<'f> Owned<'f> {
    /// Whether nothing here or below is owned.
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Whether the thing itself is owned, and not only something below it.
    pub(crate) fn is_owned(self) -> bool {
        self.is_leaf() || self.0.contains_key(".")
    }

    /// Whether it is owned as one value.
    pub(crate) fn is_leaf(self) -> bool {
        self.0.is_empty()
    }

    /// What is owned here, step by step.
    pub(crate) fn steps(self) -> impl Iterator<Item = (&'f str, Self)> {
        let steps = self.0.iter().filter(|(form, _)| *form != ".");
        steps.filter_map(|(form, below)| Some((form.as_str(), Owned(below.as_object()?))))
    }

    /// What is owned a step further down.
    pub(crate) fn below(self, form: &str) -> Option<Self> {
        self.0.get(form)?.as_object().map(Owned)
    }
}

impl Fields {
    pub(crate) fn root(&self) -> Owned<'_> {
        Owned(&self.0)
    }
}

/// Who owns what in a live object, as a server-side apply of ours sees it.
pub(crate) struct Owners {
    /// What our last apply stated.
    pub(crate) last: Fields,
    /// What others own, each by itself.
    pub(crate) others: Vec<Fields>,
}

/// Managers that are parts of Kubernetes: what they set is how Kubernetes works, and not somebody's change. The last two are distributions that
/// run all parts as one program.
const KUBERNETES: [&str; 8] = [
    "cloud-controller-manager",
    "clusterrole-aggregation-controller",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "k3s",
    "kubelite",
];

/// What of `live` belongs to Git or to Kubernetes itself, and what anybody else has set. Subresources, as `status`, are nobody's here.
/// `left_alone` are managers whose fields a person said to ignore.
pub(crate) fn kept_and_others(live: &Value, manager: &str, left_alone: &[&str]) -> (Fields, Fields) {
    let text = |entry: &Value, name: &str| meta::str_field(entry, &[name]).unwrap_or_default().to_owned();
    let kept = |entry: &Value| {
        let name = text(entry, "manager");
        name == manager || KUBERNETES.contains(&name.as_str()) || left_alone.contains(&name.as_str())
    };
    let whole = |entry: &Value| text(entry, "subresource").is_empty();
    (
        collect(live, |entry| whole(entry) && kept(entry)),
        collect(live, |entry| whole(entry) && !kept(entry)),
    )
}

/// Reads the owners from `live`.
///
/// An object that `manager` never applied is taken over at the first apply: then what counts as ours is what it wrote otherwise, what the
/// manager `migrated` wrote (client-side apply), and what the last applied configuration states.
pub(crate) fn owners(live: &Value, manager: &str, migrated: Option<&str>, node: Node<'_>) -> Owners {
    let text = |entry: &Value, name: &str| {
        entry
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let written_by =
        |entry: &Value, name: &str| text(entry, "manager") == name && text(entry, "subresource").is_empty();
    let applied = |entry: &Value| written_by(entry, manager) && text(entry, "operation") == "Apply";
    let entries = meta::array_field(live, &["metadata", "managedFields"]);
    let taken_over = !entries.iter().any(applied);
    let ours = |entry: &Value| match migrated {
        _ if !taken_over => applied(entry),
        Some(migrated) => written_by(entry, manager) || written_by(entry, migrated),
        None => written_by(entry, manager),
    };
    let mut last = collect(live, ours);
    if taken_over
        && let Some(mut stated) =
            meta::annotation(live, LAST_APPLIED).and_then(|text| serde_json::from_str(text).ok())
    {
        // What names the object is owned by nobody.
        for path in [
            &["apiVersion"][..],
            &["kind"],
            &["metadata", "name"],
            &["metadata", "namespace"],
        ] {
            meta::remove_field(&mut stated, path);
        }
        unite(&mut last.0, &fields_from(&stated, node, &Bump::new()));
    }
    let others = entries
        .iter()
        .filter(|entry| !ours(entry))
        .filter_map(|entry| Some(Fields(entry.get("fieldsV1")?.as_object()?.clone())))
        .collect();
    Owners { last, others }
}

/// The fields that a document states.
fn fields_from(document: &Value, node: Node<'_>, arena: &Bump) -> Map {
    let mut fields = Map::new();
    match document {
        Value::Object(stated) if !node.is_atomic() => {
            for (name, value) in stated {
                let mut below = fields_from(value, node.field(name), arena);
                if !below.is_empty() && !node.names_field(name) {
                    below.insert(".".to_owned(), Value::Object(Map::new()));
                }
                fields.insert(format!("f:{name}"), Value::Object(below));
            }
        }
        Value::Array(items) => {
            for (item, key) in items.iter().zip(keys_of(items, node, arena).iter().flatten()) {
                let mut below = fields_from(item, node.item(), arena);
                if !below.is_empty() {
                    below.insert(".".to_owned(), Value::Object(Map::new()));
                }
                fields.insert((*key).to_owned(), Value::Object(below));
            }
        }
        _ => {}
    }
    fields
}

/// The items of a list as `managedFields` names them (`k:{"name":"main"}`, `v:"x"`). None if the list is one value, or an item has no key.
pub(crate) fn keys_of<'a>(items: &[Value], node: Node<'_>, arena: &'a Bump) -> Option<BumpVec<'a, &'a str>> {
    let mut forms = BumpVec::with_capacity_in(items.len(), arena);
    match node.list_rule(arena) {
        ListRule::Sequence => return None,
        ListRule::Set => {
            for item in items {
                if item.is_object() || item.is_array() {
                    return None;
                }
                forms.push(&*arena.alloc_str(&format!("v:{item}")));
            }
        }
        ListRule::Keyed(keys) => {
            let item_node = node.item();
            // Names of key fields stand in order.
            let mut sorted = BumpVec::from_iter_in(keys.iter().copied(), arena);
            sorted.sort_unstable();
            for item in items {
                let fields = item.as_object()?;
                let mut form = bumpalo::collections::String::from_str_in("k:{", arena);
                for key in &sorted {
                    let Some(value) = fields.get(*key).or_else(|| item_node.key_default(key)) else {
                        continue;
                    };
                    if form.len() > 3 {
                        form.push(',');
                    }
                    let _ = write!(form, "\"{key}\":{value}");
                }
                if form.len() == 3 {
                    return None;
                }
                form.push('}');
                forms.push(form.into_bump_str());
            }
        }
    }
    Some(forms)
}

/// Takes the entries of managedFields out of a live object.
pub(crate) fn take(live: &mut Value) -> Vec<Value> {
    match meta::remove_field(live, &["metadata", "managedFields"]) {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// Who owns what is at `path` of the object with these managedFields: the managers, in their order, each once.
pub(crate) fn managers_of(entries: &[Value], path: &Path<'_>) -> Vec<String> {
    let mut steps: Vec<&Path<'_>> = std::iter::successors(Some(path), |path| path.parent()).collect();
    steps.reverse();
    let mut managers: Vec<String> = Vec::new();
    for entry in entries {
        let fields = entry.get("fieldsV1").and_then(Value::as_object);
        let mut place = fields;
        for step in steps.iter().skip(1) {
            // Below a leaf everything is owned by whoever owns the leaf.
            if place.is_some_and(Map::is_empty) {
                break;
            }
            place = place.and_then(|place| child(place, step)?.as_object());
        }
        if let (Some(_), Some(name)) = (place, entry.get("manager").and_then(Value::as_str))
            && !managers.iter().any(|known| known == name)
        {
            managers.push(name.to_owned());
        }
    }
    managers
}

fn child<'f>(fields: &'f Map, step: &Path<'_>) -> Option<&'f Value> {
    if let Some(name) = step.name() {
        return fields.get(&format!("f:{name}"));
    }
    let value = step.value()?;
    let named = fields
        .iter()
        .find(|(form, _)| locate(form, std::slice::from_ref(value)) == Some(0));
    named.map(|(_, below)| below)
}

/// Where `k:…`, `v:…` or `i:…` is in a list.
pub(crate) fn locate(name: &str, items: &[Value]) -> Option<usize> {
    let (form, text) = name.split_once(':')?;
    match form {
        "k" => {
            let keys: Map = serde_json::from_str(text).ok()?;
            items.iter().position(|item| {
                keys.iter().all(|(key, value)| match item.get(key) {
                    Some(present) => scalar::same(argosy_object::schema::Type::Any, present, value),
                    // The server names a key by its default too.
                    None => key == "protocol" && value == "TCP",
                })
            })
        }
        "v" => {
            let value: Value = serde_json::from_str(text).ok()?;
            items.iter().position(|item| *item == value)
        }
        "i" => text.parse().ok().filter(|position| *position < items.len()),
        _ => None,
    }
}

impl Fields {
    /// Takes the owned fields out of `document`. What holds other fields stays, and so do the keys of list items.
    pub(crate) fn remove_from(&self, document: &mut Value) {
        remove(&self.0, document, &[]);
    }
}

fn remove(fields: &Map, document: &mut Value, keys: &[String]) {
    match document {
        Value::Object(present) => {
            for (name, below) in fields {
                let Some(name) = name.strip_prefix("f:") else {
                    continue;
                };
                if keys.iter().any(|key| key == name) {
                    continue;
                }
                match below {
                    Value::Object(below) if below.keys().any(|name| name != ".") => {
                        if let Some(value) = present.get_mut(name) {
                            remove(below, value, &[]);
                        }
                    }
                    Value::Object(below) if below.contains_key(".") => {}
                    _ => {
                        present.remove(name);
                    }
                }
            }
        }
        Value::Array(items) => {
            let mut whole = Vec::new();
            for (name, below) in fields {
                let (Some(position), Value::Object(below)) = (locate(name, items), below) else {
                    continue;
                };
                if name.starts_with("v:") {
                    whole.push(position);
                    continue;
                }
                let keys: Vec<String> = name
                    .strip_prefix("k:")
                    .and_then(|text| serde_json::from_str::<Map>(text).ok())
                    .map(|keys| keys.keys().cloned().collect())
                    .unwrap_or_default();
                remove(below, &mut items[position], &keys);
            }
            whole.sort_unstable();
            for position in whole.into_iter().rev() {
                items.remove(position);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "finalizers": ["a", "b"],
                "managedFields": [
                    {"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                    {"manager": "hpa", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
                    {"manager": "mesh", "operation": "Update", "fieldsV1": {
                        "f:metadata": {"f:finalizers": {".": {}, "v:\"b\"": {}}},
                        "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}
                    }}
                ]
            },
            "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "side"}, {"name": "main", "image": "x", "args": ["a"]}]}}}
        })
    }

    #[test]
    fn fields_of_a_manager_are_removed_and_keys_stay() {
        let live = live();
        let mut document = live.clone();
        fields_of(&live, "hpa").remove_from(&mut document);
        fields_of(&live, "mesh").remove_from(&mut document);
        fields_of(&live, "nobody").remove_from(&mut document);
        assert_eq!(document["metadata"]["finalizers"], json!(["a"]));
        assert_eq!(
            document["spec"],
            json!({"template": {"spec": {"containers": [{"name": "side"}, {"name": "main", "args": ["a"]}]}}})
        );
    }
}
