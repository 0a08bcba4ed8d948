//! Which kinds go before which inside one wave.

/// Kinds in the order in which they are applied: what others need comes first.
const KINDS: [&str; 35] = [
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
];

/// The place of a kind in the order of application, lower first. Every kind that is not in the list has the same,
/// last place. The group does not count.
pub fn kind_rank(kind: &str) -> u32 {
    KINDS
        .iter()
        .position(|known| *known == kind)
        .unwrap_or(KINDS.len()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first_and_unknown_kinds_come_last_together() {
        let order = [
            "Namespace",
            "ServiceAccount",
            "CustomResourceDefinition",
            "Service",
            "Deployment",
            "Ingress",
            "APIService",
            "Widget",
        ];
        assert!(
            order
                .windows(2)
                .all(|pair| kind_rank(pair[0]) < kind_rank(pair[1]))
        );
        assert_eq!(kind_rank("Widget"), kind_rank("Gadget"));
    }
}
