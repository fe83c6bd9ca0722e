//! CPU time and memory of processes, as Linux reports them.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// Ticks of `/proc/PID/stat` in one second; fixed on Linux.
const TICKS: f64 = 100.0;

/// Time a process has spent on processors, in itself and in the kernel, threads that ended included.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The second field is the name in brackets and may hold spaces; count from behind it.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| -> Result<f64> {
        Ok(fields.get(n).with_context(|| format!("{path} is short"))?.parse()?)
    };
    Ok(Duration::from_secs_f64((ticks(11)? + ticks(12)?) / TICKS))
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
