//! The program that runs on the dark side of the fence: the Jsonnet evaluator, and what fences in before it becomes the
//! render worker. It is a mode of the executable that serves, so that there is nothing else to ship.

use crate::error::{Error, Result};
use crate::jail::{self, Held};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

/// How long a new process may take to say how far the fence holds.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);

/// Where the program is, and the arguments before its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Finds it: `ARGOSY_RENDER_CHILD`, `argosy-render-child` beside the running executable, or the `argosy`
    /// executable itself.
    pub fn locate() -> Option<Program> {
        let alone = |path: PathBuf| Program {
            path,
            arguments: Vec::new(),
        };
        if let Some(path) = std::env::var_os("ARGOSY_RENDER_CHILD").filter(|path| !path.is_empty()) {
            return Some(alone(path.into()));
        }
        let exe = std::env::current_exe().ok()?;
        let beside = exe.parent()?.join("argosy-render-child");
        if beside.is_file() {
            return Some(alone(beside));
        }
        (exe.file_name()?.to_str()? == "argosy").then(|| Program {
            path: exe,
            arguments: vec!["render-child".into()],
        })
    }

    /// A command that has no environment, its own process group, and dies with the handle.
    pub(crate) fn command(&self, arguments: impl IntoIterator<Item = OsString>) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.path);
        command
            .args(&self.arguments)
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// How far the fence holds on this machine.
    ///
    /// # Errors
    /// [`Error::Io`] when the program cannot be run or says something else.
    pub async fn probe(&self) -> Result<Held> {
        let what = "failed to learn how far the fence around renders holds";
        let output = self.command(["probe".into()]).stdin(Stdio::null()).output();
        let output = tokio::time::timeout(PROBE_DEADLINE, output)
            .await
            .map_err(|_| Error::io(what, "no answer"))?
            .map_err(|e| Error::io(what, e))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|_| Error::io(what, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Runs the program; `arguments` are those after its name.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match arguments.next().as_deref().and_then(|mode| mode.to_str()) {
        Some("run") => jail::launch(arguments),
        Some("jsonnet") => crate::source::jsonnet::worker::main(arguments),
        Some("probe") => jail::probe(),
        _ => {
            eprintln!("this program is started by the repo-server and of no use to people");
            ExitCode::from(64)
        }
    }
}
