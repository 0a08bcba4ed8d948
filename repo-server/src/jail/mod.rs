//! The fence around every process that reads repository content: no network, no file but its own, no new rights,
//! bounded memory. A process enters by itself and never comes out; its threads and children stay inside.
//!
//! | what is fenced | by what | since |
//! |---|---|---|
//! | files | Landlock: only the paths of the [`Policy`] | Linux 5.13 |
//! | network, signals to others, abstract sockets | Landlock, where the kernel has it; there is no `socket` call anyway | 6.7, 6.12 |
//! | system calls | a seccomp filter that allows what a renderer needs ([`system_calls`]) | 3.17 |
//! | memory, size of files, core dumps | resource limits | always |
//!
//! What a kernel lacks is left out and reported ([`Held`]): the repo-server says so loudly, or does not start if it was
//! told to insist. The other half of the fence is that nothing worth taking is handed in: the environment is empty and
//! no credential ever reaches a renderer.

mod system_calls;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The newest set of rights asked for; older kernels enforce the part that they know.
const RIGHTS: ABI = ABI::V6;
/// Libraries that a dynamically linked program is started with. Nothing of anybody's is in there.
const LIBRARIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// What stays within reach.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Directories and files that may be read, with all below.
    pub readable: Vec<PathBuf>,
    /// Directories that may be read and written.
    pub writable: Vec<PathBuf>,
    /// Programs that may be run; libraries of the system come with them.
    pub executable: Vec<PathBuf>,
    /// Bytes of private memory; 0 is no limit.
    pub memory: u64,
    /// Bytes of one written file.
    pub file_size: u64,
}

/// How far a part of the fence holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// All that was asked for.
    Full,
    /// The part that this kernel knows.
    Part,
    /// Nothing: the kernel has none of it.
    None,
}

/// How far the fence holds on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Landlock.
    pub files: Hold,
    /// The filter of system calls, and with it the network.
    pub system_calls: Hold,
}

impl Held {
    /// Whether content can reach neither files of others nor the network.
    pub fn is_whole(self) -> bool {
        self.files != Hold::None && self.system_calls == Hold::Full
    }
}

/// Why a process could not enter: nothing may run then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path of the policy cannot be opened, or the kernel refused a rule.
    #[error("failed to fence the files in: {0}")]
    Files(String),
    /// The filter could not be made.
    #[error("failed to make the filter of system calls: {0}")]
    SystemCalls(String),
    /// A limit could not be set.
    #[error("failed to set a limit: {0}")]
    Limit(#[from] std::io::Error),
}

/// Fences the calling thread, and all that it starts from now on, in for ever. To be called before there are others.
///
/// # Errors
/// [`Error`]. A kernel that lacks a part is no error but tells in [`Held`].
pub fn enter(policy: &Policy) -> Result<Held, Error> {
    limit(policy)?;
    let files = files(policy)?;
    let system_calls = system_calls::restrict(!policy.executable.is_empty())?;
    Ok(Held { files, system_calls })
}

fn limit(policy: &Policy) -> Result<(), Error> {
    let set = |resource, most: u64| {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(std::io::Error::from)
    };
    set(Resource::Core, 0)?;
    set(Resource::Fsize, policy.file_size)?;
    if policy.memory > 0 {
        set(Resource::Data, policy.memory)?;
    }
    Ok(())
}

fn files(policy: &Policy) -> Result<Hold, Error> {
    let failed = |error: landlock::RulesetError| Error::Files(error.to_string());
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(RIGHTS)))
        .and_then(|rules| rules.scope(Scope::from_all(RIGHTS)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_all(RIGHTS) & !BitFlags::from(AccessFs::Execute);
    let mut allow = |path: &PathBuf, rights: BitFlags<AccessFs>, must: bool| {
        let rights = if path.is_dir() {
            rights
        } else {
            rights & AccessFs::from_file(RIGHTS)
        };
        let opened = match PathFd::new(path) {
            Ok(opened) => opened,
            Err(_) if !must => return Ok(()),
            Err(error) => return Err(Error::Files(error.to_string())),
        };
        (&mut rules)
            .add_rule(PathBeneath::new(opened, rights))
            .map(drop)
            .map_err(failed)
    };
    for path in &policy.readable {
        allow(path, read, true)?;
    }
    for path in &policy.writable {
        allow(path, write, true)?;
    }
    for path in &policy.executable {
        allow(path, read | AccessFs::Execute, true)?;
    }
    if !policy.executable.is_empty() {
        for path in LIBRARIES {
            allow(&path.into(), read | AccessFs::Execute, false)?;
        }
        allow(&"/etc/ld.so.cache".into(), read, false)?;
        allow(
            &"/dev/null".into(),
            AccessFs::ReadFile | AccessFs::WriteFile,
            false,
        )?;
    }
    let status = rules.restrict_self().map_err(failed)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Hold::Full,
        RulesetStatus::PartiallyEnforced => Hold::Part,
        RulesetStatus::NotEnforced => Hold::None,
    })
}

/// Arguments with which the child program enters as the policy says and becomes `program`; those of it may follow.
pub fn arguments(policy: &Policy, program: &std::path::Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![
        "run".into(),
        policy.memory.to_string().into(),
        policy.file_size.to_string().into(),
    ];
    for (flag, paths) in [
        ("read", &policy.readable),
        ("write", &policy.writable),
        ("execute", &policy.executable),
    ] {
        for path in paths {
            arguments.extend([flag.into(), path.into()]);
        }
    }
    arguments.extend(["--".into(), program.into()]);
    arguments
}

/// Enters as the arguments of [`arguments`] tell (without the first) and becomes the program.
pub(crate) fn launch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    use std::os::unix::process::CommandExt as _;
    let mut policy = Policy::default();
    let mut number = || arguments.next()?.to_str()?.parse().ok();
    let (Some(memory), Some(file_size)) = (number(), number()) else {
        return refuse("it was given no limits");
    };
    (policy.memory, policy.file_size) = (memory, file_size);
    loop {
        let (flag, value) = (arguments.next(), arguments.next());
        let (Some(flag), Some(value)) = (flag, value) else {
            return refuse("it was given no program");
        };
        match flag.to_str() {
            Some("read") => policy.readable.push(value.into()),
            Some("write") => policy.writable.push(value.into()),
            Some("execute") => policy.executable.push(value.into()),
            Some("--") => {
                if let Err(error) = enter(&policy) {
                    return refuse(&error.to_string());
                }
                let error = std::process::Command::new(&value).args(arguments).exec();
                return refuse(&format!("failed to start {}: {error}", value.display()));
            }
            _ => return refuse("it was given an argument that it does not know"),
        }
    }
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("the fence around renders: {reason}");
    ExitCode::from(70)
}

/// Enters with nothing in reach and prints how far the fence holds, as JSON.
pub(crate) fn probe() -> ExitCode {
    let policy = Policy {
        file_size: 1 << 20,
        ..Policy::default()
    };
    match enter(&policy) {
        Ok(held) => {
            println!("{}", serde_json::to_string(&held).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error.to_string()),
    }
}
