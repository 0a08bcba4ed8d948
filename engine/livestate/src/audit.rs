//! Whether what is known is what the server has.

use argosy_object::ResourceKey;

use crate::cluster::ClusterState;
use crate::relist::Scope;
use crate::resource::is_older;

/// What a look at the server has told of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// At this version. Everything up to it is to have been told before this is compared with what is known.
    pub at: String,
    /// So many objects there were.
    pub count: Option<u64>,
    /// Objects that were there, or went, at these versions.
    pub seen: Vec<(ResourceKey, String)>,
    /// Objects that were there and are not known, with their uids.
    pub strangers: Vec<(ResourceKey, String)>,
}

/// A change that was not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Of this object.
    Of(ResourceKey),
    /// Objects came or went: so many are known.
    Count(u64),
}

impl ClusterState {
    /// What was missed, if anything was. Of objects that were seen and are not known only those tell something that were there
    /// at the version of the look, and of which it is not known that they have gone since: where as many come as go, the count
    /// does not tell.
    pub fn missed(&mut self, scope: &Scope, looked: &Looked) -> Option<Missed> {
        let behind = looked
            .seen
            .iter()
            .find(|(key, version)| self.view.is_behind(key, version));
        if let Some((key, _)) = behind {
            return Some(Missed::Of(key.clone()));
        }
        let stranger = looked
            .strangers
            .iter()
            .find(|(key, uid)| self.is_stranger(key, uid));
        if let Some((key, _)) = stranger {
            return Some(Missed::Of(key.clone()));
        }
        let count = looked.count?;
        if self.expects_deletions(scope) {
            return None;
        }
        let known = self.count_at(scope, &looked.at)?;
        (count != known).then_some(Missed::Count(known))
    }

    /// How many objects of the scope are known, to be compared with a count of the server at this version. `None` if
    /// something newer is known already (an answer to a write of ours), so that the two cannot be compared.
    fn count_at(&self, scope: &Scope, resource_version: &str) -> Option<u64> {
        let mut count = 0;
        for id in self.view.of_kind(&scope.kind) {
            let row = self.view.row(id);
            if !scope.covers(row) {
                continue;
            }
            if is_older(resource_version, &row.document.resource_version()) {
                return None;
            }
            count += 1;
        }
        Some(count)
    }
}
