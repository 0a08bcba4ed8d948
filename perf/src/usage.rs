//! What a process has used so far, from /proc.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context, Result};

/// Clock ticks a second in /proc on Linux: USER_HZ, which is 100 on every architecture that the project ships for.
const TICKS_PER_SECOND: f64 = 100.0;

/// A reading of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU seconds, user and system.
    pub(crate) cpu_seconds: f64,
    /// Resident megabytes (10⁶ bytes) now.
    pub(crate) rss_mb: f64,
    /// The most resident megabytes so far.
    pub(crate) peak_rss_mb: f64,
}

/// Reads the figures of a process.
///
/// # Errors
/// When the process is gone.
pub(crate) fn read(pid: u32) -> Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("read the use of process {pid}"))?;
    // The name in parentheses may hold blanks: count the fields behind it. utime and stime are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ").context("read /proc/…/stat")?;
    let ticks: f64 = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(Usage {
        cpu_seconds: ticks / TICKS_PER_SECOND,
        rss_mb: kilobytes(&status, "VmRSS:") * 1024.0 / 1e6,
        peak_rss_mb: kilobytes(&status, "VmHWM:") * 1024.0 / 1e6,
    })
}

/// CPU seconds of the children of a process that have ended and were waited for.
///
/// # Errors
/// When the process is gone.
pub(crate) fn children_cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("read the use of process {pid}"))?;
    let (_, fields) = stat.rsplit_once(") ").context("read /proc/…/stat")?;
    let ticks = fields
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / TICKS_PER_SECOND)
}

/// CPU seconds of a process, of its descendants that run, and of those that have ended and were waited for.
///
/// # Errors
/// When /proc cannot be read.
pub(crate) fn tree_cpu_seconds(root: u32) -> Result<f64> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let Some((_, fields)) = stat.rsplit_once(") ") else {
            continue;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |at: usize| {
            fields
                .get(at)
                .and_then(|field| field.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        let parent = fields
            .get(1)
            .and_then(|field| field.parse::<u32>().ok())
            .unwrap_or(0);
        // utime, stime, and the same of children that were waited for.
        processes.push((pid, parent, (11..15).map(number).sum::<f64>()));
    }
    let mut members = HashSet::from([root]);
    while let Some((pid, ..)) = processes
        .iter()
        .find(|(pid, parent, _)| members.contains(parent) && !members.contains(pid))
    {
        members.insert(*pid);
    }
    let ticks: f64 = processes
        .iter()
        .filter(|(pid, ..)| members.contains(pid))
        .map(|(.., ticks)| ticks)
        .sum();
    Ok(ticks / TICKS_PER_SECOND)
}

/// CPU seconds of the threads of this process whose names begin so.
///
/// # Errors
/// When /proc cannot be read.
pub(crate) fn threads_cpu_seconds(name: &str) -> Result<f64> {
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir("/proc/self/task")
        .context("read /proc/self/task")?
        .flatten()
    {
        // A thread may end while it is looked at; then its time is lost.
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        if read("comm").starts_with(name) {
            let time = read("schedstat");
            nanoseconds += time
                .split(' ')
                .next()
                .and_then(|text| text.parse::<f64>().ok())
                .unwrap_or(0.0);
        }
    }
    Ok(nanoseconds / 1e9)
}

/// How long the thread that opened this has waited for a core although it had something to do.
pub(crate) struct CoreWaits(fs::File);

impl CoreWaits {
    /// Of the thread that calls.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub(crate) fn of_this_thread() -> Result<Self> {
        let path = "/proc/thread-self/schedstat";
        Ok(CoreWaits(
            fs::File::open(path).with_context(|| format!("open {path}"))?,
        ))
    }

    /// All of it so far, in microseconds.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub(crate) fn microseconds(&self) -> Result<u64> {
        let mut text = [0; 80];
        let len = self.0.read_at(&mut text, 0).context("read schedstat")?;
        let text = String::from_utf8_lossy(&text[..len]);
        let waited = text
            .split_whitespace()
            .nth(1)
            .and_then(|text| text.parse::<u64>().ok());
        Ok(waited.context("read schedstat")? / 1000)
    }
}

/// CPU seconds and resident megabytes of all processes of a group.
///
/// # Errors
/// When /proc cannot be read.
pub(crate) fn group(group: u32) -> Result<Usage> {
    let mut sum = Usage {
        cpu_seconds: 0.0,
        rss_mb: 0.0,
        peak_rss_mb: 0.0,
    };
    for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name: state, parent, group.
        let of = stat
            .rsplit_once(") ")
            .and_then(|(_, fields)| fields.split(' ').nth(2)?.parse::<u32>().ok());
        if of == Some(group)
            && let Ok(usage) = read(pid)
        {
            sum.cpu_seconds += usage.cpu_seconds;
            sum.rss_mb += usage.rss_mb;
            sum.peak_rss_mb += usage.peak_rss_mb;
        }
    }
    Ok(sum)
}

fn kilobytes(status: &str, field: &str) -> f64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap_or_default();
    line.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}
