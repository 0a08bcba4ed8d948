//! One run of the `git` program: own process group, deadline, bounded output, errors without secrets.

use super::credential::{Credentials, Session, TrustStore};
use super::url::{self, GitUrl};
use crate::error::{Error, Result};
use crate::patience::{self, Patience};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest answer taken from git: the refs of a very large repository are about 30 MB.
const MAX_STDOUT: usize = 256 << 20;
/// What is kept of the error output.
const MAX_STDERR: usize = 16 << 10;

/// What one run of git needs besides its arguments.
pub(super) struct Command<'a> {
    pub(super) scratch: &'a Path,
    pub(super) git_dir: Option<&'a Path>,
    pub(super) url: Option<&'a GitUrl>,
    /// The addresses of its host that may be connected to; none where that is not for us to say.
    pub(super) addresses: &'a [SocketAddr],
    pub(super) credentials: &'a Credentials,
    pub(super) trust: &'a TrustStore,
    pub(super) patience: &'a Patience,
    pub(super) deadline: Duration,
    /// Begins an error text, such as `failed to fetch`.
    pub(super) attempted: &'static str,
}

impl Command<'_> {
    /// Runs git and gives its output.
    pub(super) async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        self.run_as("git", arguments, &self.session()?).await
    }

    /// Asks the host of an SSH repository, as git would, and gives its answer.
    pub(super) async fn ssh(&self, port: u16, host: &str, question: &str) -> Result<Vec<u8>> {
        let session = self.session()?;
        let ssh = session.env.iter().find(|(name, _)| name == "GIT_SSH_COMMAND");
        let script = format!("{} \"$@\"", ssh.map_or("ssh", |(_, command)| command));
        let port = port.to_string();
        let arguments = ["-c", &script, "ssh", "-p", &port, "--", host, question];
        self.run_as("sh", &arguments, &session).await
    }

    fn session(&self) -> Result<Session> {
        Session::new(
            self.scratch,
            self.url,
            self.addresses,
            self.credentials,
            self.trust,
        )
    }

    async fn run_as(&self, program: &str, arguments: &[&str], session: &Session) -> Result<Vec<u8>> {
        let mut command = tokio::process::Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(session.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .current_dir(self.git_dir.unwrap_or(self.scratch))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0);
        if let Some(dir) = self.git_dir {
            command.env("GIT_DIR", dir);
        }
        let mut child = command.spawn().map_err(|e| Error::io("failed to start git", e))?;
        let group = Group(child.id());
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Error::io("failed to start git", "no pipe to it"));
        };
        let work = async {
            let (out, err) = tokio::join!(read_bounded(stdout, MAX_STDOUT), read_tail(stderr, MAX_STDERR));
            (child.wait().await, out, err)
        };
        let (status, out, err) = match tokio::time::timeout(self.deadline, work).await {
            Ok(done) => done,
            Err(_) => {
                drop(group);
                return Err(Error::Deadline {
                    what: format!("git {} of {}", arguments.first().unwrap_or(&""), self.shown_url()),
                    after: self.deadline,
                });
            }
        };
        let status = status.map_err(|e| Error::io("failed to wait for git", e))?;
        group.disarm();
        if status.success() {
            return out;
        }
        Err(self.failure(&err, session))
    }

    fn shown_url(&self) -> String {
        self.url.map(|url| url.normal().to_owned()).unwrap_or_default()
    }

    fn failure(&self, stderr: &[u8], session: &Session) -> Error {
        let text = redact(&String::from_utf8_lossy(stderr), self.credentials, self.url);
        let message = last_lines(&text);
        let url = self.shown_url();
        let lower = message.to_ascii_lowercase();
        let refused = [
            "authentication failed",
            "could not read username",
            "could not read password",
            "permission denied",
            "invalid username or password",
            "invalid credentials",
            "returned error: 401",
            "returned error: 403",
            "host key verification failed",
        ];
        let told = session.retry_after();
        let retry_after = told.and_then(|text| patience::retry_after(&text, SystemTime::now()));
        let busy = lower.contains("returned error: 429")
            || lower.contains("returned error: 503") && retry_after.is_some();
        if let (true, Some(asked)) = (busy, self.url) {
            let whom = self.credentials.fingerprint();
            let retry_after = self.patience.have(&asked.origin(), &whom, retry_after);
            Error::Patience {
                url,
                message,
                retry_after,
            }
        } else if refused.iter().any(|sign| lower.contains(sign)) {
            Error::Authentication { url, message }
        } else {
            Error::Fetch {
                attempted: self.attempted,
                url,
                message,
            }
        }
    }
}

/// Kills the whole process group unless git ended by itself: ssh and the transport helpers are its children.
struct Group(Option<u32>);

impl Group {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self
            .0
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

async fn read_bounded(mut from: impl AsyncRead + Unpin, limit: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut over = false;
    loop {
        let n = from
            .read(&mut buffer)
            .await
            .map_err(|e| Error::io("failed to read from git", e))?;
        if n == 0 {
            break;
        }
        // Read on to the end, so that git is not blocked by a full pipe.
        over |= out.len() + n > limit;
        if !over {
            out.extend_from_slice(&buffer[..n]);
        }
    }
    if over {
        return Err(Error::Limit {
            which: "output of git".into(),
            limit: format!("{} MiB", limit >> 20),
        });
    }
    Ok(out)
}

async fn read_tail(mut from: impl AsyncRead + Unpin, limit: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 8 << 10];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 {
            break;
        }
        out.extend_from_slice(&buffer[..n]);
        if out.len() > 2 * limit {
            out.drain(..out.len() - limit);
        }
    }
    out
}

/// Takes every credential out of a text: the known values, their URL-encoded forms, and user information in URLs.
pub fn redact(text: &str, credentials: &Credentials, url: Option<&GitUrl>) -> String {
    let mut text = text.to_owned();
    let embedded = url
        .and_then(GitUrl::embedded)
        .map(|(_, password)| password.as_str())
        .filter(|p| p.len() >= 3);
    let mut secrets: Vec<&str> = credentials.secrets().chain(embedded).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        text = text.replace(secret, "***");
        let encoded: String = ::url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        if encoded != secret {
            text = text.replace(&encoded, "***");
        }
    }
    text.split_inclusive(char::is_whitespace)
        .map(|word| match word.find("://") {
            Some(at) => {
                let start = word[..at]
                    .rfind(|c: char| !c.is_ascii_alphanumeric())
                    .map_or(0, |at| at + 1);
                format!("{}{}", &word[..start], url::display(&word[start..]))
            }
            None => word.to_owned(),
        })
        .collect()
}

/// The lines of git's error output that say what went wrong.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| {
            !line.is_empty() && !line.starts_with("remote: Enumerating") && !line.starts_with("warning:")
        })
        .collect();
    let from = lines.len().saturating_sub(6);
    let joined = lines[from..].join("; ");
    if joined.is_empty() {
        "git failed without a message".into()
    } else {
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::super::credential::Secret;
    use super::*;

    #[test]
    fn credentials_do_not_survive_in_error_texts() {
        let credentials = Credentials {
            password: Secret::new("p@ss w"),
            ..Credentials::default()
        };
        let text = redact(
            "fatal: unable to access 'https://me:tok@example.com/x': p@ss w p%40ss+w",
            &credentials,
            None,
        );
        assert!(
            !text.contains("tok") && !text.contains("p@ss") && !text.contains("p%40ss"),
            "{text}"
        );
        assert!(text.contains("https://example.com/x"), "{text}");
    }
}
