//! Metrics of the operating system about this process, under the usual names of Prometheus clients. They exist
//! only on systems with `/proc`.

use std::fs;

use super::page::MetricsPage;

/// Clock ticks per second in `/proc` on Linux.
const TICKS: f64 = 100.0;

pub(super) fn render(page: &mut MetricsPage) {
    let Some(usage) = ProcessUsage::read() else { return };
    let name = "process_cpu_seconds_total";
    page.one(name, "counter", "Processor time used, user and system.", usage.cpu_seconds);
    let name = "process_resident_memory_bytes";
    page.one(name, "gauge", "Memory in use.", usage.resident_bytes);
    let name = "process_start_time_seconds";
    page.one(name, "gauge", "Start of this process, in seconds since 1970.", usage.started);
    page.one("process_open_fds", "gauge", "Open files and connections.", usage.open_fds);
    page.one("process_max_fds", "gauge", "Most open files that the system allows.", usage.max_fds);
}

struct ProcessUsage {
    cpu_seconds: f64,
    resident_bytes: u64,
    started: f64,
    open_fds: usize,
    max_fds: u64,
}

impl ProcessUsage {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is the name in brackets, which may contain any character.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        let booted: f64 = number(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let resident_kb: u64 = number(&status, "VmRSS:")?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        Some(Self {
            cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS,
            resident_bytes: resident_kb * 1024,
            started: booted + ticks(22)? / TICKS,
            open_fds: fs::read_dir("/proc/self/fd").ok()?.count(),
            max_fds: number(&limits, "Max open files").unwrap_or(0),
        })
    }
}

/// Returns the first number after a name at the beginning of a line.
fn number<T: std::str::FromStr>(text: &str, name: &str) -> Option<T> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_files_and_a_past() {
        let usage = ProcessUsage::read().expect("tests run where there is a /proc");
        assert!(usage.resident_bytes > 100_000);
        assert!(usage.open_fds >= 3 && usage.max_fds >= usage.open_fds as u64);
        assert!(usage.started > 1.6e9 && usage.cpu_seconds >= 0.0);
    }
}
