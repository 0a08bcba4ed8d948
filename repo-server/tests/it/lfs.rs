//! Git LFS, with servers of the test's own: what a pointer stands for is read, and whatever a server says is held against the
//! pointer.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use argosy_api::repository::ManifestRequest;
use argosy_api::v1alpha1::Repository;
use serde_json::json;

use crate::charts::sha256;
use crate::git::Sshd;
use crate::service::{Running, manifests, running_with};
use crate::support::{Answer, Http, Repo, Seen, answer, config_map, git, http_backend};

/// The pointer of a content, as `git lfs` writes it.
fn pointer(content: &str) -> String {
    format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n",
        sha256(content.as_bytes()),
        content.len()
    )
}

/// What a batch is asked for.
fn wanted(seen: &Seen) -> (String, u64) {
    let question: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(question["operation"], "download");
    let object = &question["objects"][0];
    (
        object["oid"].as_str().unwrap().to_owned(),
        object["size"].as_u64().unwrap(),
    )
}

fn download(oid: &str, size: u64, href: &str) -> Answer {
    let action = json!({"href": href, "header": {"X-Ticket": "let-me-in", "Host": "inner.example.com"}});
    let object = json!({"oid": oid, "size": size, "actions": {"download": action}});
    answer(200, json!({"transfer": "basic", "objects": [object]}).to_string())
}

/// Answers about all objects of a batch that it knows, and hands them out at `/objects-of-lfs/`.
fn keeper(
    contents: Vec<String>,
    told: Arc<std::sync::OnceLock<std::net::SocketAddr>>,
) -> impl Fn(&Seen) -> Answer {
    let by_oid: std::collections::HashMap<String, String> = contents
        .into_iter()
        .map(|content| (sha256(content.as_bytes()), content))
        .collect();
    move |seen| {
        if seen.method != "POST" {
            let content = seen.path.rsplit('/').next().and_then(|oid| by_oid.get(oid));
            return content.map_or_else(|| answer(404, ""), |content| answer(200, content.clone()));
        }
        let question: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        let objects = question["objects"].as_array().unwrap().iter().map(|object| {
            let oid = object["oid"].as_str().unwrap();
            match by_oid.contains_key(oid) {
                true => json!({"oid": oid, "size": object["size"], "actions": {"download":
                    {"href": format!("http://{}/objects-of-lfs/{oid}", told.get().unwrap())}}}),
                false => json!({"oid": oid, "size": object["size"], "error": {"code": 404, "message": "no such object"}}),
            }
        });
        let objects: Vec<serde_json::Value> = objects.collect();
        answer(200, json!({"objects": objects}).to_string())
    }
}

/// A Git server for `app.git` below a directory; everything about LFS is answered by `lfs`.
async fn server(root: &Path, lfs: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Http {
    let root = root.to_owned();
    Http::start(None, move |seen| {
        if seen.path.contains("/info/lfs/") || seen.path.contains("/objects-of-lfs/") {
            lfs(seen)
        } else {
            http_backend(&root, seen)
        }
    })
    .await
}

/// A bare copy of a repository, as `app.git`.
fn publish(repo: &Repo) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = repo.path().display().to_string();
    git(dir.path(), &["clone", "--quiet", "--bare", &from, "app.git"]);
    dir
}

async fn running() -> Running {
    running_with(true, |args| args.allow_inner_hosts = vec!["127.0.0.1".into()]).await
}

fn request(repo: &Repo, url: &str, enable_lfs: bool) -> ManifestRequest {
    let mut request = manifests(repo, "app");
    request.repo = Some(Repository {
        repo: url.to_owned(),
        username: "ada".into(),
        password: "secret".into(),
        enable_lfs,
        ..Repository::default()
    });
    request.application_source.as_mut().unwrap().repo_url = url.to_owned();
    request
}

fn about_lfs(server: &Http) -> Vec<Seen> {
    let seen = server.seen.lock().unwrap();
    let is_lfs = |seen: &&Seen| seen.path.contains("lfs");
    seen.iter().filter(is_lfs).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pointer_is_read_as_what_it_stands_for_where_the_repository_says_so() {
    let content = config_map("large", "from-lfs");
    let repo = Repo::with(&[
        ("app/a.yaml", &pointer(&content)),
        ("app/b.yaml", &config_map("small", "1")),
    ]);
    let dir = publish(&repo);
    let address = Arc::new(std::sync::OnceLock::new());
    let (told, body) = (address.clone(), content.clone());
    let server = server(dir.path(), move |seen| {
        if seen.method == "POST" {
            assert_eq!(seen.path, "/app.git/info/lfs/objects/batch");
            assert_eq!(seen.headers["accept"], "application/vnd.git-lfs+json");
            let (oid, size) = wanted(seen);
            let at: &std::net::SocketAddr = told.get().unwrap();
            return download(&oid, size, &format!("http://{at}/objects-of-lfs/{oid}"));
        }
        assert_ne!(seen.headers["host"], "inner.example.com");
        match seen.headers.get("x-ticket").map(String::as_str) {
            Some("let-me-in") => answer(200, body.clone()),
            _ => answer(403, ""),
        }
    })
    .await;
    address.set(server.address).unwrap();
    let url = format!("http://{}/app", server.address);
    let running = running().await;

    let with = running
        .client
        .generate_manifest(request(&repo, &url, true))
        .await
        .unwrap();
    let text = with.manifests.join("\n");
    assert!(text.contains("from-lfs") && text.contains("small"), "{text}");
    let asked = about_lfs(&server);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(
        asked
            .iter()
            .all(|seen| seen.basic().as_deref() == Some("ada:secret"))
    );

    // It is kept: rendering anew asks for nothing.
    let mut again = request(&repo, &url, true);
    again.no_cache = true;
    let again = running.client.generate_manifest(again).await.unwrap();
    assert_eq!(again.manifests, with.manifests);
    assert_eq!(about_lfs(&server).len(), 2);

    // Without it a pointer is a file like any other, which holds no object; and the other answer is not this one's.
    let without = running
        .client
        .generate_manifest(request(&repo, &url, false))
        .await
        .unwrap();
    let text = without.manifests.join("\n");
    assert!(text.contains("small") && !text.contains("from-lfs"), "{text}");
    assert!(
        running
            .client
            .generate_manifest(request(&repo, &url, true))
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_refused_absent_or_another_is_an_error_that_names_it() {
    let content = config_map("large", "from-lfs");
    let repo = Repo::with(&[("app/a.yaml", &pointer(&content))]);
    let oid = sha256(content.as_bytes());
    let dir = publish(&repo);
    for (case, expected) in [
        ("absent", "no such object (404)"),
        ("refused", "the server answered 403"),
        ("other", "another digest or size"),
        ("longer", "the server sent more than"),
        ("nonsense", "cannot be read"),
    ] {
        let address = Arc::new(std::sync::OnceLock::new());
        let (told, body) = (address.clone(), content.clone());
        let server = server(dir.path(), move |seen| {
            if seen.method != "POST" {
                return match case {
                    "other" => answer(200, body.replace("from-lfs", "from-bad")),
                    _ => answer(200, body.repeat(2)),
                };
            }
            let (oid, size) = wanted(seen);
            let at: &std::net::SocketAddr = told.get().unwrap();
            match case {
                "absent" => {
                    let error = json!({"code": 404, "message": "no such object"});
                    answer(
                        200,
                        json!({"objects": [{"oid": oid, "size": size, "error": error}]}).to_string(),
                    )
                }
                "refused" => answer(403, ""),
                "nonsense" => answer(200, "<html>"),
                _ => download(&oid, size, &format!("http://{at}/objects-of-lfs/{oid}")),
            }
        })
        .await;
        address.set(server.address).unwrap();
        let url = format!("http://{}/app", server.address);
        let error = running()
            .await
            .client
            .generate_manifest(request(&repo, &url, true))
            .await
            .unwrap_err()
            .message();
        for part in [expected, "app/a.yaml", &oid] {
            assert!(error.contains(part), "{case}: {error}");
        }
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_read_together_are_asked_for_together() {
    let content = |nth: usize| config_map(&format!("large-{nth}"), "from-lfs");
    let mut contents: Vec<String> = (0..12).map(content).collect();
    contents.push("from: lfs\n".into());
    let chart = "apiVersion: v2\nname: web\nversion: 1.0.0\n".to_owned();
    let template = "{{ .Files.Get \"a.txt\" }}".to_owned();
    let mut files: Vec<(String, String)> = vec![
        ("chart/Chart.yaml".into(), chart),
        ("chart/templates/a.yaml".into(), template),
        ("chart/values.yaml".into(), pointer("from: lfs\n")),
        ("chart/a.txt".into(), pointer(&content(10))),
        ("chart/b.txt".into(), pointer(&content(11))),
    ];
    files.extend((0..10).map(|nth| (format!("app/{nth}.yaml"), pointer(&content(nth)))));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let repo = Repo::with(&files);
    let dir = publish(&repo);
    let address = Arc::new(std::sync::OnceLock::new());
    let server = server(dir.path(), keeper(contents, address.clone())).await;
    address.set(server.address).unwrap();
    let running = running().await;
    let url = format!("http://{}/app", server.address);
    for (path, objects, made) in [("app", 10, 10), ("chart", 3, 1)] {
        server.seen.lock().unwrap().clear();
        let mut request = request(&repo, &url, true);
        request.application_source.as_mut().unwrap().path = path.into();
        let answer = running.client.generate_manifest(request).await.unwrap();
        assert_eq!(answer.manifests.len(), made);
        assert!(answer.manifests.iter().all(|text| text.contains("from-lfs")));
        let asked = about_lfs(&server);
        let batches = asked.iter().filter(|seen| seen.method == "POST").count();
        assert_eq!((batches, asked.len()), (1, 1 + objects), "{path}");
    }
    // One that is not there is named, whoever was asked for with it.
    let lost = config_map("lost", "from-lfs");
    repo.commit(&[
        ("app/lost.yaml", &pointer(&lost)),
        ("app/lost-too.yaml", &pointer("x")),
    ]);
    git(
        repo.path(),
        &[
            "push",
            "--quiet",
            &dir.path().join("app.git").display().to_string(),
            "main",
        ],
    );
    let mut request = request(&repo, &url, true);
    request.no_revision_cache = true;
    let error = running
        .client
        .generate_manifest(request)
        .await
        .unwrap_err()
        .message();
    assert!(
        error.contains("app/lost") && error.contains("no such object (404)"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pointers_in_submodules_are_read_from_the_submodules_own_server() {
    let content = config_map("large", "from-lfs");
    let inner = Repo::with(&[
        ("a.yaml", &pointer(&content)),
        ("b.yaml", &config_map("small", "1")),
    ]);
    let dir = publish(&inner);
    let bare = dir.path().join("app.git");
    std::fs::rename(&bare, dir.path().join("inner.git")).unwrap();
    let outer = Repo::with(&[(
        ".gitmodules",
        "[submodule \"m\"]\n\tpath = app/m\n\turl = ../inner.git\n",
    )]);
    let commit = git(inner.path(), &["rev-parse", "HEAD"]);
    let entry = format!("160000,{commit},app/m");
    git(outer.path(), &["update-index", "--add", "--cacheinfo", &entry]);
    git(outer.path(), &["commit", "--quiet", "--message", "module"]);
    let from = outer.path().display().to_string();
    git(dir.path(), &["clone", "--quiet", "--bare", &from, "app.git"]);
    let address = Arc::new(std::sync::OnceLock::new());
    let server = server(dir.path(), keeper(vec![content], address.clone())).await;
    address.set(server.address).unwrap();
    let running = running().await;
    let url = format!("http://{}/app.git", server.address);
    let mut with = request(&outer, &url, true);
    with.application_source.as_mut().unwrap().path = "app/m".into();
    let answer = running.client.generate_manifest(with.clone()).await.unwrap();
    let text = answer.manifests.join("\n");
    assert!(text.contains("from-lfs") && text.contains("small"), "{text}");
    let asked = about_lfs(&server);
    assert_eq!(asked[0].path, "/inner.git/info/lfs/objects/batch");
    with.repo.as_mut().unwrap().enable_lfs = false;
    let answer = running.client.generate_manifest(with).await.unwrap();
    assert!(!answer.manifests.join("\n").contains("from-lfs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_objects_of_a_tree_have_one_deadline_together() {
    let content = |nth: usize| config_map(&format!("large-{nth}"), "from-lfs");
    let files: Vec<(String, String)> = (0..6)
        .map(|nth| (format!("app/{nth}.yaml"), pointer(&content(nth))))
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let repo = Repo::with(&files);
    let dir = publish(&repo);
    let address = Arc::new(std::sync::OnceLock::new());
    let told = address.clone();
    let server = server(dir.path(), move |seen| {
        if seen.method == "POST" {
            // Each of them has time enough, and they have not.
            std::thread::sleep(std::time::Duration::from_secs(4));
            let (oid, size) = wanted(seen);
            let at: &std::net::SocketAddr = told.get().unwrap();
            return download(&oid, size, &format!("http://{at}/objects-of-lfs/{oid}"));
        }
        let of_it = (0..6)
            .map(content)
            .find(|one| seen.path.ends_with(&sha256(one.as_bytes())));
        answer(200, of_it.unwrap())
    })
    .await;
    address.set(server.address).unwrap();
    let running = running_with(true, |args| {
        args.allow_inner_hosts = vec!["127.0.0.1".into()];
        args.exec_timeout = std::time::Duration::from_secs(12);
    })
    .await;
    let url = format!("http://{}/app", server.address);
    let rendered = running.client.generate_manifest(request(&repo, &url, true)).await;
    let error = rendered.unwrap_err().message();
    assert!(error.contains("of the tree took longer than 12 s"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_elsewhere_are_asked_for_without_credentials_and_never_at_inner_addresses() {
    let content = config_map("large", "from-lfs");
    let elsewhere_body = content.clone();
    // Another origin on an address that is allowed, and one on an address that is not.
    let elsewhere = Http::start(None, move |_| answer(200, elsewhere_body.clone())).await;
    let trap_body = content.clone();
    let trap = Http::start_at("127.0.0.2:0", None, move |_| answer(200, trap_body.clone())).await;
    for (at, by_config, works) in [
        (elsewhere.address, false, true),
        (trap.address, false, false),
        (trap.address, true, false),
    ] {
        let config = format!("[lfs]\n\turl = http://{at}/lfs\n");
        let mut files = vec![("app/a.yaml", pointer(&content))];
        if by_config {
            files.push((".lfsconfig", config));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let repo = Repo::with(&files);
        let dir = publish(&repo);
        let server = server(dir.path(), move |seen| {
            let (oid, size) = wanted(seen);
            download(&oid, size, &format!("http://{at}/{oid}"))
        })
        .await;
        let url = format!("http://{}/app", server.address);
        let running = running().await;
        let answer = running.client.generate_manifest(request(&repo, &url, true)).await;
        assert_eq!(answer.is_ok(), works, "{at} {by_config}: {answer:?}");
    }
    assert!(trap.seen.lock().unwrap().is_empty());
    let seen = elsewhere.seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].basic().is_none() && seen[0].headers["x-ticket"] == "let-me-in");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ssh_the_host_says_where_the_objects_are_and_what_to_show_there() {
    let content = config_map("large", "from-lfs");
    let repo = Repo::with(&[("app/a.yaml", &pointer(&content))]);
    let dir = publish(&repo);
    let address = Arc::new(std::sync::OnceLock::new());
    let (told, body) = (address.clone(), content.clone());
    let objects = Http::start(None, move |seen| {
        if seen.headers.get("authorization").map(String::as_str) != Some("RemoteAuth ticket") {
            return answer(401, "");
        }
        if seen.method == "POST" {
            let (oid, size) = wanted(seen);
            let at: &std::net::SocketAddr = told.get().unwrap();
            let action = json!({"href": format!("http://{at}/{oid}"), "header": {"Authorization": "RemoteAuth ticket"}});
            let object = json!({"oid": oid, "size": size, "actions": {"download": action}});
            return answer(200, json!({"objects": [object]}).to_string());
        }
        answer(200, body.clone())
    })
    .await;
    address.set(objects.address).unwrap();
    let href = format!("http://{}/lfs", objects.address);
    let ticket = json!({"href": href, "header": {"Authorization": "RemoteAuth ticket"}, "expires_in": 60});
    let sshd = Sshd::start_with(|dir| {
        use std::os::unix::fs::PermissionsExt as _;
        let script = dir.join("command");
        let text = format!(
            "#!/bin/sh\ncase \"$SSH_ORIGINAL_COMMAND\" in\n\
             \"git-lfs-authenticate '\"*\"/app.git' download\") printf '%s' '{ticket}' ;;\n\
             *) eval \"exec $SSH_ORIGINAL_COMMAND\" ;;\nesac\n"
        );
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("ForceCommand {}\n", script.display())
    });
    sshd.ready().await;
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let url = format!(
        "ssh://{}@127.0.0.1:{}{}/app.git",
        user.trim(),
        sshd.port,
        dir.path().display()
    );
    let mut request = request(&repo, &url, true);
    request.repo = Some(Repository {
        repo: url,
        ssh_private_key: sshd.read("user"),
        insecure: true,
        enable_lfs: true,
        ..Repository::default()
    });
    let answer = running().await.client.generate_manifest(request).await.unwrap();
    assert!(answer.manifests[0].contains("from-lfs"), "{:?}", answer.manifests);
}
