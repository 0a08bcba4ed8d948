//! One file a subcommand.

pub(crate) mod account;
pub(crate) mod action;
pub(crate) mod admin;
pub(crate) mod app;
pub(crate) mod appset;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod health;
pub(crate) mod login;
pub(crate) mod plan;
pub(crate) mod proj;
pub(crate) mod render;
pub(crate) mod repo;
pub(crate) mod shards;

mod compared;
