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
        let asked = ask_queue(&connection, queue).await;
        connection.close().await;
        let waiting = asked.map_err(|why| format!("{}: {why}", self.url))?;
        Ok(format!("{} has queue `{queue}` with {waiting} messages", self.url))
    }

    /// Asks the broker for the exchange of a destination, for the queue that a fixed routing key names at the
    /// default exchange, and for the queue of replies. Only fixed names can be asked for, and no bindings.
    /// The error says what to change.
    pub async fn probe_destination(
        &self,
        exchange: &RoutingTemplate,
        routing_key: &RoutingTemplate,
        reply_to: Option<&str>,
    ) -> Result<String, ProbeError> {
        let connection = self.reach().await?;
        let asked = ask_destination(&connection, exchange, routing_key, reply_to).await;
        connection.close().await;
        let found = asked.map_err(|why| format!("{}: {why}", self.url))?;
        Ok(match found.is_empty() {
            true => format!("{} accepts the login", self.url),
            false => format!("{} has {}", self.url, found.join(" and ")),
        })
    }

    async fn reach(&self) -> Result<OpenConnection, String> {
        self.open("check").await.map_err(|error| {
            let failure = RabbitFailure::of_open(&error, self.url.is_tls());
            format!("cannot connect to {}: {}", self.url, failure.problem.message)
        })
    }
}

/// Returns what the broker has of the names that are fixed, or what to change.
async fn ask_destination(
    connection: &OpenConnection,
    exchange: &RoutingTemplate,
    routing_key: &RoutingTemplate,
    reply_to: Option<&str>,
) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let (name, key) = (exchange.to_string(), routing_key.to_string());
    if exchange.is_fixed() && !name.is_empty() {
        ask_exchange(connection, &name).await?;
        found.push(format!("exchange `{name}` (its bindings are not checked)"));
    }
    // The default exchange always exists, and a routing key is the name of a queue there.
    let target = (name.is_empty() && routing_key.is_fixed()).then_some(key.as_str());
    for queue in target.into_iter().chain(reply_to) {
        ask_queue(connection, queue).await?;
        found.push(format!("queue `{queue}`"));
    }
    Ok(found)
}

/// Returns the number of messages in a queue, or what to change.
async fn ask_queue(connection: &OpenConnection, queue: &str) -> Result<u32, String> {
    let name = short(queue)?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let asked = async {
        let channel = connection.channel().await?;
        channel.queue_declare(name, options, FieldTable::default()).await
    };
    let answer = asked.await;
    answer.map(|found| found.message_count()).map_err(|error| {
        let problem = RabbitFailure::of_queue(&error).problem;
        format!("queue `{queue}`: {}", problem.message)
    })
}

async fn ask_exchange(connection: &OpenConnection, exchange: &str) -> Result<(), String> {
    let name = short(exchange)?;
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let asked = async {
        let channel = connection.channel().await?;
        let (kind, arguments) = (ExchangeKind::default(), FieldTable::default());
        channel.exchange_declare(name, kind, options, arguments).await
    };
    asked.await.map_err(|error| RabbitFailure::of(&error).problem.message)
}

fn short(name: &str) -> Result<ShortString, String> {
    ShortString::try_new(name).map_err(|_| format!("the name `{name}` is too long"))
}
