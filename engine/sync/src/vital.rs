//! What is never deleted, whatever carries the mark of an Application and whoever asks for it.

use argosy_object::ResourceKey;

/// Is this a Namespace without which a cluster, or the control plane in `own_namespace`, cannot live?
#[must_use]
pub fn is_vital(key: &ResourceKey, own_namespace: &str) -> bool {
    let names = [
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        own_namespace,
    ];
    key.group.is_empty() && key.kind == "Namespace" && names.contains(&key.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_that_everything_needs_are_vital() {
        let vital = |group, kind, name| is_vital(&ResourceKey::new(group, kind, "", name), "argocd");
        for name in [
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
            "argocd",
        ] {
            assert!(vital("", "Namespace", name), "{name}");
        }
        assert!(!vital("", "Namespace", "shop"));
        assert!(!vital("", "ConfigMap", "default"));
        assert!(!vital("example.com", "Namespace", "default"));
    }
}
