//! Which Application a resource belongs to, and how that is written on it.
//!
//! The repository server stamps what it renders; the controller reads the stamp on live objects. The stamp is a *tracking
//! id* annotation that names Application and resource, or a label that names the Application, or both. Because the id
//! names the resource as well, a copy of an object that took the annotation along is recognised as a stranger.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::annotation::{INSTALLATION_ID, TRACKING_ID};

/// The label that names the Application unless settings choose another.
pub const DEFAULT_LABEL: &str = "app.kubernetes.io/instance";
/// The label of old installations, the only one that is written into pod templates too.
pub const LEGACY_LABEL: &str = "applications.argoproj.io/app-name";
/// The longest value a label may have.
const LABEL_LEN_MAX: usize = 63;

/// Where the stamp is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Method {
    /// In the annotation.
    #[default]
    Annotation,
    /// In the label.
    Label,
    /// In both; the annotation counts.
    AnnotationAndLabel,
}

impl Method {
    /// The value of `application.resourceTrackingMethod`; anything unknown counts as `annotation`, as in Argo CD.
    pub fn parse(text: &str) -> Self {
        match text {
            "label" => Self::Label,
            "annotation+label" => Self::AnnotationAndLabel,
            _ => Self::Annotation,
        }
    }

    /// The value of `application.resourceTrackingMethod`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Annotation => "annotation",
            Self::Label => "label",
            Self::AnnotationAndLabel => "annotation+label",
        }
    }
}

/// How resources are tracked in this installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the stamp is.
    pub method: Method,
    /// Key of the label.
    pub label_key: String,
    /// Empty unless several installations share clusters.
    pub installation_id: String,
    /// Applications in this namespace go by their bare name.
    pub control_plane_namespace: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            method: Method::default(),
            label_key: DEFAULT_LABEL.to_owned(),
            installation_id: String::new(),
            control_plane_namespace: String::new(),
        }
    }
}

impl Config {
    /// The instance name of an Application: its name, or `namespace_name` outside of the control plane's namespace.
    pub fn instance_name(&self, app: &str, namespace: &str) -> String {
        if namespace.is_empty() || namespace == self.control_plane_namespace {
            app.to_owned()
        } else {
            format!("{namespace}_{app}")
        }
    }

    /// Namespace and name of the Application of an instance name.
    pub fn application<'a>(&'a self, instance: &'a str) -> (&'a str, &'a str) {
        instance
            .split_once('_')
            .unwrap_or((&self.control_plane_namespace, instance))
    }
}

/// What the annotation says: `instance:group/kind:namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TrackingId {
    /// Instance name of the Application.
    pub instance: String,
    /// Empty is the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// For cluster-scoped resources the namespace of the destination.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A text that is no tracking id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read tracking id {0:?}: it is not instance:group/kind:namespace/name")]
pub struct InvalidTrackingId(pub String);

impl FromStr for TrackingId {
    type Err = InvalidTrackingId;

    fn from_str(text: &str) -> Result<Self, InvalidTrackingId> {
        let two = |part: &str| {
            let (left, right) = part.split_once('/')?;
            (!right.contains('/')).then(|| (left.to_owned(), right.to_owned()))
        };
        let read = || {
            let mut parts = text.splitn(3, ':');
            let instance = parts.next()?.to_owned();
            let (group, kind) = two(parts.next()?)?;
            let (namespace, name) = two(parts.next()?)?;
            Some(Self {
                instance,
                group,
                kind,
                namespace,
                name,
            })
        };
        read().ok_or_else(|| InvalidTrackingId(text.to_owned()))
    }
}

impl fmt::Display for TrackingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}/{}:{}/{}",
            self.instance, self.group, self.kind, self.namespace, self.name
        )
    }
}

impl TrackingId {
    /// Of a rendered object, which lies in this namespace if it names none.
    pub fn of(object: &Value, instance: &str, default_namespace: &str) -> Self {
        let (group, kind) = group_kind(object);
        let namespace = meta(object, "namespace");
        Self {
            instance: instance.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: if namespace.is_empty() {
                default_namespace
            } else {
                namespace
            }
            .to_owned(),
            name: meta(object, "name").to_owned(),
        }
    }

    /// Whether it names this object. Cluster-scoped objects match in any namespace, because their ids hold that of the
    /// destination.
    pub fn names(&self, object: &Value) -> bool {
        let namespace = meta(object, "namespace");
        (namespace.is_empty() || namespace == self.namespace)
            && meta(object, "name") == self.name
            && group_kind(object) == (self.group.as_str(), self.kind.as_str())
    }
}

/// Why a rendered object could not be stamped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// `metadata`, its labels or its annotations are something else than an object of texts.
    #[error("stamp {kind} {name}: {field} is not an object of texts")]
    Malformed {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The field.
        field: &'static str,
    },
    /// Nothing is left of the name once it is cut to what a label may hold.
    #[error("stamp {kind} {name}: no label value can be made of the instance name {instance:?}")]
    Label {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The instance name.
        instance: String,
    },
}

/// Writes on a rendered object which Application it belongs to. CustomResourceDefinitions stay as they are: they are
/// matched by name and never pruned.
///
/// # Errors
/// When metadata does not have the shape of metadata. The object may then be half stamped and should be dropped.
pub fn stamp(
    object: &mut Value,
    instance: &str,
    default_namespace: &str,
    config: &Config,
) -> Result<(), StampError> {
    if is_crd(object) {
        return Ok(());
    }
    if config.method != Method::Label {
        let id = TrackingId::of(object, instance, default_namespace).to_string();
        let annotations = texts(object, "metadata.annotations", &["metadata", "annotations"])?;
        annotations.insert(TRACKING_ID.to_owned(), id.into());
        if config.installation_id.is_empty() {
            annotations.remove(INSTALLATION_ID);
        } else {
            annotations.insert(INSTALLATION_ID.to_owned(), config.installation_id.as_str().into());
        }
    }
    let label = match config.method {
        Method::Annotation => return Ok(()),
        // Alone it must be whole: the API server says if it is too long.
        Method::Label => instance,
        Method::AnnotationAndLabel => label_value(instance).ok_or_else(|| {
            let (kind, name) = describe(object);
            StampError::Label {
                kind,
                name,
                instance: instance.to_owned(),
            }
        })?,
    };
    let (key, label) = (config.label_key.clone(), Value::from(label));
    texts(object, "metadata.labels", &["metadata", "labels"])?.insert(key.clone(), label.clone());
    if key == LEGACY_LABEL && has_pod_template(object) {
        stamp_pod_template(object, key, label)?;
    }
    Ok(())
}

fn stamp_pod_template(object: &mut Value, key: String, label: Value) -> Result<(), StampError> {
    let path = ["spec", "template", "metadata", "labels"];
    let old_version = matches!(text(object, "apiVersion"), "apps/v1beta1" | "extensions/v1beta1");
    let no_selector = object
        .pointer("/spec/selector")
        .and_then(Value::as_object)
        .is_none_or(Map::is_empty);
    let labels = texts(object, "spec.template.metadata.labels", &path)?;
    if old_version && no_selector {
        // These versions default the selector from the labels of the template; ours must not get into it.
        labels.remove(&key);
        let selector = Value::Object(labels.clone());
        *texts(
            object,
            "spec.selector.matchLabels",
            &["spec", "selector", "matchLabels"],
        )? = selector.as_object().cloned().unwrap_or_default();
    }
    texts(object, "spec.template.metadata.labels", &path)?.insert(key, label);
    Ok(())
}

/// The Application a live object says it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its instance name.
    pub instance: String,
    /// The whole id, where the method has one.
    pub id: Option<TrackingId>,
}

impl Owner {
    /// Whether the stamp is the object's own, not one copied from another object.
    pub fn is_own_stamp(&self, object: &Value) -> bool {
        self.id.as_ref().is_none_or(|id| id.names(object))
    }
}

/// Reads the stamp of a live object.
///
/// By annotation, an object that has only the label of earlier days still belongs to its Application, if an Argo CD applied it: so much is left
/// of a time when labels were the method, for objects that have not been synced since. A label alone says nothing, because charts and
/// operators set the same one; and where several installations share a cluster (`installationID`) it does not say whose it is.
pub fn owner(object: &Value, config: &Config) -> Option<Owner> {
    let label = || {
        label_of(object, config).map(|label| Owner {
            instance: label.to_owned(),
            id: None,
        })
    };
    if config.method == Method::Label {
        return label();
    }
    if has_label_alone(object, config) {
        return label().filter(|_| has_applied_label(object, &config.label_key));
    }
    if !config.installation_id.is_empty()
        && annotation_of(object, INSTALLATION_ID) != Some(&config.installation_id)
    {
        return None;
    }
    let id: TrackingId = annotation_of(object, TRACKING_ID)?.parse().ok()?;
    (!id.instance.is_empty()).then(|| Owner {
        instance: id.instance.clone(),
        id: Some(id),
    })
}

/// Whether only a label says to which Application an object belongs, although the method is the annotation. What it is worth is told by
/// `managedFields`; nothing is deleted for it before a person has agreed. What has an owner is that owner's, whatever was copied onto it.
pub fn has_label_alone(object: &Value, config: &Config) -> bool {
    config.method != Method::Label
        && config.installation_id.is_empty()
        && annotation_of(object, TRACKING_ID).is_none()
        && label_of(object, config).is_some()
        && !has_owner(object)
        && !is_crd(object)
}

/// The field managers under which Argo CD has applied.
const APPLIERS: [&str; 2] = ["argocd-controller", "argocd-application-controller"];

/// Whether Argo CD has applied the object with this label on it.
fn has_applied_label(object: &Value, label_key: &str) -> bool {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    entries.into_iter().flatten().any(|entry| {
        let labels = entry.pointer("/fieldsV1/f:metadata/f:labels");
        APPLIERS.contains(&text(entry, "manager"))
            && labels.is_some_and(|labels| labels.get(format!("f:{label_key}")).is_some())
    })
}

fn has_owner(object: &Value) -> bool {
    let owners = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    owners.is_some_and(|owners| !owners.is_empty())
}

fn annotation_of<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

fn label_of<'a>(object: &'a Value, config: &Config) -> Option<&'a str> {
    let label = object
        .get("metadata")?
        .get("labels")?
        .get(&config.label_key)?
        .as_str()?;
    (!label.is_empty()).then_some(label)
}

/// Whether a live object of an Application is the one its stamp names. One that is not was copied: it is shown, but
/// neither makes the Application OutOfSync nor is it pruned.
///
/// The desired object, where there is one, says who the object is, so that a resource may move to another API group.
pub fn is_self_referenced(live: &Value, desired: Option<&Value>, instance: &str, config: &Config) -> bool {
    if config.method == Method::Label {
        return true;
    }
    match desired {
        Some(desired) => TrackingId::of(desired, instance, "").names(live),
        None => owner(live, config).is_none_or(|owner| owner.is_own_stamp(live)),
    }
}

/// Prepares a live object for comparison after the method changed: fills in the id that only a label stood for, and
/// drops a label that is no longer desired.
pub fn normalize_live(live: &mut Value, desired: &Value, config: &Config) {
    let label = |object: &Value| {
        object
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(&config.label_key)?.as_str())
            .map(str::to_owned)
    };
    if config.method == Method::Label || is_crd(live) || label(live).is_none_or(|label| label.is_empty()) {
        return;
    }
    let id = |object: &Value| {
        object
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(TRACKING_ID)?.as_str())
            .map(str::to_owned)
    };
    if id(live).is_none_or(|id| id.is_empty())
        && let Some(desired_id) = id(desired)
        && let Ok(annotations) = texts(live, "metadata.annotations", &["metadata", "annotations"])
    {
        annotations.insert(TRACKING_ID.to_owned(), desired_id.into());
    }
    if label(desired).is_none_or(|label| label.is_empty())
        && let Some(labels) = live
            .pointer_mut("/metadata/labels")
            .and_then(Value::as_object_mut)
    {
        labels.remove(&config.label_key);
        if labels.is_empty()
            && let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("labels");
        }
    }
}

/// The longest beginning of a name that a label may hold.
fn label_value(instance: &str) -> Option<&str> {
    if instance.len() <= LABEL_LEN_MAX {
        return Some(instance);
    }
    let end = (1..=LABEL_LEN_MAX)
        .rev()
        .find(|&end| instance.as_bytes()[end - 1].is_ascii_alphanumeric())?;
    instance.get(..end)
}

fn has_pod_template(object: &Value) -> bool {
    match group_kind(object) {
        ("apps" | "extensions", kind) => {
            matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        }
        ("batch", kind) => kind == "Job",
        _ => false,
    }
}

fn is_crd(object: &Value) -> bool {
    group_kind(object) == ("apiextensions.k8s.io", "CustomResourceDefinition")
}

fn group_kind(object: &Value) -> (&str, &str) {
    let group = text(object, "apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group);
    (group, text(object, "kind"))
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get("metadata").map_or("", |metadata| text(metadata, key))
}

fn describe(object: &Value) -> (String, String) {
    (text(object, "kind").to_owned(), meta(object, "name").to_owned())
}

/// The map of texts at a path, made where it is missing or null.
fn texts<'a>(
    object: &'a mut Value,
    field: &'static str,
    path: &[&str],
) -> Result<&'a mut Map<String, Value>, StampError> {
    let (kind, name) = describe(object);
    let mut at = object;
    for key in path {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(map) = at else {
            return Err(StampError::Malformed { kind, name, field });
        };
        at = map.entry(*key).or_insert(Value::Null);
    }
    if at.is_null() {
        *at = Value::Object(Map::new());
    }
    match at {
        Value::Object(map) if map.values().all(|value| value.is_string() || value.is_null()) => Ok(map),
        _ => Err(StampError::Malformed { kind, name, field }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn config(method: Method) -> Config {
        Config {
            method,
            control_plane_namespace: "argocd".to_owned(),
            ..Config::default()
        }
    }

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"template": {"metadata": {"labels": {"app": "web"}}}}
        })
    }

    #[test]
    fn instance_names_carry_the_namespace_outside_of_the_control_plane() {
        let config = config(Method::Annotation);
        assert_eq!(config.instance_name("shop", "argocd"), "shop");
        assert_eq!(config.instance_name("shop", "team-a"), "team-a_shop");
        assert_eq!(config.application("shop"), ("argocd", "shop"));
        assert_eq!(config.application("team-a_shop"), ("team-a", "shop"));
    }

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let text = "shop:apps/Deployment:shop/web";
        let id: TrackingId = text.parse().unwrap();
        assert_eq!((id.group.as_str(), id.name.as_str()), ("apps", "web"));
        assert_eq!(id.to_string(), text);
        // Names of RBAC objects hold colons.
        let role: TrackingId = "shop:rbac.authorization.k8s.io/ClusterRole:shop/system:web"
            .parse()
            .unwrap();
        assert_eq!(role.name, "system:web");
        assert!("shop".parse::<TrackingId>().is_err());
        assert!("shop:apps/Deployment/x:a/b".parse::<TrackingId>().is_err());
    }

    #[test]
    fn by_annotation_the_label_stays_away() {
        let mut object = deployment();
        stamp(&mut object, "shop", "other", &config(Method::Annotation)).unwrap();
        assert_eq!(
            object["metadata"]["annotations"],
            json!({TRACKING_ID: "shop:apps/Deployment:shop/web"})
        );
        assert_eq!(object["metadata"].get("labels"), None);
    }

    #[test]
    fn an_object_without_namespace_gets_that_of_the_destination_in_its_id() {
        let mut object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": null}});
        stamp(&mut object, "shop", "target", &config(Method::Annotation)).unwrap();
        assert_eq!(
            object["metadata"]["annotations"][TRACKING_ID],
            "shop:/ConfigMap:target/a"
        );
    }

    #[test]
    fn the_installation_id_is_written_and_taken_away() {
        let mut object = deployment();
        let with = Config {
            installation_id: "eu".to_owned(),
            ..config(Method::Annotation)
        };
        stamp(&mut object, "shop", "", &with).unwrap();
        assert_eq!(object["metadata"]["annotations"][INSTALLATION_ID], "eu");
        stamp(&mut object, "shop", "", &config(Method::Annotation)).unwrap();
        assert_eq!(object["metadata"]["annotations"].get(INSTALLATION_ID), None);
    }

    #[test]
    fn a_label_of_earlier_days_counts_if_argo_cd_applied_it() {
        let annotation = config(Method::Annotation);
        let mut object = deployment();
        stamp(&mut object, "shop", "", &config(Method::Label)).unwrap();
        assert!(has_label_alone(&object, &annotation));
        assert_eq!(owner(&object, &annotation), None, "a chart may set the label");
        let entry = |manager: &str| {
            let labels = json!({"f:app.kubernetes.io/instance": {}});
            json!([{"manager": manager, "fieldsV1": {"f:metadata": {"f:labels": labels}}}])
        };
        object["metadata"]["managedFields"] = entry("helm");
        assert_eq!(owner(&object, &annotation), None);
        object["metadata"]["managedFields"] = entry("argocd-controller");
        let found = owner(&object, &annotation).unwrap();
        assert_eq!((found.instance.as_str(), found.id), ("shop", None));
        assert!(is_self_referenced(&object, None, "shop", &annotation));
        let mut owned = object.clone();
        owned["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": "web-1", "uid": "u"}]);
        assert_eq!(owner(&owned, &annotation), None);
        // Where installations share clusters, it may be another one's.
        let shared = Config {
            installation_id: "eu".to_owned(),
            ..annotation.clone()
        };
        assert_eq!(owner(&object, &shared), None);
        // The annotation beats the label, whatever it says.
        stamp(&mut object, "other", "", &annotation).unwrap();
        assert_eq!(owner(&object, &annotation).unwrap().instance, "other");
    }

    #[test]
    fn only_the_legacy_label_goes_into_pod_templates() {
        let mut object = deployment();
        stamp(&mut object, "shop", "", &config(Method::Label)).unwrap();
        assert_eq!(object["metadata"]["labels"], json!({DEFAULT_LABEL: "shop"}));
        assert_eq!(
            object["spec"]["template"]["metadata"]["labels"],
            json!({"app": "web"})
        );

        let legacy = Config {
            label_key: LEGACY_LABEL.to_owned(),
            ..config(Method::Label)
        };
        stamp(&mut object, "shop", "", &legacy).unwrap();
        assert_eq!(
            object["spec"]["template"]["metadata"]["labels"],
            json!({"app": "web", LEGACY_LABEL: "shop"})
        );
        assert_eq!(object["spec"].get("selector"), None);
    }

    #[test]
    fn old_versions_get_a_selector_so_that_none_is_defaulted() {
        let mut object = deployment();
        object["apiVersion"] = "apps/v1beta1".into();
        let legacy = Config {
            label_key: LEGACY_LABEL.to_owned(),
            ..config(Method::Label)
        };
        stamp(&mut object, "shop", "", &legacy).unwrap();
        assert_eq!(object["spec"]["selector"], json!({"matchLabels": {"app": "web"}}));
        assert_eq!(
            object["spec"]["template"]["metadata"]["labels"],
            json!({"app": "web", LEGACY_LABEL: "shop"})
        );
    }

    #[test]
    fn a_long_name_is_cut_in_the_label_only_beside_an_annotation() {
        let long = format!("{}--{}", "a".repeat(62), "b".repeat(10));
        let mut object = deployment();
        stamp(&mut object, &long, "", &config(Method::AnnotationAndLabel)).unwrap();
        assert_eq!(object["metadata"]["labels"][DEFAULT_LABEL], "a".repeat(62));
        stamp(&mut object, &long, "", &config(Method::Label)).unwrap();
        assert_eq!(object["metadata"]["labels"][DEFAULT_LABEL], long);
    }

    #[test]
    fn crds_are_never_stamped() {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"}});
        let mut stamped = crd.clone();
        stamp(&mut stamped, "shop", "", &config(Method::AnnotationAndLabel)).unwrap();
        assert_eq!(stamped, crd);
    }

    #[test]
    fn malformed_metadata_is_an_error_with_a_name() {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"n": 1}}});
        let error = stamp(&mut object, "shop", "", &config(Method::Annotation)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "stamp ConfigMap a: metadata.annotations is not an object of texts"
        );
    }

    #[test]
    fn the_owner_is_read_as_it_was_written() {
        for method in [Method::Annotation, Method::Label, Method::AnnotationAndLabel] {
            let mut object = deployment();
            stamp(&mut object, "team_shop", "", &config(method)).unwrap();
            assert_eq!(
                owner(&object, &config(method)).unwrap().instance,
                "team_shop",
                "{method:?}"
            );
        }
        assert_eq!(owner(&deployment(), &config(Method::Annotation)), None);
    }

    #[test]
    fn another_installation_owns_its_own() {
        let mut object = deployment();
        let eu = Config {
            installation_id: "eu".to_owned(),
            ..config(Method::Annotation)
        };
        let us = Config {
            installation_id: "us".to_owned(),
            ..config(Method::Annotation)
        };
        stamp(&mut object, "shop", "", &eu).unwrap();
        assert!(owner(&object, &eu).is_some());
        assert_eq!(owner(&object, &us), None);
    }

    #[test]
    fn a_copied_annotation_is_no_ownership() {
        let config = config(Method::Annotation);
        let mut original = deployment();
        stamp(&mut original, "shop", "", &config).unwrap();
        let mut copy = original.clone();
        copy["metadata"]["name"] = "web-copy".into();
        assert!(is_self_referenced(&original, None, "shop", &config));
        assert!(!is_self_referenced(&copy, None, "shop", &config));
        assert!(is_self_referenced(
            &copy,
            None,
            "shop",
            &Config {
                method: Method::Label,
                ..config.clone()
            }
        ));
    }

    #[test]
    fn cluster_scoped_objects_match_whatever_namespace_their_id_holds() {
        let config = config(Method::Annotation);
        let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
        stamp(&mut role, "shop", "target", &config).unwrap();
        assert!(is_self_referenced(&role, None, "shop", &config));
    }

    #[test]
    fn a_changed_method_makes_no_difference_by_itself() {
        let mut live = deployment();
        stamp(&mut live, "shop", "", &config(Method::Label)).unwrap();
        let mut desired = deployment();
        stamp(&mut desired, "shop", "", &config(Method::Annotation)).unwrap();
        normalize_live(&mut live, &desired, &config(Method::Annotation));
        assert_eq!(live, desired);
    }
}
