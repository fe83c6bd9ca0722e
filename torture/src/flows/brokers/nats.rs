//! Two streams of NATS JetStream.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use async_nats::{Client, ConnectOptions, HeaderMap, Request};
use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{BrokerKind, MessageBroker, MessageSender, PATIENCE, PAUSE, SENDING_MAX};
use crate::history::{ArrivalTable, Arrivals, Flow};

const KIND: BrokerKind = BrokerKind {
    flow: Flow::Streamed,
    event_type: "Streamed",
    name: "streamed",
    // Several would share the messages of a key.
    readers: 1,
    figures: ["streamed", "streamed twice", "streamed and kept undecoded", "NATS kills"],
};
const CONSUMER: &str = "relais";

#[derive(Clone)]
pub(super) struct NatsStreams {
    url: String,
    client: Client,
    stream_in: String,
    stream_out: String,
}

impl NatsStreams {
    pub(super) async fn create(url: &str) -> Result<Self> {
        let name = |what| format!("torture-{what}-{}", uuid::Uuid::new_v4().simple());
        let (login, address) = url
            .strip_prefix("nats://")
            .and_then(|rest| rest.rsplit_once('@'))
            .context("the address of NATS has no login")?;
        let (user, password) = login.split_once(':').context("the login has no password")?;
        let client = ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
            .connect(format!("nats://{address}"))
            .await?;
        let (stream_in, stream_out) = (name("in"), name("out"));
        let made = Self { url: url.to_owned(), client, stream_in, stream_out };
        for stream in [&made.stream_in, &made.stream_out] {
            let config = json!({
                "name": stream, "subjects": [format!("{stream}.>")], "storage": "file",
                "num_replicas": 1,
            });
            made.api(&format!("STREAM.CREATE.{stream}"), config).await?;
        }
        Ok(made)
    }

    /// Asks the API of JetStream.
    async fn api(&self, request: &str, body: Value) -> Result<Value> {
        let asking = self.client.request(format!("$JS.API.{request}"), body.to_string().into());
        let answer: Value = serde_json::from_slice(&timeout(PATIENCE, asking).await??.payload)?;
        ensure!(answer["error"].is_null(), "{request}: {}", answer["error"]);
        Ok(answer)
    }
}

#[async_trait]
impl MessageBroker for NatsStreams {
    fn kind(&self) -> &'static BrokerKind {
        &KIND
    }

    fn source(&self) -> String {
        let Self { url, stream_in, .. } = self;
        format!(
            "kind = \"nats\"\nurl = \"{url}\"\nstream = \"{stream_in}\"\n\
             consumer = \"{CONSUMER}\"\nack_wait = \"2s\""
        )
    }

    fn destination(&self) -> String {
        let Self { url, stream_out, .. } = self;
        format!("kind = \"nats\"\nurl = \"{url}\"\nsubject = \"{stream_out}.{{{{key}}}}\"")
    }

    async fn sender(&self) -> Result<Box<dyn MessageSender>> {
        Ok(Box::new(self.clone()))
    }

    async fn unread(&self, _expected: u64) -> Result<Vec<String>> {
        let stream = &self.stream_in;
        let info = self.api(&format!("CONSUMER.INFO.{stream}.{CONSUMER}"), json!({})).await?;
        let (unread, unacknowledged) = (&info["num_pending"], &info["num_ack_pending"]);
        let is_open = *unread != json!(0) || *unacknowledged != json!(0);
        let text = || format!("{stream} {unread} unread, {unacknowledged} unacknowledged");
        Ok(is_open.then(text).into_iter().collect())
    }

    async fn arrived(&self) -> Result<ArrivalTable> {
        let (stream, arrivals) = (&self.stream_out, Arrivals::default());
        let info = self.api(&format!("STREAM.INFO.{stream}"), json!({})).await?;
        let last = info["state"]["last_seq"].as_u64().unwrap_or_default();
        for sequence in 1..=last {
            let request = format!("STREAM.MSG.GET.{stream}");
            let answer = self.api(&request, json!({"seq": sequence})).await?;
            let bytes =
                |name: &str| STANDARD.decode(answer["message"][name].as_str().unwrap_or_default());
            let headers = String::from_utf8(bytes("hdrs")?)?;
            let mut lines = headers.lines();
            let id = lines.find_map(|line| line.strip_prefix("Nats-Msg-Id: ")).unwrap_or_default();
            arrivals.note_payload(&bytes("data")?, id);
        }
        Ok(arrivals.close())
    }

    async fn remove(&self) -> Result<()> {
        for stream in [&self.stream_in, &self.stream_out] {
            self.api(&format!("STREAM.DELETE.{stream}"), json!({})).await?;
        }
        Ok(())
    }
}

impl NatsStreams {
    async fn send(&self, key: &str, headers: HeaderMap, payload: &str) -> Result<()> {
        let request = Request::new().headers(headers).payload(payload.to_owned().into());
        let sending = self.client.send_request(format!("{}.{key}", self.stream_in), request);
        let answer: Value = serde_json::from_slice(&timeout(PATIENCE, sending).await??.payload)?;
        ensure!(answer["error"].is_null() && answer["seq"].is_u64(), "{answer}");
        Ok(())
    }
}

#[async_trait]
impl MessageSender for NatsStreams {
    async fn put(&mut self, key: &str, id: Option<&str>, payload: &str) -> Result<()> {
        let mut headers = HeaderMap::new();
        headers.insert("message-key", key);
        // Not `Nats-Msg-Id`: the stream would recognise a copy before relais could.
        id.into_iter().for_each(|id| headers.insert("message-id", id));
        let started = Instant::now();
        loop {
            match self.send(key, headers.clone(), payload).await {
                Ok(()) => return Ok(()),
                Err(error) if started.elapsed() > SENDING_MAX => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}
