//! Work that runs side by side: most tests wait for servers, leases and processes, not for a core.
//!
//! Invariant: the output of a job is printed in one piece when it ends, so that no two mix.
//!
//! Why not cargo-nextest: it has no package for Debian, so each fresh machine would compile it. Measured on
//! 2026-11-17: version 0.9.151 has 366 packages to compile, the program itself 292, and those take five to
//! six minutes on two cores. That is a sixth of a whole run, for what about 300 lines do here: programs side
//! by side, a time limit, some programs alone, failed tests once more.

use std::{
    collections::VecDeque,
    io::{self, Read},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::command;

/// Longest wait for the output of a job that has ended.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(2);
/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// One command with a name.
#[derive(Debug)]
pub(crate) struct TestJob {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// The end of a job.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) name: String,
    pub(crate) good: bool,
    /// Standard output and standard error, as they came.
    pub(crate) output: String,
    pub(crate) took: Duration,
}

/// Runs the jobs, `at_once` of them in parallel, in their order; reports each when it has ended. One that
/// takes longer than `limit` is ended, and has failed.
pub(crate) fn side_by_side(
    jobs: Vec<TestJob>,
    at_once: usize,
    limit: Duration,
    report: impl FnMut(JobResult),
) {
    run_all(&Mutex::new(VecDeque::from(jobs)), at_once, limit, None, report);
}

/// As [`side_by_side`], but starts no job after `until`; returns the names of those not started.
pub(crate) fn side_by_side_until(
    jobs: Vec<TestJob>,
    at_once: usize,
    limit: Duration,
    until: Instant,
    report: impl FnMut(JobResult),
) -> Vec<String> {
    let waiting = Mutex::new(VecDeque::from(jobs));
    run_all(&waiting, at_once, limit, Some(until), report);
    let left = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
    left.into_iter().map(|job| job.name).collect()
}

fn run_all(
    waiting: &Mutex<VecDeque<TestJob>>,
    at_once: usize,
    limit: Duration,
    until: Option<Instant>,
    mut report: impl FnMut(JobResult),
) {
    let (ended, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let ended = ended.clone();
            scope.spawn(move || {
                while until.is_none_or(|until| Instant::now() < until) {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(job) = next else { break };
                    // The receiver is closed only if it panicked.
                    let _ = ended.send(run(job, limit));
                }
            });
        }
        drop(ended);
        results.into_iter().for_each(&mut report);
    });
}

fn run(TestJob { name, mut command }: TestJob, limit: Duration) -> JobResult {
    let started = Instant::now();
    let (good, output) = match watch(&mut command, limit) {
        Ok(ended) => ended,
        Err(error) => (false, format!("{error:#}\n")),
    };
    JobResult { name, good, output, took: started.elapsed() }
}

fn watch(command: &mut Command, limit: Duration) -> Result<(bool, String)> {
    // Both streams into one pipe, so that they stay in order.
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot be started")?;
    // The command holds the writing ends: the reader would wait for them indefinitely.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let collected = JobOutput::from(reader);
    let good = command::wait(&mut child, limit)?;
    let mut output = collected.text();
    if good.is_none() {
        output.push_str(&format!("it did not end within {} s\n", limit.as_secs()));
    }
    Ok((good == Some(true), output))
}

/// Output of a job so far.
struct JobOutput {
    bytes: Arc<Mutex<Vec<u8>>>,
    whole: mpsc::Receiver<()>,
}

impl JobOutput {
    /// Reads in the background, to the end.
    fn from(mut reader: io::PipeReader) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (done, whole) = mpsc::channel();
        let place = Arc::clone(&bytes);
        thread::spawn(move || {
            let mut piece = [0; PIECE];
            while let Ok(read @ 1..) = reader.read(&mut piece) {
                place.lock().unwrap_or_else(PoisonError::into_inner).extend(&piece[..read]);
            }
            // The receiver may have stopped waiting.
            let _ = done.send(());
        });
        Self { bytes, whole }
    }

    /// All of it; a process that was left behind may keep the pipe open, and is not waited for.
    fn text(self) -> String {
        let _ = self.whole.recv_timeout(LEFT_BEHIND_MAX);
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> TestJob {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        TestJob { name: name.to_owned(), command }
    }

    fn ended(jobs: Vec<TestJob>, limit: Duration) -> Vec<JobResult> {
        let mut all = Vec::new();
        side_by_side(jobs, 2, limit, |job| all.push(job));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    #[test]
    fn every_job_is_reported_with_its_own_output() {
        let jobs = vec![
            shell("a", "echo one; echo two >&2; echo three"),
            shell("b", "echo four; exit 3"),
            shell("c", "true"),
        ];
        let all = ended(jobs, Duration::from_secs(60));
        let seen: Vec<_> = all.iter().map(|job| (job.good, job.output.as_str())).collect();
        assert_eq!(seen, [(true, "one\ntwo\nthree\n"), (false, "four\n"), (true, "")]);
    }

    #[test]
    fn no_job_is_started_after_the_deadline() {
        let late = |until| {
            let jobs = vec![shell("a", "true"), shell("b", "true")];
            side_by_side_until(jobs, 1, Duration::from_secs(60), until, |_| {})
        };
        assert_eq!(late(Instant::now()), ["a", "b"]);
        assert!(late(Instant::now() + Duration::from_secs(60)).is_empty());
    }

    #[test]
    fn what_does_not_end_or_start_has_failed_and_says_so() {
        let missing = TestJob { name: "b".to_owned(), command: Command::new("no-such-program") };
        let all = ended(vec![shell("a", "exec sleep 600"), missing], Duration::from_millis(50));
        assert!(all.iter().all(|job| !job.good));
        assert!(all[0].output.contains("did not end"), "{}", all[0].output);
        assert!(all[1].output.contains("cannot be started"), "{}", all[1].output);
    }
}
