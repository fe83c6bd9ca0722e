//! The places of the contract: a sender that repeats each request until it is answered 202, in front of
//! one or two sources, and a target that keeps what it receives.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::DefaultBodyLimit, http::HeaderMap, routing::post};
use relais_connect::http::{HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceSettings};
use relais_core::{
    async_trait,
    extract::{Mapping, Pick},
    outbox::OutboxRow,
    publisher::Publisher,
    source::Source,
};
use relais_testkit::{
    connector::{PublisherFixture, SourceFixture, WireMessage, soon},
    proxy::FaultProxy,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{common, publisher::serve};

/// The pause of a sender before it repeats a request, and of a check before it looks again.
const PAUSE: Duration = Duration::from_millis(10);
/// The largest body of the target.
const BODY_MAX: usize = 1 << 20;

/// Sources behind a balancer, as several processes are, and one sender.
pub(crate) struct Webhooks {
    proxy: FaultProxy,
    sources: Sources,
    outgoing: mpsc::UnboundedSender<WireMessage>,
}

type Sources = Arc<Mutex<Vec<SocketAddr>>>;

pub(crate) async fn webhooks() -> Option<Webhooks> {
    let sources = Sources::default();
    let balancer = balance(Arc::clone(&sources)).await;
    let proxy = FaultProxy::to(balancer).await.unwrap();
    let (outgoing, messages) = mpsc::unbounded_channel();
    tokio::spawn(send_all(proxy.address(), messages));
    Some(Webhooks { proxy, sources, outgoing })
}

/// Gives each connection to the next source that accepts it.
async fn balance(sources: Sources) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut sender, _)) = listener.accept().await {
            let mut all = sources.lock().unwrap().clone();
            sources.lock().unwrap().rotate_left(usize::from(!all.is_empty()));
            tokio::spawn(async move {
                while let Some(address) = all.first().copied() {
                    if let Ok(mut source) = TcpStream::connect(address).await {
                        let _ = tokio::io::copy_bidirectional(&mut sender, &mut source).await;
                        return;
                    }
                    all.remove(0);
                }
            });
        }
    });
    address
}

/// Sends one message after the other, each until it is answered 202.
async fn send_all(address: SocketAddr, mut messages: mpsc::UnboundedReceiver<WireMessage>) {
    while let Some(message) = messages.recv().await {
        let mut bytes = b"POST /hook HTTP/1.1\r\nhost: test\r\nconnection: close\r\n".to_vec();
        let own = [("message-id", message.id.as_bytes()), ("message-key", message.key.as_bytes())];
        let others = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        for (name, value) in own.into_iter().chain(others) {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend(format!("content-length: {}\r\n\r\n", message.body.len()).into_bytes());
        bytes.extend(&message.body);
        while status(address, &bytes).await != 202 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Returns the status of the response, 0 without one.
async fn status(address: SocketAddr, request: &[u8]) -> u16 {
    let Ok(mut stream) = TcpStream::connect(address).await else { return 0 };
    // The response may come before the whole request is written.
    let _ = stream.write_all(request).await;
    common::read_reply(&mut stream).await.status
}

#[async_trait]
impl SourceFixture for Webhooks {
    async fn source(&self) -> Box<dyn Source> {
        let mapping = Mapping::json("test").aggregate_id(Pick::Key);
        let listen = "127.0.0.1:0".parse().unwrap();
        let settings = HttpSourceSettings::new("hook", listen, mapping);
        let source = HttpSource::bind(settings).await.unwrap();
        self.sources.lock().unwrap().insert(0, source.local_addr());
        Box::new(source)
    }

    async fn send(&self, messages: &[WireMessage]) {
        for message in messages {
            self.outgoing.send(message.clone()).unwrap();
        }
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn has_binary_headers(&self) -> bool {
        false
    }

    fn has_empty_messages(&self) -> bool {
        false
    }
}

/// A target that keeps what it receives, and refuses bodies above [`BODY_MAX`].
pub(crate) struct Target {
    proxy: FaultProxy,
    received: Arc<Mutex<Vec<WireMessage>>>,
}

pub(crate) async fn target() -> Option<Target> {
    let received = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&received);
    let keep = move |headers: HeaderMap, body: Bytes| async move {
        kept.lock().unwrap().push(wire(&headers, &body));
    };
    let router = Router::new().route("/", post(keep)).layer(DefaultBodyLimit::max(BODY_MAX));
    let proxy = FaultProxy::to(serve(router).await).await.unwrap();
    Some(Target { proxy, received })
}

fn wire(headers: &HeaderMap, body: &Bytes) -> WireMessage {
    let text = |name| String::from_utf8(headers[name].as_bytes().to_vec()).unwrap();
    let mut message = WireMessage::new(&text("idempotency-key"), &text("message-key"), body);
    let pair = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    message.headers = headers.iter().map(pair).collect();
    message
}

fn publisher(address: SocketAddr) -> Box<dyn Publisher> {
    let settings = HttpPublisherSettings::new(&format!("http://{address}/"));
    let settings = HttpPublisherSettings { allow_private: true, ..settings };
    Box::new(HttpPublisher::new(settings).unwrap())
}

#[async_trait]
impl PublisherFixture for Target {
    async fn publisher(&self) -> Box<dyn Publisher> {
        publisher(self.proxy.address())
    }

    async fn unreachable(&self) -> Box<dyn Publisher> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        publisher(address)
    }

    async fn received(&self, count: usize) -> Vec<WireMessage> {
        let arrived = async {
            loop {
                let received = self.received.lock().unwrap().clone();
                let ids: BTreeSet<_> = received.iter().map(|message| &message.id).collect();
                if ids.len() >= count {
                    return received;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        soon("the messages are at the target", arrived).await
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn oversized(&self) -> usize {
        BODY_MAX + 1
    }

    fn oversized_code(&self) -> &'static str {
        "HTTP_413"
    }

    fn unroutable(&self, _number: usize) -> Option<OutboxRow> {
        None
    }
}
