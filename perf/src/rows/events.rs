//! Row `events`: status updates of Pods through "live state is true again and the Applications concerned are known".

use anyhow::Result;
use argosy_object::{GroupKind, Value};

use crate::fleet::{Feed, take, thread_cpu_seconds};
use crate::rows::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Objects in the cluster; about a quarter are Pods.
    #[arg(long, default_value_t = 40_000)]
    objects: usize,
    /// How many updates.
    #[arg(long, default_value_t = 100_000)]
    events: usize,
}

#[allow(clippy::unused_async, clippy::cast_precision_loss)]
pub(crate) async fn run(args: &Args, Context { report, .. }: &Context) -> Result<()> {
    let mut feed = Feed::new(1, false);
    feed.fill(args.objects)?;
    let pods = feed.state.snapshot().by_kind(&GroupKind::new("", "Pod"));
    let mut pods: Vec<Value> = pods.iter().map(|pod| pod.value()).collect();
    let (mut cpu, mut bytes, mut told, mut sent) = (0.0, 0, 0, 0);
    while sent < args.events {
        // Some at a time, so that making them is not measured and they need not all be held.
        let texts: Vec<String> = (0..1000)
            .map(|at| {
                let index = (sent + at) * 7919 % pods.len();
                feed.population.touch(&mut pods[index]);
                pods[index].to_string()
            })
            .collect();
        let before = thread_cpu_seconds()?;
        for text in &texts {
            let touched = take(&mut feed.state, text.as_bytes())?;
            told += touched.apps.len();
        }
        // As the writer of a cluster does after each batch.
        let snapshot = feed.state.snapshot();
        cpu += thread_cpu_seconds()? - before;
        drop(snapshot);
        sent += texts.len();
        bytes += texts.iter().map(String::len).sum::<usize>();
    }
    report.figure("events", "events_per_cpu_second", sent as f64 / cpu, "1/s");
    report.figure("events", "bytes_per_event", bytes as f64 / sent as f64, "B");
    report.figure("events", "applications_per_event", told as f64 / sent as f64, "");
    Ok(())
}
