//! What a process does when it is told to end. Signals are the whole process's, so this is one of its own.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::time::Duration;

use argosy_runtime::tasks::Tasks;

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn tell(signal: &str) {
    let own = std::process::id().to_string();
    let told = Command::new("kill").args(["-s", signal, &own]).status();
    assert!(told.unwrap().success());
}

#[tokio::test]
async fn the_second_signal_ends_the_process_at_once() {
    let tasks = Tasks::new();
    tasks.spawn_finishing("never done", std::future::pending());
    let told = async {
        // The other future listens from when it is first asked.
        tell("TERM");
        tasks.stopping().cancelled().await;
        tell("INT");
    };
    let ended = async { tokio::join!(tasks.run_until_stopped(PATIENCE * 60), told).0 };
    tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap();
}
