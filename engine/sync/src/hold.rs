//! Deletions that a person should see first.
//!
//! A broken overlay, a wrong path, an empty folder: Git then wants most of an Application gone. A plan that deletes much is
//! carried out only once somebody has approved it, the way `Prune=confirm` is; a plan that deletes little is not held up.

use crate::options::Removal;
use crate::plan::{Action, Task};

/// When the deletions of a plan wait for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Plans that delete fewer objects than this are never held.
    pub at_least: usize,
    /// A plan that deletes more than so many of a hundred live resources is held.
    pub share: usize,
    /// A plan that deletes an object of one of these kinds is held: `Kind`, of any group.
    pub kinds: Vec<String>,
}

impl Default for Hold {
    fn default() -> Self {
        Hold {
            at_least: 10,
            share: 50,
            kinds: ["Namespace", "CustomResourceDefinition", "PersistentVolumeClaim"]
                .map(str::to_owned)
                .into(),
        }
    }
}

/// Makes every deletion wait for approval if there are too many of them; says why. `live` are the resources that the Application has, also
/// those that this sync is not about.
pub(crate) fn hold(tasks: &mut [Task], live: usize, hold: &Hold) -> Option<String> {
    let doomed = || tasks.iter().filter(|task| task.action == Action::Prune);
    let count = doomed().count();
    if count == 0 || count < hold.at_least {
        return None;
    }
    let of_kind = doomed().find(|task| hold.kinds.contains(&task.key.kind));
    let reason = if count * 100 > live * hold.share {
        format!("the sync would delete {count} of {live} resources")
    } else {
        format!(
            "the sync would delete {count} resources, {} among them",
            of_kind?.label()
        )
    };
    for task in tasks.iter_mut().filter(|task| task.action == Action::Prune) {
        task.options.prune = Removal::Confirm;
    }
    Some(reason)
}
