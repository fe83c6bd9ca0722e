//! From TOML text to [`Settings`]: the sections that come once.

use std::{net::SocketAddr, ops::RangeInclusive, path::Path, time::Duration};

use relais_core::{
    inbox::INBOX_SEPARATOR, process::declared::DeclaredCall, query::Retention, retry::RetryPolicy,
    unknown::UNKNOWN_TYPE_WAIT,
};
use toml::de::DeTable;

use super::{
    checks,
    findings::{Finding, Place, Severity},
    parse_admin, parse_destination, parse_process, parse_route, parse_source, parse_telemetry,
    quantity::{duration, show_duration},
    reader::{Reader, Section},
    store_url::store_url,
    types::{ProcessSettings, Settings, StoreSettings, StoreUrl},
};

/// What was read, and everything there is to say about it.
pub(super) fn parse(
    path: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> (Settings, Vec<Finding>) {
    let file = path.display().to_string();
    let reader = Reader { file: &file, text, environment, findings: Vec::new().into() };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        // Only the message: the library's own report quotes the line, which may hold a secret.
        let place = error.span().map_or_else(Place::default, |s| Place::of(text, s.start));
        reader.note(Severity::Error, place, "", error.message());
    }
    let settings = {
        let root = reader.root(table.get_ref());
        let settings = read(&root, path, environment);
        // After a syntax error keys may sit in the wrong table; only the syntax is worth reporting.
        if errors.is_empty() {
            root.finish(|_| None);
            checks::check(&reader, &settings);
        }
        settings
    };
    let mut findings = reader.findings.into_inner();
    if !errors.is_empty() {
        findings.truncate(errors.len());
    }
    findings.sort_by_key(|finding| finding.place);
    (settings, findings)
}

fn read(root: &Section<'_>, path: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Settings {
    let folder = path.parent().unwrap_or(Path::new(""));
    let inbox = root.child("inbox");
    let inbox_retry = retry(inbox.child("retry"), RetryPolicy::patient());
    let inbox_name = inbox.name("name").unwrap_or_default();
    if inbox_name.contains(INBOX_SEPARATOR) {
        inbox.error("name", format_args!("must not contain `{INBOX_SEPARATOR}`"));
    }
    let unknown_type_wait =
        inbox.parsed("unknown_type_wait", duration).unwrap_or(UNKNOWN_TYPE_WAIT);
    inbox.finish(|_| None);
    let (destinations, external) =
        parse_destination::destinations(root.children("destination"), folder);
    let processes = parse_process::processes(root.children_called("process", "type"));
    let horizons = Horizons {
        inbox: inbox_retry.horizon(),
        outbox: destinations.iter().map(|d| d.retry.horizon()).max().unwrap_or_default(),
        processes: processes.iter().map(horizon).max().unwrap_or_default(),
    };
    Settings {
        store: store(root.child("store"), folder),
        admin: parse_admin::admin(root.child("admin"), folder),
        sources: parse_source::sources(root.children("source"), folder),
        routes: parse_route::routes(root.children("route")),
        processes,
        destinations,
        external,
        inbox_name,
        inbox_retry,
        unknown_type_wait,
        retention: retention(root.child("retention"), horizons),
        lease: lease(root.child("lanes")),
        log: parse_telemetry::log(root.child("log")),
        telemetry: parse_telemetry::telemetry(root.child("telemetry"), environment),
    }
}

fn store(section: Section<'_>, folder: &Path) -> StoreSettings {
    let url = section.text("url").and_then(|text| {
        // Unlike other keys, the text itself is not repeated: it may hold a password.
        store_url(&text.value, folder).map_err(|error| section.error("url", error)).ok()
    });
    let settings = StoreSettings {
        url: url.unwrap_or_else(|| {
            store_url("sqlite:relais.db", folder).expect("the default store is a store")
        }),
        unsafe_durability: section.flag("unsafe_durability", false),
        migrate: section.flag("migrate", true),
        wait: section.parsed("wait", duration).unwrap_or(Duration::from_secs(60)),
        schema: section.name("schema"),
        connections: section.whole("connections", 4..=1_000),
    };
    if matches!(settings.url, StoreUrl::Sqlite(_)) {
        let given = [
            ("schema", settings.schema.is_some()),
            ("connections", settings.connections.is_some()),
        ];
        for (key, _) in given.into_iter().filter(|(_, given)| *given) {
            section.error(key, "is for PostgreSQL; must be used with a postgres:// `url`");
        }
    }
    if settings.unsafe_durability {
        section.warn("unsafe_durability", "a power failure may lose acknowledged messages");
    }
    section.finish(|_| None);
    settings
}

/// `IP:PORT` or `localhost:PORT`.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric
        .as_deref()
        .unwrap_or(text)
        .parse()
        .map_err(|_| "is not an address; write for example \"127.0.0.1:7071\"".to_owned())
}

/// `[….retry]`: the same keys for the inbox, every destination and every step of a process, with the
/// default of each.
pub(super) fn retry(section: Section<'_>, default: RetryPolicy) -> RetryPolicy {
    const ATTEMPTS: RangeInclusive<u32> = 1..=1_000;
    const FACTOR: RangeInclusive<f64> = 1.0..=100.0;
    let attempts_max = section.whole("attempts", ATTEMPTS).unwrap_or(default.attempts_max);
    let first = section.parsed("first", duration).unwrap_or(default.first);
    let factor = section.number("factor", FACTOR).unwrap_or(default.factor);
    let max = section.parsed("max", duration).unwrap_or(default.max.max(first));
    if max < first {
        let (max, first) = (show_duration(max), show_duration(first));
        section.error("max", format_args!("{max} is shorter than `first` ({first})"));
    }
    let policy = RetryPolicy::new(attempts_max, first, max)
        .factor(factor)
        .jitter(section.flag("jitter", true));
    section.finish(|_| None);
    policy
}

/// The longest time between the first and the last attempt at a row, or at a step.
struct Horizons {
    inbox: Duration,
    outbox: Duration,
    processes: Duration,
}

/// How long the slowest step of a process may take: a reply to it may be as late.
fn horizon(process: &ProcessSettings) -> Duration {
    let step = |(_, call): (&str, &DeclaredCall)| {
        let waits = call.timeout.unwrap_or_default().saturating_mul(call.retry.attempts_max);
        waits.saturating_add(call.retry.horizon())
    };
    process.calls().map(step).max().unwrap_or_default()
}

fn retention(section: Section<'_>, horizons: Horizons) -> Retention {
    let default = Retention::default();
    let keep = |key: &'static str, default: i64, horizon: Duration| {
        let Some(kept) = section.parsed(key, duration) else { return default };
        if kept <= horizon {
            let (kept, horizon) = (show_duration(kept), show_duration(horizon));
            section.error(
                key,
                format_args!("{kept} is not longer than the retries may take ({horizon})"),
            );
        }
        i64::try_from(kept.as_secs()).unwrap_or(default)
    };
    let retention = Retention::default()
        .processed_seconds(keep("processed", default.processed_seconds, horizons.inbox))
        .dispatched_seconds(keep("dispatched", default.dispatched_seconds, horizons.outbox))
        .handled_seconds(keep("handled", default.handled_seconds, horizons.inbox))
        .resolved_seconds(keep("resolved", default.resolved_seconds, Duration::ZERO))
        .processes_seconds(keep("processes", default.processes_seconds, horizons.processes));
    section.finish(|_| None);
    retention
}

/// `[lanes]`
fn lease(section: Section<'_>) -> Duration {
    const DEFAULT: Duration = Duration::from_secs(10);
    const MIN: Duration = Duration::from_secs(2);
    const MAX: Duration = Duration::from_secs(3_600);
    let lease = section.parsed("lease", duration).unwrap_or(DEFAULT);
    if lease < MIN {
        section.error("lease", "shorter than 2s: a busy moment would cost a worker its lanes");
    } else if lease > MAX {
        section.error("lease", "longer than 1h: the lanes of a crashed worker would stand still");
    }
    section.finish(|_| None);
    lease
}
