//! Render workers: long-lived child processes that hold the real Helm and Kustomize libraries.
//!
//! One child runs one call at a time, so that a call that never ends, grows without bound or crashes takes
//! nobody else with it: its child is killed and the caller gets a typed error. Children are kept warm between
//! calls and replaced after a number of them. Each lives behind the fence of [`crate::jail`] and sees the files of its
//! call alone (`slot`). The protocol is `render-worker/PROTOCOL.md`.

mod admission;
mod slot;
pub mod wire;

use crate::child;
use crate::jail::{self, Policy};
pub(crate) use admission::Admission;
pub use admission::Caller;
use slot::Slot;

use crate::error::{Error, Result};
use prost::Message as _;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use wire::{Call, Outcome, Reply, Request};

/// The protocol revision we speak.
const PROTOCOL: u32 = 1;
/// Largest reply read; far above any budget for output that a call sends along.
const MAX_REPLY: u64 = 1 << 30;
/// How often the memory of a busy child is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of a child's log that are kept to explain its death.
const LAST_LINES: usize = 12;

/// How workers are run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// Children at most.
    pub count: usize,
    /// Deadline of one call.
    pub deadline: Duration,
    /// Resident memory of one child, in bytes.
    pub max_memory: u64,
    /// Memory that calls may probably take together, in bytes.
    pub total_memory: u64,
    /// Calls after which a child is replaced.
    pub max_calls: u64,
    /// Whether kustomizations may inflate Helm charts (`--enable-helm`).
    pub kustomize_helm: bool,
    /// What fences a worker in before it starts; without it, workers run free.
    pub fence: Option<child::Program>,
    /// Parent of the directories of the workers, on the file system of what they read; only we can read it.
    pub slots: PathBuf,
    /// Directories that all workers may read in place, such as a person's own working tree.
    pub open: Vec<PathBuf>,
}

/// Private memory beyond the budget that is watched: the runtime's own, and what it has asked for but not touched.
const MEMORY_SLACK: u64 = 1 << 30;
/// Largest file that a worker may write: what Kustomize hands to the charts that it inflates.
const FILE_SIZE: u64 = 64 << 20;

impl Settings {
    /// The program beside the running executable, or `ARGOSY_RENDER_WORKER`.
    pub fn default_program() -> PathBuf {
        if let Some(path) = std::env::var_os("ARGOSY_RENDER_WORKER").filter(|path| !path.is_empty()) {
            return path.into();
        }
        std::env::current_exe()
            .ok()
            .and_then(|exe| exe.parent().map(|dir| dir.join("argosy-render-worker")))
            .unwrap_or_else(|| "argosy-render-worker".into())
    }
}

/// The children.
pub struct Workers {
    settings: Settings,
    started: Box<dyn Fn() + Send + Sync>,
    admission: Arc<Admission>,
    idle: Mutex<Vec<Child>>,
    next_id: AtomicU64,
}

struct Child {
    pid: u32,
    process: tokio::process::Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    log: Arc<Mutex<VecDeque<String>>>,
    calls: u64,
    slot: Slot,
}

impl Drop for Child {
    fn drop(&mut self) {
        // The whole group: a child that was killed leaves nothing behind.
        let pid = i32::try_from(self.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid
            && matches!(self.process.try_wait(), Ok(None))
        {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Workers {
    /// Starts no child yet; the first call does. `started` is told of each child that is ready for its first call.
    pub fn new(settings: Settings, started: impl Fn() + Send + Sync + 'static) -> Arc<Workers> {
        let admission = Admission::new(settings.count, settings.total_memory);
        Arc::new(Workers {
            settings,
            started: Box::new(started),
            admission,
            idle: Mutex::default(),
            next_id: AtomicU64::new(1),
        })
    }

    /// Calls that could start at once.
    pub fn free(&self) -> usize {
        self.admission.free()
    }

    /// Runs one call in a child of its own. `what` names it in errors, such as `helm template`.
    ///
    /// # Errors
    /// [`Error::Deadline`], [`Error::Limit`] for memory, [`Error::Worker`] when the child died.
    pub async fn call(&self, caller: &Caller, what: &'static str, call: Call) -> Result<Reply> {
        let place = self.admission.enter(caller).await?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut child = match idle {
            Some(child) => child,
            None => {
                let child = self.spawn().await?;
                (self.started)();
                child
            }
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut call = call;
        let brought = child.slot.bring(&mut call, &self.settings.open)?;
        let request = Request { id, call: Some(call) };
        let peak = AtomicU64::new(0);
        let mut reply = self.supervise(what, &mut child, &request, &peak).await;
        let peak = peak.into_inner().max(rss(child.pid));
        self.admission.learn(&caller.class, peak);
        if let Ok(reply) = &mut reply {
            if let Some(reads) = &mut reply.reads {
                brought.translate(reads);
            }
            match &mut reply.outcome {
                Some(Outcome::Error(error)) => {
                    brought.clean(&mut error.message);
                    brought.clean(&mut error.file);
                }
                Some(Outcome::Rendered(rendered)) => {
                    rendered.warnings.iter_mut().for_each(|text| brought.clean(text));
                }
                _ => {}
            }
        }
        drop(brought);
        if reply.is_ok() {
            child.calls += 1;
            if child.calls < self.settings.max_calls && rss(child.pid) < self.settings.max_memory / 2 {
                self.idle
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(child);
            }
        }
        drop(place);
        reply
    }

    /// Waits for the answer; `peak` becomes the most memory that the child was seen to have.
    async fn supervise(
        &self,
        what: &'static str,
        child: &mut Child,
        request: &Request,
        peak: &AtomicU64,
    ) -> Result<Reply> {
        let pid = child.pid;
        let watch = async {
            loop {
                tokio::time::sleep(WATCH_INTERVAL).await;
                let now = rss(pid);
                peak.fetch_max(now, Ordering::Relaxed);
                if now > self.settings.max_memory {
                    break;
                }
            }
        };
        let answer = tokio::select! {
            biased;
            answer = exchange(child, request) => answer,
            () = watch => return Err(self.over_memory(what)),
            () = tokio::time::sleep(self.settings.deadline) => {
                return Err(Error::Deadline { what: what.into(), after: self.settings.deadline });
            }
        };
        match answer {
            Ok(reply) => Ok(reply),
            Err(error) => {
                // The log arrives by another pipe; give its reader the moment that it needs.
                let _ = tokio::time::timeout(Duration::from_millis(200), child.process.wait()).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                let log = child.log.lock().unwrap_or_else(PoisonError::into_inner);
                let lines: Vec<&str> = log.iter().map(String::as_str).collect();
                let died = child
                    .process
                    .try_wait()
                    .ok()
                    .flatten()
                    .map(|status| status.to_string());
                let no_memory = ["out of memory", "cannot allocate memory"];
                if lines
                    .iter()
                    .any(|line| no_memory.iter().any(|sign| line.contains(sign)))
                {
                    return Err(self.over_memory(what));
                }
                let message = match (lines.is_empty(), died) {
                    (false, _) => lines.join("; "),
                    (true, Some(status)) => status,
                    (true, None) => error.to_string(),
                };
                Err(Error::Worker {
                    what: what.into(),
                    message,
                })
            }
        }
    }

    fn over_memory(&self, what: &str) -> Error {
        Error::Limit {
            which: format!("memory of {what}"),
            limit: format!("{} MiB", self.settings.max_memory >> 20),
        }
    }

    fn policy(&self, slot: &Slot) -> Policy {
        let mut readable = self.settings.open.clone();
        readable.push(slot.readable());
        Policy {
            readable,
            writable: vec![slot.scratch()],
            executable: vec![self.settings.program.clone()],
            memory: self.settings.max_memory + MEMORY_SLACK,
            file_size: FILE_SIZE,
        }
    }

    async fn spawn(&self) -> Result<Child> {
        let settings = &self.settings;
        let slot = Slot::new(&settings.slots)?;
        let mut command = match &settings.fence {
            Some(fence) => fence.command(jail::arguments(&self.policy(&slot), &settings.program)),
            None => child::Program {
                path: settings.program.clone(),
                arguments: Vec::new(),
            }
            .command([]),
        };
        command.args(["-concurrency", "1"]);
        if settings.kustomize_helm {
            command.arg("-allow-kustomize-helm");
        }
        let mut process = command
            .env("GOMEMLIMIT", (settings.max_memory / 4 * 3).to_string())
            .env("TMPDIR", slot.scratch())
            .spawn()
            .map_err(|e| {
                Error::io(
                    format!("failed to start the render worker {}", settings.program.display()),
                    e,
                )
            })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            return Err(Error::io("failed to start the render worker", "no pipes to it"));
        };
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let kept = log.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(mut line)) = lines.next_line().await {
                line.truncate(line.floor_char_boundary(500));
                tracing::debug!(line, "render worker");
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                // The first lines of a crash say why; the traces after them do not.
                if kept.len() < LAST_LINES && !line.trim().is_empty() {
                    kept.push_back(line);
                }
            }
        });
        let pid = process.id().unwrap_or_default();
        let mut child = Child {
            pid,
            process,
            stdin,
            stdout: BufReader::new(stdout),
            log,
            calls: 0,
            slot,
        };
        let hello = Request {
            id: 0,
            call: Some(Call::Version(wire::VersionQuery {})),
        };
        let reply = tokio::time::timeout(Duration::from_secs(20), exchange(&mut child, &hello)).await;
        match reply {
            Ok(Ok(Reply {
                outcome: Some(Outcome::Versions(versions)),
                ..
            })) if versions.protocol == PROTOCOL => {
                tracing::debug!(
                    pid,
                    helm = versions.helm,
                    kustomize = versions.kustomize,
                    "render worker started"
                );
                Ok(child)
            }
            Ok(Ok(Reply {
                outcome: Some(Outcome::Versions(versions)),
                ..
            })) => Err(Error::Worker {
                what: "the first call".into(),
                message: format!("it speaks protocol {}, not {PROTOCOL}", versions.protocol),
            }),
            Ok(Ok(_)) => Err(Error::Worker {
                what: "the first call".into(),
                message: "it did not tell its versions".into(),
            }),
            Ok(Err(error)) => Err(Error::Worker {
                what: "the first call".into(),
                message: format!(
                    "{error}; is {} the render worker? `cargo xtask tools` builds it, ARGOSY_RENDER_WORKER names it",
                    settings.program.display()
                ),
            }),
            Err(_) => Err(Error::Deadline {
                what: "the start of the render worker".into(),
                after: Duration::from_secs(20),
            }),
        }
    }

    /// Versions of the tools, as part of what a render depends on.
    ///
    /// # Errors
    /// As [`Workers::call`].
    pub async fn versions(&self) -> Result<wire::Versions> {
        match self
            .call(
                &Caller::default(),
                "version",
                Call::Version(wire::VersionQuery {}),
            )
            .await?
            .outcome
        {
            Some(Outcome::Versions(versions)) => Ok(versions),
            _ => Err(Error::Worker {
                what: "version".into(),
                message: "it did not tell its versions".into(),
            }),
        }
    }
}

/// Sends a request and reads replies until the one for it.
async fn exchange(child: &mut Child, request: &Request) -> std::io::Result<Reply> {
    let frame = request.encode_length_delimited_to_vec();
    let Child { stdin, stdout, .. } = child;
    // Written and read at once: a large request must not wait for a child that waits to be read.
    let write = async {
        stdin.write_all(&frame).await?;
        stdin.flush().await
    };
    let read = async {
        loop {
            let length = read_varint(stdout).await?;
            if length > MAX_REPLY {
                return Err(std::io::Error::other("a reply of the render worker is too large"));
            }
            let mut frame = Vec::new();
            let read = (&mut *stdout).take(length).read_to_end(&mut frame).await?;
            if (read as u64) < length {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let reply = Reply::decode(frame.as_slice()).map_err(std::io::Error::other)?;
            if reply.id == request.id {
                return Ok(reply);
            }
        }
    };
    let (_, reply) = tokio::try_join!(write, read)?;
    Ok(reply)
}

async fn read_varint(from: &mut BufReader<ChildStdout>) -> std::io::Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = from.read_u8().await?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(std::io::Error::other(
        "a length of the render worker is not a number",
    ))
}

/// Resident memory of a process, in bytes; 0 when it is gone.
fn rss(pid: u32) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return 0;
    };
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or_default();
    line.split_ascii_whitespace()
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}
