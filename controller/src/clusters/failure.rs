//! What is not known of a cluster, and why.

use argosy_object::GroupKind;
use jiff::Timestamp;

/// A kind of which not everything is known: absence of its objects means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindFailure {
    /// The kind.
    pub kind: GroupKind,
    /// The namespace concerned; empty for all.
    pub namespace: String,
    /// What the server said.
    pub message: String,
    /// What that comes down to; nothing while it is being listed for the first time.
    pub cause: Option<Cause>,
    /// Since when.
    pub since: Timestamp,
    /// Whether it was known completely before.
    pub listed: bool,
    /// The account may not list the kind, and the settings say that such kinds are to be left out (`resource.respectRBAC`): a fault
    /// for those who want its objects, and none of the cluster.
    pub left_out: bool,
}

/// Why a kind cannot be followed, in one of few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The account may not list or watch it.
    Forbidden,
    /// It is not served any more.
    NotServed,
    /// The server refuses for another reason: a conversion webhook that is down, for one.
    Refused,
    /// The server is not reached, or does not answer.
    Unreachable,
    /// What it answers cannot be read.
    Unreadable,
}

impl Cause {
    /// What an error comes down to.
    pub(crate) fn of(error: &argosy_kube_io::Error) -> Self {
        use argosy_kube_io::Error;
        match error {
            _ if error.forbidden() || error.unauthorized() => Cause::Forbidden,
            _ if error.kind_unknown() => Cause::NotServed,
            Error::Answer { .. } => Cause::Unreadable,
            _ if error.status().is_some() => Cause::Refused,
            _ => Cause::Unreachable,
        }
    }

    /// The word, as metrics have it.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Forbidden => "forbidden",
            Cause::NotServed => "not_served",
            Cause::Refused => "refused",
            Cause::Unreachable => "unreachable",
            Cause::Unreadable => "unreadable",
        }
    }
}

impl KindFailure {
    /// Why and since when, in a few words.
    pub fn reason(&self) -> String {
        format!("{} (since {:.0})", self.message, self.since)
    }
}
