//! Sources of every kind become manifests.

use std::path::Path;
use std::sync::Arc;

use argosy_api::v1alpha1::{
    ApplicationSource, ApplicationSourceDirectory, ApplicationSourceHelm, ApplicationSourceJsonnet,
    ApplicationSourceKustomize, HelmParameter, JsonnetVar, RefTarget, Repository,
};
use argosy_repo_server::local::{self, Files, LocalRequest, default_tracking};
use argosy_repo_server::metrics::Metrics;
use argosy_repo_server::render::{Renderer, Request};
use argosy_repo_server::{Error, Result};
use serde_json::Value;

use crate::support::{Repo, config_map, git, render_worker};

pub(crate) struct Fixture {
    pub(crate) renderer: Arc<Renderer>,
    dir: std::path::PathBuf,
    /// Held until the fixture goes.
    #[allow(dead_code)]
    temporary: Option<tempfile::TempDir>,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut argosy_repo_server::Args)) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let mut fixture = Fixture::in_dir(dir.path(), change);
        fixture.temporary = Some(dir);
        fixture
    }

    /// With its caches in a directory that may outlive it.
    pub(crate) fn at(dir: &Path) -> Fixture {
        Fixture::in_dir(dir, |_| {})
    }

    pub(crate) fn in_dir(dir: &Path, change: impl FnOnce(&mut argosy_repo_server::Args)) -> Fixture {
        let mut args = local::defaults();
        args.render_worker = Some(render_worker());
        args.render_child = Some(env!("CARGO_BIN_EXE_argosy-render-child").into());
        args.allow_inner_hosts = ["file://", "127.0.0.0/8", "localhost", "::1"]
            .map(str::to_owned)
            .to_vec();
        change(&mut args);
        let renderer = argosy_repo_server::renderer(&args, dir, Metrics::default()).unwrap();
        Fixture {
            renderer: Arc::new(renderer),
            dir: dir.to_owned(),
            temporary: None,
        }
    }

    /// Where its caches are.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Private files of work that is over, of which there should be none.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        for dir in ["scratch", "git", "charts", "trees"] {
            for entry in std::fs::read_dir(self.dir.join(dir))
                .into_iter()
                .flatten()
                .flatten()
            {
                let name = entry.file_name().to_string_lossy().into_owned();
                if dir == "scratch" && !name.starts_with("gpg-") || name.starts_with('.') {
                    found.push(format!("{dir}/{name}"));
                }
            }
        }
        found
    }

    pub(crate) async fn render(&self, request: &Request) -> Result<Vec<Value>> {
        let manifests = self.renderer.manifests(request).await?;
        Ok(manifests
            .rendered
            .manifests
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect())
    }
}

pub(crate) fn request(repo: &Repo, source: ApplicationSource) -> Request {
    Request {
        repo: Repository {
            repo: repo.url(),
            ..Repository::default()
        },
        app_name: "shop".into(),
        namespace: "shop-ns".into(),
        project: "default".into(),
        source: ApplicationSource {
            repo_url: repo.url(),
            ..source
        },
        tracking: Some(default_tracking()),
        kube_version: "1.34.0".into(),
        no_revision_cache: true,
        ..Request::default()
    }
}

pub(crate) fn at(path: &str) -> ApplicationSource {
    ApplicationSource {
        path: path.into(),
        ..ApplicationSource::default()
    }
}

pub(crate) fn names(objects: &[Value]) -> Vec<String> {
    objects
        .iter()
        .map(|o| {
            format!(
                "{}/{}",
                o["kind"].as_str().unwrap(),
                o["metadata"]["name"].as_str().unwrap()
            )
        })
        .collect()
}

pub(crate) const CHART: [(&str, &str); 3] = [
    (
        "web/Chart.yaml",
        "apiVersion: v2\nname: web\nversion: 1.2.3\ndescription: A web\n",
    ),
    ("web/values.yaml", "replicas: 1\ntext: chart\n"),
    (
        "web/templates/cm.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n  namespace: {{ .Release.Namespace }}\n\
         data:\n  text: {{ .Values.text | quote }}\n  replicas: {{ .Values.replicas | quote }}\n  kube: {{ .Capabilities.KubeVersion.Version }}\n",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_gives_its_objects_with_tracking() {
    let repo = Repo::with(&[
        (
            "app/a.yaml",
            &format!("{}---\n{}", config_map("a", "1"), config_map("b", "2")),
        ),
        (
            "app/list.json",
            r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c"}}]}"#,
        ),
        (
            "app/crd.yaml",
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: x.example.com\n",
        ),
        ("app/sub/d.yaml", &config_map("d", "4")),
        ("app/README.md", "# no manifest"),
    ]);
    let fixture = Fixture::new();
    let objects = fixture.render(&request(&repo, at("app"))).await.unwrap();
    assert_eq!(
        names(&objects),
        [
            "ConfigMap/a",
            "ConfigMap/b",
            "CustomResourceDefinition/x.example.com",
            "Secret/c"
        ]
    );
    let id = |o: &Value| o["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"].clone();
    assert_eq!(id(&objects[0]), "shop:/ConfigMap:shop-ns/a");
    assert_eq!(
        id(&objects[2]),
        Value::Null,
        "a CustomResourceDefinition is not marked"
    );
    let recurse = ApplicationSourceDirectory {
        recurse: true,
        ..ApplicationSourceDirectory::default()
    };
    let source = ApplicationSource {
        directory: Some(recurse),
        ..at("app")
    };
    let objects = fixture.render(&request(&repo, source)).await.unwrap();
    assert_eq!(objects.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_refused_in_the_words_of_argo_cd() {
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let fixture = Fixture::new();
    for (path, text) in [
        ("nope", "nope: app path does not exist"),
        ("app/a.yaml", "app/a.yaml: app path is not a directory"),
        ("/app", "/app: app path is absolute"),
        ("../app", "../app: app path outside root"),
    ] {
        let error = fixture.render(&request(&repo, at(path))).await.unwrap_err();
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_manifest_is_named_with_file_and_line() {
    let repo = Repo::with(&[(
        "app/x.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n bad\n",
    )]);
    let error = Fixture::new()
        .render(&request(&repo, at("app")))
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("failed to parse app/x.yaml line "),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn links_inside_the_repository_work_and_a_canary_outside_is_never_seen() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary.yaml");
    std::fs::write(&canary, config_map("canary", "C4N4RY")).unwrap();
    let link = |repo: &Repo, target: &Path, at: &str| {
        let at = repo.path().join(at);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, at).unwrap();
    };
    let fixture = Fixture::new();

    let repo = Repo::with(&[("shared/s.yaml", &config_map("s", "1"))]);
    link(&repo, Path::new("../shared/s.yaml"), "app/s.yaml");
    repo.commit(&[]);
    assert_eq!(
        names(&fixture.render(&request(&repo, at("app"))).await.unwrap()),
        ["ConfigMap/s"]
    );

    let up = format!(
        "{}{}",
        "../".repeat(12),
        canary.strip_prefix("/").unwrap().display()
    );
    for target in [canary.as_path(), Path::new(&up), Path::new("/proc/self/environ")] {
        let repo = Repo::with(&[("app/ok.yaml", &config_map("ok", "1"))]);
        link(&repo, target, "app/evil.yaml");
        repo.commit(&[]);
        let error = fixture.render(&request(&repo, at("app"))).await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("out-of-bounds symlinks. file: app/evil.yaml"),
            "{error}"
        );

        // As a value file, a Kustomize resource and a Jsonnet import.
        let repo = Repo::with(&CHART);
        link(&repo, target, "web/values-evil.yaml");
        repo.commit(&[]);
        let helm = ApplicationSourceHelm {
            value_files: vec!["values-evil.yaml".into()],
            ..Default::default()
        };
        let source = ApplicationSource {
            helm: Some(helm),
            ..at("web")
        };
        let error = fixture.render(&request(&repo, source)).await.unwrap_err();
        assert!(!error.to_string().contains("C4N4RY"), "{error}");

        let repo = Repo::with(&[("k/kustomization.yaml", "resources: [evil.yaml]\n")]);
        link(&repo, target, "k/evil.yaml");
        repo.commit(&[]);
        let error = fixture.render(&request(&repo, at("k"))).await.unwrap_err();
        assert!(!error.to_string().contains("C4N4RY"), "{error}");
    }

    // Without a link: paths that climb.
    for text in [
        format!("resources: [{up}]\n"),
        format!("resources: [{}]\n", canary.display()),
    ] {
        let repo = Repo::with(&[("k/kustomization.yaml", &text)]);
        let outcome = fixture.render(&request(&repo, at("k"))).await;
        assert!(
            outcome.is_err() && !format!("{outcome:?}").contains("C4N4RY"),
            "{outcome:?}"
        );
    }
    for text in [
        format!("importstr '{up}'"),
        format!("importstr '{}'", canary.display()),
    ] {
        let repo = Repo::with(&[("j/a.jsonnet", &text)]);
        let outcome = fixture.render(&request(&repo, at("j"))).await;
        assert!(
            outcome.is_err() && !format!("{outcome:?}").contains("C4N4RY"),
            "{outcome:?}"
        );
    }
    for file in [up, canary.display().to_string()] {
        let repo = Repo::with(&CHART);
        let helm = ApplicationSourceHelm {
            value_files: vec![file],
            ..Default::default()
        };
        let source = ApplicationSource {
            helm: Some(helm),
            ..at("web")
        };
        let outcome = fixture.render(&request(&repo, source)).await;
        assert!(
            outcome.is_err() && !format!("{outcome:?}").contains("C4N4RY"),
            "{outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jsonnet_gets_variables_libraries_and_a_budget() {
    let repo = Repo::with(&[
        (
            "app/main.jsonnet",
            "local lib = import 'lib.libsonnet'; function(env) [lib.cm('a', env), lib.cm('b', std.extVar('app'))]",
        ),
        (
            "vendor/lib.libsonnet",
            "{cm(name, value):: {apiVersion: 'v1', kind: 'ConfigMap', metadata: {name: name}, data: {v: value}}}",
        ),
        (
            "loop/main.jsonnet",
            "local f(n) = if n < 0 then 0 else f(n + 1) tailstrict; f(0)",
        ),
        (
            "big/main.jsonnet",
            "std.length(std.join('', std.makeArray(100000000, function(i) 'xxxxxxxxxxxxxxxxxxxx' + i)))",
        ),
        ("bad/main.jsonnet", "{\n  a: error 'no luck',\n}"),
    ]);
    let variable = |name: &str, value: &str| JsonnetVar {
        name: name.into(),
        value: value.into(),
        code: false,
    };
    let jsonnet = ApplicationSourceJsonnet {
        ext_vars: vec![variable("app", "$ARGOCD_APP_NAME")],
        tlas: vec![variable("env", "prod")],
        libs: vec!["vendor".into()],
    };
    let directory = ApplicationSourceDirectory {
        jsonnet,
        ..ApplicationSourceDirectory::default()
    };
    let source = |path: &str| ApplicationSource {
        directory: Some(directory.clone()),
        ..at(path)
    };
    let fixture = Fixture::with(|args| args.exec_timeout = std::time::Duration::from_secs(15));
    let objects = fixture.render(&request(&repo, source("app"))).await.unwrap();
    assert_eq!(names(&objects), ["ConfigMap/a", "ConfigMap/b"]);
    assert_eq!(
        (&objects[0]["data"]["v"], &objects[1]["data"]["v"]),
        (&"prod".into(), &"shop".into())
    );
    let error = fixture.render(&request(&repo, source("bad"))).await.unwrap_err();
    assert!(
        error.to_string().contains("bad/main.jsonnet:2: ") && error.to_string().contains("no luck"),
        "{error}"
    );
    for path in ["loop", "big"] {
        let error = fixture.render(&request(&repo, source(path))).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Deadline { .. } | Error::Limit { .. } | Error::Render { .. }
            ),
            "{path}: {error:?}"
        );
    }
    // The others are not hurt.
    assert!(fixture.render(&request(&repo, source("app"))).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_takes_values_in_order_and_the_build_environment() {
    let mut files = CHART.to_vec();
    files.push(("web/values-prod.yaml", "text: prod\nreplicas: 2\n"));
    files.push(("env/values.yaml", "replicas: 7\n"));
    let repo = Repo::with(&files);
    let fixture = Fixture::new();
    let helm = ApplicationSourceHelm {
        value_files: vec![
            "values-prod.yaml".into(),
            "../env/values.yaml".into(),
            "missing.yaml".into(),
        ],
        ignore_missing_value_files: true,
        parameters: vec![HelmParameter {
            name: "text".into(),
            value: "$ARGOCD_APP_NAME-x".into(),
            force_string: true,
        }],
        ..ApplicationSourceHelm::default()
    };
    let source = ApplicationSource {
        helm: Some(helm.clone()),
        ..at("web")
    };
    let objects = fixture.render(&request(&repo, source)).await.unwrap();
    assert_eq!(names(&objects), ["ConfigMap/shop"]);
    assert_eq!(objects[0]["metadata"]["namespace"], "shop-ns");
    assert_eq!(
        objects[0]["data"],
        serde_json::json!({"text": "shop-x", "replicas": "7", "kube": "v1.34.0"})
    );

    let helm = ApplicationSourceHelm {
        ignore_missing_value_files: false,
        ..helm
    };
    let source = ApplicationSource {
        helm: Some(helm),
        ..at("web")
    };
    let error = fixture.render(&request(&repo, source)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "helm template: open web/missing.yaml: no such file or directory"
    );

    let manifests = fixture
        .renderer
        .manifests(&request(&repo, at("web")))
        .await
        .unwrap();
    assert_eq!(manifests.rendered.source_type.as_str(), "Helm");
    assert_eq!(
        manifests.rendered.commands,
        ["helm template . --name-template shop --namespace shop-ns --kube-version 1.34.0 --include-crds"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn value_files_come_from_another_source_by_its_ref() {
    let repo = Repo::with(&CHART);
    let values = Repo::with(&[("shop/values.yaml", "text: elsewhere\n")]);
    let helm = ApplicationSourceHelm {
        value_files: vec!["$values/shop/values.yaml".into()],
        ..Default::default()
    };
    let source = ApplicationSource {
        helm: Some(helm),
        ..at("web")
    };
    let mut request = request(&repo, source);
    request.multiple_sources = true;
    request.ref_sources.insert(
        "$values".into(),
        RefTarget {
            repo: Repository {
                repo: values.url(),
                ..Repository::default()
            },
            target_revision: "main".into(),
            chart: String::new(),
        },
    );
    let fixture = Fixture::new();
    let objects = fixture.render(&request).await.unwrap();
    assert_eq!(objects[0]["data"]["text"], "elsewhere");
    values.commit(&[("shop/values.yaml", "text: changed\n")]);
    let objects = fixture.render(&request).await.unwrap();
    assert_eq!(
        objects[0]["data"]["text"], "changed",
        "a change of the ref alone is seen"
    );
    request.ref_sources.clear();
    assert!(
        fixture
            .render(&request)
            .await
            .unwrap_err()
            .to_string()
            .contains("$values")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_is_edited_and_built_with_its_bases() {
    let repo = Repo::with(&[
        ("k/base/kustomization.yaml", "resources: [d.yaml]\n"),
        (
            "k/base/d.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 1\n  selector:\n    matchLabels: {a: b}\n\
             \x20 template:\n    metadata:\n      labels: {a: b}\n    spec:\n      containers:\n      - name: c\n        image: nginx:1\n",
        ),
        (
            "k/prod/kustomization.yaml",
            "resources: [../base]\nnamePrefix: p-\n",
        ),
    ]);
    let kustomize = ApplicationSourceKustomize {
        images: vec!["nginx=registry.example.com/nginx:$ARGOCD_APP_REVISION_SHORT".into()],
        name_suffix: "-s".into(),
        namespace: "here".into(),
        ..ApplicationSourceKustomize::default()
    };
    let source = ApplicationSource {
        kustomize: Some(kustomize),
        ..at("k/prod")
    };
    let fixture = Fixture::new();
    let objects = fixture.render(&request(&repo, source)).await.unwrap();
    assert_eq!(names(&objects), ["Deployment/p-d-s"]);
    assert_eq!(objects[0]["metadata"]["namespace"], "here");
    let sha = git(repo.path(), &["rev-parse", "HEAD"]);
    assert_eq!(
        objects[0]["spec"]["template"]["spec"]["containers"][0]["image"],
        format!("registry.example.com/nginx:{}", &sha[..7])
    );
    let error = fixture
        .render(&request(
            &Repo::with(&[("k/kustomization.yaml", "resources: [nope.yaml]\n")]),
            at("k"),
        ))
        .await;
    assert!(error.unwrap_err().to_string().contains("nope.yaml"));
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_beside_the_manifests_override_the_source() {
    let mut files = CHART.to_vec();
    files.push((
        "web/.argocd-source.yaml",
        "helm:\n  parameters:\n  - name: text\n    value: all\n",
    ));
    files.push((
        "web/.argocd-source-shop.yaml",
        "path: elsewhere\nhelm:\n  parameters:\n  - name: text\n    value: shop only\n",
    ));
    let repo = Repo::with(&files);
    let fixture = Fixture::new();
    let objects = fixture.render(&request(&repo, at("web"))).await.unwrap();
    assert_eq!(objects[0]["data"]["text"], "shop only");
    let mut other = request(&repo, at("web"));
    other.app_name = "team_other".into();
    let objects = fixture.render(&other).await.unwrap();
    assert_eq!(objects[0]["data"]["text"], "all");
    assert_eq!(
        objects[0]["metadata"]["name"], "other",
        "the release is the name without its namespace"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_elsewhere_is_no_render_and_a_commit_here_is() {
    let mut files = CHART.to_vec();
    files.push(("other/a.yaml", "one"));
    files.push(("shared.yaml", "text: one\n"));
    let repo = Repo::with(&files);
    std::os::unix::fs::symlink("../shared.yaml", repo.path().join("web/linked.yaml")).unwrap();
    repo.commit(&[]);
    let helm = ApplicationSourceHelm {
        value_files: vec!["linked.yaml".into()],
        ..Default::default()
    };
    let request = request(
        &repo,
        ApplicationSource {
            helm: Some(helm),
            ..at("web")
        },
    );
    let fixture = Fixture::new();
    let first = fixture.renderer.manifests(&request).await.unwrap();
    repo.commit(&[("other/a.yaml", "two")]);
    let second = fixture.renderer.manifests(&request).await.unwrap();
    assert_ne!(first.revision, second.revision);
    assert!(Arc::ptr_eq(&first.rendered, &second.rendered), "found by content");
    repo.commit(&[("shared.yaml", "text: two\n")]);
    let third = fixture.renderer.manifests(&request).await.unwrap();
    assert!(
        third.rendered.manifests[0].contains("two"),
        "what a link leads to counts: {:?}",
        third.rendered.manifests
    );
    repo.commit(&[("web/values.yaml", "replicas: 5\n")]);
    let fourth = fixture.renderer.manifests(&request).await.unwrap();
    assert!(fourth.rendered.manifests[0].contains("\"replicas\":\"5\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_names_several_tools_is_an_error() {
    let repo = Repo::with(&CHART);
    let fixture = Fixture::new();
    let source = ApplicationSource {
        helm: Some(ApplicationSourceHelm::default()),
        kustomize: Some(ApplicationSourceKustomize::default()),
        ..at("web")
    };
    let error = fixture.render(&request(&repo, source)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "multiple application sources defined: Kustomize,Helm"
    );
    let mut request = request(&repo, at("web"));
    request.enabled_types.insert("Helm".into(), false);
    assert_eq!(
        fixture
            .renderer
            .manifests(&request)
            .await
            .unwrap()
            .rendered
            .source_type
            .as_str(),
        "Directory"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_directory_is_rendered_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("app")).unwrap();
    std::fs::write(dir.path().join("app/a.yaml"), config_map("a", "1")).unwrap();
    let request = LocalRequest {
        files: Files::Directory(dir.path().to_owned()),
        sources: vec![at("app")],
        app_name: "shop".into(),
        namespace: "ns".into(),
        render_worker: Some(render_worker()),
        ..LocalRequest::default()
    };
    let objects = local::render(request).await.unwrap().objects;
    assert_eq!(names(&objects), ["ConfigMap/a"]);
    assert_eq!(objects[0]["metadata"].get("annotations"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_render_that_never_ends_costs_itself_alone() {
    let repo = Repo::with(&[
        ("bad/Chart.yaml", "apiVersion: v2\nname: bad\nversion: 1.0.0\n"),
        (
            "bad/templates/x.yaml",
            "{{- range until 100000000 }}{{ $x := repeat 1000 \"x\" | sha256sum }}{{ end }}",
        ),
        ("good/Chart.yaml", "apiVersion: v2\nname: good\nversion: 1.0.0\n"),
        (
            "good/templates/x.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: good\n",
        ),
    ]);
    let fixture = Fixture::with(|args| {
        args.exec_timeout = std::time::Duration::from_secs(15);
        args.render_worker_memory = 512 << 20;
    });
    let bad = request(&repo, at("bad"));
    let error = fixture.render(&bad).await.unwrap_err();
    assert!(
        matches!(error, Error::Deadline { .. } | Error::Limit { .. }),
        "{error:?}"
    );
    assert_eq!(
        names(&fixture.render(&request(&repo, at("good"))).await.unwrap()),
        ["ConfigMap/good"]
    );
    let again = fixture.render(&bad).await.unwrap_err();
    assert_eq!(again, error, "a failure is remembered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_asks_for_kinds_and_versions_that_the_destination_serves() {
    let asks = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: asks}\ndata:\n\
         \x20 kind: {{ .Capabilities.APIVersions.Has \"monitoring.coreos.com/v1/ServiceMonitor\" | quote }}\n\
         \x20 old: {{ .Capabilities.APIVersions.Has \"example.com/v1/Old\" | quote }}\n\
         \x20 gone: {{ .Capabilities.APIVersions.Has \"apps/v1beta2\" | quote }}\n\
         \x20 version: {{ .Capabilities.KubeVersion.Version | quote }}\n";
    let repo = Repo::with(&[
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        ("web/templates/x.yaml", asks),
    ]);
    let fixture = Fixture::new();
    let mut request = request(&repo, at("web"));
    request.api_versions = vec!["v1".into(), "apps/v1".into(), "example.com/v1/Old".into()];
    let without = fixture.render(&request).await.unwrap();
    assert_eq!(
        without[0]["data"],
        serde_json::json!({"kind": "false", "old": "true", "gone": "false", "version": "v1.34.0"})
    );
    request
        .api_versions
        .push("monitoring.coreos.com/v1/ServiceMonitor".into());
    assert_eq!(fixture.render(&request).await.unwrap()[0]["data"]["kind"], "true");
    // What the source says of the destination replaces what it serves, and is added to what Helm knows.
    request.source.helm = Some(ApplicationSourceHelm {
        kube_version: "1.30.1".into(),
        api_versions: vec!["monitoring.coreos.com/v1/ServiceMonitor".into()],
        ..Default::default()
    });
    assert_eq!(
        fixture.render(&request).await.unwrap()[0]["data"],
        serde_json::json!({"kind": "true", "old": "false", "gone": "true", "version": "v1.30.1"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_replaced_by_their_whole_names() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    spec:\n      containers:\n\
         \x20     - {name: a, image: example}\n      - {name: b, image: example-suffix}\n      - {name: c, image: \"reg:5000/app:1\"}\n";
    let repo = Repo::with(&[
        ("app/kustomization.yaml", "resources: [d.yaml]\n"),
        ("app/d.yaml", deployment),
    ]);
    let fixture = Fixture::new();
    let mut images = [
        "example-suffix=example-suffix:1",
        "example=example:1",
        "reg:5000/app:2",
    ]
    .map(str::to_owned);
    for _ in 0..2 {
        let source = ApplicationSource {
            kustomize: Some(ApplicationSourceKustomize {
                images: images.to_vec(),
                ..Default::default()
            }),
            ..at("app")
        };
        let objects = fixture.render(&request(&repo, source)).await.unwrap();
        let containers = objects[0]["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap();
        let found: Vec<&str> = containers
            .iter()
            .map(|one| one["image"].as_str().unwrap())
            .collect();
        assert_eq!(found, ["example:1", "example-suffix:1", "reg:5000/app:2"]);
        images.reverse();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_brought_what_it_names_and_no_more_of_a_large_repository() {
    let overlay = "resources: [../../shared/base]\npatches: [{path: ../../patches/a.yaml}]\n";
    let repo = Repo::with(&[
        ("apps/web/kustomization.yaml", overlay),
        ("shared/base/kustomization.yaml", "resources: [a.yaml]\n"),
        ("shared/base/a.yaml", &config_map("a", "base")),
        ("shared/other/a.yaml", &config_map("other", "1")),
        ("patches/a.yaml", &config_map("a", "patched")),
        ("patches/b.yaml", &config_map("b", "1")),
        ("apps/api/a.yaml", &config_map("api", "1")),
    ]);
    let fixture = Fixture::new();
    let mut request = request(&repo, at("apps/web"));
    request.kustomize_options.build_options = "--load-restrictor LoadRestrictionsNone".into();
    let objects = fixture.render(&request).await.unwrap();
    assert_eq!(objects[0]["data"]["key"], "patched");
    let brought = || {
        let found = std::fs::read_dir(fixture.dir().join("trees")).unwrap();
        found.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let [tree] = brought().try_into().unwrap();
    for path in [
        "apps/web/kustomization.yaml",
        "shared/base/a.yaml",
        "patches/a.yaml",
    ] {
        assert!(tree.join(path).is_file(), "{path}");
    }
    for path in ["apps/api", "shared/other", "patches/b.yaml"] {
        assert!(!tree.join(path).exists(), "{path}");
    }
    // What changes elsewhere brings nothing anew.
    repo.commit(&[("apps/api/a.yaml", &config_map("api", "2"))]);
    request.no_cache = true;
    fixture.render(&request).await.unwrap();
    assert_eq!(brought(), [tree]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_brought_everything_if_what_it_names_cannot_be_told() {
    // A kustomization too large to be looked into names a base of its own.
    let large = format!("resources: [../../shared]\n{}", "# nothing\n".repeat(450_000));
    let repo = Repo::with(&[
        ("apps/web/kustomization.yaml", "resources: [../../bases/large]\n"),
        ("bases/large/kustomization.yaml", &large),
        ("bases/shared/kustomization.yaml", "resources: [a.yaml]\n"),
        ("bases/shared/a.yaml", &config_map("wrong", "1")),
        ("shared/kustomization.yaml", "resources: [a.yaml]\n"),
        ("shared/a.yaml", &config_map("right", "1")),
    ]);
    let fixture = Fixture::new();
    let objects = fixture.render(&request(&repo, at("apps/web"))).await.unwrap();
    assert_eq!(names(&objects), ["ConfigMap/right"]);
}
