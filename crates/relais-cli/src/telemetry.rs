//! What the program tells about itself: lines in the log, and spans for OpenTelemetry. Counters are in
//! the engine, and the metrics page in `relais-admin`.
//!
//! Invariant: one event is one line of the log, and nothing in it is obeyed by a terminal, whatever messages
//! say.

mod otlp;

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use relais::{App, observe::Observer};
use tracing_subscriber::EnvFilter;

use self::otlp::Exporter;
use crate::{
    args::{ColorChoice, LogFormat},
    output::{is_unsafe, use_color},
    settings::{LogSettings, TelemetrySettings},
};

/// Log lines go to stderr: stdout may be a destination. What the command line and `RUST_LOG` say goes
/// before the settings.
pub(crate) fn start_log(settings: &LogSettings, format: Option<LogFormat>, color: ColorChoice) {
    let level = || EnvFilter::new(settings.level.as_deref().unwrap_or("info"));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| level());
    let colours = use_color(color, io::stderr().is_terminal());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || SafeLines { out: io::stderr(), colours })
        .with_target(false)
        .with_ansi(colours);
    match format.or(settings.format).unwrap_or_default() {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Writes events as lines. The library escapes what starts a command of a terminal; ends of lines, and what
/// turns the writing, it leaves.
struct SafeLines<W> {
    out: W,
    /// Whether the library itself writes commands.
    colours: bool,
}

impl<W: Write> Write for SafeLines<W> {
    /// Each event comes whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.out.write_all(one_line(&String::from_utf8_lossy(event), self.colours).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The escapes are those of JSON, so a line that was JSON still is.
fn one_line(event: &str, colours: bool) -> String {
    let (text, end) = match event.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (event, ""),
    };
    let mut line = String::with_capacity(event.len());
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\u{1b}' if colours => line.push(c),
            c if is_unsafe(c) => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => line.push(c),
        }
    }
    line + end
}

/// Spans on their way to a collector; nothing without one in the settings.
pub(crate) struct Traces(Option<(Arc<Exporter>, f64)>);

impl Traces {
    pub(crate) fn start(settings: &TelemetrySettings) -> Result<Self, String> {
        let Some(endpoint) = &settings.otlp else { return Ok(Self(None)) };
        let exporter = Exporter::start(endpoint.clone(), settings)?;
        Ok(Self(Some((exporter, settings.sample))))
    }

    /// An app whose workers give their spans here.
    pub(crate) fn of(&self, app: App) -> App {
        match &self.0 {
            None => app,
            Some((exporter, sample)) => {
                app.observer(Arc::new(Observer::with_spans(exporter.clone(), *sample)))
            }
        }
    }

    /// Sends what is left, if the collector takes it soon.
    pub(crate) async fn close(self) {
        if let Some((exporter, _)) = self.0 {
            exporter.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let forged = one_line("INFO a\nb\r\u{202e}c\u{9b}\n", false);
        assert_eq!(forged, "INFO a\\nb\\r\\u202ec\\u009b\n");
        let coloured = "\u{1b}[32mINFO\u{1b}[0m a\n";
        assert_eq!(one_line(coloured, true), coloured);
        assert_eq!(one_line("\u{1b}[2J", false), "\\u001b[2J");
    }
}
