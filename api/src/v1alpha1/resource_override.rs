//! How one kind of resource is customised: health, differences, actions, field types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{is_false, null_as_default};

/// Customisations of one kind.
///
/// Its JSON keys are those of `argocd-cm`, where the two lists of rules are YAML texts. They are written so; reading takes
/// the JSON subset of YAML only, because [`crate::settings`] reads what people write.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceOverride {
    /// A Lua script.
    #[prost(string, tag = "1")]
    #[serde(rename = "health.lua", skip_serializing_if = "String::is_empty")]
    pub health_lua: String,
    #[prost(message, required, tag = "2")]
    #[schemars(with = "String")]
    #[serde(with = "rules_text")]
    pub ignore_differences: OverrideIgnoreDiff,
    /// YAML: discovery script and action definitions.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub actions: String,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known_type_fields: Vec<KnownTypeField>,
    /// Give the health script the standard libraries.
    #[prost(bool, tag = "5")]
    #[serde(rename = "health.lua.useOpenLibs", skip_serializing_if = "is_false")]
    pub use_open_libs: bool,
    /// Changes here alone do not make the controller look at the Application again.
    #[prost(message, required, tag = "6")]
    #[schemars(with = "String")]
    #[serde(with = "rules_text")]
    pub ignore_resource_updates: OverrideIgnoreDiff,
}

/// Fields to leave out of a comparison.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["jsonPointers", "jqPathExpressions", "managedFieldsManagers"]))]
pub struct OverrideIgnoreDiff {
    #[prost(string, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub json_pointers: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub jq_path_expressions: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    #[serde(deserialize_with = "null_as_default")]
    pub managed_fields_managers: Vec<String>,
}

/// A field that holds a well-known type, so that its spellings compare equal.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KnownTypeField {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// For example `core/v1/PodSpec` or `core/Quantity`.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
}

mod rules_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::OverrideIgnoreDiff;

    pub(super) fn serialize<S: Serializer>(
        rules: &OverrideIgnoreDiff,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for (key, entries) in [
            ("jqPathExpressions", &rules.jq_path_expressions),
            ("jsonPointers", &rules.json_pointers),
            ("managedFieldsManagers", &rules.managed_fields_managers),
        ] {
            text.push_str(key);
            text.push_str(if entries.is_empty() { ": null\n" } else { ":\n" });
            for entry in entries {
                // A JSON string is a double-quoted YAML scalar, whatever it holds.
                text.push_str(&format!("- {}\n", serde_json::Value::from(entry.as_str())));
            }
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<OverrideIgnoreDiff, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.trim().is_empty() {
            return Ok(OverrideIgnoreDiff::default());
        }
        serde_json::from_str(&text).map_err(|error| D::Error::custom(format!("read rules as JSON: {error}")))
    }
}
