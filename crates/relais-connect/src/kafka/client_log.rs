//! The log lines of librdkafka, in our log and without secrets.

use rdkafka::config::RDKafkaLogLevel;
use secrecy::ExposeSecret;

use super::{KafkaConnection, config};

/// Logs the lines of one client of librdkafka. The context of each side calls it.
pub(super) struct ClientLog {
    /// The name of the source or destination that owns the client.
    name: String,
    /// Texts that must not appear in a line.
    secrets: Vec<String>,
}

/// Options with these names have secret values. Other values may appear in a line: the reader needs
/// a mechanism or a host name.
const SECRET_NAMES: [&str; 6] =
    ["password", "secret", "key", "token", "jaas", "oauthbearer.config"];

impl ClientLog {
    pub(super) fn new(name: &str, connection: &KafkaConnection) -> Self {
        let is_secret = |name: &str| SECRET_NAMES.iter().any(|part| name.contains(part));
        let options = connection.options.iter().filter(|(name, _)| is_secret(name));
        let secrets = options.map(|(_, value)| value.expose_secret().to_owned()).collect();
        Self { name: name.to_owned(), secrets }
    }

    /// Logs one line of librdkafka. Its errors are warnings for us: librdkafka continues by itself.
    pub(super) fn line(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        let (name, text) = (self.name.as_str(), self.clean(text));
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => {
                tracing::warn!(target: "librdkafka", name, facility, "{text}");
            }
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(target: "librdkafka", name, facility, "{text}");
            }
            RDKafkaLogLevel::Debug => {
                tracing::debug!(target: "librdkafka", name, facility, "{text}");
            }
        }
    }

    /// Removes the secrets from a text; also used for errors.
    pub(super) fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| config::hide(&text, secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretString;

    #[test]
    fn no_secret_is_in_a_text() {
        let mut connection = KafkaConnection::new("localhost:9092");
        for (name, value) in [
            ("sasl.password", "hunter2"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.oauthbearer.config", "principal=x"),
        ] {
            connection.options.push((name.to_owned(), SecretString::from(value)));
        }
        let log = ClientLog::new("crm", &connection);
        assert_eq!(
            log.clean("PLAIN failed for hunter2 (principal=x)"),
            "PLAIN failed for [hidden] ([hidden])"
        );
    }
}
