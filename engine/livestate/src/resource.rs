//! One live object as writers bring it and readers get it.

use std::sync::Arc;

use argosy_object::{Arrived, Document, GroupKind, GroupVersionKind, Name, ResourceKey, Value, intern, meta};

use crate::placement::Placement;
use crate::row::app_name;

/// Annotations by which a token Secret names its ServiceAccount, older than owner references.
const SERVICE_ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// One live object: its document with every field, and the few facts that most readers want of it. Live state keeps
/// less ([`crate::row`]) and makes this anew for each reader.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Group, kind, namespace and name.
    pub key: Arc<ResourceKey>,
    /// The API version in which it was read, such as `v1`.
    pub version: Name,
    /// Unique over time: another object of the same key has another uid.
    pub uid: Arc<str>,
    /// The server's version of the object.
    pub resource_version: Box<str>,
    /// Instance name of the Application that tracks this very object. Objects reached through owners have none.
    pub app: Option<Name>,
    /// The owners that the object names.
    pub owners: Box<[Owner]>,
    /// Of a Pod on its way in: where it is.
    pub(crate) placement: Option<Placement>,
    /// The whole object.
    pub document: Document,
}

/// An owner that an object names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its group.
    pub group: Name,
    /// Its kind.
    pub kind: Name,
    /// Its name; it is in the same namespace or in none.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// Whether it is the owner that manages the object.
    pub controller: bool,
}

impl Resource {
    /// Takes the facts out of an object. `app` is the instance name of the Application that tracks it, if any.
    pub fn new(object: &Value, app: Option<Arc<str>>) -> Self {
        Document::view(object, |arrived| Resource::arrived(&arrived, object, app))
    }

    /// Takes the facts out of an object that has just arrived. `label` is its [`Arrived::label`].
    pub fn arrived(object: &Arrived<'_>, label: &Value, app: Option<Arc<str>>) -> Self {
        let gvk = meta::gvk(label);
        Resource {
            key: Arc::new(meta::key(label)),
            version: intern(&gvk.version),
            uid: Arc::from(meta::uid(label)),
            resource_version: Box::from(meta::resource_version(label)),
            app: app_name(app),
            owners: owners(label),
            placement: Placement::of(object),
            document: object.document(),
        }
    }

    /// Group and kind.
    pub fn group_kind(&self) -> GroupKind {
        self.key.group_kind()
    }

    /// Group, version and kind as it was read.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(&*self.key.group, &*self.version, &*self.key.kind)
    }

    /// The whole object, to work on.
    pub fn value(&self) -> Value {
        self.document.value()
    }

    /// The object without spec and status: apiVersion, kind, type and metadata.
    pub fn label(&self) -> Value {
        label(&self.document)
    }
}

/// The owners in a document that is known to have some. Only what tells them is read.
pub(crate) fn owners_in(document: &Document) -> Box<[Owner]> {
    let references = document.value_at(&["metadata", "ownerReferences"]);
    let named = references
        .as_ref()
        .and_then(Value::as_array)
        .is_some_and(|references| !references.is_empty());
    if !named {
        return owners(&label(document));
    }
    let metadata =
        argosy_object::Map::from_iter([("ownerReferences".to_owned(), references.unwrap_or_default())]);
    owners(&Value::Object(argosy_object::Map::from_iter([(
        "metadata".to_owned(),
        Value::Object(metadata),
    )])))
}

fn label(document: &Document) -> Value {
    let mut label = argosy_object::Map::new();
    for name in ["apiVersion", "kind", "metadata", "type"] {
        if let Some(value) = document.value_at(&[name]) {
            label.insert(name.to_owned(), value);
        }
    }
    Value::Object(label)
}

fn owners(object: &Value) -> Box<[Owner]> {
    let mut owners: Vec<Owner> = meta::owner_references(object)
        .into_iter()
        .map(|reference| Owner {
            group: intern(&reference.group),
            kind: intern(&reference.kind),
            name: reference.name.into_boxed_str(),
            uid: Arc::from(reference.uid),
            controller: reference.controller,
        })
        .collect();
    let is_token = meta::kind(object) == "Secret"
        && meta::group(object).is_empty()
        && meta::str_field(object, &["type"]) == Some("kubernetes.io/service-account-token");
    if is_token
        && owners.is_empty()
        && let (Some(uid), Some(name)) = (
            meta::annotation(object, SERVICE_ACCOUNT_UID),
            meta::annotation(object, SERVICE_ACCOUNT_NAME),
        )
    {
        owners.push(Owner {
            group: intern(""),
            kind: intern("ServiceAccount"),
            name: Box::from(name),
            uid: Arc::from(uid),
            controller: false,
        });
    }
    owners.into_boxed_slice()
}

/// Whether version `a` is older than `b`, as far as that can be known. Kubernetes' versions are numbers that grow
/// over all objects of a kind; other servers' may be anything.
pub(crate) fn is_older(a: &str, b: &str) -> bool {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a < b,
        _ => false,
    }
}
