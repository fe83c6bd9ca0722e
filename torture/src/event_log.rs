//! The history of a run as a file: one line with its time for each write, result and fault. It shows what
//! happened before a finding.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Instant,
};

use anyhow::{Context, Result};

/// The last lines of it, for the report of a failure.
const LAST_LINES: usize = 200;

/// The file; all tasks of a run write to the same one.
#[derive(Clone, Debug)]
pub(crate) struct EventLog(Arc<EventFile>);

#[derive(Debug)]
struct EventFile {
    path: PathBuf,
    started: Instant,
    file: Mutex<BufWriter<File>>,
}

impl EventLog {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let path = folder.join("history.txt");
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let (file, started) = (Mutex::new(BufWriter::new(file)), Instant::now());
        Ok(Self(Arc::new(EventFile { path, started, file })))
    }

    /// Writes down one thing. A history that cannot be written (its disk is full) is no finding.
    pub(crate) fn note(&self, what: impl fmt::Display) {
        let time = self.0.started.elapsed();
        let mut file = self.0.file.lock().expect("the lock is not poisoned");
        let _ = writeln!(file, "{:>9.3} {what}", time.as_secs_f64());
    }

    /// The last lines, and where all of them are.
    pub(crate) fn last(&self) -> Result<String> {
        self.0.file.lock().expect("the lock is not poisoned").flush()?;
        let mut last = VecDeque::new();
        for line in BufReader::new(File::open(&self.0.path)?).lines() {
            if last.len() == LAST_LINES {
                last.pop_front();
            }
            last.push_back(line?);
        }
        let lines = Vec::from(last).join("\n");
        Ok(format!("{lines}\n(the whole history: {})", self.0.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_given_and_all_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let event_log = EventLog::new(folder.path()).unwrap();
        for number in 0..=LAST_LINES {
            event_log.note(format_args!("thing {number}"));
        }
        let last = event_log.last().unwrap();
        assert!(!last.contains("thing 0\n") && last.contains("thing 1\n"), "{last}");
        assert!(last.contains(&format!("thing {LAST_LINES}\n")) && last.contains("history.txt"));
        let all = std::fs::read_to_string(folder.path().join("history.txt")).unwrap();
        assert_eq!(all.lines().count(), LAST_LINES + 1);
    }
}
