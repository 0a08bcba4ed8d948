//! Faults of the world around the repo-server: servers that hang (R15), renders that take all memory (R16), caches that are damaged (R17), a disk that is full (R18).
//! Each is a typed error of what needs it, hurts nothing else, and is over when the fault is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use argosy_api::v1alpha1::ApplicationSource;
use argosy_repo_server::Error;
use argosy_repo_server::worker::{self, Workers};

use crate::render::{Fixture, names, request};
use crate::support::{Http, PATIENCE, Repo, config_map, git, http_backend, render_worker};

fn at(path: &str) -> ApplicationSource {
    ApplicationSource {
        path: path.into(),
        ..ApplicationSource::default()
    }
}

/// How a Git server answers the request for objects.
const WELL: usize = 0;
const HANGS: usize = 1;
const BREAKS_OFF: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn r15_a_git_server_that_hangs_or_breaks_off_costs_its_own_applications_alone() {
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", &"x".repeat(10_000)))]);
    let other = Repo::with(&[("app/a.yaml", &config_map("other", "1"))]);
    let (root, mood) = (repo.path().join(".git"), Arc::new(AtomicUsize::new(HANGS)));
    let server = {
        let mood = mood.clone();
        Http::start(None, move |seen| {
            let wants_objects = seen.path.ends_with("/git-upload-pack")
                && String::from_utf8_lossy(&seen.body).contains("command=fetch");
            let asked = Instant::now();
            while wants_objects && mood.load(Ordering::Relaxed) == HANGS && asked.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(50));
            }
            let mut whole = http_backend(&root, seen);
            if wants_objects && mood.load(Ordering::Relaxed) == BREAKS_OFF {
                whole.2.truncate(whole.2.len() / 2);
            }
            whole
        })
        .await
    };
    let fixture = Fixture::with(|args| {
        // Time enough for those that do not hang.
        args.git_request_timeout = Duration::from_secs(20);
        args.exec_timeout = Duration::from_secs(20);
    });
    let url = format!("http://{}/", server.address);
    let mut slow = request(&repo, at("app"));
    slow.repo.repo.clone_from(&url);
    slow.source.repo_url = url;

    let beside = request(&other, at("app"));
    let (hung, fine) = tokio::join!(fixture.render(&slow), fixture.render(&beside));
    assert!(matches!(hung, Err(Error::Deadline { .. })), "{hung:?}");
    assert_eq!(names(&fine.unwrap()), ["ConfigMap/other"]);

    mood.store(BREAKS_OFF, Ordering::Relaxed);
    slow.no_cache = true;
    let broken = fixture.render(&slow).await.unwrap_err();
    assert!(
        matches!(broken, Error::Fetch { .. } | Error::Revision { .. }),
        "{broken:?}"
    );
    // Nothing half fetched stays, and nothing keeps the next attempt from its work.
    mood.store(WELL, Ordering::Relaxed);
    assert_eq!(names(&fixture.render(&slow).await.unwrap()), ["ConfigMap/a"]);
    assert_eq!(fixture.leftovers(), Vec::<String>::new());
}

fn store(cache: &Path) -> PathBuf {
    let mut stores = std::fs::read_dir(cache.join("git")).unwrap().flatten();
    stores.next().unwrap().path()
}

fn packs(store: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(store.join("objects/pack")).unwrap().flatten();
    files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "pack"))
        .collect()
}

/// What happens to a store, and how.
type Damage = (&'static str, fn(&Path));

#[tokio::test(flavor = "multi_thread")]
async fn r17_a_store_that_is_damaged_is_made_anew() {
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let dir = tempfile::tempdir().unwrap();
    let first = Fixture::at(dir.path());
    assert_eq!(
        names(&first.render(&request(&repo, at("app"))).await.unwrap()),
        ["ConfigMap/a"]
    );
    drop(first);
    let damages: [Damage; 5] = [
        ("garbage in the packs", |store| {
            for pack in packs(store) {
                let length = std::fs::metadata(&pack).unwrap().len();
                std::fs::remove_file(&pack).unwrap();
                std::fs::write(&pack, vec![0x5a; length as usize]).unwrap();
            }
        }),
        ("packs cut off", |store| {
            for pack in packs(store) {
                let data = std::fs::read(&pack).unwrap();
                std::fs::remove_file(&pack).unwrap();
                std::fs::write(&pack, &data[..data.len() / 2]).unwrap();
            }
        }),
        ("no packs", |store| {
            std::fs::remove_dir_all(store.join("objects/pack")).unwrap()
        }),
        ("no configuration", |store| {
            std::fs::write(store.join("config"), "[core").unwrap()
        }),
        ("locks of a git that was killed", |store| {
            for name in [
                "index.lock",
                "shallow.lock",
                "packed-refs.lock",
                "config.lock",
                "objects/pack/tmp_pack_x",
            ] {
                std::fs::write(store.join(name), "").unwrap();
            }
            let refs = store.join("refs/argosy");
            for entry in std::fs::read_dir(refs).into_iter().flatten().flatten() {
                let lock = format!("{}.lock", entry.path().display());
                std::fs::write(lock, "").unwrap();
            }
        }),
    ];
    for (nth, (what, damage)) in damages.into_iter().enumerate() {
        damage(&store(dir.path()));
        // What is remembered of a render must not hide that nothing can be read.
        let name = format!("n{nth}");
        repo.commit(&[("app/a.yaml", &config_map(&name, "1"))]);
        let fixture = Fixture::at(dir.path());
        let mut again = request(&repo, at("app"));
        let objects = fixture.render(&again).await;
        let objects = match objects {
            Ok(objects) => objects,
            // One failure may be needed to notice; the next call is fine.
            Err(error) => {
                again.no_cache = true;
                fixture
                    .render(&again)
                    .await
                    .unwrap_or_else(|second| panic!("{what}: {error}; {second}"))
            }
        };
        assert_eq!(names(&objects), [format!("ConfigMap/{name}")], "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_directories_of_an_earlier_process_are_not_believed() {
    let chart = |text: &str| {
        let template = config_map("a", text);
        Repo::with(&[
            ("app/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            ("app/templates/a.yaml", &template),
        ])
    };
    let repo = chart("right");
    let dir = tempfile::tempdir().unwrap();
    let first = Fixture::at(dir.path());
    first.render(&request(&repo, at("app"))).await.unwrap();
    drop(first);
    // Somebody wrote into the trees of the cache while nobody looked.
    let mut pending = vec![dir.path().join("trees")];
    let mut forged = 0;
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.ends_with("templates/a.yaml") {
                std::fs::remove_file(&path).unwrap();
                std::fs::write(&path, config_map("a", "forged")).unwrap();
                forged += 1;
            }
        }
    }
    assert!(forged > 0, "the cache is where this test looks for it");
    let objects = Fixture::at(dir.path())
        .render(&request(&repo, at("app")))
        .await
        .unwrap();
    assert_eq!(objects[0]["data"]["key"], "right");
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_without_any_cache_each_answer_is_the_same() {
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let fixture = Fixture::with(|args| {
        args.manifest_cache_size = 0;
        args.tree_cache_size = 1 << 20;
        args.git_store_size = 0;
    });
    for _ in 0..3 {
        assert_eq!(
            names(&fixture.render(&request(&repo, at("app"))).await.unwrap()),
            ["ConfigMap/a"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_nobody_reads_make_room_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let text = |nth: u32| {
        // Not to be compressed away.
        let words: Vec<String> = (0..20_000_u32)
            .map(|at| format!("{:08x}", (at + nth).wrapping_mul(2_654_435_761)))
            .collect();
        words.join(" ")
    };
    let fixture = Fixture::in_dir(dir.path(), |args| args.git_store_size = 500_000);
    for nth in 0..8 {
        let repo = Repo::with(&[("app/a.yaml", &config_map("a", &text(nth)))]);
        fixture.render(&request(&repo, at("app"))).await.unwrap();
    }
    let left = std::fs::read_dir(dir.path().join("git"))
        .unwrap()
        .flatten()
        .count();
    assert!((1..8).contains(&left), "{left} stores");
}

/// R18: the disk of the caches is full. The test runs itself once more in a mount namespace with a small file system.
#[tokio::test(flavor = "multi_thread")]
async fn r18_a_full_disk_is_an_error_of_what_needs_it_and_over_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=12m none {dir} && SMALL_DISK={dir} exec {this} --exact faults::inside_a_small_disk --ignored --nocapture",
        dir = dir.path().display(),
        this = this.display()
    );
    let run = |program: &str, before: &[&str]| {
        std::process::Command::new(program)
            .args(before)
            .args(["sh", "-c", &script])
            .output()
    };
    let output = run("unshare", &["--user", "--map-root-user", "--mount"]).unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if said.contains("unshare:") || said.contains("mount:") {
        eprintln!("no small disk can be had here: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside of r18"]
async fn inside_a_small_disk() {
    let disk = PathBuf::from(std::env::var_os("SMALL_DISK").expect("set by r18"));
    let noise: Vec<String> = (0..5_000_000_u32)
        .map(|at| format!("{:08x}", at.wrapping_mul(2_654_435_761).rotate_left(at % 31)))
        .collect();
    let large = Repo::with(&[
        ("app/a.yaml", &config_map("large", "1")),
        ("noise", &noise.join("")),
    ]);
    let small = Repo::with(&[("app/a.yaml", &config_map("small", "1"))]);
    let fixture = Fixture::at(&disk);
    let error = fixture.render(&request(&large, at("app"))).await.unwrap_err();
    assert!(
        matches!(error, Error::Fetch { .. } | Error::Io { .. }),
        "{error:?}"
    );
    // There is room for others at once: nothing of the failed attempt is kept.
    assert_eq!(
        names(&fixture.render(&request(&small, at("app"))).await.unwrap()),
        ["ConfigMap/small"]
    );

    // Nothing at all fits: a file of somebody else fills the disk.
    let filler = disk.join("filler");
    let mut size = 12 << 20;
    while size > 4096 {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&filler)
            .unwrap();
        if std::io::Write::write_all(&mut file, &vec![1; size]).is_err() {
            size /= 2;
        }
    }
    let new = Repo::with(&[("app/a.yaml", &config_map("new", "1"))]);
    let error = fixture.render(&request(&new, at("app"))).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Io { .. } | Error::Fetch { .. } | Error::Repository { .. }
        ),
        "{error:?}"
    );
    std::fs::remove_file(&filler).unwrap();
    let mut again = request(&new, at("app"));
    again.no_cache = true;
    assert_eq!(names(&fixture.render(&again).await.unwrap()), ["ConfigMap/new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_repository_gives_what_its_depth_holds() {
    let repo = Repo::new();
    let first = repo.commit(&[("app/a.yaml", &config_map("first", "1"))]);
    for nth in 0..5 {
        repo.commit(&[("app/a.yaml", &config_map(&format!("n{nth}"), "1"))]);
    }
    let fixture = Fixture::new();
    let mut shallow = request(&repo, at("app"));
    shallow.repo.depth = 1;
    assert_eq!(names(&fixture.render(&shallow).await.unwrap()), ["ConfigMap/n4"]);
    let store = store(fixture.dir());
    let shown = git(&store, &["rev-list", "--count", "--all"]);
    assert_eq!(shown, "1", "commits before it are not fetched");
    // An older commit is fetched by itself, and a newer one moves the border.
    shallow.revision = first;
    assert_eq!(
        names(&fixture.render(&shallow).await.unwrap()),
        ["ConfigMap/first"]
    );
    repo.commit(&[("app/a.yaml", &config_map("newest", "1"))]);
    shallow.revision = String::new();
    assert_eq!(
        names(&fixture.render(&shallow).await.unwrap()),
        ["ConfigMap/newest"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_told_of_once_and_serves_the_next_call_too() {
    let slots = tempfile::tempdir().unwrap();
    let started = Arc::new(AtomicUsize::new(0));
    let counter = started.clone();
    let settings = worker::Settings {
        program: render_worker(),
        count: 2,
        deadline: Duration::from_secs(60),
        max_memory: 1 << 30,
        total_memory: 1 << 30,
        max_calls: 2,
        kustomize_helm: false,
        fence: None,
        slots: slots.path().to_owned(),
        open: Vec::new(),
    };
    let workers = Workers::new(settings, move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    for expected in [1, 1, 2] {
        workers.versions().await.unwrap();
        assert_eq!(started.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r16_a_render_that_takes_all_memory_costs_itself_alone_and_is_not_tried_at_once() {
    let bomb = "{{- $x := \"0123456789\" }}{{- range until 40 }}{{ $x = print $x $x }}{{ end }}{{ len $x }}";
    let chart = |name: &str| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    let repo = Repo::with(&[
        ("bomb/Chart.yaml", &chart("bomb")),
        ("bomb/templates/x.yaml", bomb),
        ("good/Chart.yaml", &chart("good")),
        ("good/templates/x.yaml", &config_map("good", "1")),
    ]);
    let fixture = Fixture::with(|args| args.render_worker_memory = 256 << 20);
    let (bomb, good) = (request(&repo, at("bomb")), request(&repo, at("good")));
    let (refused, rendered) = tokio::join!(fixture.render(&bomb), fixture.render(&good));
    let error = refused.unwrap_err();
    assert!(
        matches!(&error, Error::Limit { which, .. } if which == "memory of helm template"),
        "{error:?}"
    );
    assert_eq!(rendered.unwrap().len(), 1);
    // It is remembered: who asks again costs no worker.
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(fixture.render(&bomb).await.unwrap_err(), error);
    }
    assert!(
        started.elapsed() < PATIENCE,
        "a worker takes longer to start than this took"
    );
    assert!(fixture.leftovers().is_empty());
}
