//! What the machine says about this process, as the metric names every Prometheus client uses, and what the
//! allocator says about its memory.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// `/proc/self/stat` counts in hundredths of a second on every Linux that runs this.
const TICKS_PER_SECOND: f64 = 100.0;

/// Lets the allocator give memory back to the system also while the process is idle. Without it what a burst has used
/// stays with the process until the next burst. Does nothing where the allocator is another one.
pub fn return_memory_when_idle() {
    // The calls fail where the allocator was built without them; the process is right without.
    let _ = tikv_jemalloc_ctl::max_background_threads::write(1);
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
}

/// One look at this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time used.
    pub cpu: Duration,
    /// Resident bytes.
    pub rss: u64,
    /// Largest resident bytes so far.
    pub rss_peak: u64,
    /// Virtual bytes.
    pub virtual_memory: u64,
    /// Threads.
    pub threads: u64,
    /// Open files.
    pub files: u64,
}

/// Looks at this process; what the machine does not tell is zero.
pub fn usage() -> Usage {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let files = std::fs::read_dir("/proc/self/fd")
        .map(Iterator::count)
        .unwrap_or_default();
    Usage {
        files: u64::try_from(files).unwrap_or_default(),
        ..read(&stat, &status)
    }
}

fn read(stat: &str, status: &str) -> Usage {
    // The second field is the command in parentheses and may hold anything; fields are counted after it.
    let after = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = |index: usize| {
        after
            .split_ascii_whitespace()
            .nth(index)
            .and_then(|n| n.parse::<f64>().ok())
    };
    let cpu = (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / TICKS_PER_SECOND;
    let line = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let kib = |name: &str| line(name).unwrap_or_default() * 1024;
    Usage {
        cpu: Duration::from_secs_f64(cpu),
        rss: kib("VmRSS:"),
        rss_peak: kib("VmHWM:"),
        virtual_memory: kib("VmSize:"),
        threads: line("Threads:").unwrap_or_default(),
        files: 0,
    }
}

/// Writes `process_*` and `jemalloc_*` at each scrape.
#[derive(Debug)]
pub struct ProcessCollector {
    started: f64,
}

impl ProcessCollector {
    /// Of a process that started now.
    pub fn new() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ProcessCollector {
            started: started.as_secs_f64(),
        }
    }
}

impl Default for ProcessCollector {
    fn default() -> Self {
        ProcessCollector::new()
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let usage = usage();
        let cpu = ConstCounter::new(usage.cpu.as_secs_f64());
        let help = "Total user and system CPU time spent in seconds";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            usage.rss as f64,
        )?;
        gauge(
            "process_resident_memory_peak_bytes",
            "Largest resident memory size in bytes",
            usage.rss_peak as f64,
        )?;
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes",
            usage.virtual_memory as f64,
        )?;
        gauge("process_threads", "Number of threads", usage.threads as f64)?;
        gauge(
            "process_open_fds",
            "Number of open file descriptors",
            usage.files as f64,
        )?;
        gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds",
            self.started,
        )?;
        // The numbers are those of the last epoch; without jemalloc as the allocator they are zero and left out.
        if tikv_jemalloc_ctl::epoch::advance().is_ok() {
            use tikv_jemalloc_ctl::stats;
            let numbers = [
                (
                    "jemalloc_allocated_bytes",
                    "Bytes the program holds",
                    stats::allocated::read(),
                ),
                (
                    "jemalloc_active_bytes",
                    "Bytes in pages that hold something",
                    stats::active::read(),
                ),
                (
                    "jemalloc_resident_bytes",
                    "Bytes in resident pages of the allocator",
                    stats::resident::read(),
                ),
                (
                    "jemalloc_retained_bytes",
                    "Bytes kept and not returned",
                    stats::retained::read(),
                ),
            ];
            for (name, help, value) in numbers {
                if let Ok(value) = value {
                    gauge(name, help, value as f64)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_after_a_command_with_spaces_and_parentheses() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 5 0 1 1 1";
        let status = "Name:\ta\nVmSize:\t  2048 kB\nVmHWM:\t  1024 kB\nVmRSS:\t  512 kB\nThreads:\t5\n";
        let usage = read(stat, status);
        assert_eq!(usage.cpu, Duration::from_secs(3));
        assert_eq!(
            (usage.rss, usage.rss_peak, usage.virtual_memory),
            (524_288, 1_048_576, 2_097_152)
        );
        assert_eq!(usage.threads, 5);
    }
}
