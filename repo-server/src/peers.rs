//! Which calls whose certificate lets who calls make.

use argosy_peers::Component::{self, ApplicationSets, Controller, Notifications, Server};
use argosy_peers::server::{Refusal, Shown};
use argosy_peers::{Callers, Mutual};
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;

/// Who makes which call: for its work the controller, for people the server, for its generators and messages the others.
const CALLS: &[(&str, &[Component])] = &[
    ("GenerateManifest", &[Controller, Server]),
    ("GenerateManifestWithFiles", &[Server]),
    ("TestRepository", &[Controller, Server]),
    ("ResolveRevision", &[Controller, Server]),
    ("ListRefs", &[Server]),
    ("ListOCITags", &[Server]),
    ("ListApps", &[Server]),
    ("ListPlugins", &[Server]),
    ("GetAppDetails", &[Server, Notifications]),
    ("GetRevisionMetadata", &[Controller, Server, Notifications]),
    ("GetOCIMetadata", &[Controller, Server, Notifications]),
    ("GetRevisionChartDetails", &[Controller, Server, Notifications]),
    ("GetHelmCharts", &[Server]),
    ("GetGitFiles", &[Server, ApplicationSets]),
    ("GetGitDirectories", &[Server, ApplicationSets]),
    ("UpdateRevisionForPaths", &[Controller, Server]),
];

/// The components that make a call of the service; nothing for calls of other services, such as that for health, which are
/// nobody's secret.
fn callers(path: &str) -> Option<&'static [Component]> {
    let method = path.strip_prefix("/repository.RepoServerService/")?;
    let known = CALLS.iter().find(|(name, _)| *name == method);
    Some(known.map_or(&[], |(_, callers)| callers))
}

/// Who may call.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) callers: Arc<Callers>,
    pub(crate) mutual: Mutual,
}

/// A service that looks at who calls before it answers.
#[derive(Clone)]
pub(crate) struct Authorised<S> {
    pub(crate) inner: S,
    /// Nothing where there is no TLS.
    pub(crate) gate: Option<Gate>,
}

impl<S, B, A> tower::Service<http::Request<B>> for Authorised<S>
where
    S: tower::Service<http::Request<B>, Response = http::Response<A>>,
    A: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = futures::future::Either<std::future::Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let refused = self.gate.as_ref().and_then(|gate| gate.refusal(&request));
        if let Some(status) = refused {
            tracing::warn!(
                path = request.uri().path(),
                why = status.message(),
                "a call was refused"
            );
            return futures::future::Either::Left(std::future::ready(Ok(status.into_http())));
        }
        futures::future::Either::Right(self.inner.call(request))
    }
}

impl Gate {
    fn refusal<B>(&self, request: &http::Request<B>) -> Option<Status> {
        let path = request.uri().path();
        let callers = callers(path)?;
        let shown = request.extensions().get::<Shown>();
        let caller = self.callers.who(shown.map_or(&[], Shown::certificates));
        Some(match caller.refusal(self.mutual, callers)? {
            Refusal::Unknown(why) => Status::unauthenticated(why),
            Refusal::NotTheirs(who) => Status::permission_denied(format!("{path} is not a call of {who}")),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_call_of_the_service_has_its_callers() {
        let proto = include_str!("../../api/proto/repository/repository.proto");
        let mut calls: Vec<&str> = proto
            .lines()
            .filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next())
            .collect();
        let mut known: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
        calls.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, calls);
    }

    #[test]
    fn a_call_that_nobody_knows_is_nobodys_and_health_is_everybodys() {
        assert_eq!(callers("/repository.RepoServerService/NoSuchCall"), Some(&[][..]));
        assert_eq!(callers("/grpc.health.v1.Health/Check"), None);
    }
}
