//! `argosy`: every component and every person's command in one program.
//!
//! | for a cluster | for people and CI, without a cluster |
//! |---|---|
//! | `controller`, `repo-server`, `cmp-server`, `server`, `crds`, `shards`, `demo` | `render`, `diff`, `health`, `plan`, `action` |
//!
//! With an API server, as Argo CD's own program: `login`, `logout`, `context`, `configure`, `version`, `account`, `app`, `appset`,
//! `proj`, `repo`, `repocreds`, `cluster`, `cert`, `gpg`. For shells and readers: `completion`, `man`.
//!
//! Exit codes of the offline commands: 0 fine (diff: synced), 1 different, 2 wrong input. On 2 there is a message on
//! stderr and nothing on stdout. Of those that need an API server: 0 fine, 1 different, failed or too late, 20 whatever
//! else went wrong, as in Argo CD.

mod command;
mod input;
mod output;
mod remote;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(
    name = "argosy",
    version,
    about = "Git decides, Kubernetes clusters follow",
    max_term_width = 110
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the application controller.
    Controller(argosy_controller::Args),
    /// Run the repo-server: sources at a revision in, manifests out.
    RepoServer(argosy_repo_server::Args),
    /// Run a config management plugin, in its sidecar.
    CmpServer(argosy_cmp_server::Args),
    /// Run the API server: gRPC, gRPC-web and REST for people and tools.
    Server(argosy_server::Args),
    /// Print the CustomResourceDefinitions of Application, AppProject and ApplicationSet.
    Crds(command::crds::Args),
    /// Show which shard owns which cluster; drain a shard, pin a cluster.
    Shards(command::shards::Args),
    /// Show the main job on a control plane of its own.
    Demo(command::demo::Args),
    /// Render manifests from a source, as the repo-server would.
    Render(command::render::Args),
    /// Compare desired with live objects, as the controller would.
    Diff(command::diff::Args),
    /// Tell the health of live objects.
    Health(command::health::Args),
    /// Show what a sync would do, step by step.
    Plan(command::plan::Args),
    /// List the actions of a live object, or show what one would make of it.
    Action(command::action::Args),
    /// Log in to an API server.
    Login(command::login::Login),
    /// Log in to the current context's server again.
    Relogin(command::login::Relogin),
    /// End a login.
    Logout(command::login::Logout),
    /// Show the logins, or go to another.
    Context(command::login::Contexts),
    /// Change the configuration file.
    Configure(command::login::Configure),
    /// Show versions.
    Version(command::login::Version),
    /// Local accounts, and who one is.
    Account(command::account::Args),
    /// Applications, through the API server.
    App(command::app::Args),
    /// ApplicationSets, through the API server.
    Appset(command::appset::Args),
    /// Projects, through the API server.
    Proj(command::proj::Args),
    /// Repositories, through the API server.
    Repo(command::repo::Args),
    /// Templates of repository credentials, through the API server.
    Repocreds(command::repo::CredentialArgs),
    /// Clusters, through the API server.
    Cluster(command::cluster::Args),
    /// Certificates and host keys of repositories, through the API server.
    Cert(command::cert::Args),
    /// Public keys that commits are verified with, through the API server.
    Gpg(command::cert::GpgArgs),
    /// What operators do without an API server.
    Admin(command::admin::Args),
    /// Print a completion script for a shell.
    Completion(command::completion::Completion),
    /// Write man pages, one a command.
    Man(command::completion::Man),
}

/// The exit code of commands that need an API server, when something went wrong: Argo CD's.
const FAILED_REMOTELY: u8 = 20;

impl Command {
    fn failure(&self) -> ExitCode {
        use Command::{
            Account, App, Appset, Cert, Cluster, Configure, Context, Gpg, Login, Logout, Proj, Relogin, Repo,
            Repocreds, Version,
        };
        match self {
            Login(_) | Relogin(_) | Logout(_) | Context(_) | Configure(_) | Version(_) | Account(_)
            | App(_) | Appset(_) | Proj(_) | Repo(_) | Repocreds(_) | Cluster(_) | Cert(_) | Gpg(_) => {
                ExitCode::from(FAILED_REMOTELY)
            }
            _ => ExitCode::from(2),
        }
    }
}

fn main() -> ExitCode {
    // The process in which the repo-server reads repository content. It comes before all else: what it is given is not
    // for people, and it starts often.
    let mut raw = std::env::args_os().skip(1);
    if raw.next().is_some_and(|name| name == "render-child") {
        return argosy_repo_server::render_child(raw);
    }
    // The first caller decides; nothing else in this program installs one before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = std::env::var("ARGOCD_OPTS").unwrap_or_default();
    let args = with_component_name(std::env::args_os().collect());
    let args = Args::parse_from(with_options(args, &options));
    let failure = args.command.failure();
    run(args.command).unwrap_or_else(|error| {
        eprintln!("argosy: {error:#}");
        failure
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Login(args) => block_on(command::login::login(args)),
        Command::Relogin(args) => block_on(command::login::relogin(args)),
        Command::Logout(args) => block_on(command::login::logout(args)),
        Command::Context(args) => command::login::contexts(&args),
        Command::Configure(args) => command::login::configure(&args),
        Command::Version(args) => block_on(command::login::version(args)),
        Command::Account(args) => block_on(command::account::run(args)),
        Command::App(args) => block_on(command::app::run(args)),
        Command::Appset(args) => block_on(command::appset::run(args)),
        Command::Proj(args) => block_on(command::proj::run(args)),
        Command::Repo(args) => block_on(command::repo::run(args)),
        Command::Repocreds(args) => block_on(command::repo::credentials(args)),
        Command::Cluster(args) => block_on(command::cluster::run(args)),
        Command::Cert(args) => block_on(command::cert::run(args)),
        Command::Gpg(args) => block_on(command::cert::gpg(args)),
        Command::Admin(args) => block_on(command::admin::run(args)),
        Command::Completion(args) => command::completion::completion(Args::command(), &args),
        Command::Man(args) => command::completion::man(Args::command(), &args),
        Command::Controller(args) => block_on(argosy_controller::run(args)).map(|()| ExitCode::SUCCESS),
        Command::RepoServer(args) => block_on(argosy_repo_server::run(args)).map(|()| ExitCode::SUCCESS),
        Command::CmpServer(args) => block_on(argosy_cmp_server::run(args)).map(|()| ExitCode::SUCCESS),
        Command::Server(args) => block_on(argosy_server::run(args)).map(|()| ExitCode::SUCCESS),
        Command::Crds(args) => command::crds::run(&args),
        Command::Shards(args) => block_on(command::shards::run(args)),
        Command::Demo(args) => block_on(command::demo::run(args)),
        Command::Render(args) => block_on(command::render::run(args)),
        Command::Diff(args) => command::diff::run(&args),
        Command::Health(args) => command::health::run(&args),
        Command::Plan(args) => command::plan::run(&args),
        Command::Action(args) => command::action::run(&args),
    }
}

/// What is busy on a thread of its own when all is done has no more to say, and holds the end up for this long at most.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Frames of debug builds are several times those of releases.
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(future);
    runtime.shutdown_timeout(LAST_WORDS);
    outcome
}

/// Argo CD's images call one program by many names. Existing Deployments go on working: a component's name as `argv[0]`
/// or in `ARGOCD_BINARY_NAME` stands for the subcommand.
fn with_component_name(mut args: Vec<OsString>) -> Vec<OsString> {
    let own = args
        .first()
        .map(|name| Path::new(name).file_name().unwrap_or_default().to_os_string());
    let name = std::env::var_os("ARGOCD_BINARY_NAME").or(own).unwrap_or_default();
    let subcommand = match name.to_str() {
        Some("argocd-application-controller") => "controller",
        Some("argocd-repo-server") => "repo-server",
        Some("argocd-server") => "server",
        Some("argocd-cmp-server") => "cmp-server",
        _ => return args,
    };
    args.insert(1, subcommand.into());
    args
}

/// Flags of `ARGOCD_OPTS` that commands with an API server take, and whether a value follows.
const OPTIONS: &[(&str, bool)] = &[
    ("--server", true),
    ("--auth-token", true),
    ("--insecure", false),
    ("--plaintext", false),
    ("--grpc-web", false),
    ("--grpc-web-root-path", true),
    ("--server-crt", true),
    ("--client-crt", true),
    ("--client-crt-key", true),
    ("--http-retry-max", true),
    ("--logformat", true),
    ("--loglevel", true),
    ("--header", true),
    ("--config", true),
    ("--argocd-context", true),
];

/// Argo CD's program takes flags from `ARGOCD_OPTS` where the command line does not give them; those that it does not know it passes
/// over, and so does this one.
fn with_options(mut args: Vec<OsString>, options: &str) -> Vec<OsString> {
    if options.trim().is_empty() {
        return args;
    }
    let is_remote = args.get(1).and_then(|name| name.to_str()).is_some_and(|name| {
        let command = Args::command();
        let found = command.find_subcommand(name);
        found.is_some_and(|command| {
            let mut flags = command.get_arguments();
            flags.any(|flag| flag.get_long() == Some("argocd-context"))
        })
    });
    if !is_remote {
        return args;
    }
    let given = |flag: &str| {
        let mut texts = args.iter().filter_map(|arg| arg.to_str());
        texts.any(|arg| {
            arg.strip_prefix(flag)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    let (mut more, mut words) = (Vec::new(), words(options).into_iter());
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        let Some((flag, takes)) = OPTIONS.iter().find(|(flag, _)| *flag == name) else {
            continue;
        };
        let value = match takes {
            true => value.or_else(|| words.next()),
            // `--insecure=false` is none.
            false if value.as_deref().is_some_and(|value| value != "true") => continue,
            false => None,
        };
        if !given(flag) {
            more.push(match value {
                Some(value) => format!("{flag}={value}").into(),
                None => OsString::from(flag),
            });
        }
    }
    args.splice(2..2, more);
    args
}

/// The words of a line as a shell has them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory as _;

    use super::{Args, with_options, words};

    fn with(line: &str, options: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let args = with_options(args, options);
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        args.join(" ")
    }

    #[test]
    fn flags_of_the_environment_stand_where_the_line_gives_none() {
        assert_eq!(
            with(
                "argosy app list -o json",
                "--grpc-web --server 'a b' --redis-name other --insecure=true"
            ),
            "argosy app --grpc-web --server=a b --insecure list -o json"
        );
        assert_eq!(
            with(
                "argosy app list --server=x --plaintext",
                "--server=y --plaintext --insecure=false"
            ),
            "argosy app list --server=x --plaintext"
        );
        assert_eq!(
            with("argosy login host", "--grpc-web"),
            "argosy login --grpc-web host"
        );
        assert_eq!(
            with("argosy controller", "--grpc-web --insecure"),
            "argosy controller"
        );
        assert_eq!(
            words(r#"a "b \"c" 'd \' e\ f "" "#),
            ["a", "b \"c", "d \\", "e f", ""]
        );
    }

    #[test]
    fn flags_contradict_each_other_nowhere() {
        Args::command().debug_assert();
    }
}
