//! CPU time and memory of processes, as Linux reports them.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// Ticks of `/proc/PID/stat` in one second; fixed on Linux.
const TICKS: f64 = 100.0;

/// Time a process has spent on processors, in itself and in the kernel, threads that ended included.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    Ok(ProcessStat::read(pid)?.own)
}

/// The same of a process and all its children, those that have ended included.
pub(crate) fn family_cpu_time(parent: u32) -> Result<Duration> {
    let first = ProcessStat::read(parent)?;
    let mut total = first.own + first.ended_children;
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that ends meanwhile is counted by its parent the next time.
        if let Ok(stat) = ProcessStat::read(pid)
            && stat.parent == parent
        {
            total += stat.own;
        }
    }
    Ok(total)
}

/// Returns the parent of a process.
pub(crate) fn parent(pid: u32) -> Result<u32> {
    Ok(ProcessStat::read(pid)?.parent)
}

/// The fields of `/proc/PID/stat` that are needed here.
struct ProcessStat {
    parent: u32,
    own: Duration,
    ended_children: Duration,
}

impl ProcessStat {
    fn read(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
        // The second field is the name in brackets and may hold spaces; count from behind it.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |n: usize| fields.get(n).with_context(|| format!("{path} is short"));
        let time = |n: usize| -> Result<Duration> {
            let ticks = field(n)?.parse::<f64>()? + field(n + 1)?.parse::<f64>()?;
            Ok(Duration::from_secs_f64(ticks / TICKS))
        };
        Ok(Self { parent: field(1)?.parse()?, own: time(11)?, ended_children: time(13)? })
    }
}

/// Forgets the highest memory use so far, where the system allows it.
pub(crate) fn forget_peak_memory() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Resident memory of this process in MB: now, and at most since [`forget_peak_memory`].
pub(crate) fn memory_mb() -> Result<(f64, f64)> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.with_context(|| format!("no {name} in /proc/self/status"))?.parse::<f64>()? / 1e3
            * 1.024)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}
