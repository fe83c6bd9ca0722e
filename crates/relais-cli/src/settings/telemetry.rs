//! `[log]` and `[telemetry]`.

use relais::http::HiddenUrl;
use relais_core::{
    setting::{Decimal, HiddenTable, NameText, SettingWords, Word},
    settings, text_kinds,
};
use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::reader::Section;
use crate::args::LogFormat;

settings! {
    /// `[log]`
    pub(crate) struct LogSettings {
        /// `"text"` or `"json"`; `--log` overrides it
        format: Option<Word<LogFormat>> => "`\"text\"`";
        /// such as `"info,relais=debug"`; `RUST_LOG` overrides it
        level: Option<LogLevel> => "`\"info\"`";
    }

    /// `[telemetry]`
    pub(crate) struct TelemetrySettings {
        /// the address of a collector, such as `"http://127.0.0.1:4318"`, else `OTEL_EXPORTER_OTLP_ENDPOINT`. Without either there are no traces
        otlp: Option<CollectorUrl>;
        /// sent to the collector, else `OTEL_EXPORTER_OTLP_HEADERS`. Never shown
        headers: HiddenTable<SecretString>;
        /// the name of this program in traces, else `OTEL_SERVICE_NAME`
        service_name: NameText = "relais".to_owned();
        /// the fraction of new traces that is recorded
        sample: Decimal = 1.0, 0.0..=1.0;
    }
}

text_kinds! {
    /// A level, or levels by module.
    pub(crate) LogLevel -> String, "text", |text| match EnvFilter::try_new(text) {
            Ok(_) if text.split(',').all(is_directive) => Ok(text.to_owned()),
            _ => Err("is no level; write for example \"info\" or \"info,relais=debug\"".to_owned()),
        };
    /// The address of a collector. It may hold a password by mistake.
    pub(crate) CollectorUrl -> HiddenUrl, "text", endpoint, hidden true;
}

impl SettingWords for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

pub(super) fn log(section: Section<'_>) -> LogSettings {
    let settings = section.read_with(&());
    section.finish();
    settings
}

/// Returns whether it is a level or has one. A single word would be the name of a module, and no module of
/// relais would be logged.
fn is_directive(text: &str) -> bool {
    let text = text.trim();
    text.contains(['=', '[']) || text.parse::<LevelFilter>().is_ok_and(|_| !text.is_empty())
}

/// Reads the section; absent keys are taken from OpenTelemetry's own variables.
pub(super) fn telemetry(
    section: Section<'_>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> TelemetrySettings {
    let variable = |key: &str, name: &str| {
        environment(name).filter(|value| !value.is_empty() && !section.has(key))
    };
    let mut settings: TelemetrySettings = section.read_with(&());
    let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
    if let Some(text) = variable("otlp", name) {
        // It may be meant for other programs too: no reason to refuse this configuration.
        let wrong = |error| section.warn("otlp", format_args!("{name} {error}; no traces"));
        settings.otlp = endpoint(&text).map_err(wrong).ok();
    }
    let pairs = variable("headers", "OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    let pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().into()));
    settings.headers.extend(pairs);
    for (name, value) in &settings.headers {
        let fits = name.parse::<HeaderName>().is_ok()
            && value.expose_secret().parse::<HeaderValue>().is_ok();
        if !fits {
            section.error("headers", format_args!("`{name}` is not a header HTTP can carry"));
        }
    }
    if let Some(name) = variable("service_name", "OTEL_SERVICE_NAME") {
        settings.service_name = name;
    }
    section.finish();
    settings
}

/// Reads the address of a collector and adds the path for traces.
fn endpoint(text: &str) -> Result<HiddenUrl, String> {
    const PATH: &str = "/v1/traces";
    const HOW: &str = "is no address of a collector; write for example \"http://127.0.0.1:4318\"";
    let mut url = Url::parse(text).map_err(|_| HOW.to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(HOW.to_owned());
    }
    if !url.path().ends_with(PATH) {
        let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    HiddenUrl::new(url, "use `telemetry.headers` instead").map_err(String::from)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::read;
    use super::*;

    fn settings(text: &str, variables: &[(&str, &str)]) -> Result<TelemetrySettings, String> {
        let environment = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = read(Path::new("relais.toml"), text, &environment);
        read.map(|(settings, _)| settings.telemetry).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_collector_nothing_is_traced() {
        let off = settings("", &[]).unwrap();
        assert!(off.otlp.is_none());
        assert_eq!((off.service_name.as_str(), off.sample), ("relais", 1.0));
    }

    #[test]
    fn the_path_for_traces_is_added_once() {
        for text in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(endpoint(text).unwrap().as_str(), "http://c:4318/v1/traces");
        }
        assert_eq!(endpoint("https://c/otlp").unwrap().as_str(), "https://c/otlp/v1/traces");
    }

    #[test]
    fn the_file_goes_before_the_variables_of_open_telemetry() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://from-variable:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a, x-key=b"),
            ("OTEL_SERVICE_NAME", "orders"),
        ];
        let from_variables = settings("", &variables).unwrap();
        assert_eq!(from_variables.otlp.unwrap().host_str(), Some("from-variable"));
        assert_eq!(from_variables.service_name, "orders");
        assert_eq!(from_variables.headers.len(), 2);
        let text =
            "[telemetry]\notlp = \"http://from-file:4318\"\nservice_name = \"mine\"\nsample = 0.1";
        let from_file = settings(text, &variables).unwrap();
        assert_eq!(from_file.otlp.unwrap().host_str(), Some("from-file"));
        assert_eq!((from_file.service_name.as_str(), from_file.sample), ("mine", 0.1));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("[telemetry]\notlp = \"grpc://c:4317\"", "is no address of a collector"),
            ("[telemetry]\notlp = \"http://me:pw@c\"", "telemetry.headers"),
            ("[telemetry]\nsample = 2", "must be from 0 to 1"),
            ("[telemetry]\nsamples = 1", "did you mean `sample`?"),
            ("[telemetry]\nheaders = { \"x y\" = \"z\" }", "`x y` is not a header"),
            ("[log]\nlevel = \"loud\"", "is no level"),
            ("[log]\nformat = \"jsn\"", "did you mean `json`?"),
            ("[log]\nlevel = \"=x=\"", "is no level"),
        ] {
            let error = settings(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
