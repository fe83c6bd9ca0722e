//! How far a long command is, for whoever watches.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// Between two words; what is done sooner needs none.
const EVERY: Duration = Duration::from_millis(200);
/// Clears what a longer line left behind.
const CLEAR: &str = "\x1b[K";

/// A counter on one line of the terminal; silent where nobody watches, or where the steps themselves
/// are seen going by.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    what: &'static str,
    /// How many there will be, if that is known.
    total: Option<u64>,
    done: u64,
    said: bool,
    started: Instant,
    last: Instant,
}

impl Progress {
    /// `quiet`: nothing else is printed meanwhile.
    pub(crate) fn new(what: &'static str, total: Option<u64>, quiet: bool) -> Self {
        let shown = quiet && io::stderr().is_terminal();
        let now = Instant::now();
        Self { shown, what, total, done: 0, said: false, started: now, last: now }
    }

    pub(crate) fn step(&mut self) -> io::Result<()> {
        self.advance(1)
    }

    /// So many more are done.
    pub(crate) fn advance(&mut self, more: u64) -> io::Result<()> {
        self.done += more;
        if self.shown && self.last.elapsed() >= EVERY {
            (self.said, self.last) = (true, Instant::now());
            eprint!("\r{}{CLEAR}", self.line());
            io::stderr().flush()?;
        }
        Ok(())
    }

    /// Ends the line.
    pub(crate) fn finish(&self) {
        if self.said {
            eprintln!("\r{}{CLEAR}", self.line());
        }
    }

    fn line(&self) -> String {
        line(self.what, self.done, self.total, self.started.elapsed())
    }
}

/// Says that it goes on, while one thing takes its time whose end nobody knows.
pub(crate) async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    if !io::stderr().is_terminal() {
        return work.await;
    }
    let mut work = std::pin::pin!(work);
    let started = Instant::now();
    loop {
        match tokio::time::timeout(EVERY, &mut work).await {
            Ok(done) => {
                eprint!("\r{CLEAR}");
                return done;
            }
            Err(_) => eprint!("\r{what}, {}s{CLEAR}", started.elapsed().as_secs()),
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    const WIDTH: u64 = 24;
    let Some(total) = total.filter(|total| *total > 0) else { return format!("{done} {what}") };
    let filled = usize::try_from(done.min(total) * WIDTH / total).unwrap_or_default();
    let empty = usize::try_from(WIDTH).unwrap_or_default().saturating_sub(filled);
    let bar = format!("[{}{}]", "=".repeat(filled), " ".repeat(empty));
    let left = match done {
        0 => String::new(),
        done if done >= total => format!(", {}s", elapsed.as_secs()),
        done => {
            let whole = elapsed.as_secs_f64() * total as f64 / done as f64;
            format!(", {:.0}s left", (whole - elapsed.as_secs_f64()).ceil())
        }
    };
    format!("{bar} {done} of {total} {what}{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_up_where_the_end_is_known() {
        let after = |seconds| Duration::from_secs(seconds);
        assert_eq!(line("rows", 200, None, after(1)), "200 rows");
        assert_eq!(line("rows", 200, Some(0), after(1)), "200 rows");
        assert_eq!(
            line("dead letters", 100, Some(400), after(2)),
            "[======                  ] 100 of 400 dead letters, 6s left"
        );
        let full = line("rows", 400, Some(400), after(9));
        assert_eq!(full, "[========================] 400 of 400 rows, 9s");
    }
}
