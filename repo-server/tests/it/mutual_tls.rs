//! Mutual TLS, set up as for Argo CD: the repo-server has an authority, each client a certificate.

use argosy_api::repository::ListRefsRequest;
use argosy_repo_client::{Config, Error, RepoClient, Tls};
use tonic::Code;

use crate::service::{Running, manifests, repository, running_with};
use crate::support::{Authority, Repo, config_map};

/// A client of a running repo-server that shows a certificate, or none.
fn client(running: &Running, identity: Option<(String, String)>) -> RepoClient {
    let tls = match identity {
        Some((certificate, key)) => Tls::UnverifiedAs {
            identity: (certificate.into_bytes(), key.into_bytes()),
        },
        None => Tls::Unverified,
    };
    RepoClient::new(Config {
        address: running.server.address.to_string(),
        tls,
        ..Config::default()
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_mtls_who_calls_is_known_by_a_certificate_and_makes_its_own_calls_alone() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client-ca.crt");
    std::fs::write(&path, &authority.ca).unwrap();
    let running = running_with(false, |args| args.client_ca_path = path).await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let render = async |client: &RepoClient| client.generate_manifest(manifests(&repo, "app")).await;
    let refs = ListRefsRequest {
        repo: repository(&repo),
    };

    // None, and one of somebody else's authority.
    for identity in [None, Some(Authority::new().client)] {
        // The connection ends before there is a call, or at the first one.
        let error = render(&client(&running, identity)).await.unwrap_err();
        let broken = [Code::Unknown, Code::Cancelled];
        assert!(
            match &error {
                Error::Call { code, .. } => broken.contains(code),
                other => matches!(other, Error::Connect { .. }),
            },
            "{error:?}"
        );
    }
    // One that names no component, as Argo CD shares one.
    let shared = client(&running, Some(authority.client.clone()));
    assert!(render(&shared).await.is_ok() && shared.list_refs(refs.clone()).await.is_ok());

    let controller = client(
        &running,
        Some(authority.issue_client("argocd-application-controller")),
    );
    assert!(render(&controller).await.is_ok());
    let error = controller.list_refs(refs.clone()).await.unwrap_err();
    assert_eq!(
        error,
        Error::Call {
            code: Code::PermissionDenied,
            message: "/repository.RepoServerService/ListRefs is not a call of argocd-application-controller"
                .into(),
        }
    );
    let server = client(&running, Some(authority.issue_client("argocd-server")));
    assert!(server.list_refs(refs).await.is_ok());
    let sets = client(
        &running,
        Some(authority.issue_client("argocd-applicationset-controller")),
    );
    assert!(render(&sets).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_no_hindrance_where_nobody_asks_for_one() {
    let running = running_with(false, |_| {}).await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    for identity in [None, Some(Authority::new().client)] {
        let client = client(&running, identity);
        assert!(client.generate_manifest(manifests(&repo, "app")).await.is_ok());
    }
}

#[tokio::test]
#[should_panic(expected = "--client-ca-path: there is no /no/such/client-ca.crt")]
async fn an_authority_that_is_named_and_not_there_is_no_reason_to_serve_anybody() {
    running_with(false, |args| {
        args.client_ca_path = "/no/such/client-ca.crt".into()
    })
    .await;
}
