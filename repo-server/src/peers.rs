//! Who calls, by the certificate that a client shows, and which calls that lets it make.
//!
//! A certificate of the authority that carries the name of a component may make that component's calls and no others. One
//! without such a name is shared by all components, as Argo CD's own is by default, and may make all of them.

use rustls::pki_types::{CertificateDer, ServerName};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};

/// The components, by the names of their Services and Deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    Controller,
    Server,
    ApplicationSets,
    Notifications,
}

use Component::{ApplicationSets, Controller, Notifications, Server};

impl Component {
    const ALL: [Component; 4] = [Controller, Server, ApplicationSets, Notifications];

    /// The name in a certificate.
    fn name(self) -> &'static str {
        match self {
            Controller => "argocd-application-controller",
            Server => "argocd-server",
            ApplicationSets => "argocd-applicationset-controller",
            Notifications => "argocd-notifications-controller",
        }
    }
}

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

/// The components whose names a certificate carries.
fn components(certificate: &CertificateDer<'_>) -> Vec<Component> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let carries = |component: &Component| {
        let name = ServerName::try_from(component.name());
        name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    };
    Component::ALL.into_iter().filter(carries).collect()
}

/// Whether components, or who has a certificate without a component's name, may make a call of the service. Calls of other
/// services, such as that for health, are nobody's secret.
fn may(components: &[Component], path: &str) -> bool {
    let Some(method) = path.strip_prefix("/repository.RepoServerService/") else {
        return true;
    };
    let known = CALLS.iter().find(|(name, _)| *name == method);
    components.is_empty()
        || known.is_some_and(|(_, callers)| callers.iter().any(|caller| components.contains(caller)))
}

/// A service that looks at who calls before it answers.
#[derive(Clone)]
pub(crate) struct Authorised<S>(pub(crate) S);

impl<S, B, A> tower::Service<http::Request<B>> for Authorised<S>
where
    S: tower::Service<http::Request<B>, Response = http::Response<A>>,
    A: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = futures::future::Either<std::future::Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let connection = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>();
        let shown = connection.and_then(TlsConnectInfo::peer_certs);
        let path = request.uri().path();
        if let Some(certificate) = shown.as_ref().and_then(|shown| shown.first()) {
            let components = components(certificate);
            if !may(&components, path) {
                let names: Vec<&str> = components.iter().map(|component| component.name()).collect();
                let text = format!("{path} is not a call of {}", names.join(" or "));
                tracing::warn!(text, "a call was refused");
                let refused = Status::permission_denied(text).into_http();
                return futures::future::Either::Left(std::future::ready(Ok(refused)));
            }
        }
        futures::future::Either::Right(self.0.call(request))
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
    fn a_component_makes_its_own_calls_and_a_shared_certificate_all() {
        let path = |method: &str| format!("/repository.RepoServerService/{method}");
        for (components, method, allowed) in [
            (&[][..], "GenerateManifestWithFiles", true),
            (&[Controller][..], "GenerateManifest", true),
            (&[Controller][..], "GenerateManifestWithFiles", false),
            (&[ApplicationSets][..], "GenerateManifest", false),
            (&[ApplicationSets, Server][..], "GenerateManifest", true),
            (&[Notifications][..], "GetRevisionMetadata", true),
            (&[Server][..], "NoSuchCall", false),
        ] {
            assert_eq!(may(components, &path(method)), allowed, "{components:?} {method}");
        }
        assert!(may(&[Notifications], "/grpc.health.v1.Health/Check"));
    }

    #[test]
    fn a_certificate_says_who_it_is_for() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            components(made.cert.der())
        };
        assert_eq!(of(&["argocd-server"]), [Server]);
        assert_eq!(
            of(&["argocd-application-controller", "example.com"]),
            [Controller]
        );
        assert!(of(&["argocd"]).is_empty());
    }
}
