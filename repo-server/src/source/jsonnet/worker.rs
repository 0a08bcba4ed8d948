//! The evaluator's side: one program read from stdin, imports asked for on stdout, then the result. Frames are a
//! little-endian length of four bytes and JSON.

use super::{Program, evaluate};
use crate::jail::{self, Policy};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::ExitCode;

#[derive(Serialize, Deserialize)]
pub(super) enum ToWorker {
    Run(Program),
    Found(Option<File>),
}

#[derive(Serialize, Deserialize)]
pub(super) enum FromWorker {
    Find(Vec<String>),
    Done(String),
    Failed(String),
}

#[derive(Serialize, Deserialize)]
pub(super) struct File {
    path: String,
    /// Base64: an import may be binary.
    data: String,
}

impl File {
    pub(super) fn new((path, data): (String, Vec<u8>)) -> File {
        use base64::Engine as _;
        File {
            path,
            data: base64::engine::general_purpose::STANDARD.encode(data),
        }
    }
}

/// Runs the evaluator process, with its budget of memory as the only argument. It goes behind the fence before it
/// reads the first byte, and has no file there at all.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let memory = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    let policy = Policy {
        memory: memory.unwrap_or_default(),
        ..Policy::default()
    };
    if let Err(error) = jail::enter(&policy) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    // A deep program needs a deep stack; the main thread's is not ours to choose.
    let thread = std::thread::Builder::new().stack_size(128 << 20).spawn(serve);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn serve() -> std::io::Result<()> {
    let ToWorker::Run(program) = read()? else {
        return Err(std::io::ErrorKind::InvalidData.into());
    };
    let outcome = evaluate::run(&program, &mut |candidates| {
        write(&FromWorker::Find(candidates.to_vec())).map_err(|e| e.to_string())?;
        match read().map_err(|e| e.to_string())? {
            ToWorker::Found(None) => Ok(None),
            ToWorker::Found(Some(file)) => {
                use base64::Engine as _;
                let data = base64::engine::general_purpose::STANDARD
                    .decode(file.data)
                    .map_err(|e| e.to_string())?;
                Ok(Some((file.path, data)))
            }
            ToWorker::Run(_) => Err("a second program".into()),
        }
    });
    write(&match outcome {
        Ok(text) => FromWorker::Done(text),
        Err(message) => FromWorker::Failed(message),
    })
}

fn read() -> std::io::Result<ToWorker> {
    let mut stdin = std::io::stdin().lock();
    let mut length = [0; 4];
    stdin.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stdin.read_exact(&mut frame)?;
    Ok(serde_json::from_slice(&frame)?)
}

fn write(message: &FromWorker) -> std::io::Result<()> {
    let frame = serde_json::to_vec(message)?;
    let length = u32::try_from(frame.len()).map_err(std::io::Error::other)?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&length.to_le_bytes())?;
    stdout.write_all(&frame)?;
    stdout.flush()
}
