//! The configuration of a client: our defaults, then the options of the user, then what relais
//! enforces.
//!
//! Invariant: no option of the user can break a guarantee; such an option is refused with the
//! reason. The value of an option is never shown, only its name.

use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    error::{KafkaError, KafkaResult},
    types::RDKafkaConfRes,
};
use relais_core::InvalidSettings;
use secrecy::{ExposeSecret, SecretString};

/// A cluster and the options of librdkafka to connect to it (TLS, SASL, timeouts …).
#[derive(Clone, Debug)]
pub struct KafkaConnection {
    /// `host:port`, several separated by commas.
    pub brokers: String,
    /// Names and values as librdkafka defines them. All values are secret.
    pub options: Vec<(String, SecretString)>,
}

impl KafkaConnection {
    /// A cluster without options.
    pub fn new(brokers: &str) -> Self {
        Self { brokers: brokers.to_owned(), options: Vec::new() }
    }

    /// Returns the configuration of one client, or which option is refused and why.
    pub(super) fn client(&self, side: &Side) -> Result<ClientConfig, String> {
        if self.brokers.trim().is_empty() {
            return Err(
                "no brokers; set `brokers` to `host:port`, several separated by commas".to_owned()
            );
        }
        let mut config = ClientConfig::new();
        for (name, value) in side.defaults {
            config.set(*name, *value);
        }
        // With `debug` librdkafka writes far more than its level allows.
        config.set_log_level(RDKafkaLogLevel::Info);
        for (name, value) in &self.options {
            let name = canonical(name);
            side.check(name, value)?;
            if name == "debug" {
                config.set_log_level(RDKafkaLogLevel::Debug);
            }
            config.set(name, value.expose_secret());
        }
        for (name, value) in side.enforced {
            config.set(*name, *value);
        }
        config.set(BROKERS, &self.brokers);
        Ok(config)
    }
}

/// Checks whether a source may set this option; the error explains why not.
pub fn check_source_option(name: &str, value: &SecretString) -> Result<(), InvalidSettings> {
    Ok(SOURCE.check(canonical(name), value)?)
}

/// Checks whether a destination may set this option; the error explains why not.
pub fn check_destination_option(name: &str, value: &SecretString) -> Result<(), InvalidSettings> {
    Ok(DESTINATION.check(canonical(name), value)?)
}

const BROKERS: &str = "bootstrap.servers";
/// The options of librdkafka.
const NAMES: &str = include_str!("option_names.txt");

/// The options of one direction.
pub(super) struct Side {
    /// Values that differ from the defaults of librdkafka; the user may change them.
    defaults: &'static [(&'static str, &'static str)],
    forbidden: &'static [ForbiddenOption],
    /// Set last.
    enforced: &'static [(&'static str, &'static str)],
}

/// An option that would break a guarantee.
struct ForbiddenOption {
    name: &'static str,
    /// Values that are allowed.
    except: &'static [&'static str],
    reason: &'static str,
}

const fn forbidden(name: &'static str, reason: &'static str) -> ForbiddenOption {
    ForbiddenOption { name, except: &[], reason }
}

const REASON_BROKERS: &str = "the key `brokers` sets it";
const REASON_MOCK: &str = "it replaces the brokers by a mock that stores nothing";

/// Reading.
pub(super) const SOURCE: Side = Side {
    defaults: &[
        ("client.id", "relais"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("isolation.level", "read_committed"),
        ("check.crcs", "true"),
        ("allow.auto.create.topics", "false"),
        // Bounds the records in memory, whatever the backlog; a larger record is still read.
        ("queued.max.messages.kbytes", "16384"),
        ("fetch.max.bytes", "16777216"),
        // A full queue is soon empty again, so it is checked often.
        ("fetch.queue.backoff.ms", "10"),
        // Notices soon that a broker is back.
        ("reconnect.backoff.max.ms", "1000"),
        // Notices new topics and partitions, and deleted topics, within this time.
        ("topic.metadata.refresh.interval.ms", "10000"),
    ],
    forbidden: &[
        forbidden(BROKERS, REASON_BROKERS),
        forbidden("test.mock.num.brokers", REASON_MOCK),
        forbidden("group.id", "the key `group` sets it"),
        forbidden("auto.offset.reset", "the key `start` sets where a new group begins"),
        forbidden("enable.auto.commit", REASON_COMMIT),
        forbidden("auto.commit.interval.ms", REASON_COMMIT),
        forbidden("enable.auto.offset.store", REASON_COMMIT),
        forbidden("enable.partition.eof", "relais does not use it"),
        ForbiddenOption {
            name: "group.protocol",
            except: &["classic"],
            reason: "relais is tested with the classic protocol only",
        },
    ],
    enforced: &[
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        // For an offset that no longer exists relais decides, with a warning; it never skips
        // silently.
        ("auto.offset.reset", "error"),
    ],
};

const REASON_COMMIT: &str = "relais commits an offset only after the record is in the database";

/// Writing.
pub(super) const DESTINATION: Side = Side {
    defaults: &[
        ("client.id", "relais"),
        // A call sends its messages at once: there is nothing to wait for.
        ("linger.ms", "0"),
        // Far below the limit of most topics, because a larger batch is refused as a whole.
        ("batch.size", "131072"),
        // Notices soon that a broker is back.
        ("reconnect.backoff.max.ms", "1000"),
    ],
    forbidden: &[
        forbidden(BROKERS, REASON_BROKERS),
        forbidden("test.mock.num.brokers", REASON_MOCK),
        ForbiddenOption {
            name: "acks",
            except: &["all", "-1"],
            reason: "a message is delivered only when all in-sync replicas have it",
        },
        ForbiddenOption {
            name: "enable.idempotence",
            except: &["true"],
            reason: "without it a repeated request stores a message twice or out of order",
        },
        ForbiddenOption {
            name: "max.in.flight",
            except: &["1", "2", "3", "4", "5"],
            reason: "more than 5 requests at a time can change the order of messages",
        },
        forbidden("transactional.id", "relais does not use Kafka transactions"),
        forbidden("partitioner", "a key must go to the same partition as with Java clients"),
        forbidden("enable.gapless.guarantee", REASON_ORDER),
        forbidden("queuing.strategy", REASON_ORDER),
        forbidden("message.timeout.ms", "the time limit of the destination sets it"),
        forbidden("retries", "the time limit of the destination limits the retries"),
        forbidden("delivery.report.only.error", "relais needs a report for every message"),
    ],
    enforced: &[
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("enable.gapless.guarantee", "true"),
        ("partitioner", "murmur2_random"),
    ],
};

const REASON_ORDER: &str = "a later message of a key could overtake an earlier one";

impl Side {
    fn check(&self, name: &str, value: &SecretString) -> Result<(), String> {
        self.allows(name, value)?;
        known(name, value)
    }

    fn allows(&self, name: &str, value: &SecretString) -> Result<(), String> {
        let Some(rule) = self.forbidden.iter().find(|rule| rule.name == name) else {
            return Ok(());
        };
        if rule.except.contains(&value.expose_secret().trim()) {
            return Ok(());
        }
        Err(format!("cannot set option `{name}`: {}; remove it", rule.reason))
    }
}

/// Returns one name for an option with two names: with both set, the order would decide.
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

/// Validates one option with librdkafka.
fn known(name: &str, value: &SecretString) -> Result<(), String> {
    let asked: KafkaResult<_> =
        ClientConfig::new().set(name, value.expose_secret()).create_native_config();
    match asked {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            Err(match nearest(name) {
                Some(near) => format!("librdkafka has no option `{name}`; did you mean `{near}`?"),
                None => format!(
                    "librdkafka has no option `{name}`; its CONFIGURATION.md lists names and values"
                ),
            })
        }
        Err(KafkaError::ClientConfig(_, reason, ..)) => {
            let reason = hide(&reason, value.expose_secret());
            Err(format!(
                "librdkafka refuses option `{name}`: {reason}; its CONFIGURATION.md lists \
                 names and values"
            ))
        }
        Err(_) => Err(format!("option `{name}` contains a NUL character; remove it")),
    }
}

/// Returns the known name nearest to a mistyped one.
fn nearest(name: &str) -> Option<&'static str> {
    let tolerated = name.chars().count() / 3;
    let distance = |known| (strsim::damerau_levenshtein(name, known), known);
    let nearest = NAMES.lines().map(distance).min_by_key(|(distance, _)| *distance);
    nearest.filter(|(distance, _)| *distance <= tolerated).map(|(_, known)| known)
}

/// Replaces the value in a text.
pub(super) fn hide(text: &str, value: &str) -> String {
    if value.is_empty() { text.to_owned() } else { text.replace(value, "[hidden]") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &[(&str, &str)]) -> KafkaConnection {
        let options =
            options.iter().map(|(n, v)| ((*n).to_owned(), SecretString::from(*v))).collect();
        KafkaConnection { brokers: "localhost:9092".into(), options }
    }

    #[test]
    fn an_option_that_would_break_a_guarantee_is_refused_under_each_of_its_names() {
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
            assert!(error.contains("cannot set option") && error.contains("remove it"), "{error}");
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
            assert!(error.contains("cannot set option"), "{error}");
        }
        with(&[("request.required.acks", "-1"), ("max.in.flight", "1")])
            .client(&DESTINATION)
            .unwrap();
    }

    #[test]
    fn enforced_options_are_set_and_the_user_may_change_a_default() {
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
    fn an_unknown_option_shows_the_error_of_librdkafka_and_no_value() {
        let error = with(&[("sasl.pasword", "hunter2")]).client(&SOURCE).unwrap_err();
        assert_eq!(error, "librdkafka has no option `sasl.pasword`; did you mean `sasl.password`?");
        let error = with(&[("colour", "hunter2")]).client(&SOURCE).unwrap_err();
        assert!(error.contains("`colour`; its CONFIGURATION.md"), "{error}");
        let error = with(&[("session.timeout.ms", "hunter2")]).client(&SOURCE).unwrap_err();
        assert!(error.contains("session.timeout.ms") && !error.contains("hunter2"), "{error}");
        let error = with(&[("sasl.password", "a\0b")]).client(&SOURCE).unwrap_err();
        assert!(error.contains("NUL"), "{error}");
    }

    #[test]
    fn every_name_that_is_suggested_is_an_option() {
        assert!(NAMES.lines().count() > 150);
        for name in NAMES.lines() {
            let known = known(name, &SecretString::from("\u{1}"));
            assert!(!known.is_err_and(|why| why.contains("has no option")), "{name}");
        }
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
