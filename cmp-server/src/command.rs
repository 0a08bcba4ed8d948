//! Runs a command of a plugin: in the folder of the source, with a deadline and a budget for what it prints, and with
//! everything that it started gone when it is over.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argosy_api::services::plugin::EnvEntry;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

/// What is kept of the standard error of a command, for the message about its failure.
const MAX_STDERR: usize = 64 << 10;

/// A command that has taken too long is listened to for so much longer, once it is asked to end: who waits for the answer does not
/// wait much longer either.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// Limits of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) deadline: Duration,
    /// How long a command that has been asked to end may take to do so.
    pub(crate) grace: Duration,
    /// Bytes of its standard output.
    pub(crate) output: u64,
}

/// Why a command gave nothing. Argo CD's words.
#[derive(Debug, thiserror::Error)]
#[error("`{line}` failed {cause}{}", said(.stderr))]
pub(crate) struct Failed {
    line: String,
    cause: String,
    stderr: String,
}

fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// Runs a command in a folder of the files, which stay as long as it runs, and gives what it printed, without the last line's end.
pub(crate) async fn run(
    line: &[String],
    files: &Arc<TempDir>,
    folder: &Path,
    env: &[EnvEntry],
    limits: Limits,
) -> Result<String, Failed> {
    let failed = |cause: String, stderr: String| Failed {
        line: line.join(" "),
        cause,
        stderr,
    };
    let Some((program, arguments)) = line.split_first() else {
        return Err(failed("as it is empty".into(), String::new()));
    };
    tracing::info!(dir = %folder.display(), "{}", line.join(" "));
    let entries = env
        .iter()
        .filter(|entry| !entry.name.is_empty() && !entry.value.is_empty());
    let spawned = tokio::process::Command::new(program)
        .args(arguments)
        .envs(entries.map(|entry| (&entry.name, &entry.value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let child = spawned.map_err(|error| failed(format!("to start: {error}"), String::new()))?;
    let mut group = Group {
        id: child.id().and_then(|id| Pid::from_raw(id.cast_signed())),
        child: Some(child),
        grace: limits.grace,
        asked: false,
        files: files.clone(),
    };
    let id = group.id;
    let Some(child) = &mut group.child else {
        return Err(failed("to start: there is no process".into(), String::new()));
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // What has been said counts also where the end is not waited for.
    let said = Mutex::new(Vec::new());
    let work = async {
        let output = async {
            let output = read(stdout, limits.output + 1).await;
            // Who prints too much need not go on.
            if output.len() as u64 > limits.output {
                return None;
            }
            Some(output)
        };
        let (output, ()) = tokio::join!(output, listen(stderr, &said));
        let error = text(&said);
        let Some(output) = output else {
            return Err(failed(
                format!("as it printed more than {} bytes", limits.output),
                error,
            ));
        };
        match child.wait().await {
            Ok(status) if status.success() => Ok(output),
            Ok(status) => Err(failed(cause(status), error)),
            Err(e) => Err(failed(e.to_string(), error)),
        }
    };
    tokio::pin!(work);
    let Ok(outcome) = tokio::time::timeout(limits.deadline, &mut work).await else {
        signal(id, Signal::TERM);
        group.asked = true;
        let _ = tokio::time::timeout(LAST_WORDS, &mut work).await;
        let after = limits.deadline.as_secs_f64();
        return Err(failed(format!("timeout after {after:.1} s"), text(&said)));
    };
    let printed = String::from_utf8(outcome?)
        .map_err(|_| failed("as it printed what is not UTF-8".into(), String::new()))?;
    Ok(printed.strip_suffix('\n').map(str::to_owned).unwrap_or(printed))
}

fn text(said: &Mutex<Vec<u8>>) -> String {
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&said).into_owned()
}

/// Reads to the end, or until there is more than is wanted.
async fn read(from: Option<impl AsyncRead + Unpin>, limit: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(from) = from {
        // What breaks off here shows in the exit status.
        let _ = from.take(limit).read_to_end(&mut kept).await;
    }
    kept
}

/// Reads to the end, and keeps the beginning where it is seen at once.
async fn listen(from: Option<impl AsyncRead + Unpin>, kept: &Mutex<Vec<u8>>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_STDERR.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

/// As Go prints it.
fn cause(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {signal}"),
        (None, None) => "without a status".into(),
    }
}

/// A process and what it started. When this goes, all of it is killed: at once if the process has ended, else some time after it
/// has been asked to end.
struct Group {
    child: Option<Child>,
    id: Option<Pid>,
    grace: Duration,
    /// It has been asked to end; a second time would mean to many programs that they are not to tidy up.
    asked: bool,
    /// What it may still be at work on.
    files: Arc<TempDir>,
}

impl Drop for Group {
    fn drop(&mut self) {
        let (id, grace) = (self.id, self.grace);
        let running = self.child.take();
        let running = running.and_then(|mut child| matches!(child.try_wait(), Ok(None)).then_some(child));
        match (running, tokio::runtime::Handle::try_current()) {
            (Some(mut child), Ok(runtime)) => {
                if !self.asked {
                    signal(id, Signal::TERM);
                }
                let files = self.files.clone();
                runtime.spawn(async move {
                    // Not waited for, it keeps its number, which is nobody else's then.
                    let _ = tokio::time::timeout(grace, child.wait()).await;
                    signal(id, Signal::KILL);
                    let _ = child.wait().await;
                    drop(files);
                });
            }
            _ => signal(id, Signal::KILL),
        }
    }
}

/// It fails where nothing of the group is left.
fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Long enough for a machine that does other things too.
    const PATIENCE: Duration = Duration::from_secs(120);
    const LIMITS: Limits = Limits {
        deadline: PATIENCE,
        grace: PATIENCE,
        output: 1000,
    };
    /// A shell has begun by then with what it is told.
    const SHORT: Duration = Duration::from_secs(5);

    fn folder() -> Arc<TempDir> {
        Arc::new(tempfile::tempdir().unwrap())
    }

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    async fn fails(script: &str, limits: Limits) -> String {
        let folder = folder();
        run(&shell(script), &folder, folder.path(), &[], limits)
            .await
            .unwrap_err()
            .to_string()
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let started = std::time::Instant::now();
        while !holds() {
            assert!(started.elapsed() < PATIENCE, "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    #[tokio::test]
    async fn variables_arrive_and_empty_ones_do_not() {
        let folder = folder();
        let entry = |name: &str, value: &str| EnvEntry {
            name: name.into(),
            value: value.into(),
        };
        let env = [entry("PARAM_A", "x y"), entry("PARAM_B", "")];
        let out = run(
            &shell("echo \"$PARAM_A ${PARAM_B-unset} $PATH\""),
            &folder,
            folder.path(),
            &env,
            LIMITS,
        )
        .await;
        let path = std::env::var("PATH").unwrap();
        assert_eq!(out.unwrap(), format!("x y unset {path}"));
    }

    #[tokio::test]
    async fn a_failure_says_status_and_standard_error() {
        assert_eq!(
            fails("echo no >&2; exit 3", LIMITS).await,
            "`sh -c echo no >&2; exit 3` failed exit status 3: no"
        );
        let line = ["/no/such/program".to_owned()];
        let error = run(&line, &folder(), Path::new("/"), &[], LIMITS)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("`/no/such/program` failed to start: "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn who_prints_too_much_is_stopped() {
        let error = fails("while true; do echo 0123456789; done", LIMITS).await;
        assert!(
            error.ends_with("failed as it printed more than 1000 bytes"),
            "{error}"
        );
        // Standard error is no manifest; much of it is no reason to fail.
        let folder = folder();
        let script = shell("head -c 300000 /dev/zero | tr '\\0' x >&2; echo done");
        assert_eq!(
            run(&script, &folder, folder.path(), &[], LIMITS).await.unwrap(),
            "done"
        );
    }

    #[tokio::test]
    async fn who_takes_too_long_is_asked_to_end_first() {
        let folder = folder();
        let short = Limits {
            deadline: SHORT,
            ..LIMITS
        };
        let script = shell(
            "trap 'echo unlocked >&2; echo > ended; exit 0' TERM; echo locked >&2; while :; do sleep 0.1; done",
        );
        let error = run(&script, &folder, folder.path(), &[], short)
            .await
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("failed timeout after 5.0 s: locked"), "{error}");
        let ended = folder.path().join("ended");
        until("it is asked, and has time", || ended.exists()).await;
    }

    #[tokio::test]
    async fn who_is_asked_to_end_is_asked_once_and_keeps_its_folder_meanwhile() {
        let (folder, told) = (folder(), tempfile::tempdir().unwrap());
        let short = Limits {
            deadline: SHORT,
            ..LIMITS
        };
        let told = told.path().join("told");
        // Longer at it than what it says is listened to.
        let script = shell(&format!(
            "trap 'echo asked >> asked' TERM; while [ ! -e asked ]; do sleep 0.1; done; sleep 0.5; sleep 0.5; cat asked > {0}.new; mv {0}.new {0}",
            told.display()
        ));
        run(&script, &folder, folder.path(), &[], short)
            .await
            .unwrap_err();
        let path = folder.path().to_owned();
        drop(folder);
        until("it has ended", || told.exists() && !path.exists()).await;
        assert_eq!(std::fs::read_to_string(&told).unwrap(), "asked\n");
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_deadline_ends_a_command_and_its_children() {
        let folder = folder();
        let short = Limits {
            deadline: SHORT,
            grace: Duration::from_millis(500),
            ..LIMITS
        };
        // It does not listen when it is asked to end.
        let script = shell("trap '' TERM; sleep 600 & echo $! > child; echo waiting >&2; wait");
        let error = run(&script, &folder, folder.path(), &[], short)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("failed timeout after 5.0 s: waiting"), "{error}");
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        // Gone, or dead and not yet buried by whoever inherited it.
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
        until("the child is gone with its command", is_gone).await;
    }
}
