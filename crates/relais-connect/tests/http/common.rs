//! Helpers for both sides: rows, raw requests, an ingest worker without a database.

use std::{collections::HashMap, net::SocketAddr};

use relais_connect::http::{HttpSource, HttpSourceSettings};
use relais_core::{
    extract::{Mapping, Pick},
    inbox::{AcceptOutcome, Content, NewInbox},
    source::Source,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

pub(crate) fn settings() -> HttpSourceSettings {
    let mapping = Mapping::json("crm").event_type(Pick::payload("/type"));
    HttpSourceSettings::new("hook", "127.0.0.1:0".parse().unwrap(), mapping)
}

pub(crate) async fn bind(settings: HttpSourceSettings) -> HttpSource {
    HttpSource::bind(settings).await.unwrap()
}

/// Stores messages in memory, and returns each new one.
pub(crate) fn ingest(mut source: HttpSource) -> (SocketAddr, mpsc::UnboundedReceiver<NewInbox>) {
    let address = source.local_addr();
    let (stored, shown) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut rows: HashMap<String, Content> = HashMap::new();
        while let Ok(batch) = source.next(100).await {
            let mut accepted = Vec::new();
            for message in batch.messages {
                accepted.push(match rows.get(&message.message_id) {
                    None => {
                        rows.insert(message.message_id.clone(), message.content.clone());
                        let _ = stored.send(message);
                        AcceptOutcome::Stored
                    }
                    Some(content) if *content == message.content => AcceptOutcome::Duplicate,
                    Some(_) => AcceptOutcome::Conflict,
                });
            }
            source.acknowledge(accepted).await.unwrap();
        }
    });
    (address, shown)
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> serde_json::Value {
        assert!(self.head.to_ascii_lowercase().contains("content-type: application/json"));
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn error(&self) -> String {
        let json = self.json();
        assert!(!json["message"].as_str().unwrap().is_empty());
        json["error"].as_str().unwrap().to_owned()
    }
}

/// A request as it is on the wire.
pub(crate) fn request(method: &str, path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n").into_bytes();
    for line in headers {
        bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
    }
    let end = format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    bytes.extend_from_slice(end.as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

pub(crate) fn post(headers: &[&str], body: &[u8]) -> Vec<u8> {
    request("POST", "/hook", headers, body)
}

/// Sends bytes on a new connection and reads the response until the server closes.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_reply(&mut stream).await
}

pub(crate) async fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    // A reset after the response does not invalidate it.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}
