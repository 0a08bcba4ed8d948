//! What a cluster holds now.
//!
//! One writer feeds [`ClusterState`] with what lists and watches say; everyone else reads a [`Snapshot`], which is
//! taken in constant time, never changes, and never blocks the writer. Each change answers with [`Touched`]: which
//! Applications it concerns, found by walking from the object up its owners, never by looking through a cluster.
//!
//! | file | answers |
//! |---|---|
//! | [`resource`] | one live object as writers bring it and readers get it |
//! | [`row`] | what is kept of it |
//! | [`index`] | sorted sets of rows |
//! | [`cluster`] | how changes come in, and what they touch |
//! | [`relist`] | how a full list replaces what was known without a gap |
//! | [`audit`] | whether what is known is what the server has |
//! | [`ownership`] | who owns whom, also where no owner reference says so |
//! | [`placement`] | on which nodes Pods are, and what they ask of them |
//! | [`snapshot`] | reads |
//!
//! Three rules keep readers from acting on the past. A change that is older than what is held is dropped, whatever
//! connection it came over. So is one of an object that has gone since. And an incomplete list never deletes anything.

pub mod audit;
pub mod cluster;
mod index;
pub mod ownership;
pub mod placement;
pub mod relist;
pub mod resource;
mod row;
pub mod snapshot;

pub use audit::{Looked, Missed};
pub use cluster::{Change, ClusterState, Deletion, Event, Footprint, Touched, Update};
pub use placement::Asks;
pub use relist::Scope;
pub use resource::{Owner, Resource};
pub use snapshot::Snapshot;
