//! Runs seeds of the shards' simulation and prints which faults met which writes. The first seed that breaks an
//! invariant ends it, with the command line that repeats it.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argosy_shard_simulation::{Coverage, Plan, run};
use clap::Parser;

#[derive(Parser)]
#[command(about = "The shards' protocol in virtual time, with everything going wrong")]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seconds of faults in each run, in virtual time.
    #[arg(long, default_value_t = 180)]
    chaos: u64,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let plan = Plan {
        chaos: args.chaos,
        ..Plan::default()
    };
    let (next, failed) = (AtomicU64::new(args.first), AtomicBool::new(false));
    let total = Mutex::new(Coverage::default());
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                let mut coverage = Coverage::default();
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.first + args.seeds {
                        break;
                    }
                    let outcome = run(seed, plan);
                    coverage.add(&outcome.coverage);
                    if let Some(broken) = outcome.broken {
                        failed.store(true, Ordering::Relaxed);
                        eprintln!(
                            "seed {seed} broke {} after {:.3} s: {}",
                            broken.invariant,
                            broken.at as f64 / 1e6,
                            broken.detail
                        );
                        eprintln!(
                            "repeat it: cargo xtask simulate --first {seed} --seeds 1 --chaos {}",
                            args.chaos
                        );
                    }
                }
                if let Ok(mut total) = total.lock() {
                    total.add(&coverage);
                }
            });
        }
    });
    let coverage = total.into_inner().unwrap_or_default();
    println!("{coverage}");
    if failed.into_inner() {
        return ExitCode::FAILURE;
    }
    let unhit = coverage.unhit();
    println!("{} seeds, no invariant broken", args.seeds);
    if args.seeds >= 10_000 && !unhit.is_empty() {
        println!("never happened: {}", unhit.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
