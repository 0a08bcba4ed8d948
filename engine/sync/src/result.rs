//! What has become of one resource in an operation; the entries of `syncResult.resources`.

use argosy_object::{ResourceKey, Value, meta};
use serde::{Deserialize, Serialize};

use crate::hook::HookType;
use crate::phase::{OperationPhase, Phase};

/// How the write of one resource ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ResultCode {
    /// Applied.
    Synced,
    /// Refused.
    SyncFailed,
    /// Deleted.
    Pruned,
    /// Should be deleted, and was not asked to be or may not be.
    PruneSkipped,
}

impl ResultCode {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ResultCode::Synced => "Synced",
            ResultCode::SyncFailed => "SyncFailed",
            ResultCode::Pruned => "Pruned",
            ResultCode::PruneSkipped => "PruneSkipped",
        }
    }

    /// Reads the name on the wire.
    pub fn parse(text: &str) -> Option<Self> {
        [
            ResultCode::Synced,
            ResultCode::SyncFailed,
            ResultCode::Pruned,
            ResultCode::PruneSkipped,
        ]
        .into_iter()
        .find(|code| code.as_str() == text)
    }
}

/// The result of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceResult {
    /// The resource.
    pub key: ResourceKey,
    /// Its API version without the group.
    pub version: String,
    /// How the write ended; `None` before it.
    pub status: Option<ResultCode>,
    /// The last text about it: what the write said, then what its health says.
    pub message: String,
    /// Set for hooks: the moment at which this one ran.
    pub hook: Option<HookType>,
    /// The state of the task. Also set for resources that are no hooks: `Running` until healthy.
    pub phase: Option<OperationPhase>,
    /// The phase of the sync it belongs to.
    pub sync_phase: Phase,
    /// Images of its containers.
    pub images: Vec<String>,
}

/// The images of the containers of a Pod, of anything with a pod template, or of a CronJob, as written.
pub fn images(object: &Value) -> Vec<String> {
    let places: [&[&str]; 3] = [
        &["spec", "containers"],
        &["spec", "template", "spec", "containers"],
        &["spec", "jobTemplate", "spec", "template", "spec", "containers"],
    ];
    let containers = places
        .iter()
        .find_map(|path| meta::field(object, path).and_then(Value::as_array));
    containers
        .into_iter()
        .flatten()
        .filter_map(|container| container.get("image")?.as_str())
        .map(str::to_owned)
        .collect()
}
