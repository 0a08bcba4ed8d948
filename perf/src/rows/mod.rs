//! The rows, one file each. A new row is a file here and a line in [`rows!`]: its `Args` are the row's arguments, its
//! `run` measures and prints.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::report::Report;

/// What every row gets.
pub(crate) struct Context {
    /// The `argosy` program to measure.
    pub(crate) program: PathBuf,
    /// A command to be measured beside it.
    pub(crate) peer: Option<String>,
    /// Where figures go.
    pub(crate) report: Report,
}

macro_rules! rows {
    ($($(#[doc = $about:literal])+ $variant:ident = $module:ident;)+) => {
        $(mod $module;)+

        #[derive(Subcommand)]
        pub(crate) enum Row {
            $($(#[doc = $about])+ $variant($module::Args),)+
        }

        impl Row {
            pub(crate) async fn run(&self, context: &Context) -> Result<()> {
                match self {
                    $(Row::$variant(args) => $module::run(args, context).await,)+
                }
            }
        }
    };
}

rows! {
    /// Applications of 20 plain resources each on one real kube-apiserver: from nothing to all Synced, then a refresh of all.
    OneCluster = one_cluster;
    /// One comparison of desired and live: never seen, changed, unchanged.
    Diff = diff;
    /// The commits of a repository, one after another, with an Application for each leaf: renders against the exact closure.
    Monorepo = monorepo;
    /// Manifests that are rendered already, from two repo-servers: whole answers, and answers that the caller still has.
    CacheHit = cache_hit;
    /// Sources that nobody has rendered yet, by class: requests a CPU second of the repo-server and its workers.
    Render = render;
    /// One commit after another of a large repository: what it touches, and the files of one Application.
    GitStep = git_step;
    /// Many callers at once for the same and for nearly the same, and a repository that takes half of all calls.
    Herd = herd;
    /// Bytes an object of live state at rest, over the population M1, in this process.
    Memory = memory;
    /// One cluster from nothing to known, from the bytes of its lists, in this process.
    ColdSync = cold_sync;
    /// Status updates of Pods a CPU second, in this process.
    Events = events;
    /// One more small cluster in live state, in this process.
    MarginalCluster = marginal_cluster;
    /// From an event to the Applications concerned, beside readers and a relist, in this process.
    Latency = latency;
    /// Lists and watches of the API server for people who see one percent of 10,000 Applications.
    List = list;
    /// 10,000 Applications of one ConfigMap each in which nothing has changed, and the same beside ten times the objects.
    Refresh = refresh;
    /// Simulated clusters in which nothing happens, an hour of them in less time, in this process.
    Idle = idle;
    /// CustomResourceDefinitions that nobody should write, while a controller runs: what it grows by.
    Definitions = definitions;
    /// One of ten shards is lost, in virtual time: clusters that move, balance, time without an owner.
    Failover = failover;
}
