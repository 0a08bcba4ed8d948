//! Commands that speak to an API server, against `argosy server` on a real kube-apiserver. There is no controller and no
//! repo-server: what needs them is tested end to end.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::{ADMIN_TOKEN, Binaries, Cluster, free_port};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PASSWORD: &str = "correct-horse-1";
/// bcrypt of it.
const PASSWORD_HASH: &str = "$2b$04$FjMOwzMjZSk/YnN8FQ7wSuv4NsV0umSudwzN1ZTO/QDziFfVytHEq";
/// Long enough for a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server that ends with the test's process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// The control plane and the server that tests share. What they write is their own.
pub(crate) struct World {
    cluster: Cluster,
    pub(crate) address: String,
    _server: Server,
}

pub(crate) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-it");
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch).unwrap();
        let cluster = Cluster::start_in(Binaries::locate().unwrap(), &scratch).unwrap();
        on_runtime(prepare(&cluster));
        let port = free_port().unwrap();
        let server = Command::new(env!("CARGO_BIN_EXE_argosy"))
            .args([
                "server",
                "--insecure",
                "--namespace=argocd",
                "--address=127.0.0.1",
                "--metrics-address=127.0.0.1:0",
            ])
            .arg(format!("--port={port}"))
            .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
            .args([
                "--controller=127.0.0.1:1",
                "--repo-server=127.0.0.1:1",
                "--repo-server-timeout-seconds=2",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{port}");
        let started = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(started.elapsed() < PATIENCE, "the server does not listen");
            std::thread::sleep(Duration::from_millis(100));
        }
        World {
            cluster,
            address,
            _server: Server(server),
        }
    })
}

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(future)
}

async fn prepare(cluster: &Cluster) {
    let api = Api::connect(&cluster.kubeconfig()).await.unwrap();
    for crd in argosy_api::crds() {
        api.apply(kinds::CRD, &crd).await.unwrap();
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}});
    apply(&api, kinds::NAMESPACE, namespace).await;
    let metadata = |name: &str| json!({"name": name, "namespace": "argocd", "labels": {"app.kubernetes.io/part-of": "argocd"}});
    let settings = json!({"accounts.robot": "apiKey, login"});
    apply(
        &api,
        kinds::CONFIG_MAP,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("argocd-cm"), "data": settings}),
    )
    .await;
    let policy = json!({"policy.csv": "p, robot, applications, get, default/*, allow\n"});
    apply(&api, kinds::CONFIG_MAP, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("argocd-rbac-cm"), "data": policy})).await;
    let secret = json!({"admin.password": PASSWORD_HASH, "admin.passwordMtime": "2026-01-01T00:00:00Z"});
    apply(&api, kinds::SECRET, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("argocd-secret"), "stringData": secret})).await;
    // The control plane has no token controller: what `cluster add` waits for is there already.
    let token = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"token": ADMIN_TOKEN},
        "metadata": {"name": "argocd-manager-long-lived-token", "namespace": "kube-system"}});
    apply(&api, kinds::SECRET, token).await;
}

/// CRDs and namespaces take a moment.
async fn apply(api: &Api, kind: Kind, object: Value) {
    let started = Instant::now();
    while let Err(error) = api.apply(kind, &object).await {
        assert!(started.elapsed() < PATIENCE, "{error:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Somebody who has logged in, with a folder of their own.
pub(crate) struct Person(TempDir);

impl Person {
    pub(crate) fn new() -> Person {
        Person(TempDir::new().unwrap())
    }

    /// One after the other: logins of one account at the same time share a budget of failures until they have succeeded.
    pub(crate) fn admin() -> Person {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let person = Person::new();
        let said = person.says(&[
            "login",
            &world().address,
            "--username",
            "admin",
            "--password",
            PASSWORD,
        ]);
        assert!(said.contains("'admin:login' logged in successfully"), "{said}");
        person
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_argosy"))
            .args(words)
            .arg("--plaintext")
            .env("ARGOCD_CONFIG", self.path("config"))
            .env("EDITOR", self.path("editor"))
            .env_remove("ARGOCD_SERVER")
            .env_remove("ARGOCD_AUTH_TOKEN")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// stdout of a command that must work.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// stderr of a command that must not work, and its exit code.
    pub(crate) fn fails(&self, words: &[&str]) -> (String, i32) {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{words:?}: {said}");
        (
            String::from_utf8(output.stderr).unwrap(),
            output.status.code().unwrap(),
        )
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[words, &["-o", "json"]].concat())).unwrap()
    }
}

pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn an_application_is_made_from_flags_and_changed_by_them() {
    let admin = Person::admin();
    let create = "app create shop --repo https://git.example.com/shop --path deploy --revision main --dest-namespace shop \
        --dest-server https://kubernetes.default.svc --sync-policy auto --auto-prune --sync-option CreateNamespace=true \
        --helm-set replicas=2 -p image.tag=1 --label team=a --validate=false";
    assert_eq!(admin.says(&words(create)), "application 'shop' created\n");
    assert_eq!(admin.says(&words(create)), "application 'shop' unchanged\n");
    let (error, code) = admin.fails(&words(&create.replace("main", "other")));
    assert_eq!(code, 20);
    assert!(error.contains("use upsert flag to force update"), "{error}");

    let table = admin.says(&words("app list -l team=a"));
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row,
        [
            "argocd/shop",
            "https://kubernetes.default.svc",
            "shop",
            "default",
            "Auto-Prune",
            "<none>",
            "https://git.example.com/shop",
            "deploy",
            "main"
        ]
    );
    assert!(table.starts_with("NAME         CLUSTER "), "{table}");
    assert_eq!(admin.says(&words("app list -o name -l team=a")), "argocd/shop\n");
    let app = admin.json(&words("app get shop"));
    assert_eq!(
        (&app["kind"], &app["metadata"]["name"]),
        (&json!("Application"), &json!("shop"))
    );
    let helm = &app["spec"]["source"]["helm"]["parameters"];
    assert_eq!(
        *helm,
        json!([{"name": "image.tag", "value": "1"}, {"name": "replicas", "value": "2"}])
    );

    admin.says(&words("app set shop --revision v2 --kustomize-image web=web:2 --self-heal --sync-option !CreateNamespace=true --sync-retry-limit 3 --validate=false"));
    admin.says(&words("app unset shop -p image.tag"));
    let spec = &admin.json(&words("app get argocd/shop"))["spec"];
    assert_eq!(spec["source"]["targetRevision"], "v2");
    assert_eq!(spec["source"]["kustomize"]["images"], json!(["web=web:2"]));
    assert_eq!(
        spec["source"]["helm"]["parameters"],
        json!([{"name": "replicas", "value": "2"}])
    );
    assert_eq!(
        spec["syncPolicy"]["automated"],
        json!({"prune": true, "selfHeal": true})
    );
    assert!(spec["syncPolicy"].get("syncOptions").is_none(), "{spec}");
    assert_eq!(spec["syncPolicy"]["retry"]["limit"], 3);
    let (error, _) = admin.fails(&words("app set shop --sync-policy none --self-heal"));
    assert!(error.contains("--self-heal"), "{error}");

    // An editor that replaces a word; then one that changes nothing.
    editor(&admin, "sed -i s/v2/v3/ \"$1\"");
    admin.says(&words("app edit shop"));
    assert_eq!(
        admin.json(&words("app get shop"))["spec"]["source"]["targetRevision"],
        "v3"
    );
    editor(&admin, "true");
    assert_eq!(
        admin.says(&words("app edit shop")),
        "Edit cancelled, no changes made.\n"
    );
    // A patch is looked at by the server, which has no repo-server here.
    let patch = r#"{"spec":{"source":{"path":"other"}}}"#;
    let (error, code) = admin.fails(&["app", "patch", "shop", "--type", "merge", "--patch", patch]);
    assert_eq!(code, 20);
    assert!(error.contains("connect to the repo-server"), "{error}");

    let (error, code) = admin.fails(&words("app wait shop --timeout 1"));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("timed out (1s)"), "{error}");
    let (error, _) = admin.fails(&words("app rollback shop"));
    assert!(error.contains("history"), "{error}");
    let sync = "app sync shop --async --dry-run --revision v3 --resource apps:Deployment:web";
    let (error, code) = admin.fails(&words(sync));
    assert_eq!(code, 20);
    assert!(error.contains("repo-server"), "{error}");
    assert_eq!(
        admin.says(&words("app delete shop --cascade=false -y --wait")),
        "application 'shop' deleted\n"
    );
    let (error, code) = admin.fails(&words("app get shop"));
    assert_eq!((error.contains("permission denied"), code), (true, 20), "{error}");
}

fn editor(person: &Person, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = person.file("editor", &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_project_is_made_and_changed_piece_by_piece() {
    let admin = Person::admin();
    admin.says(&words("proj create team -d https://kubernetes.default.svc,team --description Team -s https://git.example.com/*"));
    admin.says(&words("proj add-source team https://charts.example.com"));
    let (error, code) = admin.fails(&words("proj add-source team https://charts.example.com"));
    assert_eq!((error.contains("already defined"), code), (true, 20), "{error}");
    admin.says(&words("proj remove-source team https://charts.example.com"));
    admin.says(&words("proj add-destination team far prod --name"));
    assert_eq!(
        admin.says(&words(
            "proj allow-cluster-resource team rbac.authorization.k8s.io ClusterRole"
        )),
        "Group 'rbac.authorization.k8s.io' and kind 'ClusterRole' is added to the allow list\n"
    );
    assert_eq!(
        admin.says(&["proj", "deny-namespace-resource", "team", "", "Secret"]),
        "Group '' and kind 'Secret' is added to the deny list\n"
    );
    let spec = &admin.json(&words("proj get team"))["spec"];
    assert_eq!(spec["sourceRepos"], json!(["https://git.example.com/*"]));
    assert_eq!(
        spec["destinations"][1],
        json!({"name": "far", "namespace": "prod"})
    );
    assert_eq!(
        spec["namespaceResourceBlacklist"],
        json!([{"group": "", "kind": "Secret"}])
    );
    let table = admin.says(&words("proj list"));
    assert!(
        table.contains("\nteam     Team         2 destinations  https://git.example.com/*  "),
        "{table}"
    );

    assert_eq!(
        admin.says(&words("proj role create team ci --description robots")),
        "Role 'ci' created\n"
    );
    assert_eq!(
        admin.says(&words("proj role create team ci")),
        "Role 'ci' already exists\n"
    );
    admin.says(&words("proj role add-policy team ci -a sync -o *"));
    assert_eq!(
        admin.says(&words("proj role add-group team ci robots")),
        "Group 'robots' added to role 'ci'\n"
    );
    let shown = admin.says(&words("proj role get team ci"));
    assert!(
        shown.contains("p, proj:team:ci, applications, sync, team/*, allow\n")
            && shown.contains("  - robots\n"),
        "{shown}"
    );
    let token = admin.says(&words("proj role create-token team ci -e 1h -i one -t"));
    assert!(token.trim().split('.').count() == 3, "{token}");
    let tokens = admin.says(&words("proj role list-tokens team ci -u"));
    let row: Vec<&str> = tokens.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[0], "one");
    assert_eq!(
        row[2].parse::<i64>().unwrap() - row[1].parse::<i64>().unwrap(),
        3600
    );
    // The token is worth what the role is.
    let output = admin.run(&[
        "account",
        "can-i",
        "sync",
        "applications",
        "team/web",
        "--auth-token",
        token.trim(),
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "yes\n");
    admin.says(&["proj", "role", "delete-token", "team", "ci", row[1], "-y"]);
    assert_eq!(
        admin.says(&words("proj role list-tokens team ci")),
        "No tokens for team.ci\n"
    );
    admin.says(&words("proj role remove-policy team ci -a sync -o *"));
    assert_eq!(
        admin.says(&words("proj role delete team ci -y")),
        "Role 'ci' deleted\n"
    );

    let window = [
        "proj",
        "windows",
        "add",
        "team",
        "--kind",
        "deny",
        "--schedule",
        "0 22 * * *",
        "--duration",
        "1h",
        "--applications",
        "*",
    ];
    admin.says(&window);
    admin.says(&words("proj windows enable-manual-sync team 0"));
    let table = admin.says(&words("proj windows list team"));
    assert!(
        table.contains("0   Inactive  deny  0 22 * * *  1h        *") || table.contains("0   Active"),
        "{table}"
    );
    assert!(table.contains("Enabled"), "{table}");
    let (error, _) = admin.fails(&words("proj windows update team 0 --duration soon"));
    assert!(error.contains("duration"), "{error}");
    admin.says(&words("proj windows delete team 0"));
    admin.says(&words("proj delete team -y"));
    assert_eq!(admin.fails(&words("proj get team")).1, 20);
}

#[test]
fn accounts_have_tokens_and_passwords_and_are_told_why() {
    let admin = Person::admin();
    let table = admin.says(&words("account list"));
    assert!(
        table.starts_with("NAME   ENABLED  CAPABILITIES\n") && table.contains("\nrobot  true     "),
        "{table}"
    );
    let token = admin.says(&words("account generate-token -a robot --id one"));
    let robot = ["--auth-token", token.trim()];
    let asked = |line: &str| admin.says(&[&words(line)[..], &robot].concat());
    assert_eq!(
        asked("account can-i get applications default/web --explain"),
        "yes\nallowed by: p, robot, applications, get, default/*, allow\n"
    );
    assert_eq!(
        asked("account can-i sync applications default/web --explain"),
        "no\nno rule allows it\n"
    );
    assert!(asked("account get-user-info").contains("Username: robot\n"));
    assert!(admin.says(&words("account get -a robot")).contains("\none  "));
    admin.says(&words("account delete-token one -a robot -y"));
    let output = admin.run(&[&["account", "list"], &robot[..]].concat());
    assert_eq!(output.status.code(), Some(20));

    admin.says(&[
        "account",
        "update-password",
        "--account",
        "robot",
        "--current-password",
        PASSWORD,
        "--new-password",
        "battery-staple-2",
    ]);
    let said = admin.says(&[
        "login",
        &world().address,
        "--username",
        "robot",
        "--password",
        "battery-staple-2",
        "--name",
        "robot",
    ]);
    assert!(said.contains("Context 'robot' updated"), "{said}");
    assert!(admin.says(&words("context")).contains("*        robot "));
    let hash = admin.says(&words("account bcrypt --password secret"));
    assert!(hash.starts_with("$2a$10$"), "{hash}");
    let both = admin.json(&words("version"));
    assert!(
        both["client"]["Version"].is_string()
            && both["server"]["Version"].as_str().unwrap().starts_with("v3.6")
    );
}

#[test]
fn keys_certificates_and_templates_come_and_go() {
    let admin = Person::admin();
    let hosts = admin.file("known_hosts", "# a remark\ngit.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n");
    assert_eq!(
        admin.says(&["cert", "add-ssh", "--batch", "--from", &hosts]),
        "Successfully created 1 SSH known host entries\n"
    );
    let table = admin.says(&words("cert list --cert-type ssh"));
    assert!(
        table.contains("git.example.com  ssh   ssh-ed25519  SHA256:"),
        "{table}"
    );
    assert!(
        admin
            .says(&words("cert rm git.example.com -y"))
            .starts_with("Removed cert for 'git.example.com' of type 'ssh'")
    );
    let (error, _) = admin.fails(&["cert", "add-tls", "git.example.com", "--from", &hosts]);
    assert!(error.contains("no valid certificates"), "{error}");

    // The sample key of RFC 9580.
    let key = admin.file("key.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxjMEU/NfCxYJKwYBBAHaRw8BAQdAPwmJlL3ZFu1AUxl5NOSofIBzOhKA1i+AEJku\nQ+47JAY=\n-----END PGP PUBLIC KEY BLOCK-----\n");
    assert_eq!(
        admin.says(&["gpg", "add", "--from", &key]),
        "Created 1 key(s) from input file.\n"
    );
    assert!(
        admin
            .says(&["gpg", "add", "--from", &key])
            .contains("1 key(s) were skipped because they exist already")
    );
    assert_eq!(
        admin.says(&words("gpg list")),
        "KEYID             TYPE     IDENTITY\n8CFDE12197965A9A  ED25519\n"
    );
    assert!(
        admin
            .says(&words("gpg get 8CFDE12197965A9A"))
            .contains("C959BDBAFA32A2F89A153B678CFDE12197965A9A")
    );
    // Nobody is at a terminal here who could be asked.
    admin.says(&words("gpg rm 8CFDE12197965A9A"));

    let add = "repocreds add https://git.example.com/ --username u --password secret";
    assert_eq!(
        admin.says(&words(add)),
        "Repository credentials for 'https://git.example.com/' added\n"
    );
    assert_eq!(
        admin.says(&words("repocreds list")),
        "URL PATTERN               USERNAME  SSH_CREDS  TLS_CREDS\nhttps://git.example.com/  u         false      false\n"
    );
    assert!(!admin.says(&words("repocreds list -o yaml")).contains("secret"));
    admin.says(&words("repocreds rm https://git.example.com/"));
    let (error, code) = admin.fails(&[
        "repo",
        "add",
        "https://git.example.com/a",
        "--ssh-private-key-path",
        &key,
    ]);
    assert_eq!(code, 20);
    assert!(error.contains("only supported for SSH"), "{error}");
    // Nobody renders here: that it cannot be looked at is said, and nothing is stored.
    assert_eq!(admin.fails(&words("repo add https://git.example.com/a")).1, 20);
    assert_eq!(admin.says(&words("repo list -o url")), "");
}

#[test]
fn a_cluster_is_added_out_of_a_kubeconfig() {
    let admin = Person::admin();
    let kubeconfig = world().cluster.kubeconfig().display().to_string();
    let (error, _) = admin.fails(&["cluster", "add", "--kubeconfig", &kubeconfig]);
    assert!(error.contains("choose a context name"), "{error}");
    let server = world().cluster.server();
    let said = admin.says(&[
        "cluster",
        "add",
        "argosy",
        "--kubeconfig",
        &kubeconfig,
        "--name",
        "near",
        "--label",
        "a=b",
        "-y",
    ]);
    assert_eq!(said, format!("Cluster '{server}' added\n"));
    on_runtime(async {
        let api = Api::connect(&world().cluster.kubeconfig()).await.unwrap();
        let role = api
            .get(kinds::CLUSTER_ROLE, "", "argocd-manager-role")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(role["rules"][0]["verbs"], json!(["*"]));
        assert!(
            api.get(kinds::SERVICE_ACCOUNT, "kube-system", "argocd-manager")
                .await
                .unwrap()
                .is_some()
        );
    });
    assert!(admin.says(&words("cluster list -o server")).contains(&server));
    let shown = admin.json(&words("cluster get near"));
    assert_eq!(
        (&shown["name"], &shown["labels"]),
        (&json!("near"), &json!({"a": "b"}))
    );
    assert!(
        !shown.to_string().contains(ADMIN_TOKEN),
        "credentials do not come back"
    );
    assert_eq!(
        admin.says(&words("cluster set near --namespace shop")),
        "Cluster 'near' updated.\n"
    );
    assert_eq!(
        admin.json(&words("cluster get near"))["namespaces"],
        json!(["shop"])
    );
    // Not of a service account's Secret: it cannot be rotated, and stays.
    let (error, _) = admin.fails(&words("cluster rotate-auth near"));
    assert!(error.contains("add the cluster anew"), "{error}");
    assert_eq!(
        admin.says(&words("cluster rm near -y")),
        "Cluster 'near' removed\n"
    );
    assert!(!admin.says(&words("cluster list -o server")).contains(&server));
}

#[test]
fn an_application_set_is_made_listed_and_deleted() {
    let admin = Person::admin();
    let set = admin.file("set.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: many}\nspec:\n  generators: [{list: {elements: [{name: a}]}}]\n  template:\n    metadata: {name: '{{name}}'}\n    spec:\n      project: default\n      source: {repoURL: https://git.example.com/a, path: ., targetRevision: HEAD}\n      destination: {server: https://kubernetes.default.svc, namespace: a}\n");
    let said = admin.says(&["appset", "create", &set]);
    assert!(said.starts_with("ApplicationSet 'many' created\n"), "{said}");
    assert_eq!(admin.says(&words("appset list -o name")), "argocd/many\n");
    assert!(
        admin
            .says(&words("appset get many"))
            .contains("- Repo:             https://git.example.com/a\n")
    );
    assert_eq!(
        admin.says(&words("appset delete many -y")),
        "applicationset 'many' deleted\n"
    );
}

#[test]
fn policies_are_asked_without_a_server() {
    let admin = Person(TempDir::new().unwrap());
    let csv = admin.file(
        "policy.csv",
        "p, role:dev, applications, sync, shop/*, allow\ng, alice, role:dev\n",
    );
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_argosy"))
            .args(words)
            .output()
            .unwrap();
        (
            String::from_utf8(output.stdout).unwrap(),
            output.status.code().unwrap(),
        )
    };
    let can = |line: &str| {
        run(&[
            &["admin", "rbac", "can"][..],
            &words(line),
            &["--policy-file", &csv, "--explain"],
        ]
        .concat())
    };
    assert_eq!(
        can("alice sync app shop/web"),
        (
            "Yes\nallowed by: p, role:dev, applications, sync, shop/*, allow\n".to_owned(),
            0
        )
    );
    assert_eq!(
        can("alice delete applications shop/web"),
        ("No\nno rule allows it\n".to_owned(), 1)
    );
    assert_eq!(can("role:admin get clusters").1, 0);
    assert_eq!(can("role:admin get clusters --use-builtin-policy=false").1, 1);
    assert_eq!(
        can("alice fly applications shop/web").1,
        2,
        "there is no such action"
    );
    let map = admin.file("argocd-rbac-cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-rbac-cm}\ndata:\n  policy.default: role:readonly\n  policy.csv: |\n    p, a, b\n");
    assert_eq!(
        run(&["admin", "settings", "rbac", "validate", "--policy-file", &csv]),
        ("Policy is valid.\n".to_owned(), 0)
    );
    let (said, code) = run(&["admin", "settings", "rbac", "validate", "--policy-file", &map]);
    assert_eq!(code, 1);
    assert!(said.contains("line 1") && said.contains("six fields"), "{said}");
}

#[test]
fn shells_and_readers_are_told_of_every_command() {
    let folder = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_argosy"))
            .args(["completion", shell])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut script = String::new();
        child.stdout.take().unwrap().read_to_string(&mut script).unwrap();
        assert!(child.wait().unwrap().success());
        for command in ["repocreds", "rotate-auth", "terminate-op"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let status = Command::new(env!("CARGO_BIN_EXE_argosy"))
        .arg("man")
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    let page = std::fs::read_to_string(folder.path().join("argosy-app-sync.1")).unwrap();
    assert!(page.contains("retry\\-limit"), "{page}");
}

#[test]
fn sources_of_an_application_come_and_go_and_deletions_are_confirmed() {
    let admin = Person::admin();
    let manifest = admin.file(
        "many.yaml",
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: many}\nspec:\n  project: default\n  \
         destination: {server: https://kubernetes.default.svc, namespace: default}\n  sources:\n  \
         - {repoURL: https://git.example.com/a, path: a}\n",
    );
    admin.says(&["app", "create", "--file", &manifest, "--validate=false"]);
    let sources = || -> Value {
        let app: Value = serde_json::from_str(&admin.says(&words("app get many -o json"))).unwrap();
        app["spec"]["sources"].clone()
    };
    let updated = "Application 'many' updated successfully\n";
    // The server looks at it unless told not to; there is no repo-server here that would find it good.
    let (error, _) = admin.fails(&words(
        "app add-source many --repo https://git.example.com/b --path b",
    ));
    assert!(error.contains("connect to the repo-server"), "{error}");
    assert_eq!(
        admin.says(&words(
            "app add-source many --repo https://git.example.com/b --path b --source-name b --validate=false"
        )),
        updated
    );
    assert_eq!(
        sources()[1],
        json!({"repoURL": "https://git.example.com/b", "path": "b", "name": "b"})
    );
    let (error, code) = admin.fails(&words("app remove-source many --source-position 3 -y"));
    assert!(
        error.contains("Application does not have source at 3") && code == 20,
        "{error}"
    );
    let (error, _) = admin.fails(&words("app remove-source many --source-name nobody -y"));
    assert!(error.contains("Unknown source name 'nobody'"), "{error}");
    assert_eq!(
        admin.says(&words("app remove-source many --source-position 1 -y")),
        updated
    );
    assert_eq!(
        sources(),
        json!([{"repoURL": "https://git.example.com/b", "path": "b", "name": "b"}])
    );
    let (error, _) = admin.fails(&words("app remove-source many --source-position 1 -y"));
    assert!(
        error.contains("Cannot remove the only source remaining in the app"),
        "{error}"
    );

    assert_eq!(admin.says(&words("app confirm-deletion many")), updated);
    let app: Value = serde_json::from_str(&admin.says(&words("app get many -o json"))).unwrap();
    assert!(
        app["metadata"]["annotations"]["argocd.argoproj.io/deletion-approved"].is_string(),
        "{app}"
    );

    // One source has no list to add to.
    admin.says(&words(
        "app create single --repo https://git.example.com/a --path a --dest-server https://kubernetes.default.svc --validate=false",
    ));
    let (error, _) = admin.fails(&words(
        "app add-source single --repo https://git.example.com/b --path b",
    ));
    assert!(error.contains("does not have spec.sources defined"), "{error}");

    // What is automated is not synced to what somebody has at home.
    admin.says(&words("app set single --sync-policy automated --validate=false"));
    let (error, _) = admin.fails(&["app", "sync", "single", "--local", "."]);
    assert!(
        error.contains("Cannot use local sync when Automatic Sync Policy is enabled"),
        "{error}"
    );

    assert_eq!(
        admin.says(&["relogin", "--password", PASSWORD]),
        "'admin:login' logged in successfully\n"
    );
    admin.says(&words("app list -o name"));

    // Who logs out of what is not there stays logged in where they are.
    let (error, _) = admin.fails(&words("logout nowhere"));
    assert!(error.contains("context nowhere does not exist"), "{error}");
    admin.says(&words("app list -o name"));
}
