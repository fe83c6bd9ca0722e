//! `[log]` and `[telemetry]`.

use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use secrecy::ExposeSecret;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::{
    reader::Section,
    types::{LogSettings, TelemetrySettings},
};
use crate::args::LogFormat;

pub(super) fn log(section: Section<'_>) -> LogSettings {
    let format = section.choice("format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    let level = section.parsed("level", |text| match EnvFilter::try_new(text) {
        Ok(_) if text.split(',').all(is_directive) => Ok(text.to_owned()),
        _ => Err("is no level; write for example \"info\" or \"info,relais=debug\"".to_owned()),
    });
    section.finish(|_| None);
    LogSettings { format, level }
}

/// Returns whether it is a level or has one. A single word would be the name of a module, and no module of
/// relais would be logged.
fn is_directive(text: &str) -> bool {
    let text = text.trim();
    text.contains(['=', '[']) || text.parse::<LevelFilter>().is_ok_and(|_| !text.is_empty())
}

/// What the file does not say is taken from OpenTelemetry's own variables.
pub(super) fn telemetry(
    section: Section<'_>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> TelemetrySettings {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    // Unlike other keys, the text itself is not repeated: it may hold a password.
    let written = section
        .text("otlp")
        .and_then(|text| endpoint(&text.value).map_err(|error| section.error("otlp", error)).ok());
    let otlp = if section.has("otlp") {
        written
    } else {
        let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
        variable(name).and_then(|text| {
            // It may be meant for other programs too: no reason to refuse these settings.
            let wrong = |error| section.warn("otlp", format_args!("{name} {error}; no traces"));
            endpoint(&text).map_err(wrong).ok()
        })
    };
    let mut headers = section.secret_table("headers");
    if !section.has("headers") {
        let variable = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let pairs = variable.split(',').filter_map(|pair| pair.split_once('='));
        headers.extend(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().into())));
    }
    for (name, value) in &headers {
        let fits = name.parse::<HeaderName>().is_ok()
            && value.expose_secret().parse::<HeaderValue>().is_ok();
        if !fits {
            section.error("headers", format_args!("`{name}` is not a header HTTP can carry"));
        }
    }
    let service_name = section.name("service_name").or_else(|| variable("OTEL_SERVICE_NAME"));
    let settings = TelemetrySettings {
        otlp,
        headers,
        service_name: service_name.unwrap_or_else(|| "relais".to_owned()),
        sample: section.number("sample", 0.0..=1.0).unwrap_or(1.0),
    };
    section.finish(|_| None);
    settings
}

/// The collector's address; traces have a path of their own there.
fn endpoint(text: &str) -> Result<Url, String> {
    const PATH: &str = "/v1/traces";
    let mut url: Url = text
        .parse()
        .ok()
        .filter(|url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or("is no address of a collector; write for example \"http://127.0.0.1:4318\"")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a password in it; use `telemetry.headers` instead".to_owned());
    }
    if !url.path().ends_with(PATH) {
        let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
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
        assert_eq!((off.otlp, off.service_name.as_str(), off.sample), (None, "relais", 1.0));
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
            ("[telemetry]\nsample = 2", "must be a number from 0 to 1"),
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
