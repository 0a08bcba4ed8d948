//! Events of Kubernetes as the API hands them on: core/v1's by number and by JSON, in a package of Argo CD's own.

use serde::{Deserialize, Serialize};

use crate::meta::{ListMeta, MicroTime, ObjectMeta, Time, is_default, null_as_default};

/// Several events.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EventList {
    /// Of the list.
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    /// The events.
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<Event>,
}

/// Something that happened to an object. Times that are not told are `null`, texts are left out.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Event {
    /// Its own.
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    /// What it is about.
    #[prost(message, required, tag = "2")]
    pub involved_object: ObjectReference,
    /// A word for machines.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A text for people.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Who told it, in older clients.
    #[prost(message, required, tag = "5")]
    #[serde(deserialize_with = "null_as_default")]
    pub source: EventSource,
    /// When it was seen first.
    #[prost(message, required, tag = "6")]
    #[serde(deserialize_with = "null_as_default")]
    pub first_timestamp: Time,
    /// When it was seen last.
    #[prost(message, required, tag = "7")]
    #[serde(deserialize_with = "null_as_default")]
    pub last_timestamp: Time,
    /// How often.
    #[prost(int32, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub count: i32,
    /// `Normal` or `Warning`.
    #[prost(string, tag = "9")]
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    /// When it was seen first, in newer clients.
    #[prost(message, required, tag = "10")]
    #[serde(deserialize_with = "null_as_default")]
    pub event_time: MicroTime,
    /// The series that it belongs to.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<EventSeries>,
    /// What was done.
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// Another object that has to do with it.
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<ObjectReference>,
    /// Who told it.
    #[prost(string, tag = "14")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_component: String,
    /// Which of them.
    #[prost(string, tag = "15")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_instance: String,
}

/// An event that is told again and again.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventSeries {
    /// How often.
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub count: i32,
    /// When last.
    #[prost(message, required, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub last_observed_time: MicroTime,
}

/// An object, or a part of one.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectReference {
    /// Kind.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Group and version.
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Version of the object.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part.
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

/// Who told an event.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EventSource {
    /// The program.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The node it ran on.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_an_api_server_tells_becomes_what_go_writes() {
        // As events of both APIs come from an API server: empty texts, nulls, microseconds.
        let told = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "a.1", "namespace": "argocd"},
            "involvedObject": {"kind": "Application", "namespace": "argocd", "name": "a"},
            "reason": "OperationCompleted", "message": "", "source": {"component": "argocd-application-controller"},
            "firstTimestamp": "2026-11-30T10:00:00Z", "lastTimestamp": null, "count": 1, "type": "Normal",
            "eventTime": "2026-11-30T10:00:00.123456Z", "reportingComponent": "", "reportingInstance": "",
            "series": {"count": 2, "lastObservedTime": "2026-11-30T10:00:01.000000Z"}});
        let event: Event = serde_json::from_value(told).unwrap();
        let written = json!({"metadata": {"name": "a.1", "namespace": "argocd"},
            "involvedObject": {"kind": "Application", "namespace": "argocd", "name": "a"},
            "reason": "OperationCompleted", "source": {"component": "argocd-application-controller"},
            "firstTimestamp": "2026-11-30T10:00:00Z", "lastTimestamp": null, "count": 1, "type": "Normal",
            "eventTime": "2026-11-30T10:00:00.123456Z",
            "series": {"count": 2, "lastObservedTime": "2026-11-30T10:00:01.000000Z"}});
        let mut found = serde_json::to_value(&event).unwrap();
        found["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("creationTimestamp");
        assert_eq!(found, written);
    }

    #[test]
    fn an_event_of_which_nothing_is_known_has_the_keys_that_go_always_writes() {
        let mut found = serde_json::to_value(Event::default()).unwrap();
        found["metadata"] = Value::Null;
        let always = json!({"metadata": null, "involvedObject": {}, "source": {}, "firstTimestamp": null,
            "lastTimestamp": null, "eventTime": null});
        assert_eq!(found, always);
        let list = serde_json::to_value(EventList::default()).unwrap();
        assert_eq!(list["items"], json!([]));
    }
}
