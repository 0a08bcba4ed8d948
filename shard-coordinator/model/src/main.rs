//! Checks the hand-over within bounds and prints how far it looked.

use std::process::ExitCode;
use std::time::Instant;

use argosy_shard_model::{Begin, Bounds, HandOver};
use clap::Parser;
use stateright::{Checker as _, Model as _};

#[derive(Parser)]
#[command(about = "The hand-over of a cluster, every way that it can go")]
struct Args {
    /// Units of time; a lease lasts three and is waited for one more.
    #[arg(long, default_value_t = 4)]
    time: u64,
    /// Calls that arrive late, never or without an answer.
    #[arg(long, default_value_t = 1)]
    delays: u8,
    /// Watches that fall behind.
    #[arg(long, default_value_t = 1)]
    lags: u8,
    /// Processes that die.
    #[arg(long, default_value_t = 1)]
    crashes: u8,
    /// Writes to the target.
    #[arg(long, default_value_t = 1)]
    writes: u8,
    /// Stop after so many states.
    #[arg(long, default_value_t = 1_000_000)]
    states: usize,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let bounds = Bounds {
        time: args.time,
        delays: args.delays,
        lags: args.lags,
        crashes: args.crashes,
        writes: args.writes,
    };
    let mut sound = true;
    for begin in [Begin::Emptied, Begin::Asleep] {
        let started = Instant::now();
        let checker = HandOver::new(bounds, begin)
            .checker()
            .threads(args.threads)
            .target_state_count(args.states)
            .spawn_bfs()
            .join();
        let whole = if checker.state_count() < args.states {
            "all"
        } else {
            "the first"
        };
        println!(
            "{}: {whole} {} states ({} different), {} steps deep, {:.0} s",
            match begin {
                Begin::Emptied => "the owner is to be emptied",
                Begin::Asleep => "the owner sleeps",
            },
            checker.state_count(),
            checker.unique_state_count(),
            checker.max_depth(),
            started.elapsed().as_secs_f32(),
        );
        for (property, path) in checker.discoveries() {
            println!("  {property}: after {} steps", path.into_actions().len());
        }
        sound &= checker.discovery("one writer at a time").is_none()
            && checker
                .discovery("no write lands after a newer owner has begun")
                .is_none();
    }
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
