//! Config management plugins over real sockets, with plugins that are shell scripts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_api::repository::RepoServerAppDetailsQuery;
use argosy_api::v1alpha1::ApplicationSource;
use argosy_repo_server::Error;
use argosy_repo_server::render::Request;
use argosy_runtime::tasks::Tasks;
use serde_json::{Value, json};

use crate::git::Sshd;
use crate::render::{CHART, Fixture, names, request};
use crate::service::{repository, running_with};
use crate::support::{self, Repo, config_map, http_backend};

/// Sidecars, and the directory of their sockets.
struct Sidecars {
    tasks: Tasks,
    dir: tempfile::TempDir,
}

impl Drop for Sidecars {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl Sidecars {
    fn new() -> Sidecars {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sockets", "work"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Sidecars {
            tasks: Tasks::new(),
            dir,
        }
    }

    fn sockets(&self) -> PathBuf {
        self.dir.path().join("sockets")
    }

    /// Starts a plugin with a spec.
    fn start(&self, name: &str, spec: Value) {
        self.try_start(name, name, spec).unwrap();
    }

    /// The same, with its configuration in a folder of any name.
    fn try_start(&self, folder: &str, name: &str, spec: Value) -> anyhow::Result<PathBuf> {
        let config = self.dir.path().join(folder);
        std::fs::create_dir(&config).unwrap();
        let plugin = json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "ConfigManagementPlugin",
            "metadata": {"name": name},
            "spec": spec,
        });
        std::fs::write(config.join("plugin.yaml"), plugin.to_string()).unwrap();
        let args = argosy_cmp_server::Args {
            log: argosy_runtime::args::Log::default(),
            config_dir_path: config,
            plugin_sockets: self.sockets(),
            work_dir: Some(self.dir.path().join("work")),
            exec_timeout: Duration::from_secs(60),
            exec_fatal_timeout: Duration::from_secs(10),
            grpc_max_size: 1,
        };
        argosy_cmp_server::start(&args, &self.tasks)
    }

    fn fixture(&self) -> Fixture {
        Fixture::with(|args| args.plugin_sockets = self.sockets())
    }

    /// Files that requests have left behind.
    fn leftovers(&self) -> usize {
        fn count(dir: &Path) -> usize {
            let entries = std::fs::read_dir(dir).unwrap().flatten();
            entries
                .map(|entry| {
                    if entry.path().is_dir() {
                        count(&entry.path())
                    } else {
                        1
                    }
                })
                .sum()
        }
        count(&self.dir.path().join("work"))
    }
}

fn shell(script: &str) -> Value {
    json!({"command": ["sh", "-c"], "args": [script]})
}

/// A script that prints a ConfigMap whose data are the outputs of commands.
fn config_map_of(name: &str, data: &[(&str, &str)]) -> String {
    let lines = data
        .iter()
        .map(|(key, command)| format!("echo \"  {key}: \\\"$({command})\\\"\""));
    let lines: Vec<String> = lines.collect();
    format!(
        "printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {{name: {name}}}\\ndata:\\n'; {}",
        lines.join("; ")
    )
}

fn source(value: Value) -> ApplicationSource {
    serde_json::from_value(value).unwrap()
}

async fn fails(fixture: &Fixture, request: &Request) -> Error {
    fixture.render(request).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_named_renders_with_what_the_source_says() {
    let sidecars = Sidecars::new();
    let script = config_map_of(
        "made",
        &[
            ("here", "cat a.txt"),
            ("beside", "cat ../shared/b.txt"),
            ("init", "cat from-init"),
            ("folder", "basename $PWD"),
            (
                "app",
                "echo $ARGOCD_APP_NAME $ARGOCD_APP_NAMESPACE $ARGOCD_APP_PROJECT_NAME",
            ),
            ("path", "echo $ARGOCD_APP_SOURCE_PATH"),
            ("kube", "echo $KUBE_VERSION $KUBE_API_VERSIONS"),
            ("env", "echo $ARGOCD_ENV_FOO"),
            ("parameter", "echo $PARAM_VALUES_FILES_1"),
        ],
    );
    sidecars.start(
        "cue",
        json!({"version": "v1", "init": shell("echo ready > from-init"), "generate": shell(&script)}),
    );
    let repo = Repo::with(&[("app/a.txt", "one"), ("shared/b.txt", "two")]);
    let plugin = json!({
        "name": "cue-v1",
        "env": [{"name": "FOO", "value": "at-$ARGOCD_APP_NAME"}],
        "parameters": [{"name": "values-files", "array": ["x", "y"]}],
    });
    let mut request = request(&repo, source(json!({"path": "app", "plugin": plugin})));
    request.app_name = "team_shop".into();
    request.kube_version = "v1.34.0-gke.100".into();
    request.api_versions = vec!["v1".into(), "apps/v1".into()];
    let fixture = sidecars.fixture();
    let made = fixture.render(&request).await.unwrap();
    assert_eq!(names(&made), ["ConfigMap/made"]);
    assert_eq!(
        made[0]["data"],
        json!({
            "here": "one", "beside": "two", "init": "ready", "folder": "app",
            "app": "team_shop shop-ns default", "path": "app", "kube": "1.34.0 v1,apps/v1",
            "env": "at-team_shop", "parameter": "y",
        })
    );
    let id = &made[0]["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"];
    assert_eq!(id, "team_shop:/ConfigMap:shop-ns/made");
    let manifests = fixture.renderer.manifests(&request).await.unwrap();
    assert_eq!(
        (manifests.rendered.source_type.as_str(), manifests.ran),
        ("Plugin", false)
    );
    assert_eq!(sidecars.leftovers(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_names_no_tool_goes_to_the_first_plugin_that_takes_it() {
    let sidecars = Sidecars::new();
    let generate = |name: &str| shell(&config_map_of(name, &[("a", "echo b")]));
    sidecars.start(
        "a-file",
        json!({"generate": generate("file"), "discover": {"fileName": "*.cue"}}),
    );
    sidecars.start(
        "b-glob",
        json!({"generate": generate("glob"), "discover": {"find": {"glob": "**/deep.x"}}}),
    );
    let find = json!({"command": ["sh", "-c"], "args": ["grep -l mine *.txt"]});
    sidecars.start(
        "c-find",
        json!({"generate": generate("find"), "discover": {"find": find}}),
    );
    sidecars.start("d-named", json!({"generate": generate("named")}));
    let repo = Repo::with(&CHART);
    repo.commit(&[
        ("file/a.cue", ""),
        ("file/Chart.yaml", "name: not-asked\nversion: 1.0.0\n"),
        ("glob/x/y/deep.x", ""),
        ("find/a.txt", "this is mine"),
        ("plain/a.yaml", &config_map("plain", "1")),
    ]);
    let fixture = sidecars.fixture();
    for (path, made) in [
        ("file", "ConfigMap/file"),
        ("glob", "ConfigMap/glob"),
        ("find", "ConfigMap/find"),
        ("plain", "ConfigMap/plain"),
        ("web", "ConfigMap/shop"),
    ] {
        let found = fixture
            .render(&request(&repo, source(json!({"path": path}))))
            .await
            .unwrap();
        assert!(
            names(&found).contains(&made.to_owned()),
            "{path}: {:?}",
            names(&found)
        );
    }
    // Without a name, a source that wants a plugin wants one that takes it; by its name, one without discovery takes all.
    let unnamed = |path: &str| request(&repo, source(json!({"path": path, "plugin": {}})));
    assert_eq!(
        names(&fixture.render(&unnamed("file")).await.unwrap()),
        ["ConfigMap/file"]
    );
    assert_eq!(
        fails(&fixture, &unnamed("plain")).await.to_string(),
        "CMP processing failed for application \"shop\": could not find plugin supporting the given repository"
    );
    let named = |name: &str| request(&repo, source(json!({"path": "plain", "plugin": {"name": name}})));
    assert_eq!(
        names(&fixture.render(&named("d-named")).await.unwrap()),
        ["ConfigMap/named"]
    );
    for name in ["a-file", "nobody", "../sockets/d-named"] {
        assert_eq!(
            fails(&fixture, &named(name)).await.to_string(),
            format!(
                "CMP processing failed for application \"shop\": could not find cmp-server plugin with name {name:?} \
                 supporting the given repository"
            )
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_does_wrong_is_told_in_its_words() {
    let sidecars = Sidecars::new();
    for (name, script) in [
        ("exits", "echo half; echo the key is missing >&2; exit 7"),
        ("prose", "echo hello, world"),
        ("broken", "echo 'a: ['"),
        ("kindless", "echo 'metadata: {name: x}'"),
        ("bomb", "head -c 3000000 /dev/zero | tr '\\0' a"),
        ("silent", "true"),
    ] {
        sidecars.start(name, json!({"generate": shell(script)}));
    }
    let repo = Repo::with(&[("app/a.txt", "one")]);
    let fixture = sidecars.fixture();
    let named = |name: &str| request(&repo, source(json!({"path": "app", "plugin": {"name": name}})));
    for (name, words) in [
        (
            "exits",
            "CMP processing failed for application \"shop\": error generating manifests in cmp: rpc error: code = Unknown \
             desc = error generating manifests: `sh -c echo half; echo the key is missing >&2; exit 7` failed exit status 7: \
             the key is missing",
        ),
        (
            "prose",
            "failed to convert CMP manifests to unstructured objects: the document is not an object",
        ),
        (
            "broken",
            "error generating manifests: failed to unmarshal manifest: ",
        ),
        (
            "kindless",
            "failed to convert CMP manifests to unstructured objects: Object 'Kind' is missing",
        ),
        ("bomb", "failed as it printed more than 1048576 bytes"),
    ] {
        let error = fails(&fixture, &named(name)).await;
        assert!(matches!(error, Error::Plugin { .. }), "{name}: {error:?}");
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    // Nothing is what a plugin may print, as in Argo CD; whether that prunes is for others to hold up.
    assert!(fixture.render(&named("silent")).await.unwrap().is_empty());
    assert_eq!(sidecars.leftovers(), 0);
    assert!(fixture.leftovers().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_hangs_costs_its_own_applications_a_deadline() {
    let sidecars = Sidecars::new();
    sidecars.start("sleepy", json!({"generate": shell("sleep 600")}));
    // One that takes connections and says nothing.
    let mute = std::os::unix::net::UnixListener::bind(sidecars.sockets().join("mute.sock")).unwrap();
    let repo = Repo::with(&[("app/a.yaml", &config_map("plain", "1"))]);
    let fixture = Fixture::with(|args| {
        args.plugin_sockets = sidecars.sockets();
        // Time enough for Git, which they have as well.
        args.exec_timeout = Duration::from_secs(15);
    });
    let named = |name: &str| request(&repo, source(json!({"path": "app", "plugin": {"name": name}})));
    let (sleepy, mute_too) = (named("sleepy"), named("mute"));
    let (slow, mute_error) = tokio::join!(fails(&fixture, &sleepy), fails(&fixture, &mute_too));
    let told = slow.to_string();
    assert!(
        matches!(slow, Error::Deadline { .. }) || told.contains("` failed timeout after "),
        "{told}"
    );
    let explicit = fixture
        .render(&request(&repo, source(json!({"path": "app", "directory": {}}))))
        .await;
    assert_eq!(
        mute_error.to_string(),
        "the config management plugin mute did not finish within 15 s"
    );
    assert!(
        explicit.is_ok(),
        "a source that names its tool is no plugin's business"
    );
    drop(mute);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_down_hands_its_sources_to_no_other_tool() {
    let sidecars = Sidecars::new();
    // A socket that nobody listens on any more.
    drop(std::os::unix::net::UnixListener::bind(sidecars.sockets().join("secrets.sock")).unwrap());
    let repo = Repo::with(&CHART);
    let fixture = sidecars.fixture();
    let error = fails(&fixture, &request(&repo, source(json!({"path": "web"})))).await;
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("failed to ask the config management plugin secrets: "),
        "{error}"
    );
    // Once it is back, it is asked.
    let discover = json!({"fileName": "Chart.yaml"});
    let generate = shell(&config_map_of("secrets", &[("a", "echo b")]));
    sidecars.start("secrets", json!({"generate": generate, "discover": discover}));
    let mut again = request(&repo, source(json!({"path": "web"})));
    again.no_cache = true;
    assert_eq!(
        names(&fixture.render(&again).await.unwrap()),
        ["ConfigMap/secrets"]
    );
    // A socket that goes, as one does with its sidecar, takes nothing with it: the chart is still the plugin's.
    std::fs::remove_file(sidecars.sockets().join("secrets.sock")).unwrap();
    let error = fails(&fixture, &again).await;
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_asked_at_each_commit_unless_the_application_names_its_paths() {
    let sidecars = Sidecars::new();
    let script = config_map_of(
        "made",
        &[("files", "cd ..; find . -type f | sort | tr '\\n' ' '")],
    );
    sidecars.start("lists", json!({"generate": shell(&script)}));
    let repo = Repo::with(&[
        ("app/a", "1"),
        ("lib/b", "1"),
        ("other/c", "1"),
        ("app/skipped/d", "1"),
    ]);
    for (declared, seen) in [(false, "./app/a ./lib/b ./other/c "), (true, "./app/a ./lib/b ")] {
        let fixture = Fixture::with(|args| {
            args.plugin_sockets = sidecars.sockets();
            args.plugin_tar_exclusions = vec!["*/skipped".into()];
            args.plugin_use_manifest_generate_paths = declared;
        });
        let mut request = request(&repo, source(json!({"path": "app", "plugin": {"name": "lists"}})));
        request.generate_paths = ".;/lib".into();
        let first = fixture.renderer.manifests(&request).await.unwrap();
        assert!(first.ran);
        let made: Value = serde_json::from_str(&first.rendered.manifests[0]).unwrap();
        assert_eq!(made["data"]["files"], seen);
        repo.commit(&[("other/c", if declared { "2" } else { "3" })]);
        let elsewhere = fixture.renderer.manifests(&request).await.unwrap();
        assert_eq!(elsewhere.ran, !declared, "a commit beside the paths");
        repo.commit(&[("lib/b", if declared { "2" } else { "3" })]);
        assert!(
            fixture.renderer.manifests(&request).await.unwrap().ran,
            "a commit in the paths"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_discovery_looked_at_is_looked_at_again_when_it_changes() {
    let sidecars = Sidecars::new();
    let generate = shell(&config_map_of("plugin", &[("a", "echo b")]));
    sidecars.start(
        "late",
        json!({"generate": generate, "discover": {"fileName": "plugin.me"}}),
    );
    let repo = Repo::with(&[("app/a.yaml", &config_map("plain", "1")), ("other", "1")]);
    let fixture = sidecars.fixture();
    let request = request(&repo, source(json!({"path": "app"})));
    assert_eq!(
        names(&fixture.render(&request).await.unwrap()),
        ["ConfigMap/plain"]
    );
    repo.commit(&[("other", "2")]);
    assert!(!fixture.renderer.manifests(&request).await.unwrap().ran);
    repo.commit(&[("app/plugin.me", "")]);
    assert_eq!(
        names(&fixture.render(&request).await.unwrap()),
        ["ConfigMap/plugin"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_hears_how_to_reach_the_repository_only_if_it_asks() {
    let sidecars = Sidecars::new();
    let script = config_map_of(
        "made",
        &[
            ("key", "echo $GIT_CONFIG_KEY_0"),
            ("value", "echo $GIT_CONFIG_VALUE_0"),
        ],
    );
    sidecars.start(
        "with",
        json!({"generate": shell(&script), "provideGitCreds": true}),
    );
    sidecars.start("without", json!({"generate": shell(&script)}));
    let repo = Repo::with(&[("app/a", "1")]);
    let root = repo.path().to_owned();
    let server = support::Http::start(None, move |seen| http_backend(&root, seen))
        .await
        .address;
    let fixture = sidecars.fixture();
    for (name, asked) in [("with", true), ("without", false)] {
        let mut request = request(&repo, source(json!({"path": "app", "plugin": {"name": name}})));
        request.repo.repo = format!("http://{server}/.git");
        request.repo.username = "ada".into();
        request.repo.password = "hush".into();
        let made = fixture.render(&request).await.unwrap();
        let (key, value) = if asked {
            (
                format!("http.http://{server}/.extraHeader"),
                "Authorization: Basic YWRhOmh1c2g=",
            )
        } else {
            (String::new(), "")
        };
        assert_eq!(made[0]["data"], json!({"key": key, "value": value}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_reaches_the_repository_over_ssh_and_nothing_of_it_stays_behind() {
    let sidecars = Sidecars::new();
    let temporary = sidecars.dir.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let script = format!(
        "export TMPDIR={}; {}",
        temporary.display(),
        config_map_of(
            "made",
            &[
                ("head", "git ls-remote $ARGOCD_APP_SOURCE_REPO_URL HEAD | cut -f1"),
                (
                    "elsewhere",
                    "git ls-remote $(echo $ARGOCD_APP_SOURCE_REPO_URL | sed s/127.0.0.1/localhost/) HEAD 2>/dev/null | cut -f1"
                ),
            ],
        )
    );
    sidecars.start(
        "with",
        json!({"generate": shell(&script), "provideGitCreds": true}),
    );
    sidecars.start("without", json!({"generate": shell(&script)}));
    let repo = Repo::with(&[("app/a", "1")]);
    let head = support::git(repo.path(), &["rev-parse", "HEAD"]);
    let sshd = Sshd::start();
    sshd.ready().await;
    let user = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap()
        .stdout;
    let user = String::from_utf8(user).unwrap();
    let url = format!(
        "ssh://{}@127.0.0.1:{}{}",
        user.trim(),
        sshd.port,
        repo.path().display()
    );
    let fixture = sidecars.fixture();
    for (name, expected) in [("with", head.as_str()), ("without", "")] {
        let plugin = json!({"path": "app", "plugin": {"name": name}});
        let mut request = request(&repo, source(plugin));
        request.repo.repo = url.clone();
        request.source.repo_url = url.clone();
        request.repo.ssh_private_key = sshd.read("user");
        request.repo.insecure = true;
        let made = fixture.render(&request).await.unwrap();
        // The key is for the host that it was given for.
        assert_eq!(
            made[0]["data"],
            json!({"head": expected, "elsewhere": ""}),
            "{name}"
        );
    }
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_announced_those_of_the_author_last() {
    let sidecars = Sidecars::new();
    let dynamic = shell(
        "echo '[{\"name\": \"found\", \"string\": \"x\"}, {\"name\": \"fixed\", \"title\": \"late\"}]'",
    );
    sidecars.start(
        "announces",
        json!({
            "generate": shell("true"),
            "discover": {"fileName": "a.txt"},
            "parameters": {
                "static": [{"name": "fixed", "title": "Fixed", "required": true, "collectionType": "map", "map": {"a": "b"}}],
                "dynamic": dynamic,
            },
        }),
    );
    let repo = Repo::with(&[("app/a.txt", "one")]);
    let running = running_with(true, |args| args.plugin_sockets = sidecars.sockets()).await;
    let query = RepoServerAppDetailsQuery {
        repo: repository(&repo),
        source: Some(source(json!({"path": "app"}))),
        ..RepoServerAppDetailsQuery::default()
    };
    let details = running.client.get_app_details(query).await.unwrap();
    assert_eq!(details.r#type, "Plugin");
    let announced = details.plugin.unwrap().parameters_announcement;
    let shown: Vec<_> = announced
        .iter()
        .map(|one| (one.name.as_str(), one.title.as_str(), one.required))
        .collect();
    assert_eq!(
        shown,
        [
            ("found", "", false),
            ("fixed", "late", false),
            ("fixed", "Fixed", true)
        ]
    );
    assert_eq!(announced[2].map["a"], "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_for_the_same_wait_for_one_run_of_the_plugin() {
    let sidecars = Sidecars::new();
    let count = sidecars.dir.path().join("count");
    let script = format!(
        "echo x >> {}; sleep 1; {}",
        count.display(),
        config_map_of("made", &[("a", "echo b")])
    );
    sidecars.start("slow", json!({"generate": shell(&script)}));
    let repo = Repo::with(&[("app/a", "1")]);
    let fixture = sidecars.fixture();
    let request = request(&repo, source(json!({"path": "app", "plugin": {"name": "slow"}})));
    let answers = futures::future::join_all((0..20).map(|_| fixture.renderer.manifests(&request))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sidecars_of_one_name_are_told_apart_by_an_error() {
    let sidecars = Sidecars::new();
    let generate = json!({"generate": shell(&config_map_of("first", &[("a", "echo b")]))});
    sidecars.start("twin", generate.clone());
    let error = sidecars.try_start("other", "twin", generate).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("another plugin \"twin\" listens on ") && error.contains("metadata.name"),
        "{error}"
    );
    // The first one is none the worse for it.
    let repo = Repo::with(&[("app/a", "1")]);
    let request = request(&repo, source(json!({"path": "app", "plugin": {"name": "twin"}})));
    let made = sidecars.fixture().render(&request).await.unwrap();
    assert_eq!(names(&made), ["ConfigMap/first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_a_plugin_takes_is_listed_as_the_plugins() {
    let sidecars = Sidecars::new();
    let discover = json!({"find": {"glob": "**/plugin.me"}});
    sidecars.start("takes", json!({"generate": shell("true"), "discover": discover}));
    let running = running_with(true, |args| args.plugin_sockets = sidecars.sockets()).await;
    let kustomization = ("app/kustomization.yaml", "resources: []\n");
    for (more, expected) in [
        (("app/plugin.me", ""), (".", "Plugin")),
        (("app/x", ""), ("app", "Kustomize")),
    ] {
        let repo = Repo::with(&[kustomization, more]);
        let request = argosy_api::repository::ListAppsRequest {
            repo: repository(&repo),
            ..Default::default()
        };
        let apps = running.client.list_apps(request).await.unwrap().apps;
        let apps: Vec<(&str, &str)> = apps
            .iter()
            .map(|(path, kind)| (path.as_str(), kind.as_str()))
            .collect();
        assert_eq!(apps, [expected]);
    }
}
