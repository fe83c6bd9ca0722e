//! The configuration in plain words, with defaults and without secrets.

mod brokers;
mod handler;
mod process;
mod salesforce;

use std::{fmt::Write, time::Duration};

use relais::{
    adopt::{AdoptDestination, Adoption},
    http::{HttpSourceKeys, HttpTargetKeys, OnInvalidBody, SecretString},
};
use relais_connect::kafka_settings::{KafkaSourceKeys, KafkaStartOffset, RegistryKeys};
use relais_core::{
    breaker::BreakerPolicy, extract::Mapping, message::Category, outbox::OnDeadLetter,
    query::Retention, retry::RetryPolicy, route::Route,
};
use serde::Serialize;

use super::{
    DestinationConfig, Settings, SourceOrigin, SourceSettings, StoreUrl, TargetConfig,
    TelemetrySettings,
    admin::scheme,
    destination::LimitKeys,
    quantity::{show_duration, show_rate, show_retention, show_size},
};

/// One section and its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SectionExplanation {
    pub(crate) section: &'static str,
    pub(crate) name: Option<String>,
    pub(crate) lines: Vec<String>,
}

/// Explains every section, in reading order.
pub(crate) fn explain(settings: &Settings) -> Vec<SectionExplanation> {
    let one = |section, lines| SectionExplanation { section, name: None, lines };
    let named =
        |section, name: &str, lines| SectionExplanation { section, name: Some(name.into()), lines };
    let mut all = vec![one("store", store(settings)), one("admin", admin(settings))];
    all.extend(settings.sources.iter().map(|s| named("source", &s.name, source(s))));
    all.extend(settings.routes.iter().map(|r| named("route", &r.route.on, route(&r.route))));
    let processes = settings.processes.iter();
    all.extend(processes.map(|p| named("process", &p.title(), process::process(&p.declared))));
    all.extend(settings.handlers.iter().map(|h| named("handler", &h.name, handler::handler(h))));
    all.extend(settings.destinations.iter().map(|d| named("destination", &d.name, destination(d))));
    let external = || vec!["external: another program serves it".to_owned()];
    all.extend(settings.external.iter().map(|name| named("destination", name, external())));
    let adoptions = settings.adoptions.iter().map(|adopt| &adopt.adoption);
    all.extend(adoptions.map(|a| named("adopt", &a.table, adopted(a))));
    let wait = show_duration(settings.unknown_type_wait);
    let unknown =
        format!("an event type that no live worker knows waits {wait}, then parks its key");
    let name = &settings.inbox_name;
    let own = (!name.is_empty()).then(|| format!("an inbox of its own, `{name}`"));
    let mut lines: Vec<String> =
        own.into_iter().chain([retry(&settings.inbox_retry), unknown]).collect();
    let ignored: Vec<_> =
        settings.ignored.event_types.iter().map(|name| format!("`{name}`")).collect();
    if !ignored.is_empty() {
        lines.push(format!("messages of these event types are ignored: {}", ignored.join(", ")));
    }
    all.push(one("inbox", lines));
    all.push(one("retention", vec![retention(&settings.retention)]));
    all.push(one("lanes", vec![format!("lease {}", show_duration(settings.lease))]));
    all.push(one("telemetry", vec![telemetry(&settings.telemetry)]));
    all
}

fn adopted(adoption: &Adoption) -> Vec<String> {
    let destination = match &adoption.destination {
        AdoptDestination::Name(name) => format!("destination `{name}`"),
        AdoptDestination::Column(name) => format!("the destination is in column `{name}`"),
        AdoptDestination::Inbox(_) => "received messages".to_owned(),
    };
    let existing = if adoption.existing { "copied when it is installed" } else { "not copied" };
    vec![
        format!("preset {}, {destination}", adoption.preset.name()),
        format!("rows that are waiting already are {existing}"),
    ]
}

fn telemetry(settings: &TelemetrySettings) -> String {
    let Some(otlp) = &settings.otlp else { return "no traces".to_owned() };
    let (service, sample) = (&settings.service_name, settings.sample);
    let to = otlp.origin().ascii_serialization();
    let recorded = match sample * 100.0 {
        percent if percent >= 100.0 => "all new traces are".to_owned(),
        percent if percent <= 0.0 => "no new trace is".to_owned(),
        percent => format!("{percent} % of new traces are"),
    };
    format!("traces of service `{service}` are sent to {to}; {recorded} recorded")
}

fn store(settings: &Settings) -> Vec<String> {
    let store = &settings.store;
    let mut lines = vec![store.url.to_string()];
    if let StoreUrl::Postgres { .. } = store.url {
        let connections = store.connections;
        let schema = store.schema.as_ref().map(|name| format!("schema `{name}`, "));
        lines.push(format!("{}at most {connections} connections", schema.unwrap_or_default()));
    }
    if !store.migrate {
        lines.push("`relais run` does not migrate; `relais migrate` does".to_owned());
    }
    if store.unsafe_durability {
        lines.push("unsafe durability is allowed".to_owned());
    }
    lines
}

fn admin(settings: &Settings) -> Vec<String> {
    match &settings.admin {
        None => vec!["off; add [admin] for health, readiness, metrics and the API".to_owned()],
        Some(admin) => {
            let tokens = settings
                .admin_tokens
                .iter()
                .map(|token| format!("token of {} ({})", token.name, token.role.as_str()));
            let shared = admin.token.iter().map(|_| "with a token".to_owned());
            let tokens: Vec<String> = shared.chain(tokens).collect();
            let who = match tokens.as_slice() {
                [] => "no token (loopback)".to_owned(),
                tokens => tokens.join(", "),
            };
            let mut lines = vec![format!(
                "{}://{}, {who}",
                scheme(admin.tls_certificate.as_ref()),
                admin.listen
            )];
            if admin.open_metrics {
                lines.push("/metrics needs no token".to_owned());
            }
            lines
        }
    }
}

fn source(source: &SourceSettings) -> Vec<String> {
    let Mapping { source_system, message_id, event_type, aggregate_id, .. } = &source.mapping;
    let mut reads = format!("message id {}", message_id);
    for (what, pick) in [("event type", event_type), ("aggregate", aggregate_id)] {
        if let Some(pick) = pick {
            let _ = write!(reads, ", {what} {pick}");
        }
    }
    let (place, limits) = match &source.origin {
        SourceOrigin::Amqp(amqp) => brokers::amqp_origin(amqp),
        SourceOrigin::Http(http) => http_origin(&source.name, http),
        SourceOrigin::Kafka(kafka) => kafka_origin(kafka),
        SourceOrigin::Nats(nats) => brokers::nats_origin(nats),
        SourceOrigin::Rabbitmq(rabbitmq) => brokers::rabbitmq_origin(rabbitmq),
        SourceOrigin::Servicebus(servicebus) => brokers::servicebus_origin(servicebus),
    };
    let mut lines = vec![place, format!("source system `{source_system}`, {reads}"), limits];
    if let SourceOrigin::Kafka(kafka) = &source.origin {
        lines.extend(registry(kafka.registry()));
        lines.extend(options(&kafka.options));
    }
    lines
}

fn http_origin(name: &str, http: &HttpSourceKeys) -> (String, String) {
    let access = match (&http.token, http.signing().len()) {
        (None, 0) => "any sender may post".to_owned(),
        (Some(_), 0) => "with a token".to_owned(),
        (token, n) => format!(
            "signed ({n} secret{}){}",
            s(n),
            token.as_ref().map_or("", |_| ", with a token")
        ),
    };
    let invalid = match http.invalid {
        OnInvalidBody::Store => "stored as SERDE_ERROR",
        OnInvalidBody::Reject => "answered with 400",
    };
    (
        format!(
            "http, POST {}://{}/{name}, {access}",
            scheme(http.tls_certificate.as_ref()),
            http.listen
        ),
        format!(
            "bodies up to {}, decoded as {}; undecodable ones are {invalid}",
            show_size(http.body_max),
            http.decoder.as_str()
        ),
    )
}

fn kafka_origin(kafka: &KafkaSourceKeys) -> (String, String) {
    let start = match kafka.start {
        KafkaStartOffset::Earliest => "start at the oldest record",
        KafkaStartOffset::Latest => "start at the next record",
    };
    let topics = kafka.topics.join(", ");
    let n = kafka.topics.len();
    (
        format!("kafka, topic{} {topics} at {}, group `{}`", s(n), kafka.brokers, kafka.group),
        format!(
            "decoded as {}; undecodable records are stored as SERDE_ERROR; new partitions {start}",
            kafka.decoder.as_str()
        ),
    )
}

fn registry(keys: RegistryKeys<'_>) -> Option<String> {
    let login = match (keys.user, keys.token) {
        (Some(user), _) => format!(", as `{user}`"),
        (None, Some(_)) => ", with a token".to_owned(),
        (None, None) => String::new(),
    };
    keys.url.map(|url| format!("schemas of the registry at {url}{login}"))
}

/// Lists names only: any value may be a secret.
fn options(options: &[(String, SecretString)]) -> Option<String> {
    let names: Vec<&str> = options.iter().map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| format!("options {}", names.join(", ")))
}

fn route(route: &Route) -> Vec<String> {
    let event = route.event_type.as_ref().unwrap_or(&route.on);
    let count = match &route.each {
        None => "one message".to_owned(),
        Some(pointer) => format!("one message for each element of payload:{pointer}"),
    };
    let mut line = format!("{count}: `{event}` to `{}`", route.destination);
    match route.category {
        Category::Event => {}
        Category::Command => line.push_str(", as a command"),
        Category::Reply => line.push_str(", as the reply to its sender"),
    }
    if let Some(version) = &route.version {
        let _ = write!(line, ", ignored if payload:{version} is older than the last seen");
    }
    if route.payload.is_some() {
        line.push_str(", payload by template");
    }
    if let Some(version) = &route.event_version {
        let _ = write!(line, ", event version from payload:{version}");
    }
    if !route.headers.is_empty() {
        let _ = write!(line, ", with the headers {}", route.headers.join(", "));
    }
    vec![line]
}

fn destination(destination: &DestinationConfig) -> Vec<String> {
    let dead = match destination.on_dead_letter {
        OnDeadLetter::Park => "a dead letter parks its key",
        OnDeadLetter::Skip => "later messages continue past a dead letter",
        OnDeadLetter::Retry => "no dead letters: a failing message is sent again",
    };
    let mut lines = vec![
        target(&destination.target),
        format!("{}; {dead}", retry(&destination.retry)),
        format!("{}; {}", limits(&destination.limits), breaker(&destination.breaker)),
    ];
    let reply_to =
        |to: &Option<String>| Some(format!("commands ask for replies to `{}`", to.as_ref()?));
    match &destination.target {
        TargetConfig::Kafka(kafka) => {
            lines.extend(registry(kafka.registry()));
            lines.extend(options(&kafka.options));
        }
        TargetConfig::Salesforce(target) => lines.extend(salesforce::details(target)),
        TargetConfig::Amqp(amqp) => lines.extend(reply_to(&amqp.reply_to)),
        TargetConfig::Nats(nats) => lines.extend(reply_to(&nats.reply_to)),
        TargetConfig::Rabbitmq(rabbitmq) => lines.extend(reply_to(&rabbitmq.reply_to)),
        TargetConfig::Servicebus(keys) => lines.extend(reply_to(&keys.reply_to)),
        TargetConfig::Http(_) | TargetConfig::Log(_) => {}
    }
    lines
}

fn target(target: &TargetConfig) -> String {
    match target {
        TargetConfig::Log(log) => match &log.path {
            None => "log, JSON lines to stdout".to_owned(),
            Some(path) => format!("log, JSON lines to {}", path.display()),
        },
        TargetConfig::Http(http) => http_target(http),
        TargetConfig::Salesforce(target) => salesforce::target(target),
        TargetConfig::Kafka(kafka) => {
            let cloudevents = if kafka.cloudevents { ", CloudEvents" } else { "" };
            let topic = kafka.topic.as_deref().unwrap_or_default();
            format!("kafka, topic {topic} at {}{cloudevents}", kafka.brokers)
        }
        TargetConfig::Nats(nats) => {
            format!(
                "nats, subject `{}` at {}{}",
                nats.subject,
                nats.url,
                brokers::as_event(nats.envelope)
            )
        }
        TargetConfig::Servicebus(keys) => {
            let envelope = brokers::in_amqp(keys.envelope);
            format!("servicebus, {} at {}{envelope}", keys.address(), keys.connection)
        }
        TargetConfig::Amqp(amqp) => {
            format!(
                "amqp, address `{}` at {}{}",
                amqp.address,
                amqp.url,
                brokers::in_amqp(amqp.envelope)
            )
        }
        TargetConfig::Rabbitmq(rabbitmq) => format!(
            "rabbitmq, exchange `{}`, routing key `{}` at {}{}",
            rabbitmq.exchange,
            rabbitmq.routing_key,
            rabbitmq.url,
            brokers::envelope(rabbitmq.envelope)
        ),
    }
}

fn http_target(http: &HttpTargetKeys) -> String {
    let mut line = format!("http, {} {}", http.method.as_str(), http.url);
    if !http.headers.is_empty() {
        let names: Vec<&str> = http.headers.iter().map(|(name, _)| name.as_str()).collect();
        let _ = write!(line, ", headers {}", names.join(", "));
    }
    if http.secret.is_some() || !http.secrets.is_empty() {
        line.push_str(", signed");
    }
    if http.cloudevents {
        line.push_str(", CloudEvents");
    }
    if http.allow_private {
        line.push_str(", private addresses allowed");
    }
    line
}

fn retry(policy: &RetryPolicy) -> String {
    let RetryPolicy { attempts_max, first, factor, max, jitter, .. } = *policy;
    if attempts_max == 1 {
        return "one attempt".to_owned();
    }
    format!(
        "{attempts_max} attempts, exponential backoff {} → {} (×{factor}){}",
        show_duration(first),
        show_duration(max),
        if jitter { "" } else { ", no jitter" },
    )
}

fn limits(limits: &LimitKeys) -> String {
    let rate = limits.rate.map_or_else(|| "no rate limit".to_owned(), show_rate);
    let (n, timeout) = (limits.concurrency, show_duration(limits.timeout));
    format!("{rate}, {n} at a time, {timeout} each")
}

fn breaker(breaker: &BreakerPolicy) -> String {
    let BreakerPolicy { window, failure_rate, open_for, .. } = *breaker;
    let open_for = show_duration(open_for);
    format!(
        "breaker opens at {failure_rate} % failures of the last {window} calls, for up to {open_for}"
    )
}

fn retention(retention: &Retention) -> String {
    let show = |seconds| show_retention(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    format!(
        "handled messages {}, delivered messages {}, marks of `once` {}, decided dead letters {}, ended processes {}",
        show(retention.processed_seconds),
        show(retention.dispatched_seconds),
        show(retention.handled_seconds),
        show(retention.resolved_seconds),
        show(retention.processes_seconds),
    )
}

fn s(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
