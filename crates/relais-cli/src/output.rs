//! Output of results as text or JSON.
//!
//! Invariant: text of messages never reaches a terminal unescaped, so it cannot move the cursor or overwrite
//! earlier output.

mod hex;
mod progress;
mod table;
mod text;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

pub(crate) use hex::hex;
pub(crate) use progress::{CommandProgress, waiting};
pub(crate) use table::{TableColumn, Tone, elide, fields, table, wrap};
#[cfg(test)]
pub(crate) use text::harmless_json;
pub(crate) use text::{LineBreaks, age, escape, is_unsafe};

use crate::{args::ColorChoice, failure::CommandError};

/// The format of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) color: bool,
    /// True if stdout is a terminal.
    pub(crate) terminal: bool,
    /// Columns of the terminal.
    pub(crate) width: Option<usize>,
}

impl Output {
    pub(crate) fn new(json: bool, color: ColorChoice) -> Self {
        let terminal = io::stdout().is_terminal();
        let size = terminal.then(crossterm::terminal::size).and_then(Result::ok);
        let width = size.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0);
        Self { json, color: use_color(color, terminal), terminal, width }
    }

    /// Returns the text in the colour of its tone, if colours are enabled.
    pub(crate) fn paint(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => 32,
            Tone::Waiting => 33,
            Tone::Bad => 31,
        };
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Prints a text and a line end.
    pub(crate) fn print(&self, text: &str) -> Result<(), CommandError> {
        let mut out = io::stdout().lock();
        let printed = out.write_all(text.trim_end_matches('\n').as_bytes());
        match printed.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
            // The reader has closed the pipe, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// Prints a value as JSON, indented for a terminal.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let text = if self.terminal {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        // Piped output may still end on a terminal, and escaped JSON has the same meaning.
        self.print(&text::harmless_json(&text.map_err(CommandError::failed)?))
    }
}

/// Returns true if a stream is to be coloured.
pub(crate) fn use_color(choice: ColorChoice, terminal: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    }
}
