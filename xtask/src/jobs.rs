//! Work that runs side by side: most tests wait for servers, leases and processes, not for a core.
//!
//! Invariant: the output of a job is printed in one piece when it ends, so that no two mix.

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

/// How long the output of a job that has ended is waited for.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(2);
/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// One command with a name.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) good: bool,
    /// Standard output and standard error, as they came.
    pub(crate) output: String,
    pub(crate) took: Duration,
}

/// Runs the jobs, so many at once, the first ones first; tells of each when it has ended. One that
/// takes longer than `limit` is ended, and has failed.
pub(crate) fn side_by_side(
    jobs: Vec<Job>,
    at_once: usize,
    limit: Duration,
    mut tell: impl FnMut(Ended),
) {
    let waiting = Mutex::new(VecDeque::from(jobs));
    let (ended, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (ended, waiting) = (ended.clone(), &waiting);
            scope.spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(job) = next else { break };
                    // Nobody listens any more only if the listener panicked.
                    let _ = ended.send(run(job, limit));
                }
            });
        }
        drop(ended);
        told.into_iter().for_each(&mut tell);
    });
}

fn run(Job { name, mut command }: Job, limit: Duration) -> Ended {
    let started = Instant::now();
    let (good, output) = match watch(&mut command, limit) {
        Ok(ended) => ended,
        Err(error) => (false, format!("{error:#}\n")),
    };
    Ended { name, good, output, took: started.elapsed() }
}

fn watch(command: &mut Command, limit: Duration) -> Result<(bool, String)> {
    // Both streams into one pipe, so that they stay in order.
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot be started")?;
    // The command holds the ends that write: the reader would wait for them for ever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let collected = Collected::from(reader);
    let good = command::wait(&mut child, limit)?;
    let mut output = collected.text();
    if good.is_none() {
        output.push_str(&format!("it did not end within {} s\n", limit.as_secs()));
    }
    Ok((good == Some(true), output))
}

/// What a job has printed so far.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    whole: mpsc::Receiver<()>,
}

impl Collected {
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
            // Whoever asked may have gone on.
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

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    fn ended(jobs: Vec<Job>, limit: Duration) -> Vec<Ended> {
        let mut all = Vec::new();
        side_by_side(jobs, 2, limit, |job| all.push(job));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    #[test]
    fn every_job_is_told_of_with_its_own_output() {
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
    fn what_does_not_end_or_start_has_failed_and_says_so() {
        let missing = Job { name: "b".to_owned(), command: Command::new("no-such-program") };
        let all = ended(vec![shell("a", "exec sleep 600"), missing], Duration::from_millis(50));
        assert!(all.iter().all(|job| !job.good));
        assert!(all[0].output.contains("did not end"), "{}", all[0].output);
        assert!(all[1].output.contains("cannot be started"), "{}", all[1].output);
    }
}
