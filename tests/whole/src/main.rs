//! Runs seeds of whole controllers and prints which writes met which fates. Each seed is a process of its own, so that it is the same
//! run wherever it stands in a row. The first seed that breaks an invariant ends it, with the command line that repeats it.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use argosy_runtime::args::{Format, Log};
use argosy_whole::{Blow, Plan, Strike, run, strike};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Whole controllers in virtual time, with everything going wrong")]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seconds of faults in each run, in virtual time.
    #[arg(long, default_value_t = Plan::default().chaos)]
    chaos: u64,
    /// Controllers; one alone holds no leases.
    #[arg(long, default_value_t = Plan::default().pods)]
    pods: usize,
    /// Target clusters.
    #[arg(long, default_value_t = Plan::default().targets)]
    targets: usize,
    /// Instead of chance: strike each write of a sync in turn, in each way, from this seed.
    #[arg(long)]
    strikes: bool,
    /// Log what happens, by a filter such as `info,argosy_whole=debug`; `argosy_whole` tells of writes and faults in virtual time.
    #[arg(long)]
    log: Option<String>,
    /// Run this seed alone, here.
    #[arg(long, hide = true)]
    only: Option<u64>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    match args.only {
        _ if args.strikes => strikes(&args),
        Some(seed) => only(seed, &args),
        None => all(&args),
    }
}

fn only(seed: u64, args: &Args) -> Result<ExitCode> {
    if let Some(filter) = &args.log {
        let log = Log {
            format: Some(Format::Text),
            level: Some(filter.clone()),
        };
        argosy_runtime::log::init(&log, "SIMULATION")?;
    }
    let plan = Plan {
        pods: args.pods,
        targets: args.targets,
        chaos: args.chaos,
    };
    let outcome = run(seed, plan)?;
    for ((what, how), times) in outcome.met {
        println!("{what}\t{how}\t{times}");
    }
    println!("trace\t{:016x}\t0", outcome.trace);
    let Some(broken) = outcome.broken else {
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!(
        "seed {seed} broke {} after {:.3} s: {}",
        broken.invariant,
        broken.at.as_secs_f64(),
        broken.detail
    );
    eprintln!(
        "repeat it: cargo xtask simulate --whole --first {seed} --seeds 1 --chaos {} --pods {} --targets {}",
        args.chaos, args.pods, args.targets
    );
    Ok(ExitCode::FAILURE)
}

fn strikes(args: &Args) -> Result<ExitCode> {
    let mut struck = 0;
    for blow in Blow::ALL {
        for nth in 0.. {
            let Some(outcome) = strike(args.first, Strike { nth, blow })? else {
                break;
            };
            struck += 1;
            if let Some(broken) = outcome.broken {
                let (invariant, at) = (broken.invariant, broken.at.as_secs_f64());
                eprintln!(
                    "{blow:?} at write {nth} broke {invariant} after {at:.3} s: {}",
                    broken.detail
                );
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    println!("{struck} strikes, no invariant broken");
    Ok(ExitCode::SUCCESS)
}

fn all(args: &Args) -> Result<ExitCode> {
    let program = std::env::current_exe().context("find this program")?;
    let mut met: BTreeMap<(String, String), u64> = BTreeMap::new();
    for seed in args.first..args.first + args.seeds {
        let ran = Command::new(&program)
            .arg(format!("--only={seed}"))
            .arg(format!("--chaos={}", args.chaos))
            .arg(format!("--pods={}", args.pods))
            .arg(format!("--targets={}", args.targets))
            .args(args.log.iter().map(|filter| format!("--log={filter}")))
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("run a seed")?;
        if !ran.status.success() {
            return Ok(ExitCode::FAILURE);
        }
        for line in String::from_utf8_lossy(&ran.stdout).lines() {
            let mut parts = line.split('\t');
            if let (Some(what), Some(how), Some(Ok(times))) =
                (parts.next(), parts.next(), parts.next().map(str::parse::<u64>))
                && times > 0
            {
                *met.entry((what.to_owned(), how.to_owned())).or_default() += times;
            }
        }
    }
    for ((what, how), times) in met {
        println!("{what:<20} {how:<32} {times:>8}");
    }
    println!("{} seeds, no invariant broken", args.seeds);
    Ok(ExitCode::SUCCESS)
}

/// Chance for whoever asks the system for it: the same bytes every time. Rust's hash maps ask once a thread, and are walked in another
/// order for other bytes.
#[allow(unsafe_code)]
mod chance {
    /// As getrandom(2).
    ///
    /// # Safety
    /// `buffer` is valid for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(buffer: *mut u8, len: usize, _flags: u32) -> isize {
        for at in 0..len {
            // SAFETY: the caller's buffer has `len` bytes.
            unsafe { buffer.add(at).write(at as u8 ^ 0x5a) };
        }
        len as isize
    }
}
