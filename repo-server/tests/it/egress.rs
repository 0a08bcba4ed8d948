//! SEC-SSRF: nothing that a repository, an index, a registry or a redirect names makes the repo-server call a host that
//! the operator has not allowed. The trap lies on another address of this machine and counts who comes.

use argosy_api::v1alpha1::{ApplicationSource, ApplicationSourceHelm, Repository};

use crate::render::{Fixture, request};
use crate::support::{Http, Repo, answer, config_map, git, http_backend, pack};

/// Where a metadata service or a neighbour would be.
const TRAP: &str = "127.0.0.2:0";

async fn trap() -> Http {
    Http::start_at(TRAP, None, |_| answer(200, config_map("trap", "caught"))).await
}

/// Only this very address is allowed, and directories.
fn fixture() -> Fixture {
    Fixture::with(|args| args.allow_inner_hosts = vec!["127.0.0.1".into(), "file://".into()])
}

fn calls(trap: &Http) -> usize {
    trap.seen.lock().unwrap().len()
}

fn chart(values: &str) -> Repo {
    Repo::with(&[
        ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        ("values.yaml", values),
        ("templates/a.yaml", &config_map("a", "{{ .Values.a }}")),
    ])
}

#[tokio::test]
async fn a_kustomization_cannot_make_us_call_inner_addresses() {
    let (fixture, trap) = (fixture(), trap().await);
    let at = trap.address;
    for resource in [
        format!("http://{at}/latest/meta-data.yaml"),
        format!("http://{at}/org/repo.git//base?ref=main"),
        format!("git::http://{at}/org/repo.git//base"),
        format!("http://[::ffff:127.0.0.2]:{}/a.yaml", at.port()),
        format!("http://2130706434:{}/a.yaml", at.port()),
        "file:///etc//x?ref=main".to_owned(),
    ] {
        let repo = Repo::with(&[("kustomization.yaml", &format!("resources:\n- {resource:?}\n"))]);
        let source = ApplicationSource {
            path: ".".into(),
            ..ApplicationSource::default()
        };
        let error = fixture.render(&request(&repo, source)).await.unwrap_err();
        assert_eq!(calls(&trap), 0, "{resource}: {error}");
    }
}

#[tokio::test]
async fn a_redirect_to_an_inner_address_is_not_followed() {
    let (fixture, trap) = (fixture(), trap().await);
    let to = format!("http://{}/values.yaml", trap.address);
    let outside = Http::start(None, move |_| {
        (302, vec![("Location".into(), to.clone())], Vec::new())
    })
    .await;
    let repo = chart("a: b\n");
    let source = ApplicationSource {
        path: ".".into(),
        helm: Some(ApplicationSourceHelm {
            value_files: vec![format!("http://{}/values.yaml", outside.address)],
            ..ApplicationSourceHelm::default()
        }),
        ..ApplicationSource::default()
    };
    let error = fixture.render(&request(&repo, source)).await.unwrap_err();
    assert_eq!(calls(&trap), 0, "{error}");
    assert!(error.to_string().contains("redirect"), "{error}");
}

#[tokio::test]
async fn an_index_cannot_send_us_to_an_inner_address_nor_our_credentials_elsewhere() {
    let (fixture, trap) = (fixture(), trap().await);
    let index = format!(
        "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n    urls: ['http://{}/web.tgz']\n",
        trap.address
    );
    let charts = Http::start(None, move |_| answer(200, index.clone())).await;
    let mut request = request(&Repo::with(&[("a", "")]), ApplicationSource::default());
    request.repo = Repository {
        repo: format!("http://{}", charts.address),
        r#type: "helm".into(),
        username: "user".into(),
        password: "canary-password".into(),
        ..Repository::default()
    };
    request.source.chart = "web".into();
    request.source.target_revision = "1.0.0".into();
    let error = fixture.render(&request).await.unwrap_err();
    assert_eq!(calls(&trap), 0, "{error}");
    assert!(!error.to_string().contains("canary-password"), "{error}");
}

#[tokio::test]
async fn a_dependency_cannot_name_an_inner_repository_that_nobody_configured() {
    let (fixture, trap) = (fixture(), trap().await);
    let repo = Repo::with(&[
        (
            "Chart.yaml",
            &format!(
                "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- name: sub\n  version: 1.0.0\n  repository: \"http://{}\"\n",
                trap.address
            ),
        ),
        ("templates/a.yaml", &config_map("a", "b")),
    ]);
    let source = ApplicationSource {
        path: ".".into(),
        ..ApplicationSource::default()
    };
    let error = fixture.render(&request(&repo, source)).await.unwrap_err();
    assert_eq!(calls(&trap), 0, "{error}");
    assert!(error.to_string().contains("inner network"), "{error}");
}

#[tokio::test]
async fn a_registry_cannot_have_its_tokens_fetched_from_an_inner_address() {
    let (fixture, trap) = (fixture(), trap().await);
    let realm = format!("Bearer realm=\"http://{}/token\",service=\"x\"", trap.address);
    let registry = Http::start(None, move |_| {
        (401, vec![("WWW-Authenticate".into(), realm.clone())], Vec::new())
    })
    .await;
    let mut request = request(&Repo::with(&[("a", "")]), ApplicationSource::default());
    request.repo = Repository {
        repo: format!("oci://{}/charts", registry.address),
        r#type: "helm".into(),
        enable_oci: true,
        insecure_oci_force_http: true,
        username: "user".into(),
        password: "canary-password".into(),
        ..Repository::default()
    };
    request.source.chart = "web".into();
    request.source.target_revision = "1.0.0".into();
    let error = fixture.render(&request).await.unwrap_err();
    assert_eq!(calls(&trap), 0, "{error}");
}

#[tokio::test]
async fn a_submodule_cannot_name_an_inner_repository() {
    let (fixture, trap) = (fixture(), trap().await);
    let inner = Repo::with(&[("b.yaml", &config_map("b", "c"))]);
    let repo = Repo::with(&[("a.yaml", &config_map("a", "b"))]);
    let sha = git(inner.path(), &["rev-parse", "HEAD"]);
    let modules = format!(
        "[submodule \"lib\"]\n\tpath = lib\n\turl = http://{}/lib.git\n",
        trap.address
    );
    std::fs::write(repo.path().join(".gitmodules"), modules).unwrap();
    let entry = format!("160000,{sha},lib");
    git(repo.path(), &["add", ".gitmodules"]);
    git(repo.path(), &["update-index", "--add", "--cacheinfo", &entry]);
    git(repo.path(), &["commit", "--quiet", "--message", "module"]);
    let source = ApplicationSource {
        path: ".".into(),
        ..ApplicationSource::default()
    };
    let error = fixture.render(&request(&repo, source)).await.unwrap_err();
    assert_eq!(calls(&trap), 0, "{error}");
    assert!(error.to_string().contains("inner network"), "{error}");
}

#[tokio::test]
async fn an_application_cannot_name_this_machine_unless_the_operator_allows_it() {
    let strict = Fixture::with(|args| args.allow_inner_hosts.clear());
    let trap = trap().await;
    let repo = Repo::with(&[("a.yaml", &config_map("a", "b"))]);
    for url in [
        format!("http://{}/org/repo", trap.address),
        format!("http://localhost:{}/org/repo", trap.address.port()),
        "http://169.254.169.254/latest".to_owned(),
        "ssh://git@127.0.0.1/org/repo".to_owned(),
        repo.url(),
    ] {
        let mut request = request(&repo, ApplicationSource::default());
        request.repo.repo.clone_from(&url);
        request.source.path = ".".into();
        let error = strict.render(&request).await.unwrap_err();
        assert_eq!(calls(&trap), 0, "{url}: {error}");
        assert!(error.to_string().contains("operator can allow"), "{url}: {error}");
    }
    // A proxy is for HTTP; over SSH we connect ourselves all the same.
    let mut request = request(&repo, ApplicationSource::default());
    request.repo.repo = "ssh://git@127.0.0.1/org/repo".into();
    request.repo.proxy = "http://proxy.example.com:3128".into();
    request.source.path = ".".into();
    let error = strict.render(&request).await.unwrap_err().to_string();
    assert!(error.contains("operator can allow"), "{error}");
}

#[tokio::test]
async fn a_repository_that_moved_is_followed_and_credentials_stay_with_their_origin() {
    let root = tempfile::tempdir().unwrap();
    let repo = Repo::with(&[("a.yaml", &config_map("a", "b"))]);
    let bare = root.path().join("new.git").display().to_string();
    git(root.path(), &["clone", "--quiet", "--bare", &repo.url(), &bare]);
    let served = root.path().to_owned();
    // The same machine by another origin: its port.
    let other = Http::start(None, move |seen| http_backend(&served, seen)).await;
    let to = other.address;
    let old = Http::start(None, move |seen| {
        let place = seen.path.replacen("/old.git", "/new.git", 1);
        let location = format!("http://{to}{place}?{}", seen.query);
        (301, vec![("Location".into(), location)], Vec::new())
    })
    .await;
    let mut request = request(&repo, ApplicationSource::default());
    request.source.path = ".".into();
    request.repo = Repository {
        repo: format!("http://{}/old.git", old.address),
        username: "user".into(),
        password: "canary-password".into(),
        force_http_basic_auth: true,
        ..Repository::default()
    };
    let objects = fixture().render(&request).await.unwrap();
    assert_eq!(objects.len(), 1);
    let seen = other.seen.lock().unwrap();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|seen| seen.basic().is_none()), "{seen:?}");
}

#[tokio::test]
async fn packed_charts_of_an_allowed_host_are_still_fetched() {
    let archive = pack(&[
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        ("web/templates/a.yaml", &config_map("a", "b")),
    ]);
    let charts = Http::start(None, move |seen| match seen.path.as_str() {
        "/index.yaml" => answer(
            200,
            "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n    urls: [web.tgz]\n",
        ),
        _ => answer(200, archive.clone()),
    })
    .await;
    let mut request = request(&Repo::with(&[("a", "")]), ApplicationSource::default());
    request.repo.repo = format!("http://{}", charts.address);
    request.repo.r#type = "helm".into();
    request.source.chart = "web".into();
    request.source.target_revision = "1.0.0".into();
    assert_eq!(fixture().render(&request).await.unwrap().len(), 1);
}
