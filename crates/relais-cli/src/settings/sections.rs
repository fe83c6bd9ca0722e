//! The list of all sections and their keys. The reference page, the JSON schema and hints about misplaced
//! keys come from it.

use relais::{
    BreakerPolicy, BulkSettings, DestinationSettings, Retention, RetryPolicy,
    http::{HttpHandlerKeys, HttpSourceKeys, HttpTargetKeys},
    log::LogTargetKeys,
    salesforce::SalesforceKeys,
};
use relais_connect::{
    amqp_settings::{AmqpSourceKeys, AmqpTargetKeys},
    kafka_settings::{KafkaSourceKeys, KafkaTargetKeys},
    nats_settings::{NatsSourceKeys, NatsTargetKeys},
    rabbitmq_settings::{RabbitSourceKeys, RabbitTargetKeys},
    servicebus_settings::{ServiceBusSourceKeys, ServiceBusTargetKeys},
};
use relais_core::setting::{SettingGroup, SettingSpec};

use super::{
    admin::{AdminKeys, AdminTokenKeys},
    adopt::AdoptKeys,
    destination::{BreakerKeys, BulkKeys, DestinationKeys, LimitKeys},
    engine::{InboxKeys, LaneKeys, RetentionKeys, RetryKeys},
    handler::HandlerKeys,
    process::{CallKeys, ProcessKeys, STEP_RETRY, StepKeys},
    route::RouteKeys,
    source::SourceKeys,
    store::StoreSettings,
    telemetry::{LogSettings, TelemetrySettings},
};

/// A section with its keys; of a section with kinds, the common ones or those of one kind.
pub(super) struct SectionSpec {
    pub(super) path: &'static str,
    pub(super) kind: Option<&'static str>,
    /// `[[path]]`, not `[path]`; a table with a kind belongs to sections of that kind.
    pub(super) is_list: bool,
    pub(super) keys: Vec<SettingSpec>,
}

impl SectionSpec {
    pub(super) fn heading(&self) -> String {
        let path = self.path;
        if self.is_list { format!("[[{path}]]") } else { format!("[{path}]") }
    }

    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|spec| spec.name == key)
    }
}

/// Returns every section, in the order of the reference page.
pub(super) fn sections() -> Vec<SectionSpec> {
    let one = |path, keys| SectionSpec { path, kind: None, is_list: false, keys };
    let list = |path, keys| SectionSpec { path, kind: None, is_list: true, keys };
    let of_kind = |path, kind, keys| SectionSpec { path, kind: Some(kind), is_list: true, keys };
    let call = CallKeys::specs(&());
    let step = [StepKeys::specs(&()), call.clone()].concat();
    let retry = |policy: RetryPolicy| RetryKeys::specs(&policy);
    let guards = DestinationSettings::default();
    let bulk = BulkKeys::specs(&BulkSettings::default());
    let bulk = SectionSpec { kind: Some("salesforce"), ..one("destination.bulk", bulk) };
    vec![
        one("store", StoreSettings::specs(&())),
        one("admin", AdminKeys::specs(&())),
        list("admin.tokens", AdminTokenKeys::specs(&())),
        list("source", SourceKeys::specs(&())),
        of_kind("source", "amqp", AmqpSourceKeys::specs(&())),
        of_kind("source", "http", HttpSourceKeys::specs(&())),
        of_kind("source", "kafka", KafkaSourceKeys::specs(&())),
        of_kind("source", "nats", NatsSourceKeys::specs(&())),
        of_kind("source", "rabbitmq", RabbitSourceKeys::specs(&())),
        of_kind("source", "servicebus", ServiceBusSourceKeys::specs(&())),
        list("route", RouteKeys::specs(&())),
        list("process", ProcessKeys::specs(&())),
        list("process.step", step),
        one("process.step.retry", retry(STEP_RETRY)),
        one("process.step.compensation", call),
        one("process.step.compensation.retry", retry(STEP_RETRY)),
        list("handler", HandlerKeys::specs(&())),
        of_kind("handler", "http", HttpHandlerKeys::specs(&())),
        one("handler.retry", retry(RetryPolicy::patient())),
        one("handler.limits", LimitKeys::specs(&guards)),
        one("handler.breaker", BreakerKeys::specs(&BreakerPolicy::default())),
        list("destination", DestinationKeys::specs(&())),
        of_kind("destination", "amqp", AmqpTargetKeys::specs(&())),
        of_kind("destination", "http", HttpTargetKeys::specs(&())),
        of_kind("destination", "kafka", KafkaTargetKeys::specs(&())),
        of_kind("destination", "log", LogTargetKeys::specs(&())),
        of_kind("destination", "nats", NatsTargetKeys::specs(&())),
        of_kind("destination", "rabbitmq", RabbitTargetKeys::specs(&())),
        of_kind("destination", "salesforce", SalesforceKeys::specs(&())),
        of_kind("destination", "servicebus", ServiceBusTargetKeys::specs(&())),
        one("destination.retry", retry(RetryPolicy::patient())),
        one("destination.limits", LimitKeys::specs(&guards)),
        one("destination.breaker", BreakerKeys::specs(&BreakerPolicy::default())),
        bulk,
        list("adopt", AdoptKeys::specs(&())),
        one("inbox", InboxKeys::specs(&())),
        one("inbox.retry", retry(RetryPolicy::patient())),
        one("retention", RetentionKeys::specs(&Retention::default())),
        one("lanes", LaneKeys::specs(&())),
        one("log", LogSettings::specs(&())),
        one("telemetry", TelemetrySettings::specs(&())),
    ]
}

/// Returns where a key belongs that the section `path` does not have: another kind, a table in it, or a
/// section around it.
pub(super) fn elsewhere(path: &str, key: &str) -> Option<String> {
    if path.is_empty() {
        return None;
    }
    let sections = sections();
    let having = || sections.iter().filter(|section| section.has(key));
    let here = having().filter(|section| section.path == path);
    let kinds: Vec<String> = here.filter_map(|s| s.kind).map(|kind| format!("`{kind}`")).collect();
    match kinds.as_slice() {
        [] => {}
        [kind] => return Some(format!("it is for kind {kind}")),
        [kinds @ .., last] => {
            return Some(format!("it is for kinds {} and {last}", kinds.join(", ")));
        }
    }
    let inside = |section: &&SectionSpec| {
        let rest = section.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| !rest.contains('.'))
    };
    if let Some(section) = having().find(inside) {
        return Some(format!("it belongs under `{}`", section.heading()));
    }
    let around = |section: &&SectionSpec| {
        section.kind.is_none()
            && path.strip_prefix(section.path).is_some_and(|r| r.starts_with('.'))
    };
    having().find(around).map(|section| format!("it belongs to `{}`", section.heading()))
}
