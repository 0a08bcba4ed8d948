//! After an apply with `Strict=true`: what others have put beside what Git states goes.
//!
//! An apply leaves what is not its own, client-side and server-side, so it takes a patch of its own, made from what the object is then and bound to
//! that version of it.

use argosy_diff::FIELD_MANAGER;
use argosy_diff::patch::without_unstated;
use argosy_object::meta;
use serde_json::json;

use super::document::kubectl_name;
use super::{ATTEMPTS, Failure, Job, refused};

impl Job<'_> {
    /// Takes away what others have put beside what Git states, ignored fields aside; says whether there was anything.
    pub(super) async fn take_unstated(&self) -> Result<bool, Failure> {
        for _ in 0..ATTEMPTS {
            let Some(current) = self.get().await? else {
                return Ok(false);
            };
            let mut patch = without_unstated(
                self.desired,
                &current,
                &self.writer.ignored,
                &self.writer.cluster.schemas(),
                FIELD_MANAGER,
            );
            if patch.is_empty() {
                return Ok(false);
            }
            meta::set_field(
                &mut patch.content,
                &["metadata", "resourceVersion"],
                json!(meta::resource_version(&current)),
            );
            match self.send(&patch).await {
                Ok(written) => {
                    self.seen(written).await;
                    return Ok(true);
                }
                Err(error) if error.conflict() || error.not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(refused(format!(
            "{} keeps changing while what others have put beside it is taken away",
            kubectl_name(self.desired)
        )))
    }
}
