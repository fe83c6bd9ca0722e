//! Makes glibc return the memory of large bodies to the system as soon as it is freed.
//!
//! By default glibc raises its threshold for blocks of their own up to 32 MiB, and keeps what it freed
//! below it: several hundred megabytes after a burst of large messages. A fixed threshold prevents that.
//! glibc reads it from the environment when a process starts, so `relais run` starts itself once more, with
//! the same process id. docs/benchmarks.md has the figures, also of other allocators.

use std::{env, os::unix::process::CommandExt, process::Command};

const THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";
/// glibc's own first value: blocks from 128 KiB on are mapped and unmapped one by one.
const THRESHOLD_BYTES: &str = "131072";

/// Only for `relais run`: other commands end soon. Does nothing if the threshold is set already.
pub(crate) fn return_what_is_freed() {
    if env::var_os(THRESHOLD).is_some() || !env::args_os().any(|word| word == "run") {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut words = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = words.next() {
        again.arg0(name);
    }
    // Comes back only if it failed; then the process keeps more memory, and works.
    let _ = again.args(words).env(THRESHOLD, THRESHOLD_BYTES).exec();
}
