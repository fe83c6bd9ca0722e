//! A stream of a test's own, at the server that `cargo xtask test` starts.

use std::{collections::BTreeSet, time::Duration};

use async_nats::{Client, HeaderMap};
use base64::{Engine, engine::general_purpose::STANDARD};
use relais_connect::nats::{
    NatsConnection, NatsPublisher, NatsPublisherSettings, NatsSource, NatsSourceSettings,
};
use relais_core::{
    async_trait,
    extract::{Mapping, Pick},
    outbox::OutboxRow,
    publisher::Publisher,
    source::Source,
};
use relais_testkit::{
    connector::{PublisherFixture, SourceFixture, WireMessage, outbox_row, soon},
    proxy::FaultProxy,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufStream},
    net::TcpStream,
};
use uuid::Uuid;

/// The event type whose subject the stream has.
const ROUTED: &str = "OrderCreated";
/// Short, so that the messages of a dropped source come back soon.
const ACK_WAIT: Duration = Duration::from_secs(2);
/// The pause between reads of a stream.
const PAUSE: Duration = Duration::from_millis(20);

/// The variable with the URL of the server. These checks are compiled for each server.
pub(crate) const SERVER: &str = match module_path!().as_bytes() {
    [b'n', b'a', b't', b's', b':', b':', b'c', ..] => "RELAIS_TEST_NATS_CURRENT",
    _ => "RELAIS_TEST_NATS",
};

/// Returns the value of a variable; without it the test is left out, except in continuous integration.
pub(crate) fn server(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "CI is set and {variable} is not");
    if found.is_none() {
        eprintln!("NOT TESTED: {variable} is not set");
    }
    found
}

/// A stream, and a proxy before its server.
pub(crate) struct World {
    pub(crate) url: String,
    /// The name of the stream, and the first part of its subjects.
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) proxy: FaultProxy,
}

pub(crate) async fn stream() -> Option<World> {
    World::new(json!({})).await
}

pub(crate) async fn work_queue() -> Option<World> {
    World::new(json!({"retention": "workqueue"})).await
}

impl World {
    /// Creates a stream with this configuration besides name and subject.
    pub(crate) async fn new(config: Value) -> Option<Self> {
        Self::with(server(SERVER)?, config).await
    }

    /// Creates a stream on the server of this URL.
    pub(crate) async fn at(url: String) -> Option<Self> {
        Self::with(url, json!({})).await
    }

    async fn with(url: String, config: Value) -> Option<Self> {
        let (_, address) = url.rsplit_once('@').unwrap();
        let proxy = FaultProxy::to(address.parse().unwrap()).await.unwrap();
        let (user, password) = login(&url);
        let client = async_nats::ConnectOptions::with_user_and_password(user, password)
            .connect(format!("nats://{address}"))
            .await
            .unwrap();
        let name = format!("test-{}", Uuid::now_v7());
        let world = Self { url, name, client, proxy };
        world.create_stream(&world.name, config).await;
        Some(world)
    }

    pub(crate) async fn create_stream(&self, name: &str, config: Value) {
        let mut whole = json!({
            "name": name,
            "subjects": [format!("{name}.{ROUTED}")],
            "storage": "file",
            "num_replicas": 1,
        });
        for (key, value) in config.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let made = self.api(&format!("STREAM.CREATE.{name}"), whole).await;
        assert!(made["error"].is_null(), "{made}");
    }

    /// Asks the JetStream API.
    pub(crate) async fn api(&self, request: &str, body: Value) -> Value {
        let asking = self.client.request(format!("$JS.API.{request}"), body.to_string().into());
        let answer = soon("the server answers", asking).await.unwrap();
        serde_json::from_slice(&answer.payload).unwrap()
    }

    pub(crate) fn subject(&self) -> String {
        format!("{}.{ROUTED}", self.name)
    }

    /// Returns the server behind the proxy.
    pub(crate) fn connection(&self) -> NatsConnection {
        let (scheme_and_login, _) = self.url.rsplit_once('@').unwrap();
        NatsConnection::new(&format!("{scheme_and_login}@{}", self.proxy.address())).unwrap()
    }

    pub(crate) fn target(&self) -> NatsPublisherSettings {
        let subject = format!("{}.{{{{event_type}}}}", self.name).parse().unwrap();
        NatsPublisherSettings::new("orders", self.connection(), subject)
    }

    pub(crate) fn origin(&self) -> NatsSourceSettings {
        let mapping =
            Mapping::json("test").message_id(Pick::header("Nats-Msg-Id")).aggregate_id(Pick::Key);
        let settings =
            NatsSourceSettings::new("orders", self.connection(), &self.name, "relais", mapping);
        NatsSourceSettings { ack_wait: ACK_WAIT, ..settings }
    }

    /// Returns the messages of the stream once it has `count` different ones.
    pub(crate) async fn stored(&self, count: usize) -> Vec<WireMessage> {
        let reading = async {
            let (mut stored, mut ids, mut sequence) = (Vec::new(), BTreeSet::new(), 1);
            while ids.len() < count {
                let request = format!("STREAM.MSG.GET.{}", self.name);
                let answer = self.api(&request, json!({"seq": sequence})).await;
                if answer["message"].is_null() {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                sequence += 1;
                let message = wire(&answer["message"]);
                ids.insert(message.id.clone());
                stored.push(message);
            }
            stored
        };
        soon("the messages are in the stream", reading).await
    }

    /// Sends a message with any bytes as headers, which the client library would not.
    pub(crate) async fn send_raw(&self, headers: &[u8], body: &[u8]) {
        let (_, address) = self.url.rsplit_once('@').unwrap();
        let (user, password) = login(&self.url);
        let hello = json!({
            "verbose": false, "pedantic": false, "headers": true, "user": user, "pass": password,
        });
        let (subject, inbox) = (self.subject(), self.client.new_inbox());
        let (head, all) = (headers.len(), headers.len() + body.len());
        let text =
            format!("CONNECT {hello}\r\nSUB {inbox} 1\r\nHPUB {subject} {inbox} {head} {all}\r\n");
        let bytes = [text.as_bytes(), headers, body, b"\r\n"].concat();
        let sending = async {
            let mut stream = BufStream::new(TcpStream::connect(address).await.unwrap());
            stream.write_all(&bytes).await.unwrap();
            stream.flush().await.unwrap();
            let mut lines = stream.lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                assert!(!line.starts_with("-ERR") && !line.contains("\"error\""), "{line}");
                if line.contains("\"seq\"") {
                    return;
                }
            }
            panic!("the server closed the connection");
        };
        soon("the stream has the message", sending).await;
    }

    /// Returns the number of messages in the stream.
    pub(crate) async fn messages(&self) -> u64 {
        let info = self.api(&format!("STREAM.INFO.{}", self.name), json!({})).await;
        info["state"]["messages"].as_u64().unwrap()
    }

    /// Returns the number of messages that were delivered and not acknowledged.
    pub(crate) async fn unacknowledged(&self) -> u64 {
        let info = self.api(&format!("CONSUMER.INFO.{}.relais", self.name), json!({})).await;
        info["num_ack_pending"].as_u64().unwrap()
    }
}

pub(crate) fn login(url: &str) -> (String, String) {
    let (login, _) = url.strip_prefix("nats://").unwrap().rsplit_once('@').unwrap();
    let (user, password) = login.split_once(':').unwrap();
    (user.to_owned(), password.to_owned())
}

/// Returns the headers of a message as they are sent.
pub(crate) fn header_block(message: &WireMessage) -> Vec<u8> {
    let known = [("Nats-Msg-Id", message.id.as_bytes()), ("message-key", message.key.as_bytes())];
    let others = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    let mut block = b"NATS/1.0\r\n".to_vec();
    for (name, value) in known.into_iter().chain(others) {
        block.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    block.extend_from_slice(b"\r\n");
    block
}

/// Parses a message of `STREAM.MSG.GET`.
fn wire(message: &Value) -> WireMessage {
    let bytes = |name: &str| {
        let text = message[name].as_str().unwrap_or_default();
        STANDARD.decode(text).unwrap()
    };
    let mut wire = WireMessage { body: bytes("data"), ..WireMessage::default() };
    let headers = String::from_utf8(bytes("hdrs")).unwrap();
    for line in headers.split("\r\n").skip(1).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        wire.headers.push((name.to_owned(), value.trim().as_bytes().to_vec()));
    }
    let text = |name: &str| {
        let value = wire.header(name).unwrap_or_default().to_vec();
        String::from_utf8(value).unwrap()
    };
    (wire.id, wire.key) = (text("Nats-Msg-Id"), text("message-key"));
    wire
}

#[async_trait]
impl SourceFixture for World {
    async fn source(&self) -> Box<dyn Source> {
        Box::new(NatsSource::new(self.origin()).unwrap())
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    async fn send(&self, messages: &[WireMessage]) {
        for message in messages {
            if message.headers.iter().any(|(_, value)| str::from_utf8(value).is_err()) {
                self.send_raw(&header_block(message), &message.body).await;
                continue;
            }
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", message.id.as_str());
            headers.insert("message-key", message.key.as_str());
            for (name, value) in &message.headers {
                headers.append(name.as_str(), std::str::from_utf8(value).unwrap());
            }
            let body = message.body.clone().into();
            let sent = self.client.request_with_headers(self.subject(), headers, body).await;
            let answer: Value = serde_json::from_slice(&sent.unwrap().payload).unwrap();
            assert!(answer["error"].is_null(), "{answer}");
        }
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }
}

#[async_trait]
impl PublisherFixture for World {
    async fn publisher(&self) -> Box<dyn Publisher> {
        Box::new(NatsPublisher::new(self.target()).unwrap())
    }

    async fn unreachable(&self) -> Box<dyn Publisher> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        drop(listener);
        let connection = NatsConnection::new(&url).unwrap();
        let settings = NatsPublisherSettings { connection, ..self.target() };
        Box::new(NatsPublisher::new(settings).unwrap())
    }

    async fn received(&self, count: usize) -> Vec<WireMessage> {
        self.stored(count).await
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn oversized(&self) -> usize {
        // `max_payload` of a server is 1 MiB.
        (1 << 20) + 1
    }

    fn unroutable(&self, number: usize) -> Option<OutboxRow> {
        let mut row = outbox_row(number, &format!("k-{number}"));
        row.event_type = "Nowhere".to_owned();
        Some(row)
    }
}
