//! Two queues of RabbitMQ: a classic one with a single active consumer, and a quorum queue.

use std::{future::Future, time::Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::time::timeout;

use super::{BrokerKind, MessageBroker, MessageSender, PATIENCE, PAUSE, SENDING_MAX};
use crate::history::{ArrivalTable, Arrivals, Flow};

const KIND: BrokerKind = BrokerKind {
    flow: Flow::Queued,
    event_type: "Queued",
    name: "queued",
    // The queue has a single active consumer.
    readers: super::READERS,
    figures: ["queued", "queued twice", "queued and kept undecoded", "RabbitMQ kills"],
};
const PERSISTENT: u8 = 2;

pub(super) struct RabbitQueues {
    url: String,
    queue_in: String,
    queue_out: String,
    /// Messages that were taken from the second queue.
    arrivals: Arrivals,
}

/// A channel, and the connection that it ends with.
struct OpenChannel {
    channel: Channel,
    _connection: Connection,
}

impl RabbitQueues {
    pub(super) async fn create(url: &str) -> Result<Self> {
        let name = |what| format!("torture-{what}-{}", uuid::Uuid::new_v4().simple());
        let (queue_in, queue_out) = (name("in"), name("out"));
        let made = Self { url: url.to_owned(), queue_in, queue_out, arrivals: Arrivals::default() };
        let open = open(url).await?;
        let one_reader = ("x-single-active-consumer", AMQPValue::Boolean(true));
        let quorum = ("x-queue-type", AMQPValue::LongString("quorum".into()));
        for (queue, (argument, value)) in [(&made.queue_in, one_reader), (&made.queue_out, quorum)]
        {
            let mut arguments = FieldTable::default();
            arguments.insert(argument.into(), value);
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            open.channel.queue_declare(queue.as_str().into(), options, arguments).await?;
        }
        Ok(made)
    }

    /// Takes what is in the second queue.
    async fn take(&self) -> Result<()> {
        let (open, options) = (open(&self.url).await?, BasicGetOptions::default);
        let queue = self.queue_out.as_str();
        while let Some(got) = within(open.channel.basic_get(queue.into(), options())).await? {
            let id = got.delivery.properties.message_id().as_ref();
            let id = id.map(|id| id.as_str().to_owned()).unwrap_or_default();
            self.arrivals.note_payload(&got.delivery.data, &id);
            within(got.delivery.ack(BasicAckOptions::default())).await?;
        }
        Ok(())
    }
}

async fn open(url: &str) -> Result<OpenChannel> {
    let opening = async {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(OpenChannel { channel, _connection: connection })
    };
    within(opening).await
}

async fn within<T>(asking: impl Future<Output = lapin::Result<T>>) -> Result<T> {
    Ok(timeout(PATIENCE, asking).await??)
}

#[async_trait]
impl MessageBroker for RabbitQueues {
    fn kind(&self) -> &'static BrokerKind {
        &KIND
    }

    fn source(&self) -> String {
        let Self { url, queue_in, .. } = self;
        format!("kind = \"rabbitmq\"\nurl = \"{url}\"\nqueue = \"{queue_in}\"")
    }

    fn destination(&self) -> String {
        let Self { url, queue_out, .. } = self;
        format!(
            "kind = \"rabbitmq\"\nurl = \"{url}\"\nexchange = \"\"\nrouting_key = \"{queue_out}\""
        )
    }

    async fn sender(&self) -> Result<Box<dyn MessageSender>> {
        let (url, queue) = (self.url.clone(), self.queue_in.clone());
        Ok(Box::new(RabbitSender { url, queue, open: None }))
    }

    /// The broker does not say how many messages a consumer holds, so this takes those that have arrived.
    async fn unread(&self, expected: u64) -> Result<Vec<String>> {
        self.take().await?;
        let (arrived, queue) = (self.arrivals.count(), &self.queue_out);
        let is_open = arrived < expected;
        Ok(is_open
            .then(|| format!("{arrived} of {expected} arrived in {queue}"))
            .into_iter()
            .collect())
    }

    async fn arrived(&self) -> Result<ArrivalTable> {
        self.take().await?;
        Ok(self.arrivals.close())
    }

    async fn remove(&self) -> Result<()> {
        let open = open(&self.url).await?;
        for queue in [&self.queue_in, &self.queue_out] {
            let options = QueueDeleteOptions::default();
            within(open.channel.queue_delete(queue.as_str().into(), options)).await?;
        }
        Ok(())
    }
}

struct RabbitSender {
    url: String,
    queue: String,
    open: Option<OpenChannel>,
}

impl RabbitSender {
    async fn send(&mut self, properties: BasicProperties, payload: &str) -> Result<()> {
        let open = match self.open.take() {
            Some(open) => open,
            None => open(&self.url).await?,
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let queue = self.queue.as_str().into();
        let sending = async {
            let body = payload.as_bytes();
            open.channel.basic_publish("".into(), queue, options, body, properties).await?.await
        };
        let confirmation = within(sending).await?;
        ensure!(confirmation.is_ack(), "the queue does not take the message");
        self.open = Some(open);
        Ok(())
    }
}

#[async_trait]
impl MessageSender for RabbitSender {
    async fn put(&mut self, key: &str, id: Option<&str>, payload: &str) -> Result<()> {
        let mut headers = FieldTable::default();
        headers.insert("message-key".into(), AMQPValue::LongString(key.into()));
        let mut properties =
            BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(headers);
        if let Some(id) = id {
            properties = properties.with_message_id(id.into());
        }
        let started = Instant::now();
        loop {
            match self.send(properties.clone(), payload).await {
                Ok(()) => return Ok(()),
                Err(error) if started.elapsed() > SENDING_MAX => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}
