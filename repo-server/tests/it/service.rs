//! The server through its client.

use std::sync::Arc;

use argosy_api::repository::{
    GitDirectoriesRequest, GitFilesRequest, ListAppsRequest, ListRefsRequest, ManifestRequest,
    RepoServerAppDetailsQuery, RepoServerRevisionMetadataRequest, ResolveRevisionRequest,
    TestRepositoryRequest, UpdateRevisionForPathsRequest,
};
use argosy_api::v1alpha1::{ApplicationSource, Repository};
use argosy_repo_client::{Class, Config, Error, RepoClient, Tls};
use argosy_repo_server::{Args, Server, local, start};
use argosy_runtime::tasks::Tasks;

use crate::charts::sha256;
use crate::render::CHART;
use crate::support::{PATIENCE, Repo, config_map, git, pack, render_worker};

pub(crate) struct Running {
    pub(crate) client: RepoClient,
    pub(crate) server: Server,
    tasks: Tasks,
    pub(crate) dir: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

pub(crate) async fn running(disable_tls: bool) -> Running {
    running_with(disable_tls, |_| {}).await
}

pub(crate) async fn running_with(disable_tls: bool, change: impl FnOnce(&mut Args)) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let mut args = local::defaults();
    args.allow_inner_hosts = vec!["file://".into(), "127.0.0.1".into()];
    args.render_child = Some(env!("CARGO_BIN_EXE_argosy-render-child").into());
    args.address = "127.0.0.1".parse().unwrap();
    args.port = 0;
    args.metrics_address = "127.0.0.1".parse().unwrap();
    args.metrics_port = 0;
    args.disable_tls = disable_tls;
    args.cache_dir = Some(dir.path().to_owned());
    args.render_worker = Some(render_worker());
    change(&mut args);
    let tasks = Tasks::new();
    let server = start(args, &tasks).await.unwrap();
    let tls = if disable_tls {
        Tls::Plaintext
    } else {
        Tls::default()
    };
    let config = Config {
        address: server.address.to_string(),
        tls,
        timeout: PATIENCE,
        ..Config::default()
    };
    Running {
        client: RepoClient::new(config).unwrap(),
        server,
        tasks,
        dir,
    }
}

impl Running {
    /// Ends the server.
    pub(crate) fn stop(&self) {
        self.tasks.stop();
    }

    /// What `/metrics` says now.
    pub(crate) async fn metrics(&self) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(self.server.metrics_address)
            .await
            .unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    /// The value of a counter with these labels, all samples together.
    pub(crate) async fn counter(&self, name: &str, label: &str) -> f64 {
        let text = self.metrics().await;
        let samples = text
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(label));
        samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

pub(crate) fn repository(repo: &Repo) -> Option<Repository> {
    Some(Repository {
        repo: repo.url(),
        ..Repository::default()
    })
}

pub(crate) fn manifests(repo: &Repo, path: &str) -> ManifestRequest {
    ManifestRequest {
        repo: repository(repo),
        application_source: Some(ApplicationSource {
            repo_url: repo.url(),
            path: path.into(),
            ..ApplicationSource::default()
        }),
        app_name: "shop".into(),
        namespace: "ns".into(),
        app_label_key: "app.kubernetes.io/instance".into(),
        tracking_method: "annotation".into(),
        ..ManifestRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_come_over_tls_with_a_certificate_that_nobody_knows() {
    let running = running(false).await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let answer = running
        .client
        .generate_manifest(manifests(&repo, "app"))
        .await
        .unwrap();
    assert_eq!(answer.source_type, "Directory");
    assert_eq!(answer.revision, git(repo.path(), &["rev-parse", "HEAD"]));
    assert!(
        answer.manifests[0].contains("shop:/ConfigMap:ns/a"),
        "{:?}",
        answer.manifests
    );

    let error = running
        .client
        .generate_manifest(manifests(&repo, "nope"))
        .await
        .unwrap_err();
    assert_eq!(error.message(), "nope: app path does not exist");
    assert_eq!(
        error.to_string(),
        "rpc error: code = Unknown desc = nope: app path does not exist"
    );
    assert_eq!(error.class(), Class::Stalled);

    let strict = Config {
        address: running.server.address.to_string(),
        tls: Tls::Strict {
            authority: Arc::default(),
            identity: None,
        },
        ..Config::default()
    };
    let error = RepoClient::new(strict)
        .unwrap()
        .generate_manifest(manifests(&repo, "app"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_described() {
    let running = running(true).await;
    let client = &running.client;
    let mut files = CHART.to_vec();
    let map = config_map("a", "1");
    files.extend([
        ("k/kustomization.yaml", "resources: [a.yaml]\nimages: []\n"),
        ("k/a.yaml", &map),
        (".hidden/x.yaml", "x"),
    ]);
    let repo = Repo::with(&files);
    let first = git(repo.path(), &["rev-parse", "HEAD"]);
    git(repo.path(), &["tag", "v1.0.0"]);

    assert!(
        client
            .test_repository(TestRepositoryRequest {
                repo: repository(&repo)
            })
            .await
            .unwrap()
            .verified_repository
    );
    let refs = client
        .list_refs(ListRefsRequest {
            repo: repository(&repo),
        })
        .await
        .unwrap();
    assert_eq!(
        (refs.branches, refs.tags),
        (vec!["main".to_owned()], vec!["v1.0.0".to_owned()])
    );

    let request = ResolveRevisionRequest {
        repo: repository(&repo),
        ambiguous_revision: "v1.x".into(),
        ..Default::default()
    };
    let resolved = client.resolve_revision(request).await.unwrap();
    assert_eq!(
        (resolved.revision.as_str(), resolved.ambiguous_revision),
        (first.as_str(), format!("v1.x ({first})"))
    );

    let request = RepoServerRevisionMetadataRequest {
        repo: repository(&repo),
        revision: first.clone(),
        ..Default::default()
    };
    let metadata = client.get_revision_metadata(request).await.unwrap();
    assert_eq!(
        (metadata.author.as_str(), metadata.message.as_str()),
        ("Ada <ada@example.com>", "change")
    );
    assert_eq!(metadata.tags, ["v1.0.0"]);

    let request = ListAppsRequest {
        repo: repository(&repo),
        revision: "main".into(),
        ..Default::default()
    };
    let mut apps: Vec<_> = client
        .list_apps(request)
        .await
        .unwrap()
        .apps
        .into_iter()
        .collect();
    apps.sort();
    assert_eq!(
        apps,
        [
            ("k".to_owned(), "Kustomize".to_owned()),
            ("web".to_owned(), "Helm".to_owned())
        ]
    );

    let request = GitDirectoriesRequest {
        repo: repository(&repo),
        revision: "main".into(),
        ..Default::default()
    };
    assert_eq!(
        client.get_git_directories(request).await.unwrap().paths,
        ["k", "web", "web/templates"]
    );
    let request = GitFilesRequest {
        repo: repository(&repo),
        revision: "main".into(),
        path: "**/*.yaml".into(),
        new_git_file_globbing_enabled: true,
        ..Default::default()
    };
    let mut found: Vec<String> = client
        .get_git_files(request)
        .await
        .unwrap()
        .map
        .into_keys()
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            ".hidden/x.yaml",
            "k/a.yaml",
            "k/kustomization.yaml",
            "web/Chart.yaml",
            "web/templates/cm.yaml",
            "web/values.yaml"
        ]
    );

    let query = |path: &str| RepoServerAppDetailsQuery {
        repo: repository(&repo),
        source: Some(ApplicationSource {
            repo_url: repo.url(),
            path: path.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let details = client.get_app_details(query("web")).await.unwrap();
    let helm = details.helm.unwrap();
    assert_eq!((details.r#type.as_str(), helm.name.as_str()), ("Helm", "web"));
    assert!(
        helm.parameters
            .iter()
            .any(|one| one.name == "text" && one.value == "chart")
    );
    assert_eq!(
        client.get_app_details(query("k")).await.unwrap().r#type,
        "Kustomize"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_elsewhere_is_none_for_the_paths_of_an_application() {
    let running = running(true).await;
    let repo = Repo::with(&[("app/a.yaml", "1"), ("other/b.yaml", "1")]);
    let synced = git(repo.path(), &["rev-parse", "HEAD"]);
    let ask = |paths: &[&str]| UpdateRevisionForPathsRequest {
        repo: repository(&repo),
        synced_revision: synced.clone(),
        revision: "main".into(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        no_revision_cache: true,
        ..Default::default()
    };
    let now = repo.commit(&[("other/b.yaml", "2")]);
    let answer = running
        .client
        .update_revision_for_paths(ask(&["app"]))
        .await
        .unwrap();
    assert_eq!((answer.changes, answer.revision), (false, now));
    assert!(
        running
            .client
            .update_revision_for_paths(ask(&["app", "/other/*.yaml"]))
            .await
            .unwrap()
            .changes
    );
    assert!(
        running
            .client
            .update_revision_for_paths(ask(&[]))
            .await
            .unwrap()
            .changes
    );
    // A branch that was written anew has no such commit any more.
    let gone = UpdateRevisionForPathsRequest {
        synced_revision: "0123456789".repeat(4),
        ..ask(&["app"])
    };
    assert!(
        running
            .client
            .update_revision_for_paths(gone)
            .await
            .unwrap()
            .changes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_carry_the_names_of_argo_cd() {
    let running = running(true).await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    running
        .client
        .generate_manifest(manifests(&repo, "app"))
        .await
        .unwrap();
    let text = running.metrics().await;
    for name in [
        "argocd_git_request_total{",
        "argocd_git_request_duration_seconds_bucket{",
        "argocd_repo_pending_request_total{",
        "request_type=\"ls-remote\"",
        "request_type=\"fetch\"",
    ] {
        assert!(text.contains(name), "{name} is missing in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_caller_still_has_is_told_by_its_digest() {
    let running = running(true).await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "b")), ("other", "1")]);
    let ask = |known: &str| ManifestRequest {
        repo: Some(Repository {
            repo: repo.url(),
            ..Repository::default()
        }),
        app_name: "web".into(),
        no_revision_cache: true,
        application_source: Some(ApplicationSource {
            path: "app".into(),
            ..ApplicationSource::default()
        }),
        known_digest: known.into(),
        ..ManifestRequest::default()
    };
    let first = running.client.generate_manifest(ask("")).await.unwrap();
    assert!(!first.unchanged && first.manifests.len() == 1 && first.digest.len() == 64);
    let commit = repo.commit(&[("other", "2")]);
    let again = running
        .client
        .generate_manifest(ask(&first.digest))
        .await
        .unwrap();
    assert!(again.unchanged && again.manifests.is_empty());
    assert_eq!((again.revision, &again.digest), (commit, &first.digest));
    repo.commit(&[("app/a.yaml", &config_map("a", "c"))]);
    let changed = running
        .client
        .generate_manifest(ask(&first.digest))
        .await
        .unwrap();
    assert!(!changed.unchanged && changed.manifests.len() == 1 && changed.digest != first.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_something_is_made_anew_at_each_commit_is_told() {
    let running = running(true).await;
    let random = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: {{ randAlphaNum 8 }}}\n";
    let repo = Repo::with(&[
        ("app/a.yaml", &config_map("a", "1")),
        ("open/Chart.yaml", CHART[0].1),
        ("open/templates/a.yaml", random),
    ]);
    for _ in 0..2 {
        let closed = running
            .client
            .generate_manifest(manifests(&repo, "app"))
            .await
            .unwrap();
        assert!(closed.open_inputs.is_empty(), "{:?}", closed.open_inputs);
        let open = running
            .client
            .generate_manifest(manifests(&repo, "open"))
            .await
            .unwrap();
        assert!(
            open.open_inputs[0].contains("randAlphaNum"),
            "{:?}",
            open.open_inputs
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_sent_along_are_rendered() {
    let running = running(true).await;
    let repo = Repo::with(&[("readme", "the source is not here")]);
    let archive = pack(&[
        (CHART[0].0, CHART[0].1),
        (CHART[1].0, "replicas: 1\ntext: mine\n"),
        CHART[2],
        ("k/kustomization.yaml", "resources: [a.yaml]\nnamePrefix: p-\n"),
        ("k/a.yaml", &config_map("a", "1")),
        ("plain/a.yaml", &config_map("a", "1")),
    ]);
    let checksum = sha256(&archive);
    let send = async |path: &str, checksum: &str| {
        let request = manifests(&repo, path);
        running
            .client
            .generate_manifest_with_files(request, archive.clone(), checksum.to_owned())
            .await
    };
    for (path, text) in [("web", "mine"), ("k", "p-a"), ("plain", "shop:/ConfigMap:ns/a")] {
        let answer = send(path, &checksum).await.unwrap();
        assert!(
            answer.manifests[0].contains(text),
            "{path}: {:?}",
            answer.manifests
        );
    }
    let error = send("plain", &checksum.replace(['1', '2'], "0"))
        .await
        .unwrap_err();
    assert!(error.message().contains("checksum"), "{error}");
    let error = send("../../etc", &checksum).await.unwrap_err();
    assert!(error.message().contains("outside root"), "{error}");
}
