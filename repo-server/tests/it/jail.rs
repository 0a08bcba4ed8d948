//! SEC-JAIL: what a program behind the fence tries, fails; what it needs, works. The program is a shell that does as a
//! hostile renderer would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use argosy_repo_server::child::Program;
use argosy_repo_server::jail::{Policy, arguments};

fn child() -> Program {
    Program {
        path: env!("CARGO_BIN_EXE_argosy-render-child").into(),
        arguments: Vec::new(),
    }
}

/// Whether this kernel can fence at all; elsewhere the tests have nothing to say.
async fn can_fence() -> bool {
    let held = child().probe().await.unwrap();
    if !held.is_whole() {
        eprintln!("this kernel does not fence: {held:?}");
    }
    held.is_whole()
}

struct Cell {
    dir: tempfile::TempDir,
}

impl Cell {
    fn new() -> Cell {
        let dir = tempfile::tempdir().unwrap();
        for name in ["in", "tmp", "out"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("in/own.yaml"), "own content").unwrap();
        std::fs::write(dir.path().join("out/canary"), "CANARY").unwrap();
        Cell { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, script: &str) -> Output {
        let policy = Policy {
            readable: vec![self.path("in")],
            writable: vec![self.path("tmp")],
            executable: vec!["/bin".into(), "/usr/bin".into()],
            memory: 256 << 20,
            file_size: 1 << 20,
        };
        let output = Command::new(env!("CARGO_BIN_EXE_argosy-render-child"))
            .args(arguments(&policy, Path::new("/bin/bash")))
            .args(["-c", script])
            .env_clear()
            .env("IN", self.path("in"))
            .env("TMP", self.path("tmp"))
            .env("OUT", self.path("out"))
            .env("PATH", "/usr/bin:/bin")
            .env("PARENT", std::process::id().to_string())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!text.contains("CANARY"), "{script}: {text}");
        output
    }

    /// The script must get as far as saying that it was refused.
    fn refuses(&self, attempt: &str) {
        let output = self.run(&format!("if {attempt}; then echo REACHED; else echo refused; fi"));
        let said = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.trim(), "refused", "{attempt}: {why}");
    }
}

#[tokio::test]
async fn a_renderer_reads_its_own_files_and_writes_its_scratch() {
    if !can_fence().await {
        return;
    }
    let cell = Cell::new();
    let output = cell.run("cat $IN/own.yaml && echo x > $TMP/x && cat $TMP/x && ls $IN");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "own contentx\nown.yaml\n", "{why}");
}

#[tokio::test]
async fn a_renderer_reaches_no_file_but_its_own() {
    if !can_fence().await {
        return;
    }
    let cell = Cell::new();
    std::os::unix::fs::symlink(cell.path("out/canary"), cell.path("in/link")).unwrap();
    for attempt in [
        "cat $OUT/canary",
        "cat $IN/../out/canary",
        "cat $IN/link",
        "ls $OUT",
        "cat /etc/passwd",
        "cat /proc/self/environ",
        "cat /proc/$PARENT/environ",
        "ls /proc",
        "ls /",
        "cat /var/run/secrets/kubernetes.io/serviceaccount/token",
        "echo x > $OUT/new",
        "echo x > $IN/own.yaml",
        "rm -f $IN/own.yaml",
        "chmod 0777 $OUT/canary && cat $OUT/canary",
        "ln -s $OUT/canary $TMP/l && cat $TMP/l",
        "mkfifo $TMP/fifo",
    ] {
        cell.refuses(attempt);
    }
    assert!(cell.path("in/own.yaml").exists() && !cell.path("out/new").exists());
}

#[tokio::test]
async fn a_renderer_has_no_network() {
    if !can_fence().await {
        return;
    }
    let cell = Cell::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for attempt in [
        format!("(exec 3<>/dev/tcp/127.0.0.1/{port})"),
        format!("(exec 3<>/dev/udp/127.0.0.1/{port})"),
        "(exec 3<>/dev/tcp/169.254.169.254/80)".to_owned(),
        "(exec 3<>/dev/tcp/localhost/80)".to_owned(),
    ] {
        cell.refuses(&attempt);
    }
    assert!(listener.accept().is_err(), "nobody came");
}

#[tokio::test]
async fn a_renderer_cannot_touch_other_processes_or_change_its_own_bounds() {
    if !can_fence().await {
        return;
    }
    let cell = Cell::new();
    for attempt in [
        "kill -0 $PARENT",
        "kill -9 $PARENT",
        "kill -TERM -1",
        "ulimit -d unlimited",
        "ulimit -f unlimited",
        "unshare --user true",
        "unshare --net true",
        "mount -t tmpfs none $TMP",
        "setsid true",
        "chroot $IN true",
        "dd if=/dev/zero of=$TMP/big bs=1k count=2048 status=none",
    ] {
        cell.refuses(attempt);
    }
}

#[tokio::test]
async fn a_renderer_that_wants_all_memory_ends_and_leaves_nobody_behind() {
    if !can_fence().await {
        return;
    }
    let cell = Cell::new();
    let output = cell.run("x=a; while :; do x=$x$x$x$x; done");
    assert!(!output.status.success());
}

#[tokio::test]
async fn what_cannot_be_fenced_as_told_does_not_start() {
    let cell = Cell::new();
    let policy = Policy {
        readable: vec![cell.path("absent")],
        executable: vec!["/bin".into()],
        ..Policy::default()
    };
    let output = Command::new(env!("CARGO_BIN_EXE_argosy-render-child"))
        .args(arguments(&policy, Path::new("/bin/echo")))
        .arg("STARTED")
        .output()
        .unwrap();
    assert!(!output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("STARTED"));
}
