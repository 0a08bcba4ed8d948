//! Messages of the API against Argo CD's own Go types: the same bytes are the same JSON, and that JSON is read and written
//! again without loss. It is what Argo CD's REST gateway makes of them, field by field: which are left out when they are
//! empty, how times and numbers are written.

use argosy_api::services::{
    account, application, cluster, events, gpgkey, notification, project, repository, session, version,
};
use argosy_api::v1alpha1;
use argosy_object::Value;
use argosy_oracle::Oracle;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::{Tally, objects, seed};

/// The JSON that we make of a message's bytes, and what its JSON is when it has been read and written.
type Write = fn(&[u8], &Value) -> Result<(Value, Value), String>;

fn write<T>(bytes: &[u8], json: &Value) -> Result<(Value, Value), String>
where
    T: prost::Message + Default + serde::Serialize + serde::de::DeserializeOwned,
{
    let text = |error: &dyn std::error::Error| error.to_string();
    let message = T::decode(bytes).map_err(|error| text(&error))?;
    let read: T = serde_json::from_value(without_nulls(json.clone())).map_err(|error| text(&error))?;
    let value = |message: &T| serde_json::to_value(message).map_err(|error| text(&error));
    Ok((value(&message)?, value(&read)?))
}

/// Of a message that nobody here reads.
fn write_only<T>(bytes: &[u8], json: &Value) -> Result<(Value, Value), String>
where
    T: prost::Message + Default + serde::Serialize,
{
    let message = T::decode(bytes).map_err(|error| error.to_string())?;
    let written = serde_json::to_value(&message).map_err(|error| error.to_string())?;
    Ok((written, json.clone()))
}

/// Fields that are null are not there: Go reads them so, and so does the REST API.
fn without_nulls(mut message: Value) -> Value {
    if let Some(fields) = message.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    message
}

macro_rules! messages {
    ($($name:literal $write:ident $message:ty;)*) => {
        &[$(($name, $write::<$message> as Write),)*]
    };
}

/// The places where we and Go write otherwise. What is absent is not null here.
fn walk(path: String, ours: Option<&Value>, go: Option<&Value>, found: &mut Vec<Difference>) {
    match (ours, go) {
        (Some(Value::Object(ours)), Some(Value::Object(go))) => {
            for key in ours
                .keys()
                .chain(go.keys().filter(|key| !ours.contains_key(*key)))
            {
                walk(format!("{path}.{key}"), ours.get(key), go.get(key), found);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(go))) if ours.len() == go.len() => {
            for (ours, go) in ours.iter().zip(go) {
                walk(format!("{path}[]"), Some(ours), Some(go), found);
            }
        }
        _ if ours == go => {}
        _ => found.push(Difference {
            settled: settled(&path, ours, go),
            text: format!("{path}: {} | {}", shown(ours), shown(go)),
        }),
    }
}

struct Difference {
    /// The name that docs/compatibility.md has for it.
    settled: Option<&'static str>,
    text: String,
}

fn settled(path: &str, ours: Option<&Value>, go: Option<&Value>) -> Option<&'static str> {
    match (ours, go) {
        (Some(Value::Array(ours)), Some(Value::Null)) if ours.is_empty() => Some("an-empty-list-is-a-list"),
        (Some(Value::String(ours)), Some(Value::Null)) if ours.is_empty() && path.ends_with("certData") => {
            Some("no-bytes-are-an-empty-text")
        }
        (Some(Value::Array(ours)), Some(Value::Array(go)))
            if path.ends_with("namespaceResourceWhitelist")
                && ours.is_empty()
                && *go == [json!({"group": "", "kind": ""})] =>
        {
            Some("a-kind-without-a-name")
        }
        (Some(Value::String(ours)), Some(Value::String(go)))
            if path.contains(".resourceOverrides.") && ours.replace('"', "") == go.replace('"', "") =>
        {
            Some("quotes-in-yaml-texts")
        }
        (None, Some(_)) if path.ends_with("metadata.shardInfo") => Some("lists-of-a-sharded-store"),
        (None, Some(Value::Null)) if path.ends_with("currentOperation.startedAt") => {
            Some("an-operation-that-has-not-started")
        }
        _ => None,
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}

const MESSAGES: &[(&str, Write)] = messages! {
    "Application" write v1alpha1::Application;
    "ApplicationList" write v1alpha1::ApplicationList;
    "ApplicationWatchEvent" write v1alpha1::ApplicationWatchEvent;
    "ApplicationTree" write v1alpha1::ApplicationTree;
    "ApplicationSpec" write v1alpha1::ApplicationSpec;
    "ApplicationSet" write v1alpha1::ApplicationSet;
    "ApplicationSetList" write v1alpha1::ApplicationSetList;
    "ApplicationSetTree" write v1alpha1::ApplicationSetTree;
    "AppProject" write v1alpha1::AppProject;
    "AppProjectList" write v1alpha1::AppProjectList;
    "Cluster" write v1alpha1::Cluster;
    "ClusterList" write v1alpha1::ClusterList;
    "Repository" write v1alpha1::Repository;
    "RepositoryList" write v1alpha1::RepositoryList;
    "RepoCreds" write v1alpha1::RepoCreds;
    "RepoCredsList" write v1alpha1::RepoCredsList;
    "RepositoryCertificateList" write v1alpha1::RepositoryCertificateList;
    "GnuPGPublicKey" write v1alpha1::GnuPgPublicKey;
    "GnuPGPublicKeyList" write v1alpha1::GnuPgPublicKeyList;
    "RevisionMetadata" write v1alpha1::RevisionMetadata;
    "ChartDetails" write v1alpha1::ChartDetails;
    "OCIMetadata" write v1alpha1::OciMetadata;
    "account.Account" write account::Account;
    "account.AccountsList" write account::AccountsList;
    "account.CanIResponse" write account::CanIResponse;
    "account.CreateTokenResponse" write account::CreateTokenResponse;
    "application.ApplicationResourceResponse" write application::ApplicationResourceResponse;
    "application.ApplicationSyncWindowsResponse" write application::ApplicationSyncWindowsResponse;
    "application.LinksResponse" write application::LinksResponse;
    "application.LogEntry" write application::LogEntry;
    "application.ManagedResourcesResponse" write application::ManagedResourcesResponse;
    "application.ResourceActionsListResponse" write application::ResourceActionsListResponse;
    "cluster.ClusterResponse" write cluster::ClusterResponse;
    "events.EventList" write events::EventList;
    "gpgkey.GnuPGPublicKeyCreateResponse" write gpgkey::GnuPgPublicKeyCreateResponse;
    "notification.TriggerList" write notification::TriggerList;
    "notification.ServiceList" write notification::ServiceList;
    "notification.TemplateList" write notification::TemplateList;
    "project.DetailedProjectsResponse" write project::DetailedProjectsResponse;
    "project.GlobalProjectsResponse" write project::GlobalProjectsResponse;
    "project.ProjectTokenResponse" write project::ProjectTokenResponse;
    "project.SyncWindowsResponse" write project::SyncWindowsResponse;
    "repository.HelmChartsResponse" write repository::HelmChartsResponse;
    "repository.ManifestResponse" write repository::ManifestResponse;
    "repository.Refs" write repository::Refs;
    "repository.RepoAppDetailsResponse" write repository::RepoAppDetailsResponse;
    "repository.RepoAppsResponse" write repository::RepoAppsResponse;
    "session.GetUserInfoResponse" write session::GetUserInfoResponse;
    "session.SessionResponse" write session::SessionResponse;
    "settings.Settings" write_only cluster::Settings;
    "version.VersionMessage" write version::VersionMessage;
};

#[test]
fn messages_are_the_json_that_argo_cd_makes_of_them() {
    let Some(mut oracle) = Oracle::argo_cd().unwrap() else {
        return;
    };
    let listed = oracle.ask("wire", json!({})).unwrap().unwrap();
    let mut listed: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    listed.sort_unstable();
    let mut known: Vec<&str> = MESSAGES.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(listed, known);

    let mut tally = Tally::default();
    let each = (objects() / MESSAGES.len()).max(4) as u64;
    for (name, write) in MESSAGES {
        for number in 0..each {
            // Nothing set, everything set, and by chance.
            let share = match number {
                0 => 0.0,
                1 => 1.0,
                _ => 0.75,
            };
            let request = json!({"message": name, "seed": seed() + number, "share": share});
            let answer = oracle.ask("wire", request).unwrap().unwrap();
            // Go writes no bytes at all as null.
            let bytes = STANDARD
                .decode(answer["proto"].as_str().unwrap_or_default())
                .unwrap();
            let expected = &answer["json"];
            match write(&bytes, expected) {
                Ok((made, again)) if made == *expected && again == *expected => tally.agree(),
                Ok((made, again)) => {
                    let mut found = Vec::new();
                    for ours in [&made, &again] {
                        walk(String::new(), Some(ours), Some(expected), &mut found);
                    }
                    let faults: Vec<_> = found
                        .iter()
                        .filter(|found| found.settled.is_none())
                        .map(|found| &found.text)
                        .collect();
                    match found.first().and_then(|first| first.settled) {
                        Some(name) if faults.is_empty() => tally.settle(name),
                        _ => tally.fault(format!("{name} {number}: {faults:?}")),
                    }
                }
                Err(why) => tally.fault(format!("{name} {number}: {why}\n Go:    {expected}")),
            }
        }
    }
    tally.close("messages", MESSAGES.len() * 4);
}
