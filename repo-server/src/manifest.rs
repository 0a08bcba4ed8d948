//! Texts and tool output become Kubernetes objects.

use crate::error::{Error, Result};
use crate::source::Notes;
use argosy_object::{meta, yaml};
use argosy_runtime::bounds::{self, Limit};
use serde_json::Value;

/// A file with this marker is not a manifest.
const SKIP_MARKER: &[u8] = b"+argocd:skip-file-rendering";

/// Budgets for manifests.
pub(crate) fn limits() -> yaml::Limits {
    yaml::Limits::default()
}

/// Budgets for the index of a Helm repository, which is large and harmless.
pub(crate) fn index_limits() -> yaml::Limits {
    yaml::Limits {
        bytes: 128 << 20,
        nodes: 20_000_000,
        ..yaml::Limits::default()
    }
}

/// Reads a YAML file as Argo CD does: several documents, empty ones dropped. A file that is no manifest at all is
/// passed over; one that is half a manifest is an error that names file and line. What is odd but readable goes to `notes`.
///
/// # Errors
/// [`Error::Manifest`].
pub fn from_yaml(file: &str, text: &[u8], notes: &mut Notes) -> Result<Vec<Value>> {
    if skipped(text) {
        return Ok(Vec::new());
    }
    let bad = |line: Option<u64>, message: String| Error::Manifest {
        file: file.to_owned(),
        line,
        message,
    };
    let looks_like_manifest = || {
        [&b"apiVersion:"[..], b"kind:", b"metadata:"]
            .iter()
            .all(|part| contains(text, part))
    };
    let documents = match yaml::parse_all(text, &limits()) {
        Ok(documents) => documents,
        Err(error) => {
            if error.is_limit {
                bounds::exceeded(Limit::Manifest);
            }
            // Argo CD passes over what does not have all three. A manifest broken at its first line would then be no
            // manifest, and its resource something to prune: one of them is enough here.
            if [&b"apiVersion:"[..], b"kind:"]
                .iter()
                .any(|part| contains(text, part))
            {
                return Err(bad(Some(error.line as u64), error.message));
            }
            return Ok(Vec::new());
        }
    };
    let mut objects = Vec::new();
    for document in documents {
        let line = Some(document.line as u64);
        for repeated in &document.repeated {
            notes.warn(format!("{file}: {repeated}"));
        }
        match document.value {
            Value::Null => {}
            Value::Object(map) if map.is_empty() => {}
            Value::Object(map)
                if map
                    .get("kind")
                    .and_then(Value::as_str)
                    .is_some_and(|kind| !kind.is_empty()) =>
            {
                let object = Value::Object(map);
                let fault = fault_of(&object).map(|message| bad(line, message).to_string());
                notes.faults.extend(fault);
                objects.push(object);
            }
            _ if objects.is_empty() && !looks_like_manifest() => return Ok(Vec::new()),
            Value::Object(_) => return Err(bad(line, "Object 'Kind' is missing".into())),
            _ => return Err(bad(line, "the document is not an object".into())),
        }
    }
    Ok(objects)
}

/// Why an object cannot be applied, whatever a cluster says: a label or annotation that is no text.
fn fault_of(object: &Value) -> Option<String> {
    let (path, found) = meta::not_a_text(object)?;
    let (kind, name) = (meta::kind(object), meta::name(object));
    let wanted = match path.as_str() {
        "metadata.labels" | "metadata.annotations" => "a map of texts",
        _ => "a text: put it in quotes",
    };
    Some(format!("{kind} {name}: {path} is {found}, and must be {wanted}"))
}

/// Adds the faults of objects that came from no file with a name.
pub(crate) fn note_faults(objects: &[Value], notes: &mut Notes) {
    for message in objects.iter().filter_map(fault_of) {
        if !notes.faults.iter().any(|known| known.ends_with(&message)) {
            notes.faults.push(message);
        }
    }
}

/// Reads a JSON file: one object.
///
/// # Errors
/// [`Error::Manifest`].
pub fn from_json(file: &str, text: &[u8]) -> Result<Vec<Value>> {
    if skipped(text) {
        return Ok(Vec::new());
    }
    let bad = |line: Option<u64>, message: String| Error::Manifest {
        file: file.to_owned(),
        line,
        message,
    };
    let value: Value = serde_json::from_slice(text).map_err(|e| bad(Some(e.line() as u64), e.to_string()))?;
    match &value {
        Value::Null => Ok(Vec::new()),
        Value::Object(map)
            if map
                .get("kind")
                .and_then(Value::as_str)
                .is_some_and(|kind| !kind.is_empty()) =>
        {
            Ok(vec![value])
        }
        Value::Object(map) if map.is_empty() => Ok(Vec::new()),
        Value::Object(_) => Err(bad(None, "Object 'Kind' is missing".into())),
        _ => Err(bad(None, "the document is not an object".into())),
    }
}

/// Reads one text of a tool that prints nothing but manifests: whatever else is in it is an error.
///
/// # Errors
/// What is wrong, for people.
pub(crate) fn from_output(text: &str) -> Result<Vec<Value>, String> {
    let documents = yaml::parse_all(text.as_bytes(), &limits()).map_err(|error| error.to_string())?;
    let mut objects = Vec::new();
    for document in documents {
        match document.value {
            Value::Null => {}
            Value::Object(map) if map.is_empty() => {}
            Value::Object(map) => {
                let kind = map.get("kind").and_then(Value::as_str);
                if kind.is_none_or(str::is_empty) {
                    return Err("Object 'Kind' is missing".into());
                }
                objects.push(Value::Object(map));
            }
            _ => return Err("the document is not an object".into()),
        }
    }
    Ok(objects)
}

/// Expands Lists and drops what is empty: what comes out are the objects to apply, in order.
///
/// # Errors
/// [`Error::Manifest`] for a List item that is not an object.
pub fn flatten(objects: Vec<Value>) -> Result<Vec<Value>> {
    let mut out = Vec::with_capacity(objects.len());
    for object in objects {
        flatten_one(object, &mut out, 0)?;
    }
    Ok(out)
}

fn flatten_one(object: Value, out: &mut Vec<Value>, depth: usize) -> Result<()> {
    let is_list = meta::is_list(&object) || meta::kind(&object) == "List";
    let Value::Object(mut map) = object else {
        return Ok(());
    };
    if map.is_empty() {
        return Ok(());
    }
    let is_list_kind = map
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"));
    match map.get("items") {
        Some(Value::Array(_)) if is_list && depth < 8 => {
            let Some(Value::Array(items)) = map.remove("items") else {
                return Ok(());
            };
            let item_kind = map
                .get("kind")
                .and_then(Value::as_str)
                .filter(|kind| *kind != "List")
                .and_then(|kind| kind.strip_suffix("List"))
                .map(str::to_owned);
            let version = map.get("apiVersion").cloned();
            for item in items {
                let Value::Object(mut item) = item else {
                    return Err(Error::Manifest {
                        file: "a List".into(),
                        line: None,
                        message: "an item of it is not an object".into(),
                    });
                };
                // The items of a typed list may leave out what the list says already.
                if let Some(kind) = &item_kind {
                    if item.get("kind").is_none() {
                        item.insert("kind".into(), Value::String(kind.clone()));
                    }
                    if item.get("apiVersion").is_none()
                        && let Some(version) = &version
                    {
                        item.insert("apiVersion".into(), version.clone());
                    }
                }
                flatten_one(Value::Object(item), out, depth + 1)?;
            }
        }
        Some(Value::Null) | None
            if is_list_kind
                && map
                    .keys()
                    .all(|key| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "items")) => {}
        _ => out.push(Value::Object(map)),
    }
    Ok(())
}

/// The text of a file in UTF-8, whatever encoding its byte order mark says. What is not what it says stays as it is, so that
/// its reader complains.
pub(crate) fn plain(bytes: Vec<u8>) -> Vec<u8> {
    let marks: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"];
    if !marks.iter().any(|mark| bytes.starts_with(mark)) {
        return bytes;
    }
    match yaml::decode(&bytes).map(|text| text.into_owned().into_bytes()) {
        Ok(text) => text,
        Err(_) => bytes,
    }
}

/// Whether the author asked for a file not to be rendered.
pub(crate) fn skipped(text: &[u8]) -> bool {
    contains(text, SKIP_MARKER)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_split_and_empty_ones_dropped() {
        let text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\n# nothing\n---\nnull\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: b\n";
        let kinds: Vec<_> = from_yaml("a.yaml", text, &mut Notes::default())
            .unwrap()
            .iter()
            .map(|o| o["kind"].clone())
            .collect();
        assert_eq!(kinds, ["ConfigMap", "Secret"]);
    }

    #[test]
    fn other_yaml_is_passed_over_and_broken_manifests_are_not() {
        assert!(
            from_yaml("values.yaml", b"replicas: 3\n", &mut Notes::default())
                .unwrap()
                .is_empty()
        );
        assert!(
            from_yaml("x.yaml", b"{{ if .Values }}\n", &mut Notes::default())
                .unwrap()
                .is_empty()
        );
        let error = from_yaml(
            "dir/x.yaml",
            b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: [a\n",
            &mut Notes::default(),
        )
        .unwrap_err();
        assert!(
            error.to_string().starts_with("failed to parse dir/x.yaml line "),
            "{error}"
        );
        let error = from_yaml(
            "x.yaml",
            b"apiVersion: v1\nkind: A\n---\napiVersion: v1\nmetadata: {}\n",
            &mut Notes::default(),
        )
        .unwrap_err();
        assert!(error.to_string().contains("Kind"), "{error}");
        assert!(
            from_yaml(
                "x.yaml",
                b"# +argocd:skip-file-rendering\napiVersion: v1\nkind: [\nmetadata:",
                &mut Notes::default()
            )
            .unwrap()
            .is_empty()
        );
    }

    #[test]
    fn a_document_that_is_too_much_is_counted() {
        let deep = format!("kind: ConfigMap\ndata: {}", "[".repeat(1000));
        let before = bounds::times_exceeded(Limit::Manifest);
        assert!(from_yaml("x.yaml", deep.as_bytes(), &mut Notes::default()).is_err());
        assert!(bounds::times_exceeded(Limit::Manifest) > before);
    }

    #[test]
    fn lists_are_expanded() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "A"},
            {"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "x"}}]},
        ]});
        let empty = json!({"apiVersion": "v1", "kind": "List", "items": null});
        let out = flatten(vec![list, empty, Value::Null]).unwrap();
        assert_eq!(
            out,
            vec![
                json!({"apiVersion": "v1", "kind": "A"}),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}),
            ]
        );
    }

    #[test]
    fn objects_that_look_like_lists_are_kept() {
        let objects = vec![
            json!({"apiVersion": "example.com/v1", "kind": "AllowList", "metadata": {"name": "a"}, "spec": {}}),
            json!({"apiVersion": "example.com/v1", "kind": "AllowList", "metadata": {"name": "b"}, "items": [{"a": 1}], "spec": {}}),
            json!({"apiVersion": "example.com/v1", "kind": "Menu", "metadata": {"name": "c"}, "items": [{"a": 1}]}),
        ];
        assert_eq!(flatten(objects.clone()).unwrap(), objects);
    }

    #[test]
    fn labels_and_annotations_are_texts() {
        for (field, path) in [
            ("annotations: {invalid: true}", "annotations.invalid is true"),
            ("labels: {version: 1.10}", "labels.version is 1.1"),
        ] {
            let text = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ok}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: bad\n  {field}\n"
            );
            let mut notes = Notes::default();
            let objects = from_yaml("dir/x.yaml", text.as_bytes(), &mut notes).unwrap();
            assert_eq!(objects.len(), 2, "the other objects are there all the same");
            note_faults(&objects, &mut notes);
            let [fault] = notes.faults.as_slice() else {
                panic!("{notes:?}");
            };
            assert!(fault.starts_with("failed to parse dir/x.yaml line 5"), "{fault}");
            assert!(
                fault.contains(&format!("ConfigMap bad: metadata.{path}, and must be a text")),
                "{fault}"
            );
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_told_with_its_place() {
        let text =
            b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    app: x\n    app: z\n";
        let mut notes = Notes::default();
        let objects = from_yaml("dir/x.yaml", text, &mut notes).unwrap();
        assert_eq!(objects[0]["metadata"]["labels"], json!({"app": "z"}));
        assert_eq!(
            notes.warnings,
            [
                "dir/x.yaml: line 7, column 5: the key \"app\" stands here for the second time; the last one counts"
            ]
        );
    }
}
