//! Logs and OpenTelemetry spans of the program. Counters are in the engine, and the metrics page is in
//! `relais-admin`.
//!
//! Invariant: one event is one line of the log, and its text cannot control a terminal.

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

/// Starts the log on stderr, because stdout may be a destination. The command line and `RUST_LOG` override the
/// configuration.
pub(crate) fn start_log(settings: &LogSettings, format: Option<LogFormat>, color: ColorChoice) {
    // The AMQP library logs returned messages with their content. Failures of the NATS library are
    // returned, and logged with what they mean.
    let level = settings.level.as_deref().unwrap_or("info");
    let level = || EnvFilter::new(format!("lapin=error,async_nats=off,{level}"));
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

/// Writes each event as one line. The library escapes terminal commands, but not line ends and changes of the
/// writing direction.
struct SafeLines<W> {
    out: W,
    /// True if the library writes colours.
    colours: bool,
}

impl<W: Write> Write for SafeLines<W> {
    /// Writes one event, which is always passed as a whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.out.write_all(one_line(&String::from_utf8_lossy(event), self.colours).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Escapes as JSON does, so that a JSON line stays valid.
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

/// The exporter of spans; empty if no collector is configured.
pub(crate) struct Traces(Option<(Arc<Exporter>, f64)>);

impl Traces {
    pub(crate) fn start(settings: &TelemetrySettings) -> Result<Self, String> {
        let Some(endpoint) = &settings.otlp else { return Ok(Self(None)) };
        let exporter = Exporter::start((**endpoint).clone(), settings)?;
        Ok(Self(Some((exporter, settings.sample))))
    }

    /// Returns an app whose workers record their spans here.
    pub(crate) fn of(&self, app: App) -> App {
        match &self.0 {
            None => app,
            Some((exporter, sample)) => {
                app.observer(Arc::new(Observer::with_spans(exporter.clone(), *sample)))
            }
        }
    }

    /// Sends the remaining spans, if the collector accepts them soon.
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
    fn an_event_is_always_one_line() {
        let forged = one_line("INFO a\nb\r\u{202e}c\u{9b}\n", false);
        assert_eq!(forged, "INFO a\\nb\\r\\u202ec\\u009b\n");
        let coloured = "\u{1b}[32mINFO\u{1b}[0m a\n";
        assert_eq!(one_line(coloured, true), coloured);
        assert_eq!(one_line("\u{1b}[2J", false), "\\u001b[2J");
    }
}
