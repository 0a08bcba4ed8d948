//! What a plugin is told of a source: the build environment, the source's own variables and its parameters, under the names
//! that Argo CD gives them.

use crate::env::BuildEnv;
use argosy_api::services::plugin::EnvEntry;
use argosy_api::v1alpha1::{ApplicationSourcePlugin, ApplicationSourcePluginParameter};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The variables of one call; a source that was given to its plugin by discovery has none of its own.
pub(super) fn variables(env: &BuildEnv, plugin: Option<&ApplicationSourcePlugin>) -> Vec<EnvEntry> {
    let entry = |name: String, value: String| EnvEntry { name, value };
    let mut entries: Vec<EnvEntry> = env
        .variables()
        .map(|(name, value)| entry(name.to_owned(), value.to_owned()))
        .collect();
    let Some(plugin) = plugin else { return entries };
    entries.extend(
        plugin
            .env
            .iter()
            .map(|own| entry(format!("ARGOCD_ENV_{}", own.name), env.substitute(&own.value))),
    );
    entries.push(entry("ARGOCD_APP_PARAMETERS".into(), as_json(&plugin.parameters)));
    for parameter in &plugin.parameters {
        let base = format!("PARAM_{}", escaped(&parameter.name));
        if let Some(text) = &parameter.string {
            entries.push(entry(base.clone(), text.clone()));
        }
        for (key, value) in parameter.map.iter().flat_map(|map| &map.map) {
            entries.push(entry(format!("{base}_{}", escaped(key)), value.clone()));
        }
        for (nth, value) in parameter.array.iter().flat_map(|list| &list.array).enumerate() {
            entries.push(entry(format!("{base}_{nth}"), value.clone()));
        }
    }
    entries
}

/// All parameters as one JSON text; none at all are `null`, as Go writes a list that was never made.
fn as_json(parameters: &[ApplicationSourcePluginParameter]) -> String {
    if parameters.is_empty() {
        return "null".into();
    }
    let one = |parameter: &ApplicationSourcePluginParameter| {
        let mut fields: BTreeMap<&str, Value> = BTreeMap::from([("name", json!(parameter.name))]);
        if let Some(text) = &parameter.string {
            fields.insert("string", json!(text));
        }
        if let Some(map) = &parameter.map {
            fields.insert("map", json!(map.map));
        }
        if let Some(list) = &parameter.array {
            fields.insert("array", json!(list.array));
        }
        json!(fields)
    };
    Value::Array(parameters.iter().map(one).collect()).to_string()
}

/// A name as part of a variable's.
fn escaped(name: &str) -> String {
    let upper = name.to_uppercase();
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    upper.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use argosy_api::v1alpha1::ApplicationSource;

    #[test]
    fn names_and_values_are_argo_cds() {
        let env = BuildEnv::new(
            "web",
            "shop",
            "default",
            "0123456789",
            "apps/web",
            "https://example.com/r",
            "main",
        )
        .with("KUBE_VERSION", "1.33.4".into());
        // The example of Argo CD's documentation, and what it says comes of it.
        let source: ApplicationSource = serde_json::from_value(json!({
            "plugin": {
                "env": [{"name": "FOO", "value": "bar-$ARGOCD_APP_NAME-$KUBE_VERSION-$ELSE"}],
                "parameters": [
                    {"name": "values-files", "array": ["values-dev.yaml", "b.yaml"]},
                    {"name": "helm-parameters", "map": {"image.tag": "v1.2.3"}},
                    {"name": "release", "string": ""},
                ],
            },
        }))
        .unwrap();
        let found = variables(&env, source.plugin.as_ref());
        let value = |name: &str| {
            found
                .iter()
                .find(|entry| entry.name == name)
                .map(|entry| entry.value.as_str())
        };
        assert_eq!(value("ARGOCD_ENV_FOO"), Some("bar-web-1.33.4-"));
        assert_eq!(value("PARAM_VALUES_FILES_0"), Some("values-dev.yaml"));
        assert_eq!(value("PARAM_VALUES_FILES_1"), Some("b.yaml"));
        assert_eq!(value("PARAM_HELM_PARAMETERS_IMAGE_TAG"), Some("v1.2.3"));
        assert_eq!(value("PARAM_RELEASE"), Some(""));
        assert_eq!(
            value("ARGOCD_APP_PARAMETERS"),
            Some(
                "[{\"array\":[\"values-dev.yaml\",\"b.yaml\"],\"name\":\"values-files\"},\
                 {\"map\":{\"image.tag\":\"v1.2.3\"},\"name\":\"helm-parameters\"},{\"name\":\"release\",\"string\":\"\"}]"
            )
        );
        assert_eq!(value("ARGOCD_APP_REVISION_SHORT"), Some("0123456"));
        let bare = variables(&env, Some(&ApplicationSourcePlugin::default()));
        assert!(
            bare.iter()
                .any(|entry| entry.name == "ARGOCD_APP_PARAMETERS" && entry.value == "null")
        );
        assert!(
            variables(&env, None)
                .iter()
                .all(|entry| !entry.name.contains("PARAM"))
        );
    }
}
