//! What the program tells about itself: lines in the log, and spans for OpenTelemetry. Counters are in
//! the engine, and the metrics page in `relais-admin`.

mod otlp;

use std::{
    io::{self, IsTerminal},
    sync::Arc,
};

use relais::{App, observe::Observer};
use tracing_subscriber::EnvFilter;

use self::otlp::Exporter;
use crate::{
    args::{ColorChoice, LogFormat},
    output::use_color,
    settings::{LogSettings, TelemetrySettings},
};

/// Log lines go to stderr: stdout may be a destination. What the command line and `RUST_LOG` say goes
/// before the settings.
pub(crate) fn start_log(settings: &LogSettings, format: Option<LogFormat>, color: ColorChoice) {
    let level = || EnvFilter::new(settings.level.as_deref().unwrap_or("info"));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| level());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(use_color(color, io::stderr().is_terminal()));
    match format.or(settings.format).unwrap_or_default() {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
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
