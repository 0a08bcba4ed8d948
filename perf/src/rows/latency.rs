//! Row `latency`: from the bytes of an event to the Applications that it concerns, while readers pull trees and a kind is
//! listed anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use arc_swap::ArcSwap;
use argosy_livestate::{Scope, Snapshot};
use argosy_object::{GroupKind, Value};

use crate::fleet::{Feed, take};
use crate::rows::Context;
use crate::usage::CoreWaits;

/// Objects of a list that are taken over between two events.
const LISTED_AT_ONCE: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Objects in the cluster.
    #[arg(long, default_value_t = 50_000)]
    objects: usize,
    /// Events a second.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// For how many seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Threads that pull the trees of Applications without pause.
    #[arg(long, default_value_t = 8)]
    readers: usize,
}

#[allow(clippy::unused_async, clippy::cast_precision_loss)]
pub(crate) async fn run(args: &Args, Context { report, .. }: &Context) -> Result<()> {
    let mut feed = Feed::new(1, false);
    feed.fill(args.objects)?;
    let snapshot = feed.state.snapshot();
    let pod_kind = GroupKind::new("", "Pod");
    let mut pods: Vec<Value> = snapshot.by_kind(&pod_kind).iter().map(|pod| pod.value()).collect();
    let apps: Vec<String> = snapshot.apps().map(|(app, _)| app.to_string()).collect();
    let published = Arc::new(ArcSwap::from_pointee(snapshot));
    let (stop, trees) = (AtomicBool::new(false), AtomicU64::new(0));
    // The longest, and the longest of what is left without the waits for a core.
    let (stall, held) = (AtomicU64::new(0), AtomicU64::new(0));

    let mut waits = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let mut readers = Vec::new();
        for reader in 0..args.readers {
            let (published, apps, stop, trees) = (&published, &apps, &stop, &trees);
            let (stall, held) = (&stall, &held);
            readers.push(scope.spawn(move || -> Result<()> {
                let mut at = reader * 31;
                let core = CoreWaits::of_this_thread()?;
                while !stop.load(Ordering::Relaxed) {
                    let queued = core.microseconds()?;
                    let start = Instant::now();
                    // The stall is the wait for a state to read; what reading takes is the reader's own.
                    let snapshot = Snapshot::clone(&published.load());
                    let waited = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                    stall.fetch_max(waited, Ordering::Relaxed);
                    let queued = core.microseconds()? - queued;
                    held.fetch_max(waited.saturating_sub(queued), Ordering::Relaxed);
                    for root in snapshot.by_app(&apps[at % apps.len()]) {
                        std::hint::black_box(snapshot.descendants(&root));
                    }
                    trees.fetch_add(1, Ordering::Relaxed);
                    at += 1;
                }
                Ok(())
            }));
        }
        let total = args.rate * args.seconds;
        let all_pods = Scope::all(pod_kind.clone());
        let mut listing = Vec::new().into_iter();
        let start = Instant::now();
        for number in 0..total {
            let index = number as usize * 7919 % pods.len();
            feed.population.touch(&mut pods[index]);
            let text = pods[index].to_string();
            let due = start + Duration::from_secs(1) / args.rate * number;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let arrived = Instant::now().max(due);
            std::hint::black_box(take(&mut feed.state, text.as_bytes())?.apps);
            published.store(Arc::new(feed.state.snapshot()));
            waits.push(arrived.elapsed());
            // In the middle of it all Pods are listed again. Their objects come between the events, as pages arrive.
            if number == total / 3 {
                listing = published.load().by_kind(&pod_kind).into_iter();
                feed.state.begin_relist(&all_pods);
            }
            for row in listing.by_ref().take(LISTED_AT_ONCE) {
                feed.state.relist(&all_pods, (*row).clone());
            }
            if number == total - 1 {
                feed.state.end_relist(&all_pods, "0");
            }
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| anyhow!("a reader has panicked"))??;
        }
        Ok(())
    })?;
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    report.figure("latency", "p50_ms", at(0.5), "ms");
    report.figure("latency", "p99_ms", at(0.99), "ms");
    report.figure("latency", "max_ms", at(1.0), "ms");
    report.figure("latency", "max_reader_stall_ms", stall.load(Ordering::Relaxed) as f64 / 1e3, "ms");
    report.figure("latency", "max_reader_stall_with_a_core_ms", held.load(Ordering::Relaxed) as f64 / 1e3, "ms");
    report.figure("latency", "trees_read", trees.load(Ordering::Relaxed) as f64, "");
    Ok(())
}
