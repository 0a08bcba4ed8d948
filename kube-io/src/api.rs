//! The control plane's own kinds, decoded object by object.
//!
//! A list of Applications with one that cannot be read is a list of the others and a [`Change::Unreadable`]; nobody's
//! mistake stops the rest.

use std::collections::{HashMap, HashSet};

use argosy_object::Value;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::budget::Budget;
use crate::client::Client;
use crate::discovery::ApiResource;
use crate::error::Error;
use crate::list_watch::{Event, ListWatch, Looked, Looks, Options, Sighting, number};
use crate::target::{Selection, Target, Write};

/// `argoproj.io/v1alpha1` Application.
pub fn applications() -> ApiResource {
    ApiResource::known("argoproj.io", "v1alpha1", "Application", "applications", true)
}

/// `argoproj.io/v1alpha1` AppProject.
pub fn app_projects() -> ApiResource {
    ApiResource::known("argoproj.io", "v1alpha1", "AppProject", "appprojects", true)
}

/// `argoproj.io/v1alpha1` ApplicationSet.
pub fn application_sets() -> ApiResource {
    ApiResource::known(
        "argoproj.io",
        "v1alpha1",
        "ApplicationSet",
        "applicationsets",
        true,
    )
}

/// Core Secret.
pub fn secrets() -> ApiResource {
    ApiResource::known("", "v1", "Secret", "secrets", true)
}

/// Core ConfigMap.
pub fn config_maps() -> ApiResource {
    ApiResource::known("", "v1", "ConfigMap", "configmaps", true)
}

/// Core Namespace.
pub fn namespaces() -> ApiResource {
    ApiResource::known("", "v1", "Namespace", "namespaces", false)
}

/// Core Event.
pub fn events() -> ApiResource {
    ApiResource::known("", "v1", "Event", "events", true)
}

/// `coordination.k8s.io/v1` Lease.
pub fn leases() -> ApiResource {
    ApiResource::known("coordination.k8s.io", "v1", "Lease", "leases", true)
}

/// `discovery.k8s.io/v1` EndpointSlice.
pub fn endpoint_slices() -> ApiResource {
    ApiResource::known("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true)
}

/// `apiextensions.k8s.io/v1` CustomResourceDefinition.
pub fn custom_resource_definitions() -> ApiResource {
    ApiResource::known(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    )
}

/// Whether the account may list a kind, in a namespace or (empty) in all, as the server says.
pub async fn may_list(client: &Client, resource: &ApiResource, namespace: &str) -> Result<bool, Error> {
    let reviews = ApiResource::known(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        false,
    );
    let review = serde_json::json!({
        "apiVersion": reviews.api_version(), "kind": reviews.kind,
        "spec": {"resourceAttributes": {
            "namespace": namespace, "verb": "list",
            "group": resource.group, "version": resource.version, "resource": resource.plural,
        }},
    });
    let answer = Target::new(client.clone())
        .create(&reviews, &review, &Write::default())
        .await?;
    let allowed = argosy_object::meta::field(&answer.object, &["status", "allowed"]);
    Ok(allowed.and_then(Value::as_bool) == Some(true))
}

/// Who an object is, as far as that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// An object that cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Which one.
    pub place: Place,
    /// Its version, to see whether it has been mended.
    pub resource_version: String,
    /// What is wrong with it, with the field's path if that is known.
    pub message: String,
}

/// What could be read of a list, and what could not.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// The readable objects, in the server's order.
    pub items: Vec<T>,
    /// The others.
    pub unreadable: Vec<Unreadable>,
    /// The version that the list is true for.
    pub resource_version: String,
}

/// All objects of a selection, each decoded by itself.
pub async fn list<T: DeserializeOwned>(
    target: &Target,
    resource: &ApiResource,
    selection: &Selection,
) -> Result<Listed<T>, Error> {
    let raw = target.list(resource, selection).await?;
    let mut listed = Listed {
        items: Vec::new(),
        unreadable: Vec::new(),
        resource_version: raw.resource_version,
    };
    for item in raw.items {
        match decode(&item, resource) {
            Ok((_, object)) => listed.items.push(object),
            Err(bad) => listed.unreadable.push(bad),
        }
    }
    Ok(listed)
}

/// What happens to a kind of the control plane, decoded.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// The object appeared or changed. Only told when its resourceVersion is new.
    Applied(T),
    /// The object went, or is no longer selected.
    Deleted(Place),
    /// The object appeared or changed and cannot be read. What was known of it before is void.
    Unreadable(Unreadable),
    /// All that exists has been told. Comes after each full list, the first of which ends ignorance.
    Synced,
    /// The kind cannot be followed at the moment; what was told last stays the last known.
    Failed(Error),
}

/// Follows a kind of the control plane and decodes each object by itself. Full lists are compared with what was told
/// before, so that the receiver hears only of changes, and of every deletion.
pub struct TypedWatch<T> {
    events: ListWatch,
    /// resourceVersion of what was told, by place.
    told: HashMap<Place, String>,
    /// Places of the list that is being read.
    listed: Option<HashSet<Place>>,
    looks: Looks<Place>,
    vanished: Vec<Place>,
    synced: bool,
    marker: std::marker::PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> TypedWatch<T> {
    /// Follows the selected objects of `resource`.
    pub fn new(client: Client, resource: ApiResource, selection: Selection) -> Self {
        let options = Options {
            selection,
            ..Options::default()
        };
        Self::paced(client, resource, options)
    }

    /// Follows as `options` say. Without looks at what the watch may not have told it is for those who make up for that
    /// themselves.
    pub fn paced(client: Client, resource: ApiResource, options: Options) -> Self {
        TypedWatch {
            events: ListWatch::new(client, resource, options, Budget::new(Budget::LIST)),
            told: HashMap::new(),
            listed: None,
            looks: Looks::default(),
            vanished: Vec::new(),
            synced: false,
            marker: std::marker::PhantomData,
        }
    }

    /// The next change. Give it a task of its own (see [`ListWatch::next`]).
    pub async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(place) = self.vanished.pop() {
                self.told.remove(&place);
                return Change::Deleted(place);
            }
            if std::mem::take(&mut self.synced) {
                return Change::Synced;
            }
            let event = self.events.next().await;
            let looked = self.looks.due(&event);
            if looked.iter().any(|looked| self.has_missed(looked)) {
                // What else was missed is not known: the whole list says it.
                self.events.relist();
                continue;
            }
            match event {
                Event::ListStart => self.listed = Some(HashSet::new()),
                Event::Listed(bytes) | Event::Applied(bytes) => {
                    if let Some(change) = self.applied(&bytes) {
                        return change;
                    }
                }
                Event::Deleted(bytes) => {
                    let (place, _) = peek(&bytes);
                    if let Some(listed) = &mut self.listed {
                        listed.remove(&place);
                    }
                    if self.told.remove(&place).is_some() {
                        return Change::Deleted(place);
                    }
                }
                Event::ListEnd { .. } => {
                    let listed = self.listed.take().unwrap_or_default();
                    self.vanished = self
                        .told
                        .keys()
                        .filter(|place| !listed.contains(*place))
                        .cloned()
                        .collect();
                    self.synced = true;
                    // What cannot be read is counted, too.
                    self.looks.listed(true);
                }
                Event::Seen { object, how } => {
                    let (place, version) = peek(&object);
                    let known = self.told.get(&place);
                    // What has gone and is not known has been told.
                    match known.map_or(how != Sighting::Gone, |known| is_older(known, &version)) {
                        true => self.looks.unlike((place, version)),
                        false => self.looks.alike(&place),
                    }
                }
                Event::Live | Event::Progress { .. } | Event::Audit { .. } => {}
                Event::Failed(error) => return Change::Failed(error),
            }
        }
    }

    /// Whether something of that has not been told, though all up to its version has been.
    fn has_missed(&self, looked: &Looked<Place>) -> bool {
        let known = self.told.len() as u64;
        let differs = looked.count.is_some_and(|count| count != known);
        let behind = looked
            .seen
            .iter()
            .find(|(place, version)| match self.told.get(place) {
                Some(known) => is_older(known, version),
                // Where objects are counted that tells, and it may have gone since.
                None => looked.count.is_none(),
            });
        if differs || behind.is_some() {
            let kind = &self.events.resource().kind;
            tracing::warn!(
                kind,
                count = looked.count,
                known,
                ?behind,
                "a watch has missed a change, the kind is listed anew"
            );
        }
        differs || behind.is_some()
    }

    fn applied(&mut self, bytes: &Bytes) -> Option<Change<T>> {
        let resource = self.events.resource();
        match decode(bytes, resource) {
            Ok((version, object)) => {
                let (place, _) = peek(bytes);
                self.tell(place, version).then_some(Change::Applied(object))
            }
            Err(bad) => self
                .tell(bad.place.clone(), bad.resource_version.clone())
                .then_some(Change::Unreadable(bad)),
        }
    }

    /// Notes what is being told; false if it was told before.
    fn tell(&mut self, place: Place, version: String) -> bool {
        if let Some(listed) = &mut self.listed {
            listed.insert(place.clone());
        }
        self.told.insert(place, version.clone()).as_ref() != Some(&version)
    }
}

fn is_older(known: &str, seen: &str) -> bool {
    number(known)
        .zip(number(seen))
        .is_some_and(|(known, seen)| known < seen)
}

/// Place and resourceVersion of an object, whatever else it is.
fn peek(bytes: &[u8]) -> (Place, String) {
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct Object {
        metadata: Meta,
    }
    #[derive(serde::Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Meta {
        namespace: String,
        name: String,
        resource_version: String,
    }
    let meta = serde_json::from_slice::<Object>(bytes)
        .unwrap_or_default()
        .metadata;
    (
        Place {
            namespace: meta.namespace,
            name: meta.name,
        },
        meta.resource_version,
    )
}

/// Decodes one object and gives its resourceVersion.
fn decode<T: DeserializeOwned>(bytes: &[u8], resource: &ApiResource) -> Result<(String, T), Unreadable> {
    let fail = |message: String| {
        let (place, resource_version) = peek(bytes);
        Unreadable {
            place,
            resource_version,
            message,
        }
    };
    let mut value: Value = serde_json::from_slice(bytes).map_err(|error| fail(error.to_string()))?;
    if let Some(map) = value.as_object_mut() {
        map.entry("apiVersion")
            .or_insert_with(|| Value::String(resource.api_version()));
        map.entry("kind")
            .or_insert_with(|| Value::String(resource.kind.clone()));
    }
    let version = argosy_object::meta::resource_version(&value).to_owned();
    serde_json::from_value(value)
        .map(|object| (version, object))
        .map_err(|error| fail(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(serde::Deserialize, Debug)]
    struct Typed {
        kind: String,
        spec: Spec,
    }
    #[derive(serde::Deserialize, Debug)]
    struct Spec {
        project: String,
    }

    #[test]
    fn an_object_gets_the_kind_that_lists_leave_out() {
        let (version, typed) = decode::<Typed>(
            br#"{"metadata":{"name":"a","namespace":"argocd","resourceVersion":"5"},"spec":{"project":"default"}}"#,
            &applications(),
        )
        .unwrap();
        assert_eq!(
            (version.as_str(), typed.kind.as_str(), typed.spec.project.as_str()),
            ("5", "Application", "default")
        );
    }

    #[test]
    fn an_unreadable_object_says_which_and_why() {
        let bad = decode::<Typed>(
            br#"{"metadata":{"name":"a","namespace":"argocd","resourceVersion":"5"},"spec":{"project":7}}"#,
            &applications(),
        )
        .unwrap_err();
        assert_eq!(
            bad.place,
            Place {
                namespace: "argocd".into(),
                name: "a".into()
            }
        );
        assert!(bad.message.contains("invalid type: integer"), "{}", bad.message);
    }
}
