//! Who looks after which cluster.
//!
//! [`assignment`] is the pure part: clusters and the number of shards in, a shard for each cluster out, by the same
//! three algorithms and with the same answers as Argo CD, so that shards of both can stand side by side. [`own`] reads
//! which shard this process is.

pub mod assignment;
pub mod own;
