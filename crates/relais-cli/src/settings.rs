//! `relais.toml`: its keys, its values, and the errors in it.
//!
//! A key is declared once, with name, type, default, limits and documentation (`relais_core::settings!`): those
//! of a connector in its crate, the others here beside the code that reads their section. `sections` lists all.

mod admin;
mod adopt;
mod destination;
mod engine;
mod handler;
mod process;
mod route;
mod source;
mod store;
mod telemetry;

mod checks;
mod excerpt;
mod expand;
mod findings;
mod nearest;
mod reader;
mod sections;

pub(crate) mod explain;
pub(crate) mod schema;

#[cfg(test)]
mod adopt_tests;
#[cfg(test)]
mod amqp_tests;
#[cfg(test)]
mod excerpt_tests;
#[cfg(test)]
mod kafka_tests;
#[cfg(test)]
mod nats_tests;
#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod rabbitmq_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod salesforce_tests;
#[cfg(test)]
mod servicebus_tests;
#[cfg(test)]
mod tests;

use std::{path::Path, time::Duration};

use relais::adopt::Adoption;
use relais_admin::AdminToken;
use relais_core::{query::Retention, retry::RetryPolicy};
use toml::de::DeTable;

pub(crate) use admin::{AdminKeys, date, scheme};
pub(crate) use adopt::AdoptSettings;
pub(crate) use destination::{DestinationConfig, LimitKeys, SalesforceTarget, TargetConfig};
pub(crate) use findings::{ConfigFinding, FilePlace, SettingsError, Severity};
pub(crate) use handler::HandlerConfig;
pub(crate) use process::ProcessSettings;
pub(crate) use relais_core::setting::quantity;
pub(crate) use route::RouteSettings;
pub(crate) use source::{SourceOrigin, SourceSettings};
pub(crate) use store::{StoreSettings, StoreUrl};
pub(crate) use telemetry::{LogSettings, TelemetrySettings};

use engine::IgnoredTypes;
use reader::{Section, SettingsFile};

/// The largest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// One `relais.toml` after reading: complete, checked, with defaults filled in. `Debug` shows no secret.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) store: StoreSettings,
    /// Absent: there is no admin listener.
    pub(crate) admin: Option<AdminKeys>,
    /// `[[admin.tokens]]`; only their hashes.
    pub(crate) admin_tokens: Vec<AdminToken>,
    pub(crate) sources: Vec<SourceSettings>,
    pub(crate) routes: Vec<RouteSettings>,
    pub(crate) processes: Vec<ProcessSettings>,
    pub(crate) handlers: Vec<HandlerConfig>,
    pub(crate) destinations: Vec<DestinationConfig>,
    /// Outbox tables of applications.
    pub(crate) adoptions: Vec<AdoptSettings>,
    /// Names of destinations that another program serves (`external = true`).
    pub(crate) external: Vec<String>,
    /// '' is the inbox that all programs without a name share.
    pub(crate) inbox_name: String,
    pub(crate) inbox_retry: RetryPolicy,
    /// The time for which a message waits for a worker that knows its event type.
    pub(crate) unknown_type_wait: Duration,
    pub(crate) ignored: IgnoredTypes,
    pub(crate) retention: Retention,
    pub(crate) lease: Duration,
    pub(crate) log: LogSettings,
    pub(crate) telemetry: TelemetrySettings,
}

impl Settings {
    /// Returns whether a `[[destination]]` has this name, one that another program serves included.
    pub(crate) fn defines(&self, destination: &str) -> bool {
        self.destination_names().any(|name| name == destination)
    }

    /// Returns whether rows of a destination are delivered: a `[[destination]]` has this name, or it is the inbox
    /// of steps by a handler.
    pub(crate) fn delivers_to(&self, destination: &str) -> bool {
        let steps = self.processes.iter().any(|p| !p.definition.handler_commands().is_empty());
        let is_inbox =
            destination == relais_core::process::handler_step::inbox_destination(&self.inbox_name);
        self.defines(destination) || (steps && is_inbox)
    }

    pub(crate) fn destination_names(&self) -> impl Iterator<Item = &str> {
        let served = self.destinations.iter().map(|d| &d.name);
        served.chain(&self.external).map(String::as_str)
    }

    /// Returns the adopted tables as the store describes them.
    pub(crate) fn adopted(&self) -> Vec<Adoption> {
        self.adoptions.iter().map(|adopt| adopt.adoption.clone()).collect()
    }

    /// Returns whether `relais run` would have no work at all.
    pub(crate) fn is_idle(&self) -> bool {
        self.admin.is_none()
            && self.sources.is_empty()
            && self.routes.is_empty()
            && self.processes.is_empty()
            && self.handlers.is_empty()
            && self.destinations.is_empty()
            && self.adoptions.is_empty()
    }

    /// Returns the scheme of the URLs of a source.
    pub(crate) fn scheme_of(&self, source: &str) -> &'static str {
        let found = self.sources.iter().find(|one| one.name == source);
        match found.map(|found| &found.origin) {
            Some(SourceOrigin::Http(http)) => scheme(http.tls_certificate.as_ref()),
            _ => scheme(None),
        }
    }
}

/// Returns the settings of a file with its warnings, or all its errors.
pub(crate) fn load(path: &Path) -> Result<(Settings, Vec<ConfigFinding>), SettingsError> {
    let file = path.display().to_string();
    let failed =
        |message: String| SettingsError { findings: vec![ConfigFinding::of_file(&file, message)] };
    let size = std::fs::metadata(path).map_err(|e| failed(format!("cannot read the file: {e}")))?;
    if size.len() > FILE_MAX {
        return Err(failed(format!("is larger than {FILE_MAX} bytes; is it the right file?")));
    }
    let text =
        std::fs::read_to_string(path).map_err(|e| failed(format!("cannot read the file: {e}")))?;
    read(path, &text, &|name| std::env::var(name).ok())
}

/// Does the same for a text; relative paths in it start at the folder of `path`.
pub(crate) fn read(
    path: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(Settings, Vec<ConfigFinding>), SettingsError> {
    let (settings, findings) = parse(path, text, environment);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(SettingsError { findings });
    }
    Ok((settings, findings))
}

fn parse(
    path: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> (Settings, Vec<ConfigFinding>) {
    let name = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    let (findings, shown) = Default::default();
    let file = SettingsFile { file: &name, text, folder, environment, findings, shown };
    let (table, errors) = DeTable::parse_recoverable(text);
    let foreign = if errors.is_empty() { None } else { other_format(text) };
    if let Some((format, place)) = foreign {
        let message = format!(
            "the file is {format}; relais reads TOML, such as `[store]` and `url = \"sqlite:relais.db\"`"
        );
        file.report(Severity::Error, place, "", &message);
    }
    for error in errors.iter().filter(|_| foreign.is_none()) {
        // Only the message: the library's own report quotes the line, which may hold a secret.
        let place = error.span().map_or_else(FilePlace::default, |span| FilePlace::of(text, span));
        file.report(Severity::Error, place, "", error.message());
    }
    let syntax_errors = file.findings.borrow().len();
    let settings = {
        let root = file.root(table.get_ref());
        let settings = settings(&root, folder, environment);
        // After a syntax error keys may stand in the wrong table; only the syntax is worth reporting.
        if errors.is_empty() {
            root.finish();
            checks::check(&file, &settings);
        }
        settings
    };
    let (mut findings, shown) = (file.findings.into_inner(), file.shown.into_inner());
    if errors.is_empty() {
        let values = excerpt::values(table.get_ref());
        for finding in findings.iter_mut().filter(|finding| finding.place.line > 0) {
            finding.excerpt = excerpt::excerpt(text, finding.place, &values, &shown);
        }
    } else {
        findings.truncate(syntax_errors);
        // Only a line before which the syntax is right.
        findings.sort_by_key(|finding| finding.place);
        let first = findings.first_mut().filter(|finding| finding.place.line > 0);
        if let Some(first) = first {
            first.excerpt = excerpt::broken(text, first.place);
        }
    }
    findings.sort_by_key(|finding| finding.place);
    (settings, findings)
}

/// Returns the name of a format that is often taken for TOML, with the first line that shows it.
fn other_format(text: &str) -> Option<(&'static str, FilePlace)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        if !content.is_empty() && !content.starts_with('#') {
            let place = FilePlace::of(text, start..start + content.len());
            return format_of(content).map(|format| (format, place));
        }
        start += line.len();
    }
    None
}

/// Returns the format of a line that no TOML file begins with.
fn format_of(line: &str) -> Option<&'static str> {
    let is_name = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if line.trim_start().starts_with('{') {
        return Some("JSON");
    }
    let (key, value) = line.split_once(':').unwrap_or((line, "="));
    let is_entry = is_name(key) && (value.is_empty() || value.starts_with(' '));
    (line == "---" || is_entry).then_some("YAML")
}

fn settings(
    root: &Section<'_>,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Settings {
    let inbox = engine::inbox(root.child("inbox"));
    let (destinations, external) = destination::destinations(root.children("destination", "name"));
    let (admin, admin_tokens) = admin::admin(root.child("admin"));
    let mut settings = Settings {
        store: store::store(root.child("store"), folder),
        admin,
        admin_tokens,
        sources: source::sources(root.children("source", "name")),
        routes: route::routes(root.children("route", "name")),
        processes: process::processes(root.children("process", "type")),
        handlers: handler::handlers(root.children("handler", "name")),
        destinations,
        adoptions: adopt::adoptions(root.children("adopt", "table"), &inbox.name),
        external,
        inbox_name: inbox.name,
        inbox_retry: inbox.retry,
        unknown_type_wait: inbox.unknown_type_wait,
        ignored: inbox.ignored,
        retention: Retention::default(),
        lease: engine::lease(root.child("lanes")),
        log: telemetry::log(root.child("log")),
        telemetry: telemetry::telemetry(root.child("telemetry"), environment),
    };
    settings.retention = engine::retention(root.child("retention"), &settings);
    settings
}
