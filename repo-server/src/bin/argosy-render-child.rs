//! The process in which repository content is read, as a program of its own; `argosy render-child` is the same.

fn main() -> std::process::ExitCode {
    argosy_repo_server::render_child(std::env::args_os().skip(1))
}
