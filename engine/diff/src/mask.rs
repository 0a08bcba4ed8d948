//! Values of Secrets are never shown; whether two of them are equal is.
//!
//! Each distinct value of a key gets its own run of `+`: eight, twelve, sixteen… in the order target, live, last applied.

use argosy_object::{Value, meta};

use crate::LAST_APPLIED;
use crate::compare::Difference;
use crate::normalize;

const SHORTEST: &str = "++++++++";
const LONGER: &str = "++++";

/// Whether the object is a core Secret.
#[must_use]
pub fn is_secret(object: &Value) -> bool {
    meta::group(object).is_empty() && meta::kind(object) == "Secret"
}

/// Masks `data` (with `stringData` folded into it) and the named annotations in all `documents`, which are versions of one Secret: target,
/// live, others. Equal values get equal marks over all documents and over the last applied configurations in their annotations; such a
/// configuration that cannot be read is masked as a whole.
pub fn mask_secrets(documents: &mut [Option<&mut Value>], sensitive_annotations: &[String]) {
    let mut applied: Vec<Option<Result<Value, ()>>> = documents
        .iter()
        .map(|document| {
            let text = meta::annotation(document.as_deref()?, LAST_APPLIED)?;
            Some(
                serde_json::from_str::<Value>(text)
                    .map_err(drop)
                    .and_then(|value| if value.is_object() { Ok(value) } else { Err(()) }),
            )
        })
        .collect();

    {
        let inner = applied
            .iter_mut()
            .filter_map(|applied| applied.as_mut()?.as_mut().ok());
        let mut all: Vec<&mut Value> = documents
            .iter_mut()
            .filter_map(|document| document.as_deref_mut())
            .chain(inner)
            .collect();
        for document in &mut all {
            fold(document);
        }
        mask_map(&mut all, &["data"], None);
        mask_map(
            &mut all,
            &["metadata", "annotations"],
            Some(sensitive_annotations),
        );
    }

    for (document, applied) in documents.iter_mut().zip(applied) {
        let (Some(document), Some(applied)) = (document.as_deref_mut(), applied) else {
            continue;
        };
        let hidden = sensitive_annotations.iter().any(|name| name == LAST_APPLIED);
        let text = match applied {
            Ok(applied) if !hidden => applied.to_string(),
            _ => SHORTEST.to_owned(),
        };
        meta::set_annotation(document, LAST_APPLIED, text);
    }
}

/// Only the folding: metadata stays.
fn fold(document: &mut Value) {
    let metadata = document.get("metadata").cloned();
    if is_secret(document) {
        normalize::prepare(document);
    }
    if let (Some(metadata), Some(fields)) = (metadata, document.as_object_mut()) {
        fields.insert("metadata".to_owned(), metadata);
    }
}

/// Masks the entries of the map at `path` in all documents; only those in `only`, if given.
fn mask_map(documents: &mut [&mut Value], path: &[&str], only: Option<&[String]>) {
    let mut names: Vec<String> = documents
        .iter()
        .filter_map(|document| meta::field(document, path)?.as_object())
        .flat_map(|map| map.keys().cloned())
        .filter(|name| only.is_none_or(|only| only.contains(name)))
        .collect();
    names.sort();
    names.dedup();
    for name in names {
        let mut marks = Marks::default();
        for document in documents.iter_mut() {
            if let Some(value) = meta::field_mut(document, path).and_then(|map| map.get_mut(name.as_str())) {
                *value = marks.of(value);
            }
        }
    }
}

/// The marks of one key.
#[derive(Default)]
struct Marks {
    seen: Vec<Value>,
}

impl Marks {
    fn of(&mut self, value: &Value) -> Value {
        let position = self
            .seen
            .iter()
            .position(|seen| seen == value)
            .unwrap_or_else(|| {
                self.seen.push(value.clone());
                self.seen.len() - 1
            });
        Value::String(format!("{SHORTEST}{}", LONGER.repeat(position)))
    }
}

/// Masks the differences of a Secret: everything under `data` and the named annotations.
pub(crate) fn mask_differences(differences: &mut [Difference], sensitive_annotations: &[String]) {
    for difference in differences {
        let Difference {
            path, desired, live, ..
        } = difference;
        let below = |name: &str| {
            path.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let annotation = |name: &String| {
            *path == format!("metadata.annotations.{name}")
                || *path == format!("metadata.annotations[{name:?}]")
        };
        if path == "data" || path == "stringData" || path == "metadata.annotations" {
            let secret = |name: &str| {
                path != "metadata.annotations" || sensitive_annotations.iter().any(|known| known == name)
            };
            mask_both(desired, live, secret);
        } else if below("data") || below("stringData") || sensitive_annotations.iter().any(annotation) {
            let mut marks = Marks::default();
            for value in [desired, live].into_iter().flatten() {
                *value = marks.of(value);
            }
        }
    }
}

fn mask_both(desired: &mut Option<Value>, live: &mut Option<Value>, secret: impl Fn(&str) -> bool) {
    let mut marks = std::collections::BTreeMap::<String, Marks>::new();
    for side in [desired, live].into_iter().flatten() {
        match side {
            Value::Object(map) => {
                for (name, value) in map.iter_mut().filter(|(name, _)| secret(name)) {
                    *value = marks.entry(name.clone()).or_default().of(value);
                }
            }
            other => *other = Value::String(SHORTEST.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn secret(data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data})
    }

    #[test]
    fn equal_values_get_equal_marks_and_others_longer_ones() {
        let mut target = secret(json!({"a": "MQ==", "b": "Mg==", "c": "Mw=="}));
        let mut live = secret(json!({"a": "MQ==", "b": "OQ==", "d": "NA=="}));
        let applied = secret(json!({"a": "MQ==", "b": "OA=="}));
        meta::set_annotation(&mut live, LAST_APPLIED, applied.to_string());
        mask_secrets(&mut [Some(&mut target), Some(&mut live)], &[]);

        assert_eq!(
            target["data"],
            json!({"a": "++++++++", "b": "++++++++", "c": "++++++++"})
        );
        assert_eq!(
            live["data"],
            json!({"a": "++++++++", "b": "++++++++++++", "d": "++++++++"})
        );
        let applied: Value = serde_json::from_str(meta::annotation(&live, LAST_APPLIED).unwrap()).unwrap();
        assert_eq!(applied["data"], json!({"a": "++++++++", "b": "++++++++++++++++"}));
    }

    #[test]
    fn string_data_is_masked_as_the_data_it_becomes() {
        let mut target =
            json!({"kind": "Secret", "apiVersion": "v1", "stringData": {"a": "1", "port": 5432}});
        let mut live = secret(json!({"a": "MQ=="}));
        mask_secrets(&mut [Some(&mut target), Some(&mut live)], &[]);
        assert_eq!(target["data"], json!({"a": "++++++++", "port": "++++++++"}));
        assert_eq!(target.get("stringData"), None);
        assert_eq!(live["data"]["a"], "++++++++");
    }

    #[test]
    fn unreadable_last_applied_and_named_annotations_are_masked() {
        let mut live = secret(json!({}));
        meta::set_annotation(&mut live, LAST_APPLIED, "{broken");
        meta::set_annotation(&mut live, "token", "t0p");
        meta::set_annotation(&mut live, "team", "shop");
        mask_secrets(&mut [None, Some(&mut live)], &["token".to_owned()]);
        assert_eq!(
            live["metadata"]["annotations"],
            json!({LAST_APPLIED: "++++++++", "token": "++++++++", "team": "shop"})
        );
    }
}
