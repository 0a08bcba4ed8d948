//! Charts from repositories and registries.

use std::collections::HashMap;
use std::sync::Arc;

use argosy_api::repository::RepoServerRevisionChartDetailsRequest;
use argosy_api::v1alpha1::{ApplicationSource, ApplicationSourceHelm, RepoCreds, Repository};
use argosy_repo_server::Error;
use argosy_repo_server::render::Request;

use crate::render::{CHART, Fixture, names, request};
use crate::service::running;
use crate::support::{Answer, Http, Repo, Seen, answer, pack};

pub(crate) fn sha256(data: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `web` in two versions, with a user and a password.
async fn repository(digest: Option<&str>) -> Http {
    let version = |version: &str, text: &str| {
        let chart = CHART[0].1.replace("1.2.3", version);
        let values = format!("replicas: 1\ntext: {text}\n");
        pack(&[(CHART[0].0, &chart), (CHART[1].0, &values), CHART[2]])
    };
    let archives: HashMap<String, Vec<u8>> = HashMap::from([
        ("/charts/web-1.2.3.tgz".to_owned(), version("1.2.3", "old")),
        ("/charts/web-1.10.0.tgz".to_owned(), version("1.10.0", "new")),
    ]);
    let entry = |version: &str| {
        let name = format!("web-{version}.tgz");
        let right = sha256(&archives[&format!("/charts/{name}")]);
        let digest = digest.unwrap_or(&right);
        format!(
            "  - name: web\n    version: {version}\n    urls: [{name}]\n    digest: {digest}\n    description: A web\n    \
             maintainers: [{{name: Ada, email: ada@example.com}}]\n"
        )
    };
    let index = format!(
        "apiVersion: v1\nentries:\n  web:\n{}{}",
        entry("1.10.0"),
        entry("1.2.3")
    );
    Http::start(None, move |seen| {
        if seen.basic().as_deref() != Some("ada:pass") {
            return answer(401, "who?");
        }
        match seen.path.as_str() {
            "/charts/index.yaml" => answer(200, index.clone()),
            path => archives
                .get(path)
                .map_or_else(|| answer(404, ""), |archive| answer(200, archive.clone())),
        }
    })
    .await
}

fn chart(server: &Http, version: &str) -> Request {
    let url = format!("http://{}/charts", server.address);
    let repo = Repository {
        repo: url.clone(),
        r#type: "helm".into(),
        username: "ada".into(),
        password: "pass".into(),
        ..Repository::default()
    };
    let source = ApplicationSource {
        repo_url: url,
        chart: "web".into(),
        target_revision: version.into(),
        ..ApplicationSource::default()
    };
    Request {
        repo,
        source,
        app_name: "shop".into(),
        namespace: "ns".into(),
        ..Request::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_is_found_by_version_or_range_and_downloaded_once() {
    let server = repository(None).await;
    let fixture = Fixture::new();
    for (wanted, version, text) in [
        ("1.2.3", "1.2.3", "old"),
        ("1.x", "1.10.0", "new"),
        ("~1.2", "1.2.3", "old"),
        // To Helm a version without its last part is a range.
        ("1.2", "1.2.3", "old"),
        ("1", "1.10.0", "new"),
        ("", "1.10.0", "new"),
    ] {
        let manifests = fixture.renderer.manifests(&chart(&server, wanted)).await.unwrap();
        assert_eq!(manifests.revision, version, "{wanted}");
        assert!(manifests.rendered.manifests[0].contains(text), "{wanted}");
    }
    let downloads = server
        .seen
        .lock()
        .unwrap()
        .iter()
        .filter(|seen| seen.path.ends_with(".tgz"))
        .count();
    assert_eq!(downloads, 2);
    let error = fixture.render(&chart(&server, "9.9.9")).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("chart \"web\" version \"9.9.9\" not found"),
        "{error}"
    );
    let error = fixture.render(&chart(&server, "^9")).await.unwrap_err();
    assert!(
        error.to_string().contains("invalid revision for chart"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_with_another_digest_than_its_index_says_is_refused() {
    let server = repository(Some(&"0".repeat(64))).await;
    let error = Fixture::new().render(&chart(&server, "1.2.3")).await.unwrap_err();
    assert!(error.to_string().contains("its digest is"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_stay_with_their_origin_unless_told_otherwise() {
    let archive = pack(&CHART);
    let elsewhere = Http::start(None, move |_| answer(200, archive.clone())).await;
    let target = format!("http://{}/web.tgz", elsewhere.address);
    let index = format!(
        "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.2.3\n    urls: [\"{target}\"]\n"
    );
    let server = Http::start(None, move |_| answer(200, index.clone())).await;
    let mut request = chart(&server, "1.2.3");
    assert!(Fixture::new().render(&request).await.is_ok());
    assert!(
        elsewhere
            .seen
            .lock()
            .unwrap()
            .iter()
            .all(|seen| !seen.headers.contains_key("authorization"))
    );
    request.source.helm = Some(ApplicationSourceHelm {
        pass_credentials: true,
        ..Default::default()
    });
    assert!(Fixture::new().render(&request).await.is_ok());
    assert_eq!(
        elsewhere.seen.lock().unwrap().last().unwrap().basic().as_deref(),
        Some("ada:pass")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_the_repository_lacks_is_fetched() {
    let server = repository(None).await;
    let url = format!("http://{}/charts", server.address);
    let chart = format!(
        "apiVersion: v2\nname: umbrella\nversion: 0.1.0\ndependencies:\n- name: web\n  version: ~1.2\n  repository: {url}\n"
    );
    let repo = Repo::with(&[("app/Chart.yaml", &chart)]);
    let mut request = request(
        &repo,
        ApplicationSource {
            path: "app".into(),
            ..ApplicationSource::default()
        },
    );
    let fixture = Fixture::new();
    let error = fixture.render(&request).await.unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error}");
    request.no_cache = true;
    request.repo_creds = vec![RepoCreds {
        url: format!("http://{}", server.address),
        username: "ada".into(),
        password: "pass".into(),
        ..RepoCreds::default()
    }];
    assert_eq!(
        names(&fixture.render(&request).await.unwrap()),
        ["ConfigMap/shop"]
    );
    request.permitted_repos = vec!["https://other.example.com/*".into()];
    let error = fixture.render(&request).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("are not permitted in project 'default'"),
        "{error}"
    );
}

/// A chart with dependencies, and who may fetch them.
fn umbrella(server: &Http, repo: &Repo) -> Request {
    let mut request = request(repo, ApplicationSource::default());
    request.source.path = "app".into();
    request.repo_creds = vec![RepoCreds {
        url: format!("http://{}", server.address),
        username: "ada".into(),
        password: "pass".into(),
        ..RepoCreds::default()
    }];
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_may_be_a_dependency_under_several_aliases() {
    let server = repository(None).await;
    let url = format!("http://{}/charts", server.address);
    let entry =
        |alias: &str| format!("- {{name: web, version: ~1.2, repository: \"{url}\", alias: {alias}}}\n");
    let chart = format!(
        "apiVersion: v2\nname: umbrella\nversion: 0.1.0\ndependencies:\n{}{}",
        entry("one"),
        entry("two")
    );
    let values = "one: {text: first}\ntwo: {text: second}\n";
    let repo = Repo::with(&[("app/Chart.yaml", &chart), ("app/values.yaml", values)]);
    let objects = Fixture::new().render(&umbrella(&server, &repo)).await.unwrap();
    let mut texts: Vec<&str> = objects
        .iter()
        .filter_map(|o| o["data"]["text"].as_str())
        .collect();
    texts.sort_unstable();
    assert_eq!(texts, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dependencies_are_those_of_the_lock() {
    let server = repository(None).await;
    let url = format!("http://{}/charts", server.address);
    let chart = format!(
        "apiVersion: v2\nname: umbrella\nversion: 0.1.0\ndependencies:\n- {{name: web, version: 1.x, repository: \"{url}\"}}\n"
    );
    // The digest as Helm makes it: of what Chart.yaml wants and what the lock has.
    let entry = |version: &str| serde_json::json!({"name": "web", "version": version, "repository": url});
    let both = format!(
        "[[{{\"name\":\"web\",\"version\":\"1.x\",\"repository\":\"{url}\"}}],[{{\"name\":\"web\",\"version\":\"1.2.3\",\"repository\":\"{url}\"}}]]"
    );
    let lock = format!(
        "dependencies: [{}]\ndigest: sha256:{}\ngenerated: \"2026-01-02T03:04:05Z\"\n",
        entry("1.2.3"),
        sha256(both.as_bytes())
    );
    let stale = lock.replace("1.2.3", "1.10.0");
    let fixture = Fixture::new();
    for (lock, text) in [
        (None, Some("new")),
        (Some(&lock), Some("old")),
        (Some(&stale), None),
    ] {
        let mut files = vec![("app/Chart.yaml", chart.as_str())];
        files.extend(lock.map(|lock| ("app/Chart.lock", lock.as_str())));
        let repo = Repo::with(&files);
        match (fixture.render(&umbrella(&server, &repo)).await, text) {
            (Ok(objects), Some(text)) => assert_eq!(objects[0]["data"]["text"], text),
            (Err(error), None) => assert!(
                error
                    .to_string()
                    .contains("the lock file (Chart.lock) is out of sync"),
                "{error}"
            ),
            (outcome, _) => panic!("{lock:?}: {outcome:?}"),
        }
    }
}

/// What a registry with one chart answers whoever may read it.
pub(crate) fn shelf() -> impl Fn(&Seen) -> Answer + Send + Sync + 'static {
    let archive = pack(&CHART);
    let config = b"{}".to_vec();
    let descriptor = |media: &str, data: &[u8]| serde_json::json!({"mediaType": media, "digest": format!("sha256:{}", sha256(data)), "size": data.len()});
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.cncf.helm.config.v1+json", &config),
        "layers": [descriptor("application/vnd.cncf.helm.chart.content.v1.tar+gzip", &archive)],
        "annotations": {
            "org.opencontainers.image.created": "2026-01-02T03:04:05Z",
            "org.opencontainers.image.authors": "Ada",
            "org.opencontainers.image.source": "https://example.com/web",
            "org.opencontainers.image.description": "A web",
        },
    })
    .to_string();
    let blobs: Arc<HashMap<String, Vec<u8>>> = Arc::new(HashMap::from([
        (
            format!("/v2/charts/web/blobs/sha256:{}", sha256(&archive)),
            archive,
        ),
        (format!("/v2/charts/web/blobs/sha256:{}", sha256(&config)), config),
    ]));
    move |seen: &Seen| {
        let kind = |kind: &str| vec![("Content-Type".to_owned(), kind.to_owned())];
        match seen.path.as_str() {
            "/v2/" => answer(200, "{}"),
            "/v2/charts/web/tags/list" => (
                200,
                kind("application/json"),
                br#"{"name":"charts/web","tags":["1.2.3","1.0.0","2.0.0-rc.1"]}"#.to_vec(),
            ),
            "/v2/charts/web/manifests/1.2.3" => (
                200,
                kind("application/vnd.oci.image.manifest.v1+json"),
                manifest.clone().into_bytes(),
            ),
            path => blobs
                .get(path)
                .map_or_else(|| answer(404, "{}"), |blob| answer(200, blob.clone())),
        }
    }
}

/// That registry, behind basic authentication.
async fn registry() -> Http {
    let shelf = shelf();
    Http::start(None, move |seen| match seen.basic().as_deref() {
        Some("ada:pass") => shelf(seen),
        _ => (
            401,
            vec![("WWW-Authenticate".into(), "Basic realm=\"registry\"".into())],
            Vec::new(),
        ),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_comes_from_a_registry_by_version_or_range() {
    let server = registry().await;
    let url = format!("{}/charts", server.address);
    let repo = Repository {
        repo: url.clone(),
        r#type: "helm".into(),
        enable_oci: true,
        insecure_oci_force_http: true,
        username: "ada".into(),
        password: "pass".into(),
        ..Repository::default()
    };
    let source = ApplicationSource {
        repo_url: url,
        chart: "web".into(),
        target_revision: "1.x".into(),
        ..Default::default()
    };
    let mut request = Request {
        repo,
        source,
        app_name: "shop".into(),
        ..Request::default()
    };
    let fixture = Fixture::new();
    let manifests = fixture.renderer.manifests(&request).await.unwrap();
    assert_eq!(manifests.revision, "1.2.3");
    assert!(manifests.rendered.manifests[0].contains("\"text\":\"chart\""));
    request.repo.password = "wrong".into();
    request.source.target_revision = "1.2.3".into();
    let error = Fixture::new().render(&request).await.unwrap_err();
    assert!(
        matches!(error, Error::Authentication { .. } | Error::Fetch { .. }),
        "{error}"
    );
    assert!(!error.to_string().contains("wrong"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_is_pulled_once_however_often_its_tag_is_asked_for() {
    let server = registry().await;
    let mut request = Request {
        repo: Repository {
            repo: format!("oci://{}/charts/web", server.address),
            r#type: "oci".into(),
            insecure_oci_force_http: true,
            username: "ada".into(),
            password: "pass".into(),
            ..Repository::default()
        },
        source: ApplicationSource {
            path: "web".into(),
            target_revision: "1.2.3".into(),
            ..Default::default()
        },
        app_name: "shop".into(),
        ..Request::default()
    };
    let asked = |what: &str| {
        let seen = server.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.basic().is_some() && seen.path.contains(what))
            .count()
    };
    let fixture = Fixture::new();
    let first = fixture.renderer.manifests(&request).await.unwrap();
    assert_eq!((asked("/manifests/"), asked("/blobs/")), (1, 1));
    for _ in 0..3 {
        assert_eq!(
            fixture.renderer.manifests(&request).await.unwrap().revision,
            first.revision
        );
    }
    assert_eq!(
        (asked("/manifests/"), asked("/blobs/")),
        (1, 1),
        "what a tag means is known for a while"
    );
    request.no_revision_cache = true;
    fixture.renderer.manifests(&request).await.unwrap();
    assert_eq!(
        (asked("/manifests/"), asked("/blobs/")),
        (2, 1),
        "it means the same as before"
    );
    // Somebody else's right to read it is asked for, whatever we have.
    request.repo.password = "wrong".into();
    assert!(fixture.renderer.manifests(&request).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn value_files_by_url_need_an_allowed_scheme() {
    let server = Http::start(None, |_| answer(200, "text: from the web\n")).await;
    let repo = Repo::with(&CHART);
    let source = |file: &str| ApplicationSource {
        path: "web".into(),
        helm: Some(ApplicationSourceHelm {
            value_files: vec![file.into()],
            ..Default::default()
        }),
        ..ApplicationSource::default()
    };
    let fixture = Fixture::new();
    let mut allowed = request(&repo, source(&format!("http://{}/v.yaml", server.address)));
    assert_eq!(
        fixture.render(&allowed).await.unwrap()[0]["data"]["text"],
        "from the web"
    );
    allowed.helm_options.values_file_schemes = vec!["https".into()];
    assert!(
        fixture
            .render(&allowed)
            .await
            .unwrap_err()
            .to_string()
            .contains("scheme 'http' is not allowed")
    );
    for file in ["file:///etc/passwd", "secrets://x"] {
        let error = fixture.render(&request(&repo, source(file))).await.unwrap_err();
        assert!(error.to_string().contains("is not allowed"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_says_about_itself_what_its_manifest_says() {
    let (server, running) = (registry().await, running(true).await);
    let request = RepoServerRevisionChartDetailsRequest {
        repo: Some(Repository {
            repo: format!("oci://{}/charts/web", server.address),
            r#type: "oci".into(),
            insecure_oci_force_http: true,
            username: "ada".into(),
            password: "pass".into(),
            ..Repository::default()
        }),
        revision: "1.2.3".into(),
        ..RepoServerRevisionChartDetailsRequest::default()
    };
    let found = running.client.get_oci_metadata(request).await.unwrap();
    assert_eq!(
        (
            found.created_at.as_str(),
            found.authors.as_str(),
            found.source_url.as_str(),
            found.description.as_str()
        ),
        ("2026-01-02T03:04:05Z", "Ada", "https://example.com/web", "A web")
    );
}
