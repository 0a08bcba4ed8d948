//! What a render was made from decides whether it is made again: nothing else, and nothing less.

use std::sync::Arc;

use argosy_api::v1alpha1::{
    ApplicationSource, ApplicationSourceDirectory, ApplicationSourceHelm, ApplicationSourceJsonnet,
    HelmParameter, RefTarget, RepoCreds, Repository,
};
use argosy_repo_server::Rendered;
use argosy_repo_server::render::Request;

use crate::render::{CHART, Fixture, request};
use crate::support::{Repo, config_map};

async fn rendered(fixture: &Fixture, request: &Request) -> Arc<Rendered> {
    fixture.renderer.manifests(request).await.unwrap().rendered
}

fn metrics(fixture: &Fixture) -> String {
    let mut registry = argosy_runtime::metrics::registry();
    fixture.renderer.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

fn at(path: &str) -> ApplicationSource {
    ApplicationSource {
        path: path.into(),
        ..ApplicationSource::default()
    }
}

/// Does the commit of these files make the source be rendered anew?
async fn renders_anew(fixture: &Fixture, request: &Request, repo: &Repo, files: &[(&str, &str)]) -> bool {
    let before = rendered(fixture, request).await;
    repo.commit(files);
    !Arc::ptr_eq(&before, &rendered(fixture, request).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_parameter_is_part_of_the_key() {
    let repo = Repo::with(&CHART);
    let fixture = Fixture::new();
    let base = request(&repo, at("web"));
    let first = rendered(&fixture, &base).await;
    assert!(Arc::ptr_eq(&first, &rendered(&fixture, &base).await));
    #[allow(clippy::type_complexity)]
    let flips: Vec<(&str, fn(&mut Request))> = vec![
        ("name", |r| r.app_name = "other".into()),
        ("namespace", |r| r.namespace = "other".into()),
        ("project", |r| r.project = "other".into()),
        ("version of the cluster", |r| r.kube_version = "1.33.0".into()),
        ("API versions", |r| r.api_versions = vec!["a/v1".into()]),
        ("tracking", |r| {
            r.tracking.as_mut().unwrap().method = "label".into()
        }),
        ("no tracking", |r| r.tracking = None),
        ("installation", |r| {
            r.tracking.as_mut().unwrap().installation_id = "x".into()
        }),
        ("credentials", |r| r.repo.password = "secret".into()),
        ("other credentials", |r| r.repo.password = "secrets".into()),
        ("user", |r| r.repo.username = "me".into()),
        ("name of the repository", |r| r.repo.name = "mine".into()),
        ("proxy", |r| r.repo.proxy = "http://proxy.example.com".into()),
        ("way around the proxy", |r| r.repo.no_proxy = "example.com".into()),
        ("permitted repositories", |r| r.permitted_repos = vec!["*".into()]),
        ("dependency repositories", |r| {
            r.repos.push(Repository {
                repo: "https://example.com".into(),
                ..Repository::default()
            });
        }),
        ("the same as a template", |r| {
            r.repo_creds.push(RepoCreds {
                url: "https://example.com".into(),
                ..RepoCreds::default()
            });
        }),
        ("name of a dependency's repository", |r| {
            r.repos.push(Repository {
                repo: "https://example.com".into(),
                name: "stable".into(),
                ..Repository::default()
            });
        }),
        ("credential templates", |r| {
            r.repo_creds.push(RepoCreds {
                url: "https://example.com".into(),
                password: "x".into(),
                ..RepoCreds::default()
            });
        }),
        ("enabled tools", |r| {
            r.enabled_types.insert("Kustomize".into(), false);
        }),
        ("schemes", |r| {
            r.helm_options.values_file_schemes = vec!["https".into()]
        }),
        ("build options", |r| {
            r.kustomize_options.build_options = "--enable-helm".into()
        }),
        ("several sources", |r| r.multiple_sources = true),
        ("a parameter", |r| {
            r.source.helm = Some(ApplicationSourceHelm {
                parameters: vec![HelmParameter {
                    name: "replicas".into(),
                    value: "7".into(),
                    force_string: false,
                }],
                ..ApplicationSourceHelm::default()
            });
        }),
    ];
    let mut all = vec![first];
    for (what, flip) in flips {
        let mut flipped = base.clone();
        flip(&mut flipped);
        let other = rendered(&fixture, &flipped).await;
        assert!(all.iter().all(|known| !Arc::ptr_eq(known, &other)), "{what}");
        all.push(other);
    }
    // Lists are not glued together: ["a,b"] is not ["a", "b"].
    let mut one = base.clone();
    one.api_versions = vec!["a/v1,b/v1".into()];
    let mut two = base.clone();
    two.api_versions = vec!["a/v1".into(), "b/v1".into()];
    let one = rendered(&fixture, &one).await;
    assert!(!Arc::ptr_eq(&one, &rendered(&fixture, &two).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jsonnet_program_depends_on_what_it_imports_and_on_what_it_looked_for() {
    let repo = Repo::with(&[
        (
            "app/a.jsonnet",
            "local l = import 'l.libsonnet'; {apiVersion: 'v1', kind: 'ConfigMap', metadata: {name: l.name}}",
        ),
        ("lib/l.libsonnet", "{name: 'one'}"),
        ("other/x", "1"),
    ]);
    let source = ApplicationSource {
        directory: Some(ApplicationSourceDirectory {
            jsonnet: ApplicationSourceJsonnet {
                libs: vec!["first".into(), "lib".into()],
                ..ApplicationSourceJsonnet::default()
            },
            ..ApplicationSourceDirectory::default()
        }),
        ..at("app")
    };
    let (fixture, request) = (Fixture::new(), request(&repo, source));
    assert!(!renders_anew(&fixture, &request, &repo, &[("other/x", "2")]).await);
    assert!(!renders_anew(&fixture, &request, &repo, &[("lib/unused.libsonnet", "{}")]).await);
    assert!(renders_anew(&fixture, &request, &repo, &[("lib/l.libsonnet", "{name: 'two'}")]).await);
    // Searched before the place where it was found.
    assert!(
        renders_anew(
            &fixture,
            &request,
            &repo,
            &[("app/l.libsonnet", "{name: 'three'}")]
        )
        .await
    );
    let now = rendered(&fixture, &request).await;
    assert!(now.manifests[0].contains("three"), "{:?}", now.manifests);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_depends_on_the_value_files_of_other_sources_and_on_nothing_else_there() {
    let repo = Repo::with(&CHART);
    let values = Repo::with(&[("shop/values.yaml", "text: one\n"), ("other/x", "1")]);
    let source = ApplicationSource {
        helm: Some(ApplicationSourceHelm {
            value_files: vec!["$values/shop/values.yaml".into(), "$values/shop/more.yaml".into()],
            ignore_missing_value_files: true,
            ..ApplicationSourceHelm::default()
        }),
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
    assert!(!renders_anew(&fixture, &request, &values, &[("other/x", "2")]).await);
    assert!(
        renders_anew(
            &fixture,
            &request,
            &values,
            &[("shop/values.yaml", "text: two\n")]
        )
        .await
    );
    assert!(
        renders_anew(
            &fixture,
            &request,
            &values,
            &[("shop/more.yaml", "text: three\n")]
        )
        .await,
        "a file that was missing is there"
    );
    assert!(rendered(&fixture, &request).await.manifests[0].contains("three"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_depends_on_its_bases_and_on_nothing_beside_them() {
    let repo = Repo::with(&[
        ("base/kustomization.yaml", "resources: [a.yaml]\n"),
        ("base/a.yaml", &config_map("a", "b")),
        ("base/README.md", "x"),
        (
            "overlay/kustomization.yaml",
            "resources: [../base]\nnamePrefix: p-\n",
        ),
        ("other/x", "1"),
    ]);
    let (fixture, request) = (Fixture::new(), request(&repo, at("overlay")));
    assert!(!renders_anew(&fixture, &request, &repo, &[("other/x", "2")]).await);
    assert!(!renders_anew(&fixture, &request, &repo, &[("base/README.md", "y")]).await);
    assert!(
        renders_anew(
            &fixture,
            &request,
            &repo,
            &[("base/a.yaml", &config_map("a", "c"))]
        )
        .await
    );
    let overrides = "kustomize:\n  nameSuffix: -s\n";
    assert!(
        renders_anew(
            &fixture,
            &request,
            &repo,
            &[("overlay/.argocd-source.yaml", overrides)]
        )
        .await
    );
    assert!(rendered(&fixture, &request).await.manifests[0].contains("p-a-s"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_is_known_where_the_caches_lie_behind_a_link() {
    let repo = Repo::with(&[
        ("k/kustomization.yaml", "resources: [a.yaml]\n"),
        ("k/a.yaml", &config_map("a", "b")),
        ("other/x", "1"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
    let (fixture, request) = (Fixture::at(&dir.path().join("link")), request(&repo, at("k")));
    assert!(!renders_anew(&fixture, &request, &repo, &[("other/x", "2")]).await);
    assert!(renders_anew(&fixture, &request, &repo, &[("k/a.yaml", &config_map("a", "c"))]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_leads_elsewhere_is_another_input() {
    let chart = "apiVersion: v2\nname: chart\nversion: 1.0.0\n";
    let umbrella = "apiVersion: v2\nname: umbrella\nversion: 1.0.0\n\
                    dependencies:\n- {name: chart, version: 1.x, repository: \"file://../part\"}\n";
    let repo = Repo::with(&[
        ("over/kustomization.yaml", "resources: [base, file.yaml]\n"),
        ("over/file-one", &config_map("file", "file-one")),
        ("over/file-two", &config_map("file", "file-two")),
        ("base-one/kustomization.yaml", "resources: [a.yaml]\n"),
        ("base-one/a.yaml", &config_map("base", "base-one")),
        ("base-two/kustomization.yaml", "resources: [a.yaml]\n"),
        ("base-two/a.yaml", &config_map("base", "base-two")),
        ("chart-one/Chart.yaml", chart),
        ("chart-one/templates/a.yaml", &config_map("chart", "chart-one")),
        ("chart-two/Chart.yaml", chart),
        ("chart-two/templates/a.yaml", &config_map("chart", "chart-two")),
        ("umbrella/Chart.yaml", umbrella),
    ]);
    let link = |place: &str, target: &str| {
        let place = repo.path().join(place);
        let _ = std::fs::remove_file(&place);
        std::os::unix::fs::symlink(target, place).unwrap();
        repo.commit(&[]);
    };
    link("over/base", "../base-one");
    let fixture = Fixture::new();
    for (path, place, target) in [
        ("over", "over/file.yaml", "file-"),
        ("over", "over/base", "../base-"),
        ("source", "source", "chart-"),
        ("umbrella", "part", "chart-"),
    ] {
        for which in ["one", "two"] {
            let target = format!("{target}{which}");
            link(place, &target);
            let manifests = rendered(&fixture, &request(&repo, at(path)))
                .await
                .manifests
                .concat();
            let text = target.trim_start_matches("../");
            assert!(manifests.contains(text), "{place}, {target}: {manifests}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_by_chance_is_made_anew_at_each_commit_and_only_then() {
    let repo = Repo::with(&[
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        ("web/templates/a.yaml", &config_map("a", "{{ randAlphaNum 20 }}")),
        ("other/x", "1"),
    ]);
    let (fixture, request) = (Fixture::new(), request(&repo, at("web")));
    let first = rendered(&fixture, &request).await;
    assert!(Arc::ptr_eq(&first, &rendered(&fixture, &request).await));
    assert!(renders_anew(&fixture, &request, &repo, &[("other/x", "2")]).await);
    let text = metrics(&fixture);
    assert!(
        text.contains("argosy_render_open_inputs_total{reason=\"randAlphaNum\"} 2"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_at_once_cost_one_render_a_key() {
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "b"))]);
    let fixture = Arc::new(Fixture::new());
    let identical = request(&repo, at("app"));
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..2000 {
        let (fixture, mut request) = (fixture.clone(), identical.clone());
        request.no_revision_cache = false;
        if n % 2 == 1 {
            request.app_name = format!("near-{}", n % 50);
        }
        waiting.spawn(async move { rendered(&fixture, &request).await.manifests.len() });
    }
    while let Some(done) = waiting.join_next().await {
        assert_eq!(done.unwrap(), 1);
    }
    let text = metrics(&fixture);
    assert!(
        text.contains("argosy_renders_total{source_type=\"Directory\",result=\"ok\"} 26"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_content_are_the_same_asked_one_by_one_and_on_one_way() {
    use argosy_repo_server::path::TreePath;
    use argosy_repo_server::tree::Tree;
    let repo = Repo::with(&[
        ("a/b/c.yaml", "1"),
        ("a/b/d", "2"),
        ("a/b2/c.yaml", "3"),
        ("ab/x", "4"),
        ("top", "5"),
    ]);
    std::os::unix::fs::symlink("../a/b", repo.path().join("ab/link")).unwrap();
    std::os::unix::fs::symlink("../../outside", repo.path().join("ab/out")).unwrap();
    let commit = repo.commit(&[]);
    let fixture = Fixture::new();
    let access = argosy_repo_server::access::git(&request(&repo, Default::default()).repo).unwrap();
    let tree = Tree::Git(
        fixture
            .renderer
            .commit(&access, &commit, false)
            .await
            .unwrap()
            .tree(),
    );
    let mut paths: Vec<TreePath> = [
        "",
        "a",
        "a/b",
        "a/b/c.yaml",
        "a/b/c.yaml/x",
        "a/b/d",
        "a/b/e",
        "a/b2",
        "a/b2/c.yaml",
        "a/c",
        "ab",
        "ab/link",
        "ab/link/d",
        "ab/link/none",
        "ab/x",
        "top",
        "top/x",
        "zz/y",
    ]
    .map(|path| TreePath::parse(path).unwrap())
    .to_vec();
    for _ in 0..2 {
        let mut ids = tree.content_ids();
        for path in &paths {
            assert_eq!(ids.of(path).unwrap(), tree.content_id(path).unwrap(), "{path:?}");
        }
        paths.reverse();
    }
    let out = TreePath::parse("ab/out").unwrap();
    let mut ids = tree.content_ids();
    assert_eq!(ids.of(&out), tree.content_id(&out));
    assert!(ids.of(&out).is_err());
}
