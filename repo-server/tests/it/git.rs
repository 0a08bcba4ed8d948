//! Repositories over every transport.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use argosy_repo_server::Error;
use argosy_repo_server::egress::Egress;
use argosy_repo_server::git::{Access, Credentials, Git, Secret, Settings, TrustStore};
use argosy_repo_server::http::Http;
use argosy_repo_server::metrics::Metrics;
use argosy_repo_server::path::TreePath;
use argosy_repo_server::tree::Tree;

use crate::support::{self, Authority, Repo, answer, git, http_backend};

pub(crate) struct Host {
    pub(crate) git: Git,
    dir: tempfile::TempDir,
}

fn host_with(trust: TrustStore, timeout: Duration) -> Host {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        list_timeout: timeout,
        fetch_timeout: timeout,
        refs_ttl: Duration::from_secs(60),
        attempts: 1,
        submodules: true,
        store_bytes: u64::MAX,
        keys: "/nonexistent".into(),
    };
    let http = Arc::new(Http::new(trust, Egress::open(), timeout));
    let git = Git::new(
        dir.path().join("git"),
        dir.path().join("scratch"),
        http,
        settings,
        Metrics::default(),
    )
    .unwrap();
    Host { git, dir }
}

pub(crate) fn host() -> Host {
    host_with(
        TrustStore {
            tls_dir: "/nonexistent".into(),
            known_hosts: "/nonexistent".into(),
        },
        support::PATIENCE,
    )
}

impl Host {
    pub(crate) async fn read(&self, access: &Access, revision: &str, path: &str) -> Result<String, Error> {
        let resolved = self.git.resolve(access, revision, "", true).await?;
        let commit = self.git.commit(access, &resolved).await?;
        let data = Tree::Git(commit.tree()).read(&TreePath::parse(path)?, 1 << 20)?;
        Ok(String::from_utf8(data).unwrap())
    }
}

fn anonymous(url: &str) -> Access {
    Access::new(url, Credentials::default(), 0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_tags_ranges_and_commits_are_read_without_a_checkout() {
    let repo = Repo::new();
    let first = repo.commit(&[("a.txt", "one")]);
    git(
        repo.path(),
        &["tag", "--annotate", "--message", "first", "v1.0.0"],
    );
    repo.commit(&[("a.txt", "two")]);
    git(repo.path(), &["tag", "v1.3.0"]);
    git(repo.path(), &["branch", "feature/x"]);
    repo.commit(&[("a.txt", "three")]);
    let host = host();
    let access = anonymous(&repo.url());
    for (revision, text) in [
        ("", "three"),
        ("HEAD", "three"),
        ("main", "three"),
        ("refs/heads/feature/x", "two"),
        ("feature/x", "two"),
        ("v1.0.0", "one"),
        ("v1.x", "two"),
        (&first, "one"),
        (&first[..8], "one"),
    ] {
        assert_eq!(
            host.read(&access, revision, "a.txt").await.unwrap(),
            text,
            "{revision}"
        );
    }
    let error = host.read(&access, "nope", "a.txt").await.unwrap_err();
    assert_eq!(error.to_string(), "unable to resolve 'nope' to a commit SHA");
    let error = host.read(&access, &"0".repeat(40), "a.txt").await.unwrap_err();
    assert!(matches!(error, Error::Revision { .. }), "{error}");
    let commit = host.git.resolve(&access, &first, "", false).await.unwrap();
    let info = host.git.commit(&access, &commit).await.unwrap().info().unwrap();
    assert_eq!(
        (info.author.as_str(), info.seconds, info.message.as_str()),
        ("Ada <ada@example.com>", 1_767_323_045, "change")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_moves_is_seen_by_who_asks_afresh() {
    let repo = Repo::with(&[("a.txt", "one")]);
    let host = host();
    let access = anonymous(&repo.url());
    let old = host.git.resolve(&access, "main", "", false).await.unwrap().commit;
    let new = repo.commit(&[("a.txt", "two")]);
    assert_eq!(
        host.git.resolve(&access, "main", "", false).await.unwrap().commit,
        old,
        "within the cache's time"
    );
    assert_eq!(
        host.git.resolve(&access, "main", "", true).await.unwrap().commit,
        new
    );
    assert_eq!(
        host.read(&access, &old, "a.txt").await.unwrap(),
        "one",
        "an old commit stays readable"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn submodules_are_directories_of_the_tree() {
    let library = Repo::with(&[("lib/x.txt", "from the library")]);
    let repo = Repo::with(&[("a.txt", "one")]);
    let url = library.url();
    git(
        repo.path(),
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            &url,
            "vendor/library",
        ],
    );
    repo.commit(&[]);
    let host = host();
    let access = anonymous(&repo.url());
    assert_eq!(
        host.read(&access, "main", "vendor/library/lib/x.txt")
            .await
            .unwrap(),
        "from the library"
    );
    assert_eq!(host.read(&access, "main", "a.txt").await.unwrap(), "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_revisions_are_fetched_at_once_and_one_only_once() {
    let repo = Repo::new();
    let commits: Vec<String> = (0..12)
        .map(|n| repo.commit(&[("a.txt", &n.to_string())]))
        .collect();
    let host = Arc::new(host());
    let mut tasks = Vec::new();
    for (n, sha) in commits.iter().enumerate().flat_map(|pair| [pair; 3]) {
        let (host, access, sha) = (host.clone(), anonymous(&repo.url()), sha.clone());
        tasks.push(tokio::spawn(async move {
            (n, host.read(&access, &sha, "a.txt").await)
        }));
    }
    for task in tasks {
        let (n, text) = task.await.unwrap();
        assert_eq!(text.unwrap(), n.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn basic_authentication_is_asked_for_and_never_shown() {
    let repo = Repo::with(&[("a.txt", "secret place")]);
    let root = repo.path().to_owned();
    let server = support::Http::start(None, move |seen| {
        if seen.basic().as_deref() == Some("ada:c4n4ry-pass") {
            return http_backend(&root, seen);
        }
        (
            401,
            vec![("WWW-Authenticate".into(), "Basic realm=\"git\"".into())],
            Vec::new(),
        )
    })
    .await;
    let url = format!("http://{}/.git", server.address);
    let credentials = |password: &str| Credentials {
        username: "ada".into(),
        password: Secret::new(password),
        ..Credentials::default()
    };
    let host = host();
    let access = Access::new(&url, credentials("c4n4ry-pass"), 0).unwrap();
    assert_eq!(host.read(&access, "main", "a.txt").await.unwrap(), "secret place");

    let embedded = format!("http://ada:c4n4ry-pass@{}/.git", server.address);
    assert_eq!(
        host.read(&anonymous(&embedded), "main", "a.txt").await.unwrap(),
        "secret place"
    );

    let wrong = Access::new(&url, credentials("wr0ng-canary"), 0).unwrap();
    let error = host.read(&wrong, "main", "a.txt").await.unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error}");
    assert!(!error.to_string().contains("canary"), "{error}");

    // Knowing the commit is not the right to read it.
    let sha = git(repo.path(), &["rev-parse", "HEAD"]);
    let error = host.read(&anonymous(&url), &sha, "a.txt").await.unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error}");
    assert!(host.read(&access, &sha, "a.txt").await.is_ok());

    let stored = Command::new("grep")
        .args(["-r", "-l", "c4n4ry"])
        .arg(host.dir.path())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(stored.stdout).unwrap(),
        "",
        "no credential stays on disk"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bearer_token_is_sent_as_one() {
    let repo = Repo::with(&[("a.txt", "token")]);
    let root = repo.path().to_owned();
    let server = support::Http::start(None, move |seen| {
        match seen.headers.get("authorization").map(String::as_str) {
            Some("Bearer t0ken") => http_backend(&root, seen),
            _ => answer(401, ""),
        }
    })
    .await;
    let credentials = Credentials {
        bearer_token: Secret::new("t0ken"),
        ..Credentials::default()
    };
    let access = Access::new(&format!("http://{}/.git", server.address), credentials, 0).unwrap();
    assert_eq!(host().read(&access, "", "a.txt").await.unwrap(), "token");
}

#[tokio::test(flavor = "multi_thread")]
async fn https_needs_the_authority_of_the_server_and_gives_our_own_certificate() {
    let repo = Repo::with(&[("a.txt", "over tls")]);
    let authority = Authority::new();
    let trust = tempfile::tempdir().unwrap();
    std::fs::write(trust.path().join("localhost"), &authority.ca).unwrap();
    let trusting = |dir: &Path| TrustStore {
        tls_dir: dir.to_owned(),
        known_hosts: "/nonexistent".into(),
    };
    let start = |ask_client| {
        let root = repo.path().to_owned();
        support::Http::start(Some(authority.server_config(ask_client)), move |seen| {
            http_backend(&root, seen)
        })
    };
    let wait = support::PATIENCE;

    let server = start(false).await;
    let url = format!("https://localhost:{}/.git", server.address.port());
    assert_eq!(
        host_with(trusting(trust.path()), wait)
            .read(&anonymous(&url), "", "a.txt")
            .await
            .unwrap(),
        "over tls"
    );
    let error = host().read(&anonymous(&url), "", "a.txt").await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let insecure = Access::new(
        &url,
        Credentials {
            insecure: true,
            ..Credentials::default()
        },
        0,
    )
    .unwrap();
    assert_eq!(host().read(&insecure, "", "a.txt").await.unwrap(), "over tls");

    let server = start(true).await;
    let url = format!("https://localhost:{}/.git", server.address.port());
    let host = host_with(trusting(trust.path()), wait);
    assert!(
        host.read(&anonymous(&url), "", "a.txt").await.is_err(),
        "without our certificate"
    );
    let credentials = Credentials {
        tls_client_cert: authority.client.0.clone(),
        tls_client_key: Secret::new(authority.client.1.clone()),
        ..Credentials::default()
    };
    let access = Access::new(&url, credentials, 0).unwrap();
    assert_eq!(host.read(&access, "", "a.txt").await.unwrap(), "over tls");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_an_administrator_adds_count_at_the_next_request() {
    let authority = Authority::new();
    let server = support::Http::start(Some(authority.server_config(false)), |_| answer(200, "open")).await;
    let url = format!("https://localhost:{}/index.yaml", server.address.port());
    let trust = tempfile::tempdir().unwrap();
    let store = TrustStore {
        tls_dir: trust.path().to_owned(),
        known_hosts: "/nonexistent".into(),
    };
    let http = Http::new(store, Egress::open(), Duration::from_secs(20));
    let nobody = Credentials::default();
    let get = async || {
        http.get(&url, &url, &nobody, false, 100)
            .await
            .map(|got| got.body)
    };
    let error = get().await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    std::fs::write(trust.path().join("localhost"), &authority.ca).unwrap();
    assert_eq!(get().await.unwrap(), b"open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let host = host_with(TrustStore::default(), Duration::from_millis(500));
    let error = host.git.refs(&anonymous(&url), true).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_asks_for_patience_is_left_alone_with_all_its_repositories() {
    let repos = [Repo::with(&[("a.txt", "one")]), Repo::with(&[("a.txt", "two")])];
    let roots = [repos[0].path().to_owned(), repos[1].path().to_owned()];
    let busy = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let refuses = busy.clone();
    let server = support::Http::start(None, move |seen| {
        if refuses.load(std::sync::atomic::Ordering::Relaxed) {
            return (
                429,
                vec![("Retry-After".into(), "20".into())],
                b"slow down".to_vec(),
            );
        }
        let which = usize::from(seen.path.starts_with("/two/"));
        let path = seen.path[4..].to_owned();
        http_backend(&roots[which], &support::Seen { path, ..seen.clone() })
    })
    .await;
    let asked = || server.seen.lock().unwrap().len();
    let access = |name: &str, password: &str| {
        let credentials = Credentials {
            username: "ada".into(),
            password: Secret::new(password),
            ..Credentials::default()
        };
        Access::new(&format!("http://{}/{name}/.git", server.address), credentials, 0).unwrap()
    };
    let host = host();
    let error = host.git.refs(&access("one", "x"), true).await.unwrap_err();
    let Error::Patience { retry_after, .. } = &error else {
        panic!("{error}")
    };
    assert!(*retry_after <= Duration::from_secs(20), "{error}");
    assert!(error.to_string().contains("returned error: 429"), "{error}");
    let before = asked();
    for (name, fresh) in [("one", true), ("two", true), ("two", false)] {
        let error = host.git.refs(&access(name, "x"), fresh).await.unwrap_err();
        assert!(matches!(error, Error::Patience { .. }), "{error}");
    }
    assert_eq!(asked(), before, "nobody was asked meanwhile");
    // Others are not held back: the limit is of who asks.
    assert!(host.git.refs(&access("one", "other"), true).await.is_err());
    assert!(asked() > before);
    busy.store(false, std::sync::atomic::Ordering::Relaxed);
    let works = async {
        while host.git.refs(&access("two", "x"), true).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, works).await.unwrap();
    assert_eq!(host.read(&access("two", "x"), "", "a.txt").await.unwrap(), "two");
}

/// An SSH server of the test, with its own keys.
pub(crate) struct Sshd {
    process: std::process::Child,
    pub(crate) port: u16,
    dir: tempfile::TempDir,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sshd {
    pub(crate) fn start() -> Sshd {
        Sshd::start_with(|_| String::new())
    }

    /// With more lines of configuration, which may name files of its folder.
    pub(crate) fn start_with(more: impl FnOnce(&Path) -> String) -> Sshd {
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"]
            .iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
            .expect("this test needs sshd: install the package openssh-server");
        let dir = tempfile::tempdir().unwrap();
        let keygen = |name: &str| {
            let status = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.path().join(name))
                .status()
                .unwrap();
            assert!(status.success());
        };
        keygen("host");
        keygen("user");
        keygen("other");
        let port = argosy_test_cluster::free_port().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nAcceptEnv GIT_PROTOCOL\n{}",
            path("host"),
            path("user.pub"),
            more(dir.path()),
        );
        std::fs::write(dir.path().join("config"), config).unwrap();
        // As root it wants the directory that its package's service makes.
        let _ = std::fs::create_dir_all("/run/sshd");
        let process = Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(dir.path().join("config"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Sshd { process, port, dir }
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    pub(crate) async fn ready(&self) {
        let started = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port))
            .await
            .is_err()
        {
            assert!(started.elapsed() < support::PATIENCE, "sshd did not start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_checks_the_host_key_and_uses_only_the_given_key() {
    let sshd = Sshd::start();
    sshd.ready().await;
    let repo = Repo::with(&[("a.txt", "over ssh")]);
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let url = format!(
        "ssh://{}@127.0.0.1:{}{}/.git",
        user.trim(),
        sshd.port,
        repo.path().display()
    );
    let known = tempfile::NamedTempFile::new().unwrap();
    let host_key = sshd.read("host.pub");
    std::fs::write(known.path(), format!("[127.0.0.1]:{} {host_key}", sshd.port)).unwrap();
    let knowing = || {
        host_with(
            TrustStore {
                tls_dir: "/nonexistent".into(),
                known_hosts: known.path().to_owned(),
            },
            support::PATIENCE,
        )
    };
    let with_key = |name: &str, insecure| {
        let credentials = Credentials {
            ssh_private_key: Secret::new(sshd.read(name)),
            insecure,
            ..Credentials::default()
        };
        Access::new(&url, credentials, 0).unwrap()
    };
    assert_eq!(
        knowing()
            .read(&with_key("user", false), "main", "a.txt")
            .await
            .unwrap(),
        "over ssh"
    );
    let error = knowing()
        .read(&with_key("other", false), "main", "a.txt")
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error}");
    let error = host()
        .read(&with_key("user", false), "main", "a.txt")
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("Host key verification failed"),
        "{error}"
    );
    assert_eq!(
        host()
            .read(&with_key("user", true), "main", "a.txt")
            .await
            .unwrap(),
        "over ssh"
    );
}
