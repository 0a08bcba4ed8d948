//! Argo CD's nouns and wire: the kinds it stores, the keys it puts on objects, the ConfigMaps and Secrets it reads, and
//! the gRPC of its repository server.
//!
//! Pure: no clock, no network, no YAML parser (callers hand one in). What is decided here is decided by the contract of
//! compatibility alone; what needs an engine is elsewhere.
//!
//! - [`v1alpha1`]: Application, AppProject, ApplicationSet and everything inside them; [`meta`] is what they borrow from
//!   Kubernetes, [`crd`] makes their CustomResourceDefinitions.

pub mod meta;
pub mod v1alpha1;
