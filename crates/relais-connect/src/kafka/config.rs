//! How a cluster is reached: our defaults, then the user's options, then what relais insists on.
//!
//! Invariant: no option of the user's can break a promise; such an option is refused with its
//! reason. No value of an option is ever shown, only its name.

use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    error::{KafkaError, KafkaResult},
};

use relais_core::InvalidSettings;

use crate::Secret;

/// A cluster and the options of librdkafka to reach it with (TLS, SASL, timeouts …).
#[derive(Clone, Debug)]
pub struct KafkaConnection {
    /// `host:port`, several with commas between.
    pub brokers: String,
    /// Names and values as librdkafka knows them. All values are kept secret.
    pub options: Vec<(String, Secret)>,
}

impl KafkaConnection {
    /// A cluster without options.
    pub fn new(brokers: &str) -> Self {
        Self { brokers: brokers.to_owned(), options: Vec::new() }
    }

    /// The configuration of one client, or which option cannot be used and why.
    pub(super) fn client(&self, side: &Side) -> Result<ClientConfig, String> {
        if self.brokers.trim().is_empty() {
            return Err("no brokers; give `brokers` as `host:port`, several with commas".to_owned());
        }
        let mut config = ClientConfig::new();
        for (name, value) in side.defaults {
            config.set(*name, *value);
        }
        // With `debug` librdkafka writes far more than its level lets through.
        config.set_log_level(RDKafkaLogLevel::Info);
        for (name, value) in &self.options {
            let name = canonical(name);
            side.check(name, value)?;
            if name == "debug" {
                config.set_log_level(RDKafkaLogLevel::Debug);
            }
            config.set(name, value.reveal());
        }
        for (name, value) in side.insisted {
            config.set(*name, *value);
        }
        config.set(BROKERS, &self.brokers);
        Ok(config)
    }
}

/// Whether a source may have this option, or why not; for whoever checks settings one by one.
pub fn check_source_option(name: &str, value: &Secret) -> Result<(), InvalidSettings> {
    Ok(SOURCE.check(canonical(name), value)?)
}

/// Whether a destination may have this option, or why not.
pub fn check_destination_option(name: &str, value: &Secret) -> Result<(), InvalidSettings> {
    Ok(DESTINATION.check(canonical(name), value)?)
}

const BROKERS: &str = "bootstrap.servers";

/// The options of one direction.
pub(super) struct Side {
    /// What librdkafka would do otherwise is not what relais needs; the user may say otherwise.
    defaults: &'static [(&'static str, &'static str)],
    refused: &'static [Refused],
    /// Set last.
    insisted: &'static [(&'static str, &'static str)],
}

/// An option that would break a promise.
struct Refused {
    name: &'static str,
    /// Values that break nothing.
    except: &'static [&'static str],
    reason: &'static str,
}

const fn refused(name: &'static str, reason: &'static str) -> Refused {
    Refused { name, except: &[], reason }
}

const REASON_BROKERS: &str = "the key `brokers` says it";
const REASON_MOCK: &str = "it replaces the brokers by an imitation that keeps nothing";

/// Reading.
pub(super) const SOURCE: Side = Side {
    defaults: &[
        ("client.id", "relais"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("isolation.level", "read_committed"),
        ("check.crcs", "true"),
        ("allow.auto.create.topics", "false"),
        // Whatever the backlog, no more than this waits in memory; a larger record still passes.
        ("queued.max.messages.kbytes", "16384"),
        ("fetch.max.bytes", "16777216"),
        // A full queue is soon empty again: look at it often.
        ("fetch.queue.backoff.ms", "10"),
        // A broker that comes back is noticed soon.
        ("reconnect.backoff.max.ms", "1000"),
        // New topics and partitions, and topics that went away, are noticed within this time.
        ("topic.metadata.refresh.interval.ms", "10000"),
    ],
    refused: &[
        refused(BROKERS, REASON_BROKERS),
        refused("test.mock.num.brokers", REASON_MOCK),
        refused("group.id", "the key `group` says it"),
        refused("auto.offset.reset", "the key `start` says where a new group begins"),
        refused("enable.auto.commit", REASON_COMMIT),
        refused("auto.commit.interval.ms", REASON_COMMIT),
        refused("enable.auto.offset.store", REASON_COMMIT),
        refused("enable.partition.eof", "relais has no use for it"),
        Refused {
            name: "group.protocol",
            except: &["classic"],
            reason: "relais is tested with the classic protocol only",
        },
    ],
    insisted: &[
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        // An offset that is not there any more is our decision, with a warning, never a silent jump.
        ("auto.offset.reset", "error"),
    ],
};

const REASON_COMMIT: &str = "relais commits an offset only after the database has the record";

/// Writing.
pub(super) const DESTINATION: Side = Side {
    defaults: &[
        ("client.id", "relais"),
        // A call brings its messages at once: there is nothing to wait for.
        ("linger.ms", "0"),
        // Far below what most topics take: a batch beyond that is refused as a whole.
        ("batch.size", "131072"),
        // A broker that comes back is noticed soon.
        ("reconnect.backoff.max.ms", "1000"),
    ],
    refused: &[
        refused(BROKERS, REASON_BROKERS),
        refused("test.mock.num.brokers", REASON_MOCK),
        Refused {
            name: "acks",
            except: &["all", "-1"],
            reason: "a message is delivered only when all replicas in sync have it",
        },
        Refused {
            name: "enable.idempotence",
            except: &["true"],
            reason: "without it a repeated request stores a message twice or out of order",
        },
        Refused {
            name: "max.in.flight",
            except: &["1", "2", "3", "4", "5"],
            reason: "more than 5 requests at a time can change the order of messages",
        },
        refused("transactional.id", "relais does not use transactions of Kafka"),
        refused("partitioner", "a key must go to the partition where Java clients look for it"),
        refused("enable.gapless.guarantee", REASON_ORDER),
        refused("queuing.strategy", REASON_ORDER),
        refused("message.timeout.ms", "the time limit of the destination says it"),
        refused("retries", "the time limit of the destination says how long to try"),
        refused("delivery.report.only.error", "relais must hear of every message"),
    ],
    insisted: &[
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("enable.gapless.guarantee", "true"),
        ("partitioner", "murmur2_random"),
    ],
};

const REASON_ORDER: &str = "a later message of a key could overtake an earlier one";

impl Side {
    fn check(&self, name: &str, value: &Secret) -> Result<(), String> {
        self.allows(name, value)?;
        known(name, value)
    }

    fn allows(&self, name: &str, value: &Secret) -> Result<(), String> {
        let Some(rule) = self.refused.iter().find(|rule| rule.name == name) else {
            return Ok(());
        };
        if rule.except.contains(&value.reveal().trim()) {
            return Ok(());
        }
        Err(format!("option `{name}` cannot be set: {}; take it out", rule.reason))
    }
}

/// One name for an option of two names: set under both, chance would decide.
fn canonical(name: &str) -> &str {
    match name.trim() {
        "metadata.broker.list" => BROKERS,
        "auto.commit.enable" => "enable.auto.commit",
        "request.required.acks" => "acks",
        "max.in.flight.requests.per.connection" => "max.in.flight",
        "delivery.timeout.ms" => "message.timeout.ms",
        "message.send.max.retries" => "retries",
        "max.partition.fetch.bytes" => "fetch.message.max.bytes",
        "queue.buffering.max.ms" => "linger.ms",
        "compression.codec" => "compression.type",
        "sasl.mechanisms" => "sasl.mechanism",
        name => name,
    }
}

/// Asks librdkafka about one option.
fn known(name: &str, value: &Secret) -> Result<(), String> {
    let asked: KafkaResult<_> =
        ClientConfig::new().set(name, value.reveal()).create_native_config();
    match asked {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(_, reason, ..)) => {
            let reason = hide(&reason, value.reveal());
            Err(format!(
                "option `{name}` is refused by librdkafka: {reason}; its CONFIGURATION.md lists \
                 names and values"
            ))
        }
        Err(_) => Err(format!("option `{name}` has a NUL character; take it out")),
    }
}

/// The text without the value.
pub(super) fn hide(text: &str, value: &str) -> String {
    if value.is_empty() { text.to_owned() } else { text.replace(value, "[hidden]") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &[(&str, &str)]) -> KafkaConnection {
        let options = options.iter().map(|(n, v)| ((*n).to_owned(), Secret::from(*v))).collect();
        KafkaConnection { brokers: "localhost:9092".into(), options }
    }

    #[test]
    fn an_option_that_would_break_a_promise_is_refused_under_each_of_its_names() {
        let source = [
            "bootstrap.servers",
            "metadata.broker.list",
            "group.id",
            "auto.offset.reset",
            "enable.auto.commit",
            "auto.commit.enable",
            "auto.commit.interval.ms",
            "enable.auto.offset.store",
            "enable.partition.eof",
            "test.mock.num.brokers",
        ];
        for name in source {
            let error = with(&[(name, "1")]).client(&SOURCE).unwrap_err();
            assert!(error.contains("cannot be set") && error.contains("take it out"), "{error}");
        }
        let destination = [
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.idempotence", "false"),
            ("max.in.flight", "6"),
            ("max.in.flight.requests.per.connection", "100"),
            ("transactional.id", "t"),
            ("partitioner", "random"),
            ("delivery.timeout.ms", "1"),
            ("queuing.strategy", "lifo"),
        ];
        for (name, value) in destination {
            let error = with(&[(name, value)]).client(&DESTINATION).unwrap_err();
            assert!(error.contains("cannot be set"), "{error}");
        }
        with(&[("request.required.acks", "-1"), ("max.in.flight", "1")])
            .client(&DESTINATION)
            .unwrap();
    }

    #[test]
    fn what_relais_insists_on_is_set_and_the_user_may_change_a_default() {
        let options = [("client.id", "mine"), ("max.partition.fetch.bytes", "77")];
        let config = with(&options).client(&SOURCE).unwrap();
        for (name, value) in [
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("queued.max.messages.kbytes", "16384"),
            ("isolation.level", "read_committed"),
            ("client.id", "mine"),
            ("fetch.message.max.bytes", "77"),
        ] {
            assert_eq!(config.get(name), Some(value), "{name}");
        }
        config.create_native_config().unwrap();
        let config = with(&[]).client(&DESTINATION).unwrap();
        assert_eq!(config.get("enable.gapless.guarantee"), Some("true"));
        config.create_native_config().unwrap();
    }

    #[test]
    fn an_unknown_option_or_value_says_what_librdkafka_says_and_shows_no_value() {
        let error = with(&[("sasl.pasword", "hunter2")]).client(&SOURCE).unwrap_err();
        assert!(error.contains("sasl.pasword") && error.contains("CONFIGURATION.md"), "{error}");
        let error = with(&[("session.timeout.ms", "hunter2")]).client(&SOURCE).unwrap_err();
        assert!(error.contains("session.timeout.ms") && !error.contains("hunter2"), "{error}");
        let error = with(&[("sasl.password", "a\0b")]).client(&SOURCE).unwrap_err();
        assert!(error.contains("NUL"), "{error}");
    }

    #[test]
    fn debug_shows_names_and_no_values() {
        let shown = format!("{:?}", with(&[("sasl.password", "hunter2")]));
        assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn brokers_must_be_given() {
        assert!(KafkaConnection::new(" ").client(&SOURCE).unwrap_err().contains("host:port"));
    }
}
