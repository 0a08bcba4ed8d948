//! Names of things: kinds, versions of kinds, and resources in a cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind without its version: `apps` + `Deployment`. The core group is the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKind {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind, as in the document's `kind`.
    pub kind: String,
}

impl GroupKind {
    /// Puts a group and a kind together.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }

    /// The same kind at one version.
    pub fn with_version(&self, version: impl Into<String>) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: version.into(),
            kind: self.kind.clone(),
        }
    }
}

impl fmt::Display for GroupKind {
    /// `group/Kind`, and `Kind` alone in the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}/{}", self.group, self.kind)
        }
    }
}

/// A kind at one version: `apps`, `v1`, `Deployment`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupVersionKind {
    /// API group, empty for the core group.
    pub group: String,
    /// Version inside the group, such as `v1`.
    pub version: String,
    /// Kind, as in the document's `kind`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Puts a group, a version and a kind together.
    pub fn new(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Reads a document's `apiVersion` and `kind`.
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Self::new(group, version, kind)
    }

    /// The document's `apiVersion`: `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The kind without its version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }
}

impl fmt::Display for GroupVersionKind {
    /// `group/version/Kind`, and `version/Kind` in the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.kind)
    }
}

/// A resource in one cluster. Two versions of a kind name the same resource, so the version is no part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceKey {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for what is in no namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ResourceKey {
    /// Puts the four parts together.
    pub fn new(
        group: impl Into<String>,
        kind: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The kind of the resource.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }
}

impl fmt::Display for ResourceKey {
    /// `group/Kind/namespace/name`; parts that are empty leave their slashes (`/Namespace//default`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.group, self.kind, self.namespace, self.name)
    }
}

/// The `apiVersion` of a group and a version: `apps/v1`, or `v1` in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// The group and the version in an `apiVersion`. Without a slash, the group is the core group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_version_of_the_core_group_has_no_slash() {
        assert_eq!(api_version("", "v1"), "v1");
        assert_eq!(api_version("apps", "v1"), "apps/v1");
        assert_eq!(split_api_version("v1"), ("", "v1"));
        assert_eq!(split_api_version("batch/v1"), ("batch", "v1"));
    }

    #[test]
    fn resource_key_shows_empty_parts_as_empty() {
        assert_eq!(
            ResourceKey::new("apps", "Deployment", "web", "front").to_string(),
            "apps/Deployment/web/front"
        );
        assert_eq!(
            ResourceKey::new("", "Namespace", "", "web").to_string(),
            "/Namespace//web"
        );
    }

    #[test]
    fn kinds_read_like_their_api_version() {
        let gvk = GroupVersionKind::from_api_version("apps/v1", "Deployment");
        assert_eq!(gvk.to_string(), "apps/v1/Deployment");
        assert_eq!(gvk.group_kind().to_string(), "apps/Deployment");
        assert_eq!(
            GroupVersionKind::from_api_version("v1", "Pod").to_string(),
            "v1/Pod"
        );
    }
}
