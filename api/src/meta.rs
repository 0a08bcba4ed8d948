//! The parts of Kubernetes' own API that Argo CD's messages are built from.
//!
//! Each type speaks the same two tongues as [`crate::v1alpha1`]: Kubernetes JSON through serde, and the numbers of
//! Kubernetes' `generated.proto` through prost.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

// ---------------------------------------------------------------------------------------------------------------------
// Metadata of objects and lists

/// `metadata` of an object.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Unique in the namespace.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Prefix of a name that the API server completes.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Empty for cluster-scoped objects.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Legacy, always empty on servers of today.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub self_link: String,
    /// Unique in time and space.
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Opaque; changes with every write.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Rises with every change of the desired state.
    #[prost(int64, tag = "7")]
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When the object was made.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub creation_timestamp: Option<Time>,
    /// Present: the object is being deleted and waits for its finalizers.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub deletion_timestamp: Option<Time>,
    /// Seconds between the request to delete and the deletion.
    #[prost(int64, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Identifying pairs, open to selectors.
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub labels: BTreeMap<String, String>,
    /// Other pairs.
    #[prost(btree_map = "string, string", tag = "12")]
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Objects whose deletion deletes this one.
    #[prost(message, repeated, tag = "13")]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub owner_references: Vec<OwnerReference>,
    /// The object stays until this list is empty.
    #[prost(string, repeated, tag = "14")]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub finalizers: Vec<String>,
    /// Which manager owns which fields.
    #[prost(message, repeated, tag = "17")]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

/// In a CRD, metadata is an opaque object: the API server knows its fields.
impl JsonSchema for ObjectMeta {
    fn schema_name() -> Cow<'static, str> {
        "ObjectMeta".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object"})
    }
}

/// One owner of an object.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OwnerReference {
    /// Kind of the owner.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Name of the owner, in the same namespace or cluster-scoped.
    #[prost(string, tag = "3")]
    pub name: String,
    /// UID of the owner.
    #[prost(string, tag = "4")]
    pub uid: String,
    /// `group/version` of the owner.
    #[prost(string, tag = "5")]
    pub api_version: String,
    /// This owner is the controller.
    #[prost(bool, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// The owner cannot go before this object (foreground deletion).
    #[prost(bool, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// Fields that one manager set by one kind of write.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedFieldsEntry {
    /// Name of the manager.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// `Apply` or `Update`.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// The version `fields_v1` is written in.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// When the entry last changed.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub time: Option<Time>,
    /// `FieldsV1`.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fields_type: String,
    /// The tree of field names.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields_v1: Option<FieldsV1>,
    /// `status`, `scale` or empty.
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// `metadata` of a list.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    /// Legacy, always empty on servers of today.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub self_link: String,
    /// The version a watch may start from.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Token of the next page.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#continue: String,
    /// Objects after this page.
    #[prost(int64, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// A kind without version.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["group", "kind"]))]
pub struct GroupKind {
    /// Empty is the core group.
    #[prost(string, tag = "1")]
    pub group: String,
    /// The kind.
    #[prost(string, tag = "2")]
    pub kind: String,
}

/// Conditions on labels; all of them must hold, and none at all matches everything.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels with exactly these values.
    #[prost(btree_map = "string, string", tag = "1")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions.
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition on a label.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["key", "operator"]))]
pub struct LabelSelectorRequirement {
    /// Key of the label.
    #[prost(string, tag = "1")]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[prost(string, tag = "2")]
    pub operator: String,
    /// For `In` and `NotIn`.
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether these labels satisfy every condition. An operator that is unknown satisfies nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = self
            .match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value));
        equal
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                match requirement.operator.as_str() {
                    "In" => value.is_some_and(|value| requirement.values.contains(value)),
                    "NotIn" => !value.is_some_and(|value| requirement.values.contains(value)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Core types that the resource tree carries

/// An address traffic enters by.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerIngress {
    /// IP address, or empty when the load balancer is known by name.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
    /// Host name, or empty when the load balancer is known by address.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// `VIP` or `Proxy`.
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
    /// State of each port.
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatus>,
}

/// State of one port of a load balancer.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PortStatus {
    /// The port.
    #[prost(int32, tag = "1")]
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    #[prost(string, tag = "2")]
    pub protocol: String,
    /// What is wrong with it.
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSystemInfo {
    /// Of `/etc/machine-id` or its like.
    #[prost(string, tag = "1")]
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Of the firmware.
    #[prost(string, tag = "2")]
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
    /// Changes with every boot.
    #[prost(string, tag = "3")]
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// Of the kernel.
    #[prost(string, tag = "4")]
    pub kernel_version: String,
    /// Name of the distribution.
    #[prost(string, tag = "5")]
    pub os_image: String,
    /// `name://version`.
    #[prost(string, tag = "6")]
    pub container_runtime_version: String,
    /// Of the kubelet.
    #[prost(string, tag = "7")]
    pub kubelet_version: String,
    /// Deprecated.
    #[prost(string, tag = "8")]
    pub kube_proxy_version: String,
    /// For example `linux`.
    #[prost(string, tag = "9")]
    pub operating_system: String,
    /// For example `amd64`.
    #[prost(string, tag = "10")]
    pub architecture: String,
    /// Swap of the node.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<NodeSwapStatus>,
}

/// Swap of a node.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSwapStatus {
    /// Bytes.
    #[prost(int64, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
}

// ---------------------------------------------------------------------------------------------------------------------
// Time

/// A point in time, to the second. Seconds 0 with nanos 0 is Go's zero time: `null` in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct Time {
    /// Seconds since 1970 in UTC.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Neither written nor read by Kubernetes.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Time {
    /// The second this timestamp lies in.
    pub fn from_timestamp(timestamp: Timestamp) -> Self {
        // jiff rounds towards zero; before 1970 that is the later second, which no object of ours reaches.
        Self {
            seconds: timestamp.as_second(),
            nanos: 0,
        }
    }

    /// For arithmetic. A number of seconds beyond what a calendar holds becomes the nearest end of it.
    pub fn to_timestamp(self) -> Timestamp {
        Timestamp::from_second(self.seconds).unwrap_or(if self.seconds < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        })
    }

    /// Reads RFC 3339, with any offset and fraction; the fraction is dropped.
    pub fn parse(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(Self::from_timestamp)
    }

    /// Go's zero time.
    pub fn is_zero(self) -> bool {
        self.seconds == 0 && self.nanos == 0
    }

    /// Absent, or Go's zero time, which Go leaves out as well.
    pub fn is_absent(time: &Option<Self>) -> bool {
        time.is_none_or(Self::is_zero)
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self::from_timestamp(timestamp)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to_timestamp().strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_zero() {
            serializer.serialize_none()
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(|error| D::Error::custom(format!("parse time {text:?}: {error}")))
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// A point in time, to the microsecond. Seconds 0 with nanos 0 is Go's zero time: `null` in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct MicroTime {
    /// Seconds since 1970 in UTC.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// What is more than them.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.seconds, self.nanos) {
            (0, 0) => serializer.serialize_none(),
            (seconds, nanos) => {
                let second = Time { seconds, nanos: 0 }.to_timestamp();
                let second = second.strftime("%Y-%m-%dT%H:%M:%S");
                serializer.collect_str(&format_args!(
                    "{second}.{:06}Z",
                    nanos.clamp(0, 999_999_999) / 1_000
                ))
            }
        }
    }
}

impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let read: Timestamp = text
            .parse()
            .map_err(|error| D::Error::custom(format!("parse time {text:?}: {error}")))?;
        Ok(Self {
            seconds: read.as_second(),
            nanos: read.subsec_nanosecond(),
        })
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Values without a fixed shape

/// An integer, or a text that holds one or a percentage.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct IntOrString {
    /// 0 for an integer, 1 for a text.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// The integer.
    #[prost(int32, tag = "2")]
    pub int_val: i32,
    /// The text.
    #[prost(string, tag = "3")]
    pub str_val: String,
}

impl IntOrString {
    /// An integer.
    pub fn int(value: i32) -> Self {
        Self {
            r#type: 0,
            int_val: value,
            str_val: String::new(),
        }
    }

    /// A text.
    pub fn text(value: impl Into<String>) -> Self {
        Self {
            r#type: 1,
            int_val: 0,
            str_val: value.into(),
        }
    }

    /// Whether it is a text.
    pub fn is_text(&self) -> bool {
        self.r#type == 1
    }

    /// The integer, also if a text holds it.
    pub fn to_int(&self) -> Option<i32> {
        if self.is_text() {
            self.str_val.parse().ok()
        } else {
            Some(self.int_val)
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_text() {
            serializer.serialize_str(&self.str_val)
        } else {
            serializer.serialize_i32(self.int_val)
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Int(i32),
            Text(String),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Int(value) => Self::int(value),
            Either::Text(value) => Self::text(value),
        })
    }
}

impl JsonSchema for IntOrString {
    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
    }
}

/// Declares a message that carries JSON as bytes and is that JSON, inline, in a document.
macro_rules! raw_json {
    ($(#[$doc:meta])* $name:ident, $schema:tt) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
        pub struct $name {
            /// JSON text; empty is `null`.
            #[prost(bytes = "vec", tag = "1")]
            pub raw: Vec<u8>,
        }

        impl $name {
            /// Holds this value.
            pub fn from_value(value: &Value) -> Self {
                Self { raw: value.to_string().into_bytes() }
            }

            /// The value held.
            ///
            /// # Errors
            /// When the bytes, which came over the wire, are not JSON.
            pub fn to_value(&self) -> Result<Value, serde_json::Error> {
                if self.raw.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&self.raw) }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.to_value().map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Value::deserialize(deserializer).map(|value| Self::from_value(&value))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

raw_json!(
    /// An object of any shape.
    RawExtension,
    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
);
raw_json!(
    /// A value of any type.
    Json,
    {"x-kubernetes-preserve-unknown-fields": true}
);
raw_json!(
    /// A tree of field names, as `managedFields` has it.
    FieldsV1,
    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
);

// ---------------------------------------------------------------------------------------------------------------------
// Helpers of the derives

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

pub(crate) fn is_zero(value: &i64) -> bool {
    *value == 0
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Go writes an absent list or map as `null` where it writes it at all, and reads `null` as absent.
///
/// # Errors
/// Those of the value itself, if it is there.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Values under these keys are documents of their own, in which `null` means something.
const OPAQUE: &[&str] = &["valuesObject", "values"];

/// Takes fields that are `null` out of a document of one of Argo CD's kinds: people write them, and Go reads them as absent. Nulls in values for
/// Helm stay.
pub fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object
                .iter_mut()
                .filter(|(key, _)| !OPAQUE.contains(&key.as_str()))
                .for_each(|(_, value)| strip_nulls(value));
        }
        Value::Array(list) => list.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

/// Bytes as base64 text, as Go writes them in JSON.
pub(crate) mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        // Go skips line breaks inside base64.
        let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        STANDARD
            .decode(text)
            .map_err(|error| D::Error::custom(format!("decode base64: {error}")))
    }
}
