//! Who looks after which cluster, and proof of it.
//!
//! | module | answers |
//! |---|---|
//! | [`object`] | what stands in the store: leases of shards, records of clusters |
//! | [`wire`] | the same as `coordination.k8s.io/v1` Leases |
//! | [`node`] | one process's part of the protocol: state, event and time in; state and effects out |
//! | [`balance`] | which shard each cluster should be on |
//! | [`timing`] | how long what may take |
//! | [`assignment`], [`own`] | Argo CD's way: a fixed number of shards that know their own |
//!
//! Everything is pure: no clock, no network, no chance. The controller does the effects for real, the simulation and the
//! model checker do them in virtual time.
//!
//! # Why no two shards write to one cluster
//! A shard is an [`object::Incarnation`]: one unbroken hold of its lease. It owns a cluster if the cluster's record names
//! that very incarnation. Only the owner gives a record away while its incarnation lasts; others may once it is *over*,
//! which is a fact in the store: the lease was marked over by a write that named the version which had not changed for
//! longer than its holder may write. No incarnation comes again: a lease that was deleted is made anew under a higher term.
//! Both that it owns and that it is over are believed of the store itself, not of a watch, which may tell of the past.
//! Clocks matter in one place: the holder stops by itself, in time, on its own monotonic clock.

pub mod assignment;
pub mod balance;
pub mod node;
pub mod object;
pub mod own;
pub mod timing;
pub mod wire;
