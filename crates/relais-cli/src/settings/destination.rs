//! `[[destination]]` with its retry, limits, breaker and bulk jobs.

use std::{collections::HashSet, time::Duration};

use relais::{
    BulkSettings, DestinationSettings, JOB_ROWS_MAX,
    http::HttpTargetKeys,
    log::LogTargetKeys,
    salesforce::{Api, Auth, ORPHAN_AGE, ROWS_DEFAULT, SalesforceKeys},
    sqlite::SqlHydrator,
};
use relais_connect::{
    amqp_settings::AmqpTargetKeys,
    kafka_settings::{KafkaTargetKeys, topic_name},
    nats_settings::NatsTargetKeys,
    rabbitmq_settings::RabbitTargetKeys,
    servicebus_settings::ServiceBusTargetKeys,
};
use relais_core::{
    breaker::BreakerPolicy,
    outbox::OnDeadLetter,
    retry::RetryPolicy,
    setting::{CallRate, Integer, NameText, OnOff, SettingForm, TimeSpan, Word},
    settings, text_kinds,
};

use super::{engine::retry, findings::FilePlace, reader::Section};

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

settings! {
    /// `[[destination]]`
    pub(super) struct DestinationKeys {
        /// unique; the value of the column `destination`
        name: NameText;
        /// `"amqp"`, `"http"`, `"kafka"`, `"log"`, `"nats"`, `"rabbitmq"`, `"salesforce"` or `"servicebus"`
        kind: TargetKind => "this version has: amqp, http, kafka, log, nats, rabbitmq, salesforce, servicebus";
        /// another program serves it: it has a `name` and no other key
        external: OnOff = false;
        /// `"park"`: later messages of the key wait for an operator. `"skip"`: they continue. `"retry"`: no dead letters, the message is sent again with the longest pause
        on_dead_letter: Word<OnDeadLetter> = OnDeadLetter::default();
        /// the most messages of one call, for targets that take several: HTTP takes one. Other outboxes use 10 to 1,000
        batch: Integer = number(DestinationSettings::default().batch_max), 1..=1_000;
    }

    /// `[[destination]]` with `external = true`
    struct ExternalKeys {
        /// unique
        name: NameText;
        /// another program serves it
        external: OnOff = true;
    }

    /// `[destination.limits]`
    pub(crate) struct LimitKeys(base: DestinationSettings) {
        /// maximum messages; one period's worth may be sent at once
        rate: Option<CallRate>;
        /// calls at a time
        concurrency: Integer = number(base.concurrency), 1..=1_000;
        /// for one call
        timeout: TimeSpan = base.timeout, MILLISECOND..=HOUR;
    }

    /// `[destination.breaker]`
    pub(super) struct BreakerKeys(base: BreakerPolicy) {
        /// number of recent calls
        window: Integer = number(base.window), 1..=10_000;
        /// percentage of failed keys in a full window that opens it
        failure_rate: Integer = base.failure_rate.into(), 1..=100;
        /// the longest pause between two probes; the first is 1s
        open_for: TimeSpan = base.open_for;
    }

    /// `[destination.bulk]`
    pub(crate) struct BulkKeys(base: BulkSettings) {
        /// maximum rows of one job
        rows: Integer = number(ROWS_DEFAULT), 1..=JOB_ROWS_MAX;
        /// with `auto`: this many waiting rows make a job
        from: Integer = number(base.threshold), 1..=JOB_ROWS_MAX;
        /// with `bulk-v2`: how long a job that is not full waits for more rows
        linger: TimeSpan = base.linger, Duration::ZERO..=DAY;
        /// the pause before the first poll of a job; it doubles
        poll_first: TimeSpan = base.poll_first, MILLISECOND..=DAY;
        /// the longest such pause
        poll_max: TimeSpan = base.poll_max, MILLISECOND..=DAY;
        /// for an upload, for results, and for reading fresh rows
        transfer_timeout: TimeSpan = base.transfer_timeout, MILLISECOND..=DAY;
        /// how often relais searches the org for orphaned jobs
        sweep_every: TimeSpan = base.sweep_every, MILLISECOND..=DAY;
        /// the age at which an orphaned job is aborted
        orphan_age: TimeSpan = ORPHAN_AGE, Duration::ZERO..=DAY;
    }
}

text_kinds! {
    /// The kinds of destinations in this version.
    pub(super) TargetKind -> String, "text", |text| Ok(text.to_owned()),
        form SettingForm::Words(vec![
            "amqp",
            "http",
            "kafka",
            "log",
            "nats",
            "rabbitmq",
            "salesforce",
            "servicebus",
        ]);
}

/// One `[[destination]]`.
#[derive(Debug)]
pub(crate) struct DestinationConfig {
    pub(crate) place: FilePlace,
    pub(crate) name: String,
    pub(crate) target: TargetConfig,
    pub(crate) on_dead_letter: OnDeadLetter,
    pub(crate) batch: u32,
    pub(crate) retry: RetryPolicy,
    pub(crate) limits: LimitKeys,
    pub(crate) breaker: BreakerPolicy,
}

/// The kind of a destination and its keys.
#[derive(Debug)]
pub(crate) enum TargetConfig {
    Amqp(Box<AmqpTargetKeys>),
    Http(Box<HttpTargetKeys>),
    Kafka(Box<KafkaTargetKeys>),
    Nats(Box<NatsTargetKeys>),
    Rabbitmq(Box<RabbitTargetKeys>),
    Salesforce(Box<SalesforceTarget>),
    Servicebus(Box<ServiceBusTargetKeys>),
    Log(LogTargetKeys),
}

impl TargetConfig {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Amqp(_) => "amqp",
            Self::Http(_) => "http",
            Self::Kafka(_) => "kafka",
            Self::Nats(_) => "nats",
            Self::Rabbitmq(_) => "rabbitmq",
            Self::Salesforce(_) => "salesforce",
            Self::Servicebus(_) => "servicebus",
            Self::Log(_) => "log",
        }
    }
}

/// A destination of kind `salesforce`; its name may set API and object.
#[derive(Debug)]
pub(crate) struct SalesforceTarget {
    pub(crate) keys: SalesforceKeys,
    pub(crate) auth: Auth,
    pub(crate) api: Api,
    /// Empty for graphs, whose messages name their objects.
    pub(crate) object: String,
    pub(crate) bulk: BulkKeys,
}

/// Reads every destination; of those that another program serves only the names.
pub(super) fn destinations(sections: Vec<Section<'_>>) -> (Vec<DestinationConfig>, Vec<String>) {
    let mut names = HashSet::new();
    let (mut served, mut external) = (Vec::new(), Vec::new());
    for section in sections {
        let name = section.peek("name");
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            let message = format!("another destination is named `{name}`; names are unique");
            section.error("name", message);
        }
        if section.peek("external").as_deref() == Some("true") {
            external.extend(section.read::<ExternalKeys>().map(|keys| keys.name));
            section.finish_with(|_| {
                Some("the program that serves an external destination has it".to_owned())
            });
        } else {
            served.extend(destination(section));
        }
    }
    (served, external)
}

fn destination(section: Section<'_>) -> Option<DestinationConfig> {
    let keys = section.read::<DestinationKeys>();
    let name = section.peek("name").unwrap_or_default();
    let kind = section.peek("kind").unwrap_or_default();
    let is_broker = ["amqp", "kafka", "nats", "rabbitmq", "servicebus"].contains(&kind.as_str());
    let default = if is_broker { RetryPolicy::default() } else { RetryPolicy::patient() };
    let target = match kind.as_str() {
        "amqp" => section.read::<AmqpTargetKeys>().map(|amqp| {
            amqp.check(&mut |key, why| section.error(key, why));
            TargetConfig::Amqp(Box::new(amqp))
        }),
        "http" => section.read::<HttpTargetKeys>().map(|http| {
            http.check(&mut |key, why| section.error(key, why));
            TargetConfig::Http(Box::new(http))
        }),
        "kafka" => kafka(&section, &name).map(|kafka| TargetConfig::Kafka(Box::new(kafka))),
        "log" => section.read().map(TargetConfig::Log),
        "nats" => section.read::<NatsTargetKeys>().map(|nats| {
            nats.check(&mut |key, why| section.error(key, why));
            TargetConfig::Nats(Box::new(nats))
        }),
        "rabbitmq" => section.read::<RabbitTargetKeys>().map(|rabbitmq| {
            rabbitmq.check(&mut |key, why| section.error(key, why));
            TargetConfig::Rabbitmq(Box::new(rabbitmq))
        }),
        "salesforce" => salesforce(&section, &name).map(|t| TargetConfig::Salesforce(Box::new(t))),
        "servicebus" => section.read::<ServiceBusTargetKeys>().map(|servicebus| {
            servicebus.check(&mut |key, why| section.error(key, why));
            TargetConfig::Servicebus(Box::new(servicebus))
        }),
        // The known keys depend on the kind.
        _ => return None,
    };
    let retry = retry(section.child("retry"), default);
    let limits = section.child("limits");
    let breaker = section.child("breaker");
    let place = section.place();
    let config = (limits.read_with(&DestinationSettings::default()), breaker_policy(&breaker));
    for section in [limits, breaker, section] {
        section.finish();
    }
    let (limits, breaker) = config;
    let DestinationKeys { name, on_dead_letter, batch, .. } = keys?;
    let target = target?;
    Some(DestinationConfig { place, name, target, on_dead_letter, batch, retry, limits, breaker })
}

pub(super) fn breaker_policy(section: &Section<'_>) -> BreakerPolicy {
    let BreakerKeys { window, failure_rate, open_for } =
        section.read_with(&BreakerPolicy::default());
    let failure_rate = u8::try_from(failure_rate).unwrap_or(u8::MAX);
    BreakerPolicy::default().window(window as usize).failure_rate(failure_rate).open_for(open_for)
}

/// Returns a default as a whole number of the file.
pub(super) fn number(default: usize) -> u32 {
    u32::try_from(default).unwrap_or(u32::MAX)
}

/// The name is the topic unless one is given.
fn kafka(section: &Section<'_>, name: &str) -> Option<KafkaTargetKeys> {
    let keys = section.read::<KafkaTargetKeys>();
    if !section.has("topic")
        && let Err(why) = topic_name(name)
    {
        section.error("topic", format_args!("is missing, and the destination's name {why}"));
    }
    let mut keys = keys?;
    keys.check(&mut |key, why| section.error(key, why));
    keys.topic.get_or_insert_with(|| name.to_owned());
    Some(keys)
}

fn salesforce(section: &Section<'_>, name: &str) -> Option<SalesforceTarget> {
    let keys = section.read::<SalesforceKeys>();
    SalesforceKeys::check(&|key| section.has(key), &mut |key, why| section.error(key, why));
    let hydrate = keys.as_ref().and_then(|keys| keys.hydrate.as_deref());
    // The form is the same for every database.
    if let Some(Err(why)) = hydrate.map(SqlHydrator::check) {
        section.error("hydrate", why);
    }
    let named = Api::of_name(name);
    let is_graph = section.peek("api").as_deref() == Some(Api::Graph.as_str())
        || named.is_some_and(|(api, _)| api == Api::Graph);
    if !section.has("object") && named.is_none() && !is_graph {
        section.error("object", "is missing; write for example \"Contact\"");
    }
    let bulk = section.child("bulk");
    let tuning: BulkKeys = bulk.read_with(&BulkSettings::default());
    if tuning.poll_max < tuning.poll_first {
        bulk.error("poll_max", "is shorter than `poll_first`");
    }
    bulk.finish();
    let keys = keys?;
    let api = keys.api.or(named.map(|(api, _)| api)).unwrap_or_default();
    let object = keys.object.clone().or(named.map(|(_, object)| object.to_owned()));
    let auth = keys.auth()?;
    Some(SalesforceTarget { auth, api, object: object.unwrap_or_default(), bulk: tuning, keys })
}
