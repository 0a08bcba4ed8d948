//! Running programs: say what runs, fail with its name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.to_path_buf(), Path::to_path_buf)
}

/// A cargo command in the root of the workspace.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let text = describe(command);
    eprintln!("  $ {text}");
    let status = command.status().with_context(|| format!("start `{text}`"))?;
    if !status.success() {
        bail!("`{text}` failed: {status}");
    }
    Ok(())
}

/// Runs a command and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let text = describe(command);
    let output = command.output().with_context(|| format!("start `{text}`"))?;
    if !output.status.success() {
        bail!(
            "`{text}` failed: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("read the output of `{text}`"))
}

/// Whether a program of this name is on the PATH (or where daemons are).
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
}
