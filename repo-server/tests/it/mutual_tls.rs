//! Mutual TLS: the repo-server has an authority, each client a certificate; either may come and change while both run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::repository::ListRefsRequest;
use argosy_peers::{Component, Live, Material, Mutual};
use argosy_repo_client::{Config, Error, Flags, RepoClient, Tls};
use argosy_runtime::tasks::Tasks;
use tonic::Code;

use crate::service::{Running, manifests, repository, running_with};
use crate::support::{Authority, PATIENCE, Repo, config_map};

fn material(authority: Option<&Authority>, identity: Option<(String, String)>) -> Material {
    Material {
        identity: identity.map(|(certificate, key)| (certificate.into_bytes(), key.into_bytes())),
        authority: authority.map(|authority| authority.ca.clone().into_bytes()),
    }
}

/// A client that shows, and believes, what is there when it connects.
fn client_of(running: &Running, live: &Arc<Live>) -> RepoClient {
    RepoClient::new(Config {
        address: running.server.address.to_string(),
        tls: Tls::Component {
            authority: live.clone(),
            identity: live.clone(),
            component: Component::RepoServer,
        },
        ..Config::default()
    })
    .unwrap()
}

/// A client of a running repo-server that shows a certificate, or none.
fn client(running: &Running, identity: Option<(String, String)>) -> RepoClient {
    client_of(running, &Live::of(material(None, identity)).unwrap())
}

fn is_refused<T>(answer: &Result<T, Error>) -> bool {
    matches!(
        answer,
        Err(Error::Call {
            code: Code::Unauthenticated,
            ..
        })
    )
}

/// As a mounted Secret changes: a file is the old one or the new one.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_the_certificate_of_a_file_believes_the_kept_authority() {
    let made = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("client.crt"), dir.path().join("client.key"));
    std::fs::write(&certificate, &made.client.0).unwrap();
    std::fs::write(&key, &made.client.1).unwrap();
    let flags = Flags {
        address: "argocd-repo-server:8081".into(),
        plaintext: false,
        strict: false,
        authority: None,
        usual_authority: "/no/such/ca.crt",
        certificate,
        key,
        timeout: Duration::from_secs(60),
    };
    let kept = Live::of(material(Some(&made), None)).unwrap();
    let tasks = Tasks::new();
    let config = flags.config(&tasks, &kept).unwrap();
    let Tls::Component {
        authority, identity, ..
    } = config.tls
    else {
        panic!("the way is not that to a component");
    };
    assert!(authority.knows_an_authority() && identity.shows_an_identity());
    tasks.stop();
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
        let answer = render(&client(&running, identity)).await;
        assert!(is_refused(&answer), "{answer:?}");
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
            retry_after: None,
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

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_none_is_served_where_certificates_are_optional_and_nobody_is_asked_where_they_are_off() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client-ca.crt");
    std::fs::write(&path, &authority.ca).unwrap();
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let sets = authority.issue_client("argocd-applicationset-controller");
    for (mutual, of_another) in [(Mutual::Optional, false), (Mutual::Off, true)] {
        let path = path.clone();
        let running = running_with(false, |args| {
            args.client_ca_path = path;
            args.mutual_tls = mutual;
        })
        .await;
        let nobody = client(&running, None);
        assert!(nobody.generate_manifest(manifests(&repo, "app")).await.is_ok());
        let another = client(&running, Some(sets.clone()));
        let answer = another.generate_manifest(manifests(&repo, "app")).await;
        assert_eq!(answer.is_ok(), of_another, "{mutual}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_come_and_change_while_both_sides_run_and_no_call_fails() {
    let (first, second) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let (tls, mtls) = (dir.path().join("tls"), dir.path().join("mtls"));
    for dir in [&tls, &mtls] {
        std::fs::create_dir(dir).unwrap();
    }
    let ca = mtls.join("client-ca.crt");
    let running = running_with(false, |args| {
        args.tls_path.clone_from(&tls);
        args.client_ca_path.clone_from(&ca);
    })
    .await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let render = async |client: &RepoClient| client.generate_manifest(manifests(&repo, "app")).await;
    let name = "argocd-application-controller";

    // Nothing is there yet, and who has a certificate already shows it.
    let live = Live::of(material(None, Some(first.issue_client(name)))).unwrap();
    let (ours, nobody) = (client_of(&running, &live), client(&running, None));
    render(&ours).await.unwrap();
    render(&nobody).await.unwrap();

    // The authority comes: the connection that stands goes on, who shows nothing is refused on his.
    put(&ca, &first.ca);
    let until = tokio::time::Instant::now() + PATIENCE;
    while !is_refused(&render(&nobody).await) {
        render(&ours).await.unwrap();
        assert!(
            tokio::time::Instant::now() < until,
            "nobody is served all the time"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    render(&ours).await.unwrap();

    // The repo-server gets a certificate of its own: who insists on one is served from then on.
    let strict = RepoClient::new(Config {
        address: format!("localhost:{}", running.server.address.port()),
        tls: Tls::Strict {
            authority: Live::of(material(Some(&first), None)).unwrap(),
            identity: Some(live.clone()),
        },
        ..Config::default()
    })
    .unwrap();
    assert!(render(&strict).await.is_err());
    let (certificate, key) = first.server();
    put(&tls.join("tls.key"), &key);
    put(&tls.join("tls.crt"), &certificate);
    let until = tokio::time::Instant::now() + PATIENCE;
    while let Err(error) = render(&strict).await {
        assert!(tokio::time::Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    render(&ours).await.unwrap();

    // Another authority joins, then the client changes over, then the old one goes.
    put(&ca, &format!("{}{}", first.ca, second.ca));
    let probe = client(&running, Some(second.issue_client(name)));
    let until = tokio::time::Instant::now() + PATIENCE;
    while let Err(error) = render(&probe).await {
        assert!(tokio::time::Instant::now() < until, "{error}");
        render(&ours).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    live.set(material(None, Some(second.issue_client(name)))).unwrap();
    render(&ours).await.unwrap();
    put(&ca, &second.ca);
    let old = client(&running, Some(first.issue_client(name)));
    let until = tokio::time::Instant::now() + PATIENCE;
    while !is_refused(&render(&old).await) {
        render(&ours).await.unwrap();
        assert!(
            tokio::time::Instant::now() < until,
            "the old authority counts all the time"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    render(&ours).await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "--client-ca-path: there is no folder for /no/such/client-ca.crt")]
async fn an_authority_that_is_named_and_not_there_is_no_reason_to_serve_anybody() {
    running_with(false, |args| {
        args.client_ca_path = "/no/such/client-ca.crt".into()
    })
    .await;
}
