//! Progress of long commands on the terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shortest time between two updates.
const EVERY: Duration = Duration::from_millis(200);
/// Updates per second.
const UPDATES: u8 = 5;
const BAR: &str = "[{bar:24}] {pos} of {len} {msg}, {eta} left";
const COUNTER: &str = "{pos} {msg}";
const SPINNER: &str = "{msg}, {elapsed}";

/// A counter on one line of stderr; hidden without a terminal, or if the command prints a line per step.
#[derive(Debug)]
pub(crate) struct CommandProgress {
    bar: ProgressBar,
}

impl CommandProgress {
    /// Starts a counter. `total` is absent if it is unknown; `quiet` means that nothing else is printed.
    pub(crate) fn new(what: &'static str, total: Option<u64>, quiet: bool) -> Self {
        let target = match quiet {
            true => ProgressDrawTarget::stderr_with_hz(UPDATES),
            false => ProgressDrawTarget::hidden(),
        };
        let total = total.filter(|total| *total > 0);
        let bar = ProgressBar::with_draw_target(total, target).with_message(what);
        bar.set_style(style(if total.is_some() { BAR } else { COUNTER }));
        Self { bar }
    }

    pub(crate) fn step(&self) {
        self.advance(1);
    }

    /// Adds to the number of completed steps.
    pub(crate) fn advance(&self, more: u64) {
        self.bar.inc(more);
    }

    /// Ends the line, or clears it after a short command.
    pub(crate) fn finish(&self) {
        match self.bar.elapsed() < EVERY {
            true => self.bar.finish_and_clear(),
            false => self.bar.abandon(),
        }
    }
}

/// Shows the elapsed time while waiting for work of unknown length.
pub(crate) async fn waiting<T>(what: &'static str, work: impl Future<Output = T>) -> T {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.set_style(style(SPINNER));
    spinner.enable_steady_tick(EVERY);
    let done = work.await;
    spinner.finish_and_clear();
    done
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("a template of this file is valid");
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid_and_steps_are_counted() {
        for template in [BAR, COUNTER, SPINNER] {
            style(template);
        }
        let progress = CommandProgress::new("rows", Some(3), false);
        progress.step();
        progress.advance(2);
        progress.finish();
        assert_eq!((progress.bar.position(), progress.bar.length()), (3, Some(3)));
        assert_eq!(CommandProgress::new("rows", Some(0), false).bar.length(), None);
    }
}
