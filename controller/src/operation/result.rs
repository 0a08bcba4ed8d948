//! Results between the engine and the Application.

use argosy_api::v1alpha1;
use argosy_object::ResourceKey;
use argosy_sync::{ResourceResult, ResultCode};

/// As an entry of `syncResult.resources`.
pub(super) fn to_api(result: &ResourceResult) -> v1alpha1::ResourceResult {
    v1alpha1::ResourceResult {
        group: result.key.group.clone(),
        version: result.version.clone(),
        kind: result.key.kind.clone(),
        namespace: result.key.namespace.clone(),
        name: result.key.name.clone(),
        status: result
            .status
            .map(|status| status.as_str().to_owned())
            .unwrap_or_default(),
        message: result.message.clone(),
        hook_type: result
            .hook
            .map(|hook| hook.as_str().to_owned())
            .unwrap_or_default(),
        hook_phase: result
            .phase
            .map(|phase| phase.as_str().to_owned())
            .unwrap_or_default(),
        sync_phase: result.sync_phase.as_str().to_owned(),
        images: result.images.clone(),
    }
}

/// Out of an entry of `syncResult.resources`. An entry without a phase of a sync is none of a sync's.
pub(super) fn from_api(result: &v1alpha1::ResourceResult) -> Option<ResourceResult> {
    Some(ResourceResult {
        key: ResourceKey::new(&*result.group, &*result.kind, &*result.namespace, &*result.name),
        version: result.version.clone(),
        status: ResultCode::parse(&result.status),
        message: result.message.clone(),
        hook: result.hook_type.parse().ok(),
        phase: result.hook_phase.parse().ok(),
        sync_phase: result.sync_phase.parse().ok()?,
        images: result.images.clone(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_sync::hook::HookType;
    use argosy_sync::{OperationPhase, Phase};

    use super::*;

    #[test]
    fn a_result_comes_back_as_it_was_written() {
        let result = ResourceResult {
            key: ResourceKey::new("batch", "Job", "shop", "migrate"),
            version: "v1".into(),
            status: Some(ResultCode::Synced),
            message: "job.batch/migrate created".into(),
            hook: Some(HookType::PreSync),
            phase: Some(OperationPhase::Running),
            sync_phase: Phase::PreSync,
            images: vec!["busybox:1".into()],
        };
        let written = to_api(&result);
        assert_eq!(
            (
                written.hook_type.as_str(),
                written.hook_phase.as_str(),
                written.status.as_str()
            ),
            ("PreSync", "Running", "Synced")
        );
        assert_eq!(from_api(&written).unwrap(), result);
    }
}
