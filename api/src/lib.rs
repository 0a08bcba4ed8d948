//! Argo CD's nouns and wire: the kinds it stores, the keys it puts on objects, the ConfigMaps and Secrets it reads, and
//! the gRPC of its repository server.
//!
//! Pure: no clock, no network, no YAML parser (callers hand one in). What is decided here is decided by the contract of
//! compatibility alone; what needs an engine is elsewhere.
//!
//! - Nouns: [`v1alpha1`] holds Application, AppProject, ApplicationSet and everything inside them, [`meta`] what they
//!   borrow from Kubernetes, [`crd`] their definitions.
//! - Keys on objects: [`annotation`], [`finalizer`], [`condition`], and [`tracking`], which says whose a resource is.
//! - What operators configure: [`settings`] (`argocd-cm`), [`cluster_secret`], [`repository_secret`].
//! - What a project permits: [`project`]; what it demands of sources: [`integrity`]. Sources that refer to each other: [`refs`].
//! - Wire: [`repository`] is the gRPC of the repository server, [`services`] that of the API server, which hands on [`events`].
//! - Small languages that all of these use: [`duration`], [`glob`], [`git_url`].

pub mod annotation;
pub mod cluster_secret;
pub mod condition;
pub mod crd;
pub mod duration;
pub mod events;
pub mod finalizer;
pub mod git_url;
pub mod glob;
pub mod integrity;
pub mod meta;
pub mod project;
pub mod refs;
pub mod repository;
pub mod repository_secret;
pub mod services;
pub mod settings;
pub mod sync_window;
pub mod tracking;
pub mod v1alpha1;

pub use crd::crds;
