//! Documents on their way to the API server, and what kubectl says about them. Pure.

use argosy_object::{Value, meta};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, json};

pub(super) use argosy_diff::LAST_APPLIED;

/// Keys and values of all annotations of an object together must not be longer.
pub(super) const LAST_APPLIED_MAX: usize = 262_144;

/// The object as it is sent: `stringData` is folded into `data`, because the API server does so and forgets whose keys
/// they were, and `data` without content says nothing. What the server writes itself is left out.
pub(crate) fn prepared(desired: &Value) -> Value {
    let mut object = desired.clone();
    for field in [
        "creationTimestamp",
        "managedFields",
        "resourceVersion",
        "uid",
        "selfLink",
        "generation",
    ] {
        meta::remove_field(&mut object, &["metadata", field]);
    }
    if meta::kind(&object) == "Secret" && meta::group(&object).is_empty() {
        fold_string_data(&mut object);
    }
    object
}

fn fold_string_data(secret: &mut Value) {
    let Some(fields) = secret.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if data.is_null() {
            *data = Value::Object(Map::new());
        }
        if let Some(data) = data.as_object_mut() {
            for (key, text) in texts {
                // What is no text is left for the API server to refuse.
                let value = text
                    .as_str()
                    .map(|text| json!(STANDARD.encode(text)))
                    .unwrap_or(text);
                data.insert(key, value);
            }
        }
    }
    if fields.get("data").is_some_and(Value::is_null) {
        fields.remove("data");
    }
}

/// The object with the annotation in which client-side apply keeps what it applied. If the live one says the same in
/// other words, its words are kept.
pub(super) fn with_last_applied(desired: &Value, live: Option<&Value>) -> Value {
    let mut bare = desired.clone();
    meta::remove_annotation(&mut bare, LAST_APPLIED);
    if meta::field(&bare, &["metadata", "annotations"]).is_none() {
        meta::set_field(&mut bare, &["metadata", "annotations"], json!({}));
    }
    let written = live.and_then(|live| meta::annotation(live, LAST_APPLIED));
    let same = written.filter(|text| serde_json::from_str::<Value>(text).is_ok_and(|known| known == bare));
    let text = same
        .map(str::to_owned)
        .unwrap_or_else(|| format!("{}\n", go_json(&bare)));
    let mut object = bare;
    meta::set_annotation(&mut object, LAST_APPLIED, text);
    object
}

/// What was applied last.
pub(super) fn last_applied(live: &Value) -> Option<Value> {
    serde_json::from_str(meta::annotation(live, LAST_APPLIED)?).ok()
}

/// JSON as Go writes it: characters that mean something in HTML are escaped.
fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    // Outside of texts none of them occurs in JSON.
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Length of all annotations, as the API server counts it.
pub(super) fn annotations_len(object: &Value) -> usize {
    let annotations = meta::field(object, &["metadata", "annotations"]).and_then(Value::as_object);
    annotations
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map(str::len).unwrap_or_default())
        .sum()
}

/// True if a role binding shall grant another role: that cannot be changed.
pub(super) fn role_changed(desired: &Value, live: &Value) -> bool {
    let binding = meta::group(desired) == "rbac.authorization.k8s.io"
        && matches!(meta::kind(desired), "RoleBinding" | "ClusterRoleBinding");
    let role = |object: &Value| -> [String; 2] {
        ["kind", "name"].map(|field| {
            meta::str_field(object, &["roleRef", field])
                .unwrap_or_default()
                .to_owned()
        })
    };
    binding && role(desired) != role(live)
}

/// `deployment.apps/web`, `configmap/settings`.
pub(super) fn kubectl_name(object: &Value) -> String {
    let (group, kind) = (meta::group(object), meta::kind(object).to_lowercase());
    match group.is_empty() {
        true => format!("{kind}/{}", meta::name(object)),
        false => format!("{kind}.{group}/{}", meta::name(object)),
    }
}

/// A refusal with what a person can do about it.
pub(super) fn explained(message: &str) -> String {
    if message.contains("metadata.annotations: Too long: must have at most 262144 bytes") {
        return format!(
            "{message} \n -Additional Info: This error usually means that you are trying to add a large resource on client side. \
             Consider using Server-side apply or syncing with replace enabled. Note: Syncing with Replace enabled is potentially \
             destructive as it may cause resource deletion and re-creation."
        );
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_as_kubectl_prints_them() {
        assert_eq!(
            kubectl_name(
                &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})
            ),
            "deployment.apps/web"
        );
        assert_eq!(
            kubectl_name(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})),
            "configmap/a"
        );
    }

    #[test]
    fn the_last_applied_text_is_the_one_kubectl_would_write() {
        let object =
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "<&>"}});
        let text = "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"\\u003c\\u0026\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\"name\":\"a\"}}\n";
        assert_eq!(
            meta::annotation(&with_last_applied(&object, None), LAST_APPLIED),
            Some(text)
        );
    }

    #[test]
    fn other_words_for_the_same_are_kept() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"x": "y"}}});
        let words =
            r#"{ "kind":"ConfigMap","apiVersion":"v1","metadata":{"annotations":{"x":"y"},"name":"a"}}"#;
        let live = json!({"metadata": {"annotations": {LAST_APPLIED: words}}});
        assert_eq!(
            meta::annotation(&with_last_applied(&object, Some(&live)), LAST_APPLIED),
            Some(words)
        );
    }

    #[test]
    fn string_data_is_folded_so_that_a_removed_key_is_known_to_be_ours() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "2", "n": 5}});
        let sent = prepared(&secret);
        assert_eq!(sent["data"], json!({"a": "eA==", "b": "Mg==", "n": 5}));
        assert!(sent.get("stringData").is_none());
        let empty =
            prepared(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": null}));
        assert!(empty.get("data").is_none());
    }

    #[test]
    fn a_binding_to_another_role_is_a_new_binding() {
        let binding = |name: &str| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}})
        };
        assert!(role_changed(&binding("a"), &binding("b")));
        assert!(!role_changed(&binding("a"), &binding("a")));
    }
}
