//! Makes glibc return the memory of large bodies to the system as soon as it is freed.
//!
//! By default glibc raises its mmap threshold up to 32 MiB and keeps freed blocks below it: several hundred
//! megabytes after a burst of large messages. A fixed threshold prevents that. glibc reads it from the
//! environment when a process starts, so `relais run` executes itself once more, with the same process id.
//! docs/benchmarks.md has the figures, also of other allocators.

use std::{env, os::unix::process::CommandExt, process::Command};

const THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";
/// The initial value of glibc: blocks of 128 KiB and more are mapped and unmapped one by one.
const THRESHOLD_BYTES: &str = "131072";

/// Restarts `relais run` with a fixed threshold. Does nothing for other commands, which end soon, and if the
/// threshold is set.
pub(crate) fn set_mmap_threshold() {
    if env::var_os(THRESHOLD).is_some() || !env::args_os().any(|word| word == "run") {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut words = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = words.next() {
        again.arg0(name);
    }
    // Returns only on failure; then the process works and keeps more memory.
    let _ = again.args(words).env(THRESHOLD, THRESHOLD_BYTES).exec();
}
