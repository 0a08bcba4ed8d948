//! SEC-FS: trees that lead out of themselves. Every way to lead out, at every place of a source where a file is named, through
//! every call that reads files: what lies outside never appears in an answer, an error, a metric or a file of the cache.

use std::path::{Path, PathBuf};

use argosy_api::repository::{
    GitDirectoriesRequest, GitFilesRequest, ListAppsRequest, RepoServerAppDetailsQuery,
    UpdateRevisionForPathsRequest,
};
use argosy_api::v1alpha1::{
    ApplicationSource, ApplicationSourceHelm, ApplicationSourceKustomize, HelmFileParameter, KustomizePatch,
    RefTarget, Repository,
};
use argosy_repo_server::path::TreePath;
use argosy_repo_server::tree::Tree;

use crate::service::{Running, manifests, repository, running};
use crate::support::{Repo, config_map};

/// What may appear nowhere.
const CANARY: &str = "C4N4RY";

/// A directory outside of every repository, with the canary in files of every kind that a tool would read.
fn outside() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("canary.yaml", &config_map("canary", CANARY));
    write("values.yaml", &format!("text: {CANARY}\n"));
    write("lib.libsonnet", &format!("'{CANARY}'"));
    write("kustomization.yaml", "resources: [canary.yaml]\n");
    write(
        "Chart.yaml",
        &format!("apiVersion: v2\nname: canary\nversion: 1.0.0\ndescription: {CANARY}\n"),
    );
    dir
}

/// Links that lead out, or nowhere, or round and round.
fn targets(outside: &Path) -> Vec<PathBuf> {
    let up = "../".repeat(14);
    let file = outside.join("canary.yaml");
    let relative = |path: &Path| PathBuf::from(format!("{up}{}", path.strip_prefix("/").unwrap().display()));
    vec![
        file.clone(),
        relative(&file),
        outside.to_owned(),
        relative(outside),
        PathBuf::from("/"),
        PathBuf::from("/proc/self/environ"),
        PathBuf::from("/proc/self/root").join(file.strip_prefix("/").unwrap()),
        PathBuf::from("/proc/self/cwd"),
        PathBuf::from("chain-1"),
        PathBuf::from("loop"),
        PathBuf::from("./nowhere.yaml"),
        PathBuf::from("../.git/config"),
        PathBuf::from("\u{2025}/\u{ff0e}\u{ff0e}/canary.yaml"),
    ]
}

/// A place where a link may stand, and the source that would read it.
struct Site {
    name: &'static str,
    files: Vec<(&'static str, &'static str)>,
    link: &'static str,
    source: ApplicationSource,
}

fn source(path: &str) -> ApplicationSource {
    ApplicationSource {
        path: path.into(),
        ..ApplicationSource::default()
    }
}

fn sites() -> Vec<Site> {
    let chart = vec![
        ("app/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        (
            "app/templates/a.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  text: {{ .Values.text | quote }}\n  file: {{ .Files.Get \
             \"evil\" | quote }}\n  {{- range $path, $_ := .Files.Glob \"**\" }}\n  {{ $path | sha1sum }}: {{ $.Files.Get $path | quote \
             }}\n  {{- end }}\n",
        ),
    ];
    let helm = |helm: ApplicationSourceHelm| ApplicationSource {
        helm: Some(helm),
        ..source("app")
    };
    let site = |name, files: Vec<_>, link, source| Site {
        name,
        files,
        link,
        source,
    };
    let kustomization = |text| vec![("app/kustomization.yaml", text), ("app/ok.yaml", OK)];
    const OK: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ok}\n";
    let values = helm(ApplicationSourceHelm {
        value_files: vec!["evil".into()],
        ..ApplicationSourceHelm::default()
    });
    let several_values = helm(ApplicationSourceHelm {
        value_files: vec!["e*".into()],
        ..ApplicationSourceHelm::default()
    });
    let parameter = helm(ApplicationSourceHelm {
        file_parameters: vec![HelmFileParameter {
            name: "text".into(),
            path: "evil".into(),
        }],
        ..ApplicationSourceHelm::default()
    });
    let patch = ApplicationSource {
        kustomize: Some(ApplicationSourceKustomize {
            patches: vec![KustomizePatch {
                path: "evil".into(),
                ..KustomizePatch::default()
            }],
            ..ApplicationSourceKustomize::default()
        }),
        ..source("app")
    };
    vec![
        site("the source itself", vec![("ok.yaml", OK)], "app", source("app")),
        site(
            "a manifest",
            vec![("app/ok.yaml", OK)],
            "app/evil.yaml",
            source("app"),
        ),
        site(
            "a directory of manifests",
            vec![("app/ok.yaml", OK)],
            "app/evil",
            source("app"),
        ),
        site(
            "a chart's description",
            chart[1..].to_vec(),
            "app/Chart.yaml",
            source("app"),
        ),
        site(
            "a template",
            chart.clone(),
            "app/templates/evil.yaml",
            source("app"),
        ),
        site("a file of a chart", chart.clone(), "app/evil", source("app")),
        site(
            "values of a chart",
            chart.clone(),
            "app/values.yaml",
            source("app"),
        ),
        site("a value file", chart.clone(), "app/evil", values),
        site(
            "value files by a pattern",
            chart.clone(),
            "app/evil",
            several_values,
        ),
        site("a parameter from a file", chart.clone(), "app/evil", parameter),
        site(
            "a chart of a chart",
            chart.clone(),
            "app/charts/evil",
            source("app"),
        ),
        site(
            "definitions of a chart",
            chart.clone(),
            "app/crds/evil.yaml",
            source("app"),
        ),
        site(
            "a kustomization",
            vec![("app/ok.yaml", OK)],
            "app/kustomization.yaml",
            source("app"),
        ),
        site(
            "a resource",
            kustomization("resources: [ok.yaml, evil]\n"),
            "app/evil",
            source("app"),
        ),
        site(
            "a component",
            kustomization("resources: [ok.yaml]\ncomponents: [evil]\n"),
            "app/evil",
            source("app"),
        ),
        site(
            "a generator's file",
            kustomization("configMapGenerator: [{name: a, files: [x=evil]}]\n"),
            "app/evil",
            source("app"),
        ),
        site(
            "a patch of a kustomization",
            kustomization("patches: [{path: evil}]\n"),
            "app/evil",
            source("app"),
        ),
        site(
            "a patch of the Application",
            kustomization("resources: [ok.yaml]\n"),
            "app/evil",
            patch,
        ),
        site(
            "an import",
            vec![("app/a.jsonnet", "import 'evil'")],
            "app/evil",
            source("app"),
        ),
        site(
            "an imported text",
            vec![("app/a.jsonnet", "{a: importstr 'evil'}")],
            "app/evil",
            source("app"),
        ),
        site(
            "overrides of the source",
            vec![("app/ok.yaml", OK)],
            "app/.argocd-source.yaml",
            source("app"),
        ),
    ]
}

/// What is rendered and described of one source; the texts of all answers and errors.
async fn said_of_a_source(running: &Running, repo: &Repo, source: &ApplicationSource) -> String {
    let mut request = manifests(repo, &source.path);
    request.application_source = Some(ApplicationSource {
        repo_url: repo.url(),
        ..source.clone()
    });
    let rendered = running.client.generate_manifest(request).await;
    let query = RepoServerAppDetailsQuery {
        repo: repository(repo),
        source: Some(source.clone()),
        ..RepoServerAppDetailsQuery::default()
    };
    let details = running.client.get_app_details(query).await;
    format!("{rendered:?}\n{details:?}")
}

/// What all other calls that read files say of a repository.
async fn said_of_a_repository(running: &Running, repo: &Repo) -> String {
    let (client, revision) = (&running.client, "HEAD".to_owned());
    let apps = ListAppsRequest {
        repo: repository(repo),
        revision: revision.clone(),
        ..ListAppsRequest::default()
    };
    let directories = GitDirectoriesRequest {
        repo: repository(repo),
        revision: revision.clone(),
        ..GitDirectoriesRequest::default()
    };
    let changes = UpdateRevisionForPathsRequest {
        repo: repository(repo),
        revision: revision.clone(),
        synced_revision: revision.clone(),
        paths: vec!["0/app/evil".into(), "**/evil*".into()],
        ..UpdateRevisionForPathsRequest::default()
    };
    let mut said = format!(
        "{:?}\n{:?}\n{:?}\n",
        client.list_apps(apps).await,
        client.get_git_directories(directories).await,
        client.update_revision_for_paths(changes).await
    );
    for (path, new) in [
        ("**", true),
        ("*", false),
        ("**/evil*", true),
        ("**/evil/*", true),
    ] {
        let files = GitFilesRequest {
            repo: repository(repo),
            revision: revision.clone(),
            path: path.into(),
            new_git_file_globbing_enabled: new,
            ..GitFilesRequest::default()
        };
        match client.get_git_files(files).await {
            Ok(answer) => {
                let texts = answer
                    .map
                    .values()
                    .map(|data| String::from_utf8_lossy(data).into_owned());
                said.extend(texts);
            }
            Err(error) => said += &error.to_string(),
        }
    }
    said
}

/// One repository for a target, a folder for each site.
fn lead_out(target: &Path, outside: &Path) -> Repo {
    let repo = Repo::new();
    for (nth, site) in sites().iter().enumerate() {
        let folder = repo.path().join(nth.to_string());
        for (path, text) in &site.files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let link = folder.join(site.link);
        let beside = link.parent().unwrap();
        std::fs::create_dir_all(beside).unwrap();
        std::os::unix::fs::symlink(target, &link).unwrap();
        // The end of the chain, and a loop.
        std::os::unix::fs::symlink("chain-2", beside.join("chain-1")).unwrap();
        std::os::unix::fs::symlink(outside.join("canary.yaml"), beside.join("chain-2")).unwrap();
        std::os::unix::fs::symlink("loop", beside.join("loop")).unwrap();
    }
    repo.commit(&[]);
    repo
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_fs_what_lies_outside_of_a_repository_appears_nowhere() {
    let outside = outside();
    let running = running(true).await;
    for target in targets(outside.path()) {
        let repo = lead_out(&target, outside.path());
        let mut said = vec![("the repository", said_of_a_repository(&running, &repo).await)];
        for (nth, site) in sites().into_iter().enumerate() {
            let source = ApplicationSource {
                path: format!("{nth}/{}", site.source.path),
                ..site.source
            };
            said.push((site.name, said_of_a_source(&running, &repo, &source).await));
        }
        for (site, said) in said {
            assert!(!said.contains(CANARY), "{site} -> {}: {said}", target.display());
            // `.git` of the repository is no part of it either; the environment is not ours to tell.
            assert!(
                !said.contains("repositoryformatversion"),
                "{site} -> {}",
                target.display()
            );
            assert!(
                !said.contains("CARGO_MANIFEST_DIR"),
                "{site} -> {}",
                target.display()
            );
        }
    }
    assert!(!running.metrics().await.contains(CANARY));
    let kept = files_below(running.dir.path());
    assert!(kept.len() > 100, "the cache is looked at");
    for file in kept {
        let data = std::fs::read(&file).unwrap_or_default();
        let found = data
            .windows(CANARY.len())
            .any(|window| window == CANARY.as_bytes());
        assert!(!found, "{}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_fs_no_text_of_a_source_leads_out_of_its_repository() {
    let outside = outside();
    let running = running(true).await;
    let file = outside.path().join("canary.yaml").display().to_string();
    let up = format!("{}{}", "../".repeat(14), &file[1..]);
    let texts = [
        file.clone(),
        up.clone(),
        format!("./{up}"),
        format!("app/{up}"),
        format!("/{up}"),
        format!("//{file}"),
        format!("file://{file}"),
        format!("file:{file}"),
        format!("..\\..\\{file}"),
        format!("app\0{file}"),
        format!("%2e%2e/{up}"),
        format!("$ref/{up}"),
        format!("$ref{file}"),
        "\u{2025}/canary.yaml".to_owned(),
        "a/".repeat(65),
    ];
    let repo = Repo::with(&[
        ("app/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        (
            "app/templates/a.yaml",
            &config_map("a", "{{ .Values | toJson | quote }}"),
        ),
        ("k/kustomization.yaml", "resources: []\n"),
        ("j/a.jsonnet", "function(x='') {}"),
    ]);
    for text in &texts {
        let helm = |helm: ApplicationSourceHelm| ApplicationSource {
            helm: Some(helm),
            ..source("app")
        };
        let sources = [
            source(text),
            helm(ApplicationSourceHelm {
                value_files: vec![text.clone()],
                ..ApplicationSourceHelm::default()
            }),
            helm(ApplicationSourceHelm {
                file_parameters: vec![HelmFileParameter {
                    name: "text".into(),
                    path: text.clone(),
                }],
                ..ApplicationSourceHelm::default()
            }),
            ApplicationSource {
                kustomize: Some(ApplicationSourceKustomize {
                    components: vec![text.clone()],
                    ..ApplicationSourceKustomize::default()
                }),
                ..source("k")
            },
            ApplicationSource {
                kustomize: Some(ApplicationSourceKustomize {
                    patches: vec![KustomizePatch {
                        path: text.clone(),
                        ..KustomizePatch::default()
                    }],
                    ..ApplicationSourceKustomize::default()
                }),
                ..source("k")
            },
            ApplicationSource {
                directory: Some(argosy_api::v1alpha1::ApplicationSourceDirectory {
                    jsonnet: argosy_api::v1alpha1::ApplicationSourceJsonnet {
                        libs: vec![text.clone()],
                        ..Default::default()
                    },
                    ..Default::default()
                }),
                ..source("j")
            },
        ];
        for source in sources {
            let mut request = manifests(&repo, "");
            request.application_source = Some(source.clone());
            let target = RefTarget {
                repo: Repository {
                    repo: repo.url(),
                    ..Repository::default()
                },
                target_revision: "HEAD".into(),
                ..RefTarget::default()
            };
            request.ref_sources.insert("$ref".into(), target);
            let answer = format!("{:?}", running.client.generate_manifest(request).await);
            assert!(!answer.contains(CANARY), "{source:?}: {answer}");
        }
        for path in [text.clone(), format!("{text}*"), format!("**/{text}")] {
            let answer = running
                .client
                .get_git_files(GitFilesRequest {
                    repo: repository(&repo),
                    revision: "HEAD".into(),
                    path,
                    ..GitFilesRequest::default()
                })
                .await;
            assert!(
                !format!("{answer:?}").contains("canary.yaml\""),
                "{text}: {answer:?}"
            );
        }
    }
}

/// SEC-FS-RACE: commits cannot change under a render; a person's own directory can.
#[test]
fn sec_fs_race_a_directory_that_becomes_a_link_while_it_is_read_leads_nowhere() {
    let (outside, inside) = (outside(), tempfile::tempdir().unwrap());
    let (real, link, place) = (
        inside.path().join("real"),
        inside.path().join("link"),
        inside.path().join("app"),
    );
    std::fs::create_dir(&real).unwrap();
    std::fs::write(real.join("canary.yaml"), config_map("a", "own")).unwrap();
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    std::fs::rename(&real, &place).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::fs::rename(&place, &real);
                let _ = std::fs::rename(&link, &place);
                let _ = std::fs::rename(&place, &link);
                let _ = std::fs::rename(&real, &place);
            }
        });
        let tree = Tree::disk(inside.path()).unwrap();
        let path = TreePath::parse("app/canary.yaml").unwrap();
        let mut read = 0;
        // Longer where somebody asks for it: `ARGOSY_RACE_SECONDS=60`.
        let seconds = std::env::var("ARGOSY_RACE_SECONDS").map_or(0, |text| text.parse().unwrap());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
        let mut rounds = 0;
        while rounds < 20_000 || read == 0 || std::time::Instant::now() < until {
            rounds += 1;
            if let Ok(data) = tree.read(&path, 1 << 20) {
                read += 1;
                assert!(!String::from_utf8_lossy(&data).contains(CANARY));
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut pending, mut files) = (vec![dir.to_owned()], Vec::new());
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}
