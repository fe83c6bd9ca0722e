//! The log lines of librdkafka, as ours and without secrets.

use rdkafka::config::RDKafkaLogLevel;

use super::{KafkaConnection, config};

/// Writes what one client of librdkafka has to say. Each side's context calls it.
pub(super) struct ClientLog {
    /// Whose client it is: the name of the source or destination.
    name: String,
    /// What must not appear in a line.
    secrets: Vec<String>,
}

/// Options of such names have values nobody may see. Others may appear in a line: a mechanism or a
/// host name there is what the reader needs.
const SECRET_NAMES: [&str; 6] =
    ["password", "secret", "key", "token", "jaas", "oauthbearer.config"];

impl ClientLog {
    pub(super) fn new(name: &str, connection: &KafkaConnection) -> Self {
        let is_secret = |name: &str| SECRET_NAMES.iter().any(|part| name.contains(part));
        let options = connection.options.iter().filter(|(name, _)| is_secret(name));
        let secrets = options.map(|(_, value)| value.reveal().to_owned()).collect();
        Self { name: name.to_owned(), secrets }
    }

    /// One line of librdkafka's. Its errors are warnings to us: it goes on by itself.
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

    /// A text without the secrets, for errors and reasons too.
    pub(super) fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| config::hide(&text, secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn no_secret_is_in_a_text() {
        let mut connection = KafkaConnection::new("localhost:9092");
        for (name, value) in [
            ("sasl.password", "hunter2"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.oauthbearer.config", "principal=x"),
        ] {
            connection.options.push((name.to_owned(), Secret::from(value)));
        }
        let log = ClientLog::new("crm", &connection);
        assert_eq!(
            log.clean("PLAIN failed for hunter2 (principal=x)"),
            "PLAIN failed for [hidden] ([hidden])"
        );
    }
}
