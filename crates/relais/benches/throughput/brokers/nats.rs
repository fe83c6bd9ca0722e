//! NATS JetStream with async-nats: a stream in files, each message acknowledged.

use anyhow::{Context, Result, ensure};
use async_nats::{Client, ConnectOptions, HeaderMap, Request};
use futures_util::{StreamExt, TryStreamExt, stream};
use relais::{
    Publisher,
    core::{
        extract::{Mapping, Pick},
        source::Source,
    },
    nats::{NatsConnection, NatsPublisher, NatsPublisherSettings, NatsSource, NatsSourceSettings},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BenchBroker, IN_FLIGHT};
use crate::{
    options::Figure,
    workload::{DESTINATION, PATIENCE, Received},
};

pub(crate) struct BenchNats {
    url: String,
    client: Client,
}

impl BenchNats {
    async fn api(&self, request: &str, body: Value) -> Result<()> {
        let subject = format!("$JS.API.{request}");
        let answer = self.client.request(subject, body.to_string().into()).await?;
        let answer: Value = serde_json::from_slice(&answer.payload)?;
        ensure!(answer["error"].is_null(), "{request}: {answer}");
        Ok(())
    }

    async fn publish(&self, subject: &str, row: &Received) -> Result<()> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", row.id.as_str());
        headers.insert("event-type", "OrderChanged");
        headers.insert("message-key", row.key.as_str());
        let payload = row.payload.clone().into();
        let request = Request::new().headers(headers).payload(payload).timeout(Some(PATIENCE));
        let answer = self.client.send_request(subject.to_owned(), request).await?;
        let answer: Value = serde_json::from_slice(&answer.payload)?;
        ensure!(answer["stream"].is_string(), "not acknowledged: {answer}");
        Ok(())
    }
}

impl BenchBroker for BenchNats {
    const NAME: &'static str = "nats";
    const VARIABLE: &'static str = "RELAIS_TEST_NATS";
    const OUT: Figure = Figure::NatsOut;
    const IN: Figure = Figure::NatsIn;

    async fn connect(url: &str) -> Result<Self> {
        let parts = url.trim_start_matches("nats://").split_once('@');
        let (login, address) = parts.context("no login in the URL")?;
        let (user, password) = login.split_once(':').context("no password in the URL")?;
        let options = ConnectOptions::with_user_and_password(user.into(), password.into());
        let client = options.connect(format!("nats://{address}")).await?;
        Ok(Self { url: url.to_owned(), client })
    }

    async fn create(&self) -> Result<String> {
        let name = format!("relais-bench-{}", Uuid::new_v4());
        let config = json!({
            "name": name, "subjects": [name], "storage": "file", "num_replicas": 1,
        });
        self.api(&format!("STREAM.CREATE.{name}"), config).await?;
        Ok(name)
    }

    async fn delete(&self, queue: &str) -> Result<()> {
        self.api(&format!("STREAM.DELETE.{queue}"), json!({})).await
    }

    async fn fill(&self, queue: &str, rows: &[Received]) -> Result<()> {
        stream::iter(rows)
            .map(|row| self.publish(queue, row))
            .buffer_unordered(IN_FLIGHT)
            .try_for_each(|()| std::future::ready(Ok(())))
            .await
    }

    fn publisher(&self, queue: &str) -> Result<Box<dyn Publisher>> {
        let connection = NatsConnection::new(&self.url).map_err(anyhow::Error::msg)?;
        let subject = queue.parse().map_err(anyhow::Error::msg)?;
        let settings = NatsPublisherSettings::new(DESTINATION, connection, subject);
        Ok(Box::new(NatsPublisher::new(settings).map_err(anyhow::Error::msg)?))
    }

    fn source(&self, queue: &str) -> Result<Box<dyn Source>> {
        let mapping = Mapping::json("bench")
            .message_id(Pick::header("Nats-Msg-Id"))
            .event_type(Pick::header("event-type"))
            .aggregate_id(Pick::header("message-key"));
        let connection = NatsConnection::new(&self.url).map_err(anyhow::Error::msg)?;
        let settings = NatsSourceSettings::new("bench", connection, queue, "relais", mapping);
        Ok(Box::new(NatsSource::new(settings).map_err(anyhow::Error::msg)?))
    }
}
