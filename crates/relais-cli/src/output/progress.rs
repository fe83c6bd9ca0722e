//! How far a long command is, for whoever watches.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// Between two words; what is done sooner needs none.
const EVERY: Duration = Duration::from_millis(200);

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
    last: Instant,
}

impl Progress {
    /// `quiet`: nothing else is printed meanwhile.
    pub(crate) fn new(what: &'static str, total: Option<u64>, quiet: bool) -> Self {
        let shown = quiet && io::stderr().is_terminal();
        Self { shown, what, total, done: 0, said: false, last: Instant::now() }
    }

    pub(crate) fn step(&mut self) -> io::Result<()> {
        self.done += 1;
        if self.shown && self.last.elapsed() >= EVERY {
            (self.said, self.last) = (true, Instant::now());
            eprint!("\r{}", line(self.what, self.done, self.total));
            io::stderr().flush()?;
        }
        Ok(())
    }

    /// Ends the line.
    pub(crate) fn finish(&self) {
        if self.said {
            eprintln!("\r{}", line(self.what, self.done, self.total));
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>) -> String {
    const WIDTH: u64 = 24;
    let Some(total) = total.filter(|total| *total > 0) else { return format!("{done} {what}") };
    let filled = usize::try_from(done.min(total) * WIDTH / total).unwrap_or_default();
    let empty = usize::try_from(WIDTH).unwrap_or_default().saturating_sub(filled);
    format!("[{}{}] {done} of {total} {what}", "=".repeat(filled), " ".repeat(empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_up_where_the_end_is_known() {
        assert_eq!(line("rows", 200, None), "200 rows");
        assert_eq!(line("rows", 200, Some(0)), "200 rows");
        assert_eq!(
            line("dead letters", 100, Some(400)),
            "[======                  ] 100 of 400 dead letters"
        );
        assert!(line("rows", 400, Some(400)).starts_with("[========================] 400"));
    }
}
