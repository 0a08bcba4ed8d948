//! One supervised child process: it ends with its owner, and its log is at hand when it fails.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

/// How many bytes of a log are shown when its program fails.
const LOG_TAIL: usize = 4096;

/// A child process that is killed when this value is dropped or its owner dies.
pub(crate) struct Process {
    pid: u32,
    log: PathBuf,
    ended: Arc<Mutex<Option<ExitStatus>>>,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts `program` with its output in `log`.
    pub(crate) fn spawn(program: &Path, args: &[String], log: PathBuf) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .context("open a log file")?;
        // `setpriv --pdeathsig` has the kernel kill the child when the thread that started it ends: hence a thread
        // of its own, which lives as long as the process shall.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let (stop, stopped) = mpsc::channel();
        let (started, child) = mpsc::channel();
        let ended = Arc::new(Mutex::new(None));
        let keeper = std::thread::spawn({
            let ended = Arc::clone(&ended);
            move || keep(command, &started, &stopped, &ended)
        });
        let pid = child
            .recv()
            .context("start a process")?
            .with_context(|| format!("start {} (through setpriv of util-linux)", program.display()))?;
        Ok(Self {
            pid,
            log,
            ended,
            stop: Some(stop),
            keeper: Some(keeper),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// How the process ended, if it did.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        *self
            .ended
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The end of the process's log.
    pub(crate) fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_TAIL)..]).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            // The keeper ends within one of its turns; a panic there has nothing left to clean up here.
            let _ = keeper.join();
        }
    }
}

fn keep(
    mut command: Command,
    started: &Sender<std::io::Result<u32>>,
    stopped: &Receiver<()>,
    ended: &Mutex<Option<ExitStatus>>,
) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(child.id()));
    while wait_a_turn(stopped) {
        if let Ok(Some(status)) = child.try_wait() {
            *ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(status);
            return;
        }
    }
    end(&mut child);
}

/// Waits a moment; false when the owner has gone.
fn wait_a_turn(stopped: &Receiver<()>) -> bool {
    matches!(
        stopped.recv_timeout(Duration::from_millis(100)),
        Err(mpsc::RecvTimeoutError::Timeout)
    )
}

fn end(child: &mut Child) {
    // Nothing here needs an orderly end: the folder goes with the process.
    let _ = child.kill();
    let _ = child.wait();
}
