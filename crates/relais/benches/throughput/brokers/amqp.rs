//! AMQP 1.0 on ActiveMQ Artemis with fe2o3-amqp: durable messages, each with the outcome `accepted`.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use fe2o3_amqp::{
    Connection, Sender, Session,
    connection::ConnectionHandle,
    session::SessionHandle,
    types::messaging::{ApplicationProperties, Data, Header, Message, Outcome, Properties},
};
use relais::{
    Publisher,
    amqp::{AmqpConnection, AmqpPublisher, AmqpPublisherSettings, AmqpSource, AmqpSourceSettings},
    core::{
        extract::{Mapping, Pick},
        source::Source,
    },
};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::{BenchBroker, IN_FLIGHT};
use crate::{
    options::Figure,
    workload::{DESTINATION, Received},
};

pub(crate) struct BenchAmqp {
    url: String,
    /// The session follows its connection, which ends when it is dropped.
    _connection: ConnectionHandle<()>,
    session: Mutex<SessionHandle<()>>,
}

impl BenchBroker for BenchAmqp {
    const NAME: &'static str = "amqp";
    const VARIABLE: &'static str = "RELAIS_TEST_ARTEMIS";
    const OUT: Figure = Figure::AmqpOut;
    const IN: Figure = Figure::AmqpIn;

    async fn connect(url: &str) -> Result<Self> {
        let name = format!("relais-bench-{}", Uuid::new_v4());
        let mut connection = Connection::open(name, url).await?;
        let session = Session::begin(&mut connection).await?;
        Ok(Self { url: url.to_owned(), _connection: connection, session: Mutex::new(session) })
    }

    /// The broker creates a queue with its first link.
    async fn create(&self) -> Result<String> {
        Ok(format!("relais-bench-{}", Uuid::new_v4()))
    }

    /// AMQP 1.0 has no request for it; the private broker ends with its directory.
    async fn delete(&self, _queue: &str) -> Result<()> {
        Ok(())
    }

    async fn fill(&self, queue: &str, rows: &[Received]) -> Result<()> {
        let name = format!("relais-bench-{}", Uuid::new_v4());
        let mut sender = Sender::attach(&mut *self.session.lock().await, name, queue).await?;
        let accepted = |outcome| matches!(outcome, Outcome::Accepted(_));
        let mut outcomes = VecDeque::with_capacity(IN_FLIGHT);
        for Received { id, key, payload } in rows {
            if outcomes.len() >= IN_FLIGHT {
                let first = outcomes.pop_front().context("nothing in flight")?;
                ensure!(accepted(first.await?), "not accepted");
            }
            let headers = ApplicationProperties::builder().insert("message-key", key.as_str());
            let properties = Properties::builder().message_id(id.clone()).subject("OrderChanged");
            let message = Message::builder()
                .header(Header { durable: true, ..Header::default() })
                .properties(properties.content_type("application/json").build())
                .application_properties(headers.build())
                .data(Data(payload.as_bytes().to_vec().into()))
                .build();
            outcomes.push_back(sender.send_batchable(message).await?);
        }
        for outcome in outcomes {
            ensure!(accepted(outcome.await?), "not accepted");
        }
        sender.close().await?;
        Ok(())
    }

    fn publisher(&self, queue: &str) -> Result<Box<dyn Publisher>> {
        let connection = AmqpConnection::new(&self.url).map_err(anyhow::Error::msg)?;
        let address = queue.parse().map_err(anyhow::Error::msg)?;
        let settings = AmqpPublisherSettings::new(DESTINATION, connection, address);
        Ok(Box::new(AmqpPublisher::new(settings).map_err(anyhow::Error::msg)?))
    }

    fn source(&self, queue: &str) -> Result<Box<dyn Source>> {
        let mapping = Mapping::json("bench")
            .message_id(Pick::header("message-id"))
            .event_type(Pick::header("subject"))
            .aggregate_id(Pick::header("message-key"));
        let connection = AmqpConnection::new(&self.url).map_err(anyhow::Error::msg)?;
        let settings = AmqpSourceSettings::new("bench", connection, queue, mapping);
        Ok(Box::new(AmqpSource::new(settings).map_err(anyhow::Error::msg)?))
    }
}
