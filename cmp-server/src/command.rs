//! Runs a command of a plugin: in the folder of the source, with a deadline and a budget for what it prints, and with
//! everything that it started gone when it is over.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use argosy_api::services::plugin::EnvEntry;
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

/// What is kept of the standard error of a command, for the message about its failure.
const MAX_STDERR: u64 = 64 << 10;

/// Limits of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) deadline: Duration,
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

/// Runs a command and gives what it printed, without the last line's end.
pub(crate) async fn run(
    line: &[String],
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
        child,
    };
    let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
    let work = async {
        let output = async {
            let output = read(stdout, limits.output + 1).await;
            // Who prints too much need not go on.
            if output.len() as u64 > limits.output {
                return None;
            }
            Some(output)
        };
        let error = read(stderr, MAX_STDERR);
        let (output, error) = tokio::join!(output, error);
        let error = String::from_utf8_lossy(&error).into_owned();
        let Some(output) = output else {
            return Err(failed(
                format!("as it printed more than {} bytes", limits.output),
                error,
            ));
        };
        match group.child.wait().await {
            Ok(status) if status.success() => Ok(output),
            Ok(status) => Err(failed(cause(status), error)),
            Err(e) => Err(failed(e.to_string(), error)),
        }
    };
    let Ok(outcome) = tokio::time::timeout(limits.deadline, work).await else {
        let after = limits.deadline.as_secs_f64();
        return Err(failed(format!("timeout after {after:.1} s"), String::new()));
    };
    let text = String::from_utf8(outcome?)
        .map_err(|_| failed("as it printed what is not UTF-8".into(), String::new()))?;
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}

/// Reads to the end, keeps the beginning.
async fn read(from: Option<impl AsyncRead + Unpin>, limit: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    // What breaks off here shows in the exit status.
    let _ = (&mut from).take(limit).read_to_end(&mut kept).await;
    if (kept.len() as u64) < limit {
        return kept;
    }
    if limit == MAX_STDERR {
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    kept
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

/// A process and what it started; all of it is killed when this goes, which is at once when the process has ended.
struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // It fails where nothing of the group is left.
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMITS: Limits = Limits {
        deadline: Duration::from_secs(20),
        output: 1000,
    };

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    async fn fails(script: &str, limits: Limits) -> String {
        let folder = tempfile::tempdir().unwrap();
        run(&shell(script), folder.path(), &[], limits)
            .await
            .unwrap_err()
            .to_string()
    }

    #[tokio::test]
    async fn variables_arrive_and_empty_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |name: &str, value: &str| EnvEntry {
            name: name.into(),
            value: value.into(),
        };
        let env = [entry("PARAM_A", "x y"), entry("PARAM_B", "")];
        let out = run(
            &shell("echo \"$PARAM_A ${PARAM_B-unset} $PATH\""),
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
        let error = run(&line, Path::new("/"), &[], LIMITS)
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
        let folder = tempfile::tempdir().unwrap();
        let script = shell("head -c 300000 /dev/zero | tr '\\0' x >&2; echo done");
        assert_eq!(run(&script, folder.path(), &[], LIMITS).await.unwrap(), "done");
    }

    #[tokio::test]
    async fn a_deadline_ends_a_command_and_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let short = Limits {
            deadline: Duration::from_millis(300),
            ..LIMITS
        };
        let script = shell("sleep 600 & echo $! > child; wait");
        let error = run(&script, folder.path(), &[], short)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("failed timeout after 0.3 s"), "{error}");
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        // Gone, or dead and not yet buried by whoever inherited it.
        for _ in 0..400 {
            match std::fs::read_to_string(&stat) {
                Ok(text) if !text.contains(") Z ") => tokio::time::sleep(Duration::from_millis(25)).await,
                _ => return,
            }
        }
        panic!("the child outlived its command");
    }
}
