//! The reference implementations, asked: the Go libraries of Kubernetes and the comparison of Argo CD, in a process of their own.
//!
//! [`Oracle`] speaks with that process (`tests/oracle/*.go`, built by `cargo xtask tools`), [`Generator`] makes objects to ask about. The
//! tests of this crate hold the engine against the answers. A disagreement is a fault of ours, or stands in docs/compatibility.md with
//! the name that the test gives it.

mod generate;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use argosy_object::Value;
use serde_json::json;

pub use generate::{Dice, Generator};

/// A running oracle. Dropping it ends the process.
#[derive(Debug)]
pub struct Oracle {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts the program in the folder that `ARGOSY_TOOLS` names, or else in the workspace's `target/tools`. Nothing if the variable is
    /// not set and the program was never built: whoever has no Go still can run all other tests.
    ///
    /// # Errors
    /// When the variable is set and the program is not there, or cannot be started.
    pub fn start() -> Result<Option<Self>> {
        Self::run("argosy-oracle", &[])
    }

    /// The same of Argo CD's own types (`tests/oracle/argocd/`).
    ///
    /// # Errors
    /// As [`Oracle::start`].
    pub fn argo_cd() -> Result<Option<Self>> {
        Self::run("argosy-apiclient", &["wire"])
    }

    fn run(name: &str, arguments: &[&str]) -> Result<Option<Self>> {
        let set = std::env::var_os("ARGOSY_TOOLS").map(PathBuf::from);
        let dir = set
            .clone()
            .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools"));
        let program = dir.join(name);
        if !program.is_file() {
            if set.is_none() {
                eprintln!("not compared with the reference: build it with `cargo xtask tools`");
                return Ok(None);
            }
            bail!(
                "{} is missing: build it with `cargo xtask tools`",
                program.display()
            );
        }
        let mut process = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        Ok(Some(Self {
            process,
            input,
            output: BufReader::new(output.context("the oracle has no output")?),
        }))
    }

    /// What the reference says to `request`: its result, or the error that the library gave.
    ///
    /// # Errors
    /// When the process is gone or speaks nonsense.
    pub fn ask(&mut self, operation: &str, mut request: Value) -> Result<Result<Value, String>> {
        request["op"] = operation.into();
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        let input = self.input.as_mut().context("the oracle has no input")?;
        input.write_all(&line).context("ask the oracle")?;
        let mut answer = String::new();
        self.output
            .read_line(&mut answer)
            .context("read the oracle's answer")?;
        let mut answer: Value = serde_json::from_str(&answer)
            .with_context(|| format!("the oracle answered {:?}", answer.get(..200)))?;
        Ok(match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["result"].take()),
        })
    }

    /// What an API server would keep of a built-in `object`; nothing if it would refuse it.
    ///
    /// # Errors
    /// As [`Oracle::ask`].
    pub fn store(&mut self, object: &Value, defaults: bool) -> Result<Option<Value>> {
        let answer = self.ask("store", json!({"object": object, "defaults": defaults}))?;
        Ok(answer.ok())
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.input = None;
        let _ = self.process.wait();
    }
}
