//! Jsonnet programs: evaluated in a process of their own, which has no files, a memory limit and a deadline, and
//! asks for each import. A program that never ends or wants all memory costs its own render and nothing else.

mod evaluate;
pub mod worker;

use crate::child;
use crate::env::BuildEnv;
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::tree::Tree;
use crate::worker::{Admission, Caller};
use argosy_api::v1alpha1::{ApplicationSourceJsonnet, JsonnetVar};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Largest imported file.
pub(super) const MAX_IMPORT: u64 = 32 << 20;
/// Imports of one program.
const MAX_IMPORTS: usize = 10_000;
/// Largest message from the evaluator.
const MAX_FRAME: u32 = 256 << 20;

/// A program with its variables, ready to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Path inside the repository, for imports and messages.
    pub(crate) file: String,
    /// Its text.
    pub(crate) text: String,
    /// External variables.
    pub(crate) ext_vars: Vec<Variable>,
    /// Top-level arguments.
    pub(crate) tlas: Vec<Variable>,
    /// Directories searched for imports after the importing file's own, first one first.
    pub(crate) search: Vec<String>,
}

/// A variable of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The value is an expression.
    pub(crate) code: bool,
}

impl Program {
    /// Prepares the program in `file` for the source directory `dir`.
    ///
    /// # Errors
    /// [`Error::Path`] for a library path that leaves the repository, [`Error::Manifest`] for text that is not UTF-8.
    pub fn new(
        file: TreePath,
        text: Vec<u8>,
        dir: &TreePath,
        options: &ApplicationSourceJsonnet,
        env: &BuildEnv,
    ) -> Result<Program> {
        let text = String::from_utf8(text).map_err(|e| Error::Manifest {
            file: file.as_str().to_owned(),
            line: None,
            message: format!("it is not UTF-8: {e}"),
        })?;
        let variables = |list: &[JsonnetVar]| {
            list.iter()
                .map(|one| Variable {
                    name: one.name.clone(),
                    value: env.substitute(&one.value),
                    code: one.code,
                })
                .collect()
        };
        // Later search paths win, as in the reference, whose first path is the source directory.
        let mut search = Vec::new();
        for lib in options.libs.iter().rev() {
            search.push(TreePath::parse(lib)?.as_str().to_owned());
        }
        search.push(dir.as_str().to_owned());
        Ok(Program {
            file: file.as_str().to_owned(),
            text,
            ext_vars: variables(&options.ext_vars),
            tlas: variables(&options.tlas),
            search,
        })
    }
}

/// Serves imports from a tree.
pub(crate) struct Imports {
    tree: Tree,
    served: usize,
    /// Every path that was looked for, found or not.
    reads: Vec<TreePath>,
}

impl Imports {
    /// The first of the candidates that exists. Paths are those the evaluator made: relative to the root.
    fn find(&mut self, candidates: &[String]) -> Result<Option<(String, Vec<u8>)>> {
        self.served += 1;
        if self.served > MAX_IMPORTS {
            return Err(Error::Limit {
                which: "imports of a Jsonnet program".into(),
                limit: MAX_IMPORTS.to_string(),
            });
        }
        for candidate in candidates {
            let path = TreePath::parse(candidate)?;
            self.reads.push(path.clone());
            if let Some(node) = self.tree.lookup(&path)?
                && !node.is_dir
            {
                return Ok(Some((
                    path.as_str().to_owned(),
                    self.tree.read_node(&node, MAX_IMPORT)?,
                )));
            }
        }
        Ok(None)
    }
}

/// Where programs run.
#[derive(Clone)]
pub struct Engine {
    /// The evaluator; without one, programs run in this process.
    pub program: Option<child::Program>,
    /// Deadline of one program.
    pub deadline: Duration,
    /// Memory of one program, in bytes.
    pub max_memory: u64,
    /// Programs at once: every Application has its turn.
    pub(crate) door: Arc<Admission>,
}

impl Engine {
    /// Evaluates a program for somebody, whose imports come from `tree`; gives the paths that it looked for as well.
    ///
    /// # Errors
    /// [`Error::Render`] with the program's own error, [`Error::Deadline`], [`Error::Limit`], [`Error::Worker`].
    pub async fn evaluate(
        &self,
        caller: &Caller,
        program: Program,
        tree: Tree,
    ) -> Result<(Value, Vec<TreePath>)> {
        let _place = self.door.enter(caller).await?;
        let file = program.file.clone();
        let mut imports = Imports {
            tree,
            served: 0,
            reads: Vec::new(),
        };
        let run = async {
            match &self.program {
                Some(evaluator) => {
                    let text = self.in_child(evaluator, &program, &mut imports).await?;
                    Ok((text, imports.reads))
                }
                None => in_thread(program, imports).await,
            }
        };
        let (text, reads) =
            tokio::time::timeout(self.deadline, run)
                .await
                .map_err(|_| Error::Deadline {
                    what: format!("jsonnet {file}"),
                    after: self.deadline,
                })??;
        let value = serde_json::from_str(&text).map_err(|e| Error::Manifest {
            file,
            line: None,
            message: e.to_string(),
        })?;
        Ok((value, reads))
    }

    async fn in_child(
        &self,
        evaluator: &child::Program,
        program: &Program,
        imports: &mut Imports,
    ) -> Result<String> {
        let mut child = evaluator
            .command(["jsonnet".into(), self.max_memory.to_string().into()])
            .spawn()
            .map_err(|e| Error::io("failed to start the Jsonnet evaluator", e))?;
        let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::io(
                "failed to start the Jsonnet evaluator",
                "no pipes to it",
            ));
        };
        let what = format!("jsonnet {}", program.file);
        let failure: Option<Result<String>> = async {
            send(&mut stdin, &worker::ToWorker::Run(program.clone()))
                .await
                .ok()?;
            loop {
                match receive(&mut stdout).await.ok()? {
                    worker::FromWorker::Find(candidates) => {
                        let found = match imports.find(&candidates) {
                            Ok(found) => found,
                            Err(error) => return Some(Err(error)),
                        };
                        send(&mut stdin, &worker::ToWorker::Found(found.map(worker::File::new)))
                            .await
                            .ok()?;
                    }
                    worker::FromWorker::Done(text) => return Some(Ok(text)),
                    worker::FromWorker::Failed(message) => {
                        return Some(Err(Error::Render {
                            tool: "jsonnet",
                            message,
                        }));
                    }
                }
            }
        }
        .await;
        if let Some(outcome) = failure {
            return outcome;
        }
        // The pipe broke: its last words say why.
        let mut words = Vec::new();
        let _ = tokio::time::timeout(
            Duration::from_millis(500),
            (&mut stderr).take(4096).read_to_end(&mut words),
        )
        .await;
        let words = String::from_utf8_lossy(&words);
        if words.contains("memory allocation") || words.contains("capacity overflow") {
            return Err(Error::Limit {
                which: format!("memory of {what}"),
                limit: format!("{} MiB", self.max_memory >> 20),
            });
        }
        let message = words
            .lines()
            .next()
            .unwrap_or("it ended without a word")
            .to_owned();
        Err(Error::Worker { what, message })
    }
}

async fn send(
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    message: &worker::ToWorker,
) -> std::io::Result<()> {
    let frame = serde_json::to_vec(message)?;
    let length = u32::try_from(frame.len()).map_err(std::io::Error::other)?;
    to.write_all(&length.to_le_bytes()).await?;
    to.write_all(&frame).await?;
    to.flush().await
}

async fn receive(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<worker::FromWorker> {
    let length = from.read_u32_le().await?;
    if length > MAX_FRAME {
        return Err(std::io::Error::other("a message of the evaluator is too large"));
    }
    let mut frame = Vec::new();
    (&mut *from)
        .take(u64::from(length))
        .read_to_end(&mut frame)
        .await?;
    Ok(serde_json::from_slice(&frame)?)
}

/// Without an evaluator: a thread, which a runaway program keeps busy for ever. For a person's own files.
async fn in_thread(program: Program, mut imports: Imports) -> Result<(String, Vec<TreePath>)> {
    let (tx, rx) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("jsonnet".into())
        .stack_size(64 << 20)
        .spawn(move || {
            let mut refused = None;
            let outcome = evaluate::run(&program, &mut |candidates| match imports.find(candidates) {
                Ok(found) => Ok(found),
                Err(error) => {
                    let text = error.to_string();
                    refused = Some(error);
                    Err(text)
                }
            });
            let _ = tx.send(match (outcome, refused) {
                (Ok(text), _) => Ok((text, imports.reads)),
                (Err(_), Some(error)) => Err(error),
                (Err(message), None) => Err(Error::Render {
                    tool: "jsonnet",
                    message,
                }),
            });
        })
        .map_err(|e| Error::io("failed to start a thread for Jsonnet", e))?;
    rx.await.unwrap_or_else(|_| {
        Err(Error::Worker {
            what: "jsonnet".into(),
            message: "the evaluator panicked".into(),
        })
    })
}
