//! `relais.toml`: what it may say, what it says, and what is wrong with it.

mod types;

mod checks;
mod parse;
mod parse_admin;
mod parse_destination;
mod parse_kafka;
mod parse_process;
mod parse_route;
mod parse_salesforce;
mod parse_source;
mod parse_telemetry;
mod reader;
mod store_url;

mod encryption;
mod expand;
mod findings;
mod nearest;
pub(crate) mod quantity;

pub(crate) mod explain;

#[cfg(test)]
mod kafka_tests;
#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod salesforce_tests;
#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use encryption::{TlsFiles, scheme};
pub(crate) use findings::{Finding, SettingsError, Severity};
pub(crate) use parse_admin::date;
#[cfg(feature = "kafka")]
pub(crate) use types::Start;
pub(crate) use types::{
    AdminSettings, Destination, HttpOrigin, HttpTarget, Hydrate, Invalid, KafkaOrigin, KafkaTarget,
    LogSettings, Origin, SalesforceAuth, SalesforceTarget, Settings, SourceSettings, StoreUrl,
    Target, TelemetrySettings,
};

/// Largest settings file that is read.
const FILE_MAX: u64 = 1 << 20;

/// The settings of a file, with its warnings; or everything that is wrong with it.
pub(crate) fn load(path: &Path) -> Result<(Settings, Vec<Finding>), SettingsError> {
    let unreadable = |message: String| SettingsError {
        findings: vec![Finding {
            severity: Severity::Error,
            file: path.display().to_string(),
            place: findings::Place::default(),
            key: String::new(),
            message,
        }],
    };
    let size = std::fs::metadata(path).map_err(|e| unreadable(format!("cannot be read: {e}")))?;
    if size.len() > FILE_MAX {
        return Err(unreadable(format!("is larger than {FILE_MAX} bytes; is it the right file?")));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    read(path, &text, &|name| std::env::var(name).ok())
}

/// The same for a text at hand; relative paths in it start at the folder of `path`.
pub(crate) fn read(
    path: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(Settings, Vec<Finding>), SettingsError> {
    let (settings, findings) = parse::parse(path, text, environment);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(SettingsError { findings });
    }
    Ok((settings, findings))
}
