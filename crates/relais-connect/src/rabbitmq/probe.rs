//! Checks a broker before the first message: whether it accepts the login, and whether the queue or
//! the exchange exists. Nothing is created.

use lapin::{
    ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions},
    types::{FieldTable, ShortString},
};

use super::{
    RabbitConnection, RoutingTemplate, classify::RabbitFailure, connection::OpenConnection,
};
use crate::ProbeError;

impl RabbitConnection {
    /// Asks the broker for the queue of a source. The error says what to change.
    pub async fn probe_source(&self, queue: &str) -> Result<String, ProbeError> {
        let connection = self.reach().await?;
        let name = ShortString::try_new(queue).map_err(|_| "the name is too long".to_owned())?;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let asked = async {
            let channel = connection.channel().await?;
            channel.queue_declare(name, options, FieldTable::default()).await
        };
        let answer = asked.await;
        connection.close().await;
        match answer {
            Ok(found) => {
                let waiting = found.message_count();
                Ok(format!("{} has queue `{queue}` with {waiting} messages", self.url))
            }
            Err(error) => {
                let failure = RabbitFailure::of_queue(&error);
                Err(format!("{}: {}", self.url, failure.problem.message).into())
            }
        }
    }

    /// Asks the broker for the exchange of a destination. Only a fixed name can be asked for. The
    /// error says what to change.
    pub async fn probe_destination(
        &self,
        exchange: &RoutingTemplate,
    ) -> Result<String, ProbeError> {
        let connection = self.reach().await?;
        let name = exchange.to_string();
        // The default exchange always exists and cannot be asked for.
        let known = ShortString::try_new(name.as_str()).ok();
        let Some(known) = known.filter(|_| exchange.is_fixed() && !name.is_empty()) else {
            connection.close().await;
            return Ok(format!("{} accepts the login", self.url));
        };
        let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let asked = async {
            let channel = connection.channel().await?;
            let (kind, arguments) = (ExchangeKind::default(), FieldTable::default());
            channel.exchange_declare(known, kind, options, arguments).await
        };
        let answer = asked.await;
        connection.close().await;
        match answer {
            Ok(()) => Ok(format!("{} has exchange `{name}`", self.url)),
            Err(error) => {
                let failure = RabbitFailure::of(&error);
                Err(format!("{}: {}", self.url, failure.problem.message).into())
            }
        }
    }

    async fn reach(&self) -> Result<OpenConnection, String> {
        self.open("check").await.map_err(|error| {
            let failure = RabbitFailure::of_open(&error, self.url.is_tls());
            format!("cannot connect to {}: {}", self.url, failure.problem.message)
        })
    }
}
