//! RabbitMQ with lapin: a durable classic queue, persistent and mandatory messages, publisher confirms.

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use relais::{
    Publisher,
    core::{
        extract::{Mapping, Pick},
        source::Source,
    },
    rabbitmq::{
        RabbitConnection, RabbitPublisher, RabbitPublisherSettings, RabbitSource,
        RabbitSourceSettings,
    },
};
use uuid::Uuid;

use super::{BenchBroker, IN_FLIGHT};
use crate::{
    options::Figure,
    workload::{DESTINATION, Received},
};

/// The delivery mode of a persistent message.
const PERSISTENT: u8 = 2;

pub(crate) struct BenchRabbit {
    url: String,
    /// The channel follows its connection, which ends when it is dropped.
    _connection: Connection,
    channel: Channel,
}

impl BenchBroker for BenchRabbit {
    const NAME: &'static str = "rabbitmq";
    const VARIABLE: &'static str = "RELAIS_TEST_RABBITMQ";
    const OUT: Figure = Figure::RabbitmqOut;
    const IN: Figure = Figure::RabbitmqIn;

    async fn connect(url: &str) -> Result<Self> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { url: url.to_owned(), _connection: connection, channel })
    }

    async fn create(&self) -> Result<String> {
        let queue = format!("relais-bench-{}", Uuid::new_v4());
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let name = queue.as_str().into();
        self.channel.queue_declare(name, options, FieldTable::default()).await?;
        Ok(queue)
    }

    async fn delete(&self, queue: &str) -> Result<()> {
        self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
        Ok(())
    }

    async fn fill(&self, queue: &str, rows: &[Received]) -> Result<()> {
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let mut confirms: VecDeque<PublisherConfirm> = VecDeque::with_capacity(IN_FLIGHT);
        for Received { id, key, payload } in rows {
            if confirms.len() >= IN_FLIGHT
                && let Some(first) = confirms.pop_front()
            {
                ensure!(matches!(first.await?, Confirmation::Ack(None)), "not confirmed");
            }
            let mut headers = FieldTable::default();
            headers.insert(
                "message-key".into(),
                lapin::types::AMQPValue::LongString(key.as_str().into()),
            );
            let properties = BasicProperties::default()
                .with_delivery_mode(PERSISTENT)
                .with_message_id(id.as_str().into())
                .with_type("OrderChanged".into())
                .with_content_type("application/json".into())
                .with_headers(headers);
            let sending = self.channel.basic_publish(
                "".into(),
                queue.into(),
                options,
                payload.as_bytes(),
                properties,
            );
            confirms.push_back(sending.await?);
        }
        for confirm in confirms {
            ensure!(matches!(confirm.await?, Confirmation::Ack(None)), "not confirmed");
        }
        Ok(())
    }

    fn publisher(&self, queue: &str) -> Result<Box<dyn Publisher>> {
        let connection = RabbitConnection::new(&self.url).map_err(anyhow::Error::msg)?;
        let exchange = "".parse().map_err(anyhow::Error::msg)?;
        let key = queue.parse().map_err(anyhow::Error::msg)?;
        let settings = RabbitPublisherSettings::new(DESTINATION, connection, exchange, key);
        Ok(Box::new(RabbitPublisher::new(settings).map_err(anyhow::Error::msg)?))
    }

    fn source(&self, queue: &str) -> Result<Box<dyn Source>> {
        let mapping = Mapping::json("bench")
            .message_id(Pick::header("message-id"))
            .event_type(Pick::header("type"))
            .aggregate_id(Pick::header("message-key"));
        let connection = RabbitConnection::new(&self.url).map_err(anyhow::Error::msg)?;
        let settings = RabbitSourceSettings::new("bench", connection, queue, mapping);
        Ok(Box::new(RabbitSource::new(settings).map_err(anyhow::Error::msg)?))
    }
}
