//! The services, one file a noun. Every handler reads: who is calling, what the gate says, what the table has.

mod account;
mod application;
mod application_set;
mod certificate;
mod cluster;
mod gpg_key;
mod notification;
mod project;
mod repo_creds;
mod repository;
mod session;
mod settings;
mod version;

use std::sync::Arc;

use argosy_api::meta::ObjectMeta;
use argosy_repo_client::RepoClient;
use argosy_runtime::clock::Clock;
use jiff::Timestamp;

use crate::auth::Authenticator;
use crate::auth::limiter::Limiter;
use crate::auth::password::Passwords;
use crate::gate::Gate;
use crate::live::Live;
use crate::state::ControlPlane;
use crate::targets::Targets;

pub(crate) use repository::ConnectionStates;

/// What people set for this process.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Replace is allowed in syncs.
    pub replace_allowed: bool,
    /// Nobody is asked who they are.
    pub auth_disabled: bool,
}

/// All services. One a process, shared.
pub(crate) struct Api {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) auth: Arc<Authenticator>,
    pub(crate) passwords: Passwords,
    pub(crate) limiter: Limiter,
    /// Logins that may be looked at at the same time.
    pub(crate) logins: tokio::sync::Semaphore,
    /// Logins that were refused and do not know yet.
    pub(crate) refusals: tokio::sync::Semaphore,
    /// Uploads of files that may be held at the same time.
    pub(crate) uploads: tokio::sync::Semaphore,
    pub(crate) repo: RepoClient,
    pub(crate) connections: ConnectionStates,
    pub(crate) live: Arc<Live>,
    pub(crate) targets: Targets,
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Api {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Labels and annotations of an upsert: what is sent counts, and what others have put beside it stays.
fn add_marks(stored: &mut ObjectMeta, sent: &ObjectMeta) {
    stored.labels.extend(sent.labels.clone());
    stored.annotations.extend(sent.annotations.clone());
}
