//! `[[destination]]` with its retry, limits and breaker.

use std::{collections::HashSet, net::IpAddr, path::Path, time::Duration};

use relais_core::{breaker::BreakerPolicy, outbox::OnDeadLetter, retry::RetryPolicy};
use reqwest::Url;

use super::{
    parse::retry,
    parse_kafka, parse_salesforce,
    quantity::{duration, rate},
    reader::Section,
    types::{Destination, HttpTarget, Limits, Target},
};

/// Reads every destination; those that another program serves are only names.
pub(super) fn destinations(
    sections: Vec<Section<'_>>,
    folder: &Path,
) -> (Vec<Destination>, Vec<String>) {
    let mut names = HashSet::new();
    let (mut served, mut external) = (Vec::new(), Vec::new());
    for section in sections {
        if section.flag("external", false) {
            external.extend(unique_name(&section, &mut names));
            section.finish(|_| {
                Some("the program that serves an external destination has it".to_owned())
            });
        } else {
            served.extend(destination(section, folder, &mut names));
        }
    }
    (served, external)
}

fn unique_name(section: &Section<'_>, names: &mut HashSet<String>) -> Option<String> {
    let name = section.required_name("name");
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        let message = format!("another destination is named `{name}`; names are unique");
        section.error("name", message);
    }
    name
}

#[derive(Clone, Copy)]
enum Kind {
    Http,
    Kafka,
    Log,
    Salesforce,
    Later,
}

fn destination(
    section: Section<'_>,
    folder: &Path,
    names: &mut HashSet<String>,
) -> Option<Destination> {
    let name = unique_name(&section, names);
    let kind = kind(&section);
    let target = match kind {
        Some(Kind::Http) => http(&section).map(|http| Target::Http(Box::new(http))),
        Some(Kind::Kafka) => parse_kafka::target(&section, name.as_deref()).map(Target::Kafka),
        Some(Kind::Log) => Some(log(&section, folder)),
        Some(Kind::Salesforce) => {
            let target = parse_salesforce::target(&section, name.as_deref());
            target.map(|target| Target::Salesforce(Box::new(target)))
        }
        Some(Kind::Later) | None => None,
    };
    let on_dead_letter = section
        .choice("on_dead_letter", &[("park", OnDeadLetter::Park), ("skip", OnDeadLetter::Skip)])
        .unwrap_or_default();
    let default = match kind {
        Some(Kind::Kafka) => RetryPolicy::default(),
        _ => RetryPolicy::patient(),
    };
    let retry = retry(section.child("retry"), default);
    let limits = limits(section.child("limits"));
    let breaker = breaker(section.child("breaker"));
    // Which keys are known depends on the kind.
    if matches!(kind, Some(Kind::Http | Kind::Kafka | Kind::Log | Kind::Salesforce)) {
        section.finish(where_it_belongs);
    }
    Some(Destination { name: name?, target: target?, on_dead_letter, retry, limits, breaker })
}

fn kind(section: &Section<'_>) -> Option<Kind> {
    const HERE: &str = "http, kafka, log, salesforce";
    const KINDS: [(&str, Kind); 7] = [
        ("http", Kind::Http),
        ("log", Kind::Log),
        ("kafka", Kind::Kafka),
        ("rabbitmq", Kind::Later),
        ("nats", Kind::Later),
        ("servicebus", Kind::Later),
        ("salesforce", Kind::Salesforce),
    ];
    if !section.has("kind") {
        section.error("kind", format_args!("is missing; this version has: {HERE}"));
        return None;
    }
    let kind = section.choice("kind", &KINDS)?;
    if matches!(kind, Kind::Later) {
        let written = section.text("kind").map(|text| text.value).unwrap_or_default();
        let message = format!("{written} is not in this build yet; this version has: {HERE}");
        section.error("kind", message);
    }
    Some(kind)
}

fn where_it_belongs(key: &str) -> Option<String> {
    let table = match key {
        "attempts" | "first" | "factor" | "max" | "jitter" => "retry",
        "rate" | "concurrency" | "timeout" => "limits",
        "window" | "failure_rate" | "open_for" => "breaker",
        "url" | "method" | "headers" | "secret" | "secrets" | "allow_private" => {
            return Some("it is for kind `http`".to_owned());
        }
        "brokers" | "topic" | "options" => return Some("it is for kind `kafka`".to_owned()),
        "cloudevents" => return Some("it is for kinds `http` and `kafka`".to_owned()),
        "path" => return Some("it is for kind `log`".to_owned()),
        "login_url" | "client_id" | "client_secret" | "private_key" | "refresh_token"
        | "refresh_token_key" | "object" | "external_id" | "hydrate" | "columns" | "bulk" => {
            return Some("it is for kind `salesforce`".to_owned());
        }
        key if parse_salesforce::BULK_KEYS.contains(&key) => "bulk",
        _ => return None,
    };
    Some(format!("it belongs under `[destination.{table}]`"))
}

fn http(section: &Section<'_>) -> Option<HttpTarget> {
    const METHODS: [(&str, &str); 3] = [("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH")];
    let allow_private = section.flag("allow_private", false);
    let url = target_url(section, allow_private);
    let headers = section.secret_table("headers");
    for (name, _) in &headers {
        if reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
            section.error("headers", format_args!("`{name}` is not a header name"));
        }
    }
    let method = section.choice("method", &METHODS).unwrap_or("POST");
    let secrets = section.secrets();
    let cloudevents = section.flag("cloudevents", false);
    Some(HttpTarget { url: url?, method, headers, secrets, cloudevents, allow_private })
}

/// The URL may carry a key in its query, so errors do not repeat it.
fn target_url(section: &Section<'_>, allow_private: bool) -> Option<Url> {
    if !section.has("url") {
        section.error("url", "is missing; write for example \"https://example.com/orders\"");
    }
    let text = section.text("url")?.value;
    let problem = match Url::parse(&text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            "must start with https:// or http://"
        }
        Ok(url) if !url.has_host() => "names no host",
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "has a login in it; put it in a header instead"
        }
        Ok(url) if !allow_private && is_private(&url) => {
            "is a private address; set `allow_private = true` if that is meant"
        }
        Ok(url) => return Some(url),
        Err(_) => "is not a url; write for example \"https://example.com/orders\"",
    };
    section.error("url", problem);
    None
}

/// Whether the host itself says so. What a name resolves to is checked at each delivery.
fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
        }
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

fn log(section: &Section<'_>, folder: &Path) -> Target {
    let path = section.name("path").map(|path| folder.join(path));
    Target::Log { path }
}

fn limits(section: Section<'_>) -> Limits {
    const TIMEOUT_MAX: Duration = Duration::from_secs(3_600);
    let limits = Limits {
        rate: section.parsed("rate", rate),
        concurrency: section.whole("concurrency", 1..=1_000).unwrap_or(10),
        timeout: section.parsed("timeout", duration).unwrap_or(Duration::from_secs(30)),
    };
    if limits.timeout.is_zero() || limits.timeout > TIMEOUT_MAX {
        section.error("timeout", "must be from 1ms to 1h");
    }
    section.finish(|_| None);
    limits
}

fn breaker(section: Section<'_>) -> BreakerPolicy {
    let default = BreakerPolicy::default();
    let window = section.whole("window", 1..=10_000).and_then(|n| usize::try_from(n).ok());
    let failure_rate = section.whole("failure_rate", 1..=100).and_then(|n| u8::try_from(n).ok());
    let breaker = default
        .window(window.unwrap_or(default.window))
        .failure_rate(failure_rate.unwrap_or(default.failure_rate))
        .open_for(section.parsed("open_for", duration).unwrap_or(default.open_for));
    section.finish(|_| None);
    breaker
}
