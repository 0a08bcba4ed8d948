//! One file a subcommand.

pub(crate) mod action;
pub(crate) mod app;
pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod health;
pub(crate) mod listed;
pub(crate) mod login;
pub(crate) mod plan;
pub(crate) mod render;
pub(crate) mod shards;

mod compared;
