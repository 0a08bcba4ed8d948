//! Who the components are to each other: certificates of one authority, shown and verified on both sides of a connection.
//!
//! | module | answers |
//! |---|---|
//! | [`authority`] | what certificates there should be today (pure but for the keys) |
//! | [`live`] | what this process shows and believes now; it may change while connections stand |
//! | [`server`] | connections accepted with it, and who called |
//! | [`client`] | connections made with it |
//! | [`files`] | the same from mounted files, read again when they change |
//!
//! Who calls is looked at for each call and not when the connection is made: then an authority that comes, changes or goes
//! counts at once, and who is refused hears why. A server asks every client for a certificate and takes any, or none.

pub mod authority;
pub mod client;
pub mod files;
pub mod live;
pub mod server;

use std::fmt;
use std::str::FromStr;

pub use live::{Identity, Live, Material};
pub use server::{Caller, Callers};

/// What cannot be used, or not be made.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub(crate) String);

/// The components, by the names of their Services and Deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The application controller.
    Controller,
    /// The API server.
    Server,
    /// The repo-server.
    RepoServer,
    /// The ApplicationSet controller.
    ApplicationSets,
    /// The notifications controller.
    Notifications,
}

impl Component {
    /// All of them.
    pub const ALL: [Component; 5] = [
        Component::Controller,
        Component::Server,
        Component::RepoServer,
        Component::ApplicationSets,
        Component::Notifications,
    ];

    /// The name in a certificate.
    pub fn name(self) -> &'static str {
        match self {
            Component::Controller => "argocd-application-controller",
            Component::Server => "argocd-server",
            Component::RepoServer => "argocd-repo-server",
            Component::ApplicationSets => "argocd-applicationset-controller",
            Component::Notifications => "argocd-notifications-controller",
        }
    }
}

/// Whether callers have to say who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutual {
    /// Who shows no certificate of the authority is refused, once there is an authority.
    #[default]
    Required,
    /// Who shows one is held to its component; who shows none may make every call.
    Optional,
    /// Nobody is asked, and no certificates are made.
    Off,
}

impl FromStr for Mutual {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "required" => Ok(Mutual::Required),
            "optional" => Ok(Mutual::Optional),
            "off" => Ok(Mutual::Off),
            _ => Err(format!("{text:?} is not required, optional or off")),
        }
    }
}

impl fmt::Display for Mutual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mutual::Required => "required",
            Mutual::Optional => "optional",
            Mutual::Off => "off",
        })
    }
}
