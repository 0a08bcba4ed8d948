//! What the parts of a source mean, by what Argo CD makes of them.

use argosy_api::v1alpha1::{
    ApplicationSource, ApplicationSourceDirectory, ApplicationSourceHelm, ApplicationSourceKustomize,
    HelmFileParameter, RefTarget, Repository,
};
use argosy_repo_server::render::Request;
use serde_json::{Value, json};

use crate::render::{CHART, Fixture, at, names, request};
use crate::support::{Http, Repo, answer, config_map, git, http_backend};

fn chart(helm: ApplicationSourceHelm) -> ApplicationSource {
    ApplicationSource {
        helm: Some(helm),
        ..at("web")
    }
}

fn values(files: &[&str]) -> ApplicationSource {
    chart(ApplicationSourceHelm {
        value_files: files.iter().map(|file| (*file).to_owned()).collect(),
        ..ApplicationSourceHelm::default()
    })
}

fn with_ref(mut request: Request, name: &str, repo: &Repo) -> Request {
    let target = RefTarget {
        repo: Repository {
            repo: repo.url(),
            ..Repository::default()
        },
        target_revision: "main".into(),
        chart: String::new(),
    };
    request.multiple_sources = true;
    request.ref_sources.insert(name.into(), target);
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_parameter_may_lie_in_another_source() {
    let repo = Repo::with(&CHART);
    // At the same path of the chart's own repository lies something else.
    repo.commit(&[("shop.txt", "own")]);
    let other = Repo::with(&[("shop.txt", "theirs"), ("certs/shop.txt", "deeper")]);
    let fixture = Fixture::new();
    for (path, text) in [
        ("$values/shop.txt", "theirs"),
        ("$values/certs/$ARGOCD_APP_NAME.txt", "deeper"),
        ("../shop.txt", "own"),
    ] {
        let helm = ApplicationSourceHelm {
            file_parameters: vec![HelmFileParameter {
                name: "text".into(),
                path: path.into(),
            }],
            ..ApplicationSourceHelm::default()
        };
        let request = with_ref(request(&repo, chart(helm)), "$values", &other);
        let objects = fixture.render(&request).await.unwrap();
        assert_eq!(objects[0]["data"]["text"], text, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn value_files_count_once_and_where_they_are_named() {
    let mut files = CHART.to_vec();
    files.extend([
        ("web/envs/a.yaml", "text: a\n"),
        ("web/envs/b.yaml", "text: b\nreplicas: 2\n"),
        ("web/envs/c.yaml", "text: c\n"),
        ("web/deep/z.yaml", "text: z\n"),
        ("web/deep/a/b.yaml", "text: deeper\n"),
        ("web/deep/a/c/a.yaml", "text: deepest\n"),
    ]);
    let (repo, fixture) = (Repo::with(&files), Fixture::new());
    std::os::unix::fs::symlink("web/envs", repo.path().join("linked")).unwrap();
    repo.commit(&[]);
    for (written, text) in [
        // Matches come in lexical order.
        (&["envs/*.yaml"][..], "c"),
        // A file that is named as well counts where it is named, whichever comes first.
        (&["envs/*.yaml", "envs/a.yaml"], "a"),
        (&["envs/c.yaml", "envs/*.yaml"], "b"),
        // What stands there twice counts the first time.
        (&["envs/a.yaml", "envs/b.yaml", "envs/a.yaml"], "b"),
        (&["envs/*.yaml", "envs/**/a.yaml"], "c"),
        // What lies deeper comes later, as doublestar of Go has it.
        (&["deep/**/*.yaml"], "deepest"),
        (&["deep/**/[bz].yaml"], "deeper"),
        (&["../linked/[ab].yaml"], "b"),
    ] {
        let objects = fixture.render(&request(&repo, values(written))).await.unwrap();
        assert_eq!(objects[0]["data"]["text"], text, "{written:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_matches_no_value_file_is_an_error_unless_they_may_be_missing() {
    let (repo, fixture) = (Repo::with(&CHART), Fixture::new());
    let source = values(&["envs/*.yaml"]);
    let error = fixture.render(&request(&repo, source.clone())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "helm template: values file glob \"envs/*.yaml\" matched no files"
    );
    let helm = ApplicationSourceHelm {
        ignore_missing_value_files: true,
        ..source.helm.unwrap()
    };
    assert!(fixture.render(&request(&repo, chart(helm))).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_value_file_is_said_under_its_name() {
    let mut files = CHART.to_vec();
    files.extend([
        ("web/broken.yaml", "text: [a\n"),
        ("web/twice.yaml", "text: a\ntext: b\n"),
    ]);
    let (repo, fixture) = (Repo::with(&files), Fixture::new());
    let other = Repo::with(&[("broken.yaml", "text: [b\n")]);
    for (file, name) in [
        ("broken.yaml", "failed to parse web/broken.yaml: "),
        ("$values/broken.yaml", "failed to parse $values/broken.yaml: "),
    ] {
        let request = with_ref(request(&repo, values(&[file])), "$values", &other);
        let error = fixture.render(&request).await.unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains("/render-"), "{error}");
    }
    let request = request(&repo, values(&["twice.yaml"]));
    let rendered = fixture.renderer.manifests(&request).await.unwrap().rendered;
    assert_eq!(
        rendered.notes.warnings,
        ["web/twice.yaml: line 2: the key \"text\" stands here for the second time; the last one counts"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_a_kustomization_take_variables_and_annotations_where_that_is_asked_for() {
    let repo = Repo::with(&[
        ("k/kustomization.yaml", "resources: [a.yaml]\n"),
        ("k/a.yaml", &config_map("a", "b")),
    ]);
    let fixture = Fixture::new();
    let variable = || [("app".to_owned(), "$ARGOCD_APP_NAME".to_owned())].into();
    for (substituted, annotation) in [(false, "$ARGOCD_APP_NAME"), (true, "shop")] {
        let source = ApplicationSource {
            kustomize: Some(ApplicationSourceKustomize {
                common_labels: variable(),
                common_annotations: variable(),
                common_annotations_envsubst: substituted,
                ..ApplicationSourceKustomize::default()
            }),
            ..at("k")
        };
        let objects = fixture.render(&request(&repo, source)).await.unwrap();
        let metadata = &objects[0]["metadata"];
        assert_eq!(metadata["labels"]["app"], "shop");
        assert_eq!(metadata["annotations"]["app"], annotation);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_that_is_switched_off_would_render_are_plain_manifests() {
    let mut files = CHART.to_vec();
    let (plain, program) = (
        config_map("plain", "x"),
        "{apiVersion: 'v1', kind: 'ConfigMap', metadata: {name: 'j'}}",
    );
    files.extend([
        ("web/plain.yaml", plain.as_str()),
        ("web/program.jsonnet", program),
    ]);
    let (repo, fixture) = (Repo::with(&files), Fixture::new());
    // The tool is named by the source in one, and found in the other.
    for source in [chart(ApplicationSourceHelm::default()), at("web")] {
        let mut request = request(&repo, source);
        assert_eq!(
            names(&fixture.render(&request).await.unwrap()),
            ["ConfigMap/shop"]
        );
        request.enabled_types.insert("Helm".into(), false);
        let manifests = fixture.renderer.manifests(&request).await.unwrap();
        assert_eq!(manifests.rendered.source_type.as_str(), "Directory");
        assert_eq!(
            names(&fixture.render(&request).await.unwrap()),
            ["ConfigMap/plain", "ConfigMap/j"]
        );
        request.enabled_types.insert("Directory".into(), false);
        assert_eq!(
            names(&fixture.render(&request).await.unwrap()),
            ["ConfigMap/plain"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_may_have_a_byte_order_mark() {
    let repo = Repo::new();
    let dir = repo.path().join("app");
    std::fs::create_dir(&dir).unwrap();
    let wide = |text: &str| -> Vec<u8> {
        "\u{feff}"
            .encode_utf16()
            .chain(text.encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect()
    };
    let object =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
    std::fs::write(dir.join("a.json"), format!("\u{feff}{}", object("a"))).unwrap();
    std::fs::write(dir.join("b.json"), wide(&object("b"))).unwrap();
    std::fs::write(dir.join("c.yaml"), wide(&config_map("c", "d"))).unwrap();
    let skipped = format!("# +argocd:skip-file-rendering\n{}", config_map("d", "e"));
    std::fs::write(dir.join("d.yaml"), wide(&skipped)).unwrap();
    repo.commit(&[]);
    let fixture = Fixture::new();
    let objects = fixture.render(&request(&repo, at("app"))).await.unwrap();
    assert_eq!(names(&objects), ["ConfigMap/a", "ConfigMap/b", "ConfigMap/c"]);

    // One that cannot be read is no reason to think that there is nothing.
    std::fs::write(
        dir.join("e.yaml"),
        wide("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: [e\n"),
    )
    .unwrap();
    repo.commit(&[]);
    let error = fixture.render(&request(&repo, at("app"))).await.unwrap_err();
    assert!(
        error.to_string().starts_with("failed to parse app/e.yaml line "),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_finished_before_what_comes_after_its_name() {
    let (top, inside) = (config_map("top", ""), config_map("inside", ""));
    let (beside, below) = (config_map("beside", ""), config_map("below", ""));
    let repo = Repo::with(&[
        ("app/a.yaml", &top),
        ("app/a/z.yaml", &inside),
        ("app/a-b.yaml", &beside),
        ("app/a/b/c.yaml", &below),
    ]);
    let source = ApplicationSource {
        directory: Some(ApplicationSourceDirectory {
            recurse: true,
            ..ApplicationSourceDirectory::default()
        }),
        ..at("app")
    };
    let objects = Fixture::new().render(&request(&repo, source)).await.unwrap();
    // As Go's filepath.Walk: a/b/c.yaml, a/z.yaml, a-b.yaml, a.yaml.
    let found = names(&objects);
    assert_eq!(
        found,
        [
            "ConfigMap/below",
            "ConfigMap/inside",
            "ConfigMap/beside",
            "ConfigMap/top"
        ]
    );
}

/// "They will inherit that from the app's repo", says the documentation of Argo CD.
#[tokio::test(flavor = "multi_thread")]
async fn a_remote_base_of_the_same_server_is_read_as_the_source_is() {
    let root = tempfile::tempdir().unwrap();
    let serve = |name: &str, files: &[(&str, &str)]| {
        let repo = Repo::with(files);
        let bare = root.path().join(name).display().to_string();
        git(root.path(), &["clone", "--quiet", "--bare", &repo.url(), &bare]);
    };
    let base = config_map("base", "x");
    serve(
        "base.git",
        &[("kustomization.yaml", "resources: [a.yaml]\n"), ("a.yaml", &base)],
    );
    let served = root.path().to_owned();
    let backend = move |seen: &crate::support::Seen| {
        if seen.basic().as_deref() == Some("ada:c4n4ry") {
            return http_backend(&served, seen);
        }
        (
            401,
            vec![("WWW-Authenticate".into(), "Basic realm=\"git\"".into())],
            Vec::new(),
        )
    };
    let server = Http::start(None, backend).await;
    let elsewhere = Http::start(None, |_| {
        (
            401,
            vec![("WWW-Authenticate".into(), "Basic realm=\"git\"".into())],
            Vec::new(),
        )
    })
    .await;
    let overlay = |at: std::net::SocketAddr| format!("resources: [\"http://{at}/base.git//?ref=main\"]\n");
    serve(
        "own.git",
        &[
            ("here/kustomization.yaml", &overlay(server.address)),
            ("there/kustomization.yaml", &overlay(elsewhere.address)),
        ],
    );
    let request = |path: &str| Request {
        repo: Repository {
            repo: format!("http://{}/own.git", server.address),
            username: "ada".into(),
            password: "c4n4ry".into(),
            force_http_basic_auth: true,
            ..Repository::default()
        },
        source: at(path),
        app_name: "shop".into(),
        ..Request::default()
    };
    let fixture = Fixture::new();
    assert_eq!(
        names(&fixture.render(&request("here")).await.unwrap()),
        ["ConfigMap/base"]
    );
    assert!(fixture.render(&request("there")).await.is_err());
    let seen = elsewhere.seen.lock().unwrap();
    assert!(
        !seen.is_empty()
            && seen
                .iter()
                .all(|seen| seen.basic().is_none_or(|shown| !shown.contains("c4n4ry")))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn value_files_by_url_come_on_the_way_of_their_source() {
    let proxy = Http::start(None, |seen| match seen.path.as_str() {
        "http://files.invalid/values.yaml" => answer(200, "text: proxied\n"),
        _ => answer(404, ""),
    })
    .await;
    let repo = Repo::with(&CHART);
    let mut request = request(&repo, values(&["http://files.invalid/values.yaml"]));
    request.repo.proxy = format!("http://{}", proxy.address);
    let objects = Fixture::new().render(&request).await.unwrap();
    assert_eq!(objects[0]["data"]["text"], "proxied");
}

/// An override file lies in the repository: what it names is named by content.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_cannot_name_value_files_of_inner_networks() {
    let mut files = CHART.to_vec();
    files.push((
        "web/.argocd-source.yaml",
        "helm:\n  valueFiles: [\"http://10.255.255.1/secret.yaml\"]\n",
    ));
    let repo = Repo::with(&files);
    let error = Fixture::new()
        .render(&request(&repo, at("web")))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("of an inner network"), "{error}");
    let open = Http::start(None, |_| answer(200, "text: open\n")).await;
    let text = format!("helm:\n  valueFiles: [\"http://{}/v.yaml\"]\n", open.address);
    repo.commit(&[("web/.argocd-source.yaml", &text)]);
    let objects: Vec<Value> = Fixture::new().render(&request(&repo, at("web"))).await.unwrap();
    assert_eq!(objects[0]["data"]["text"], "open");
}
