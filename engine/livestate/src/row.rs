//! What a cluster holds of one object: its document and the few facts that indexes need without opening it.

use std::sync::Arc;

use argosy_object::{Document, Name, intern};

use crate::index::token;
use crate::resource::Resource;

/// The number of a kind within a cluster.
pub(crate) type KindId = u16;

/// 40 bytes besides the document.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) document: Document,
    pub(crate) app: Option<Name>,
    /// Token of the uid.
    pub(crate) uid: u64,
    pub(crate) owners: Owners,
    /// Token of the namespace, 0 if it has none.
    pub(crate) namespace: u32,
    pub(crate) kind: KindId,
}

/// Tokens of the owners' uids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owners {
    None,
    One(u64),
    /// Rare, and one word here instead of two.
    Many(Arc<Vec<u64>>),
}

impl Owners {
    pub(crate) fn tokens(&self) -> &[u64] {
        match self {
            Owners::None => &[],
            Owners::One(owner) => std::slice::from_ref(owner),
            Owners::Many(owners) => owners,
        }
    }
}

impl Row {
    pub(crate) fn new(resource: &Resource, kind: KindId) -> Self {
        let owners = match &*resource.owners {
            [] => Owners::None,
            [owner] => Owners::One(token(&*owner.uid)),
            owners => Owners::Many(Arc::new(owners.iter().map(|owner| token(&*owner.uid)).collect())),
        };
        Row {
            document: resource.document.clone(),
            app: resource.app.clone(),
            uid: token(&*resource.uid),
            owners,
            namespace: namespace_token(&resource.key.namespace),
            kind,
        }
    }

    /// An owner is in the namespace of what it owns, or in none. References that say otherwise are not believed: they would
    /// let one tenant's object appear under another's.
    pub(crate) fn may_own(&self, child: &Row) -> bool {
        self.namespace == 0 || self.namespace == child.namespace
    }

    /// By what it is found among its kind.
    pub(crate) fn kind_token(&self) -> u64 {
        kind_token(self.kind, self.namespace)
    }

    pub(crate) fn key_token(&self) -> u64 {
        key_token(self.kind, self.namespace, self.document.name())
    }
}

/// Kind above, namespace below, so that the rows of a kind stand together.
pub(crate) fn kind_token(kind: KindId, namespace: u32) -> u64 {
    u64::from(kind) << 48 | u64::from(namespace >> 16) << 32
}

pub(crate) fn key_token(kind: KindId, namespace: u32, name: &str) -> u64 {
    token(&(kind, namespace, name))
}

pub(crate) fn namespace_token(namespace: &str) -> u32 {
    if namespace.is_empty() {
        return 0;
    }
    ((token(namespace) >> 32) as u32).max(1)
}

/// The name of an Application as rows keep it.
pub(crate) fn app_name(app: Option<Arc<str>>) -> Option<Name> {
    app.map(|app| intern(&app))
}
