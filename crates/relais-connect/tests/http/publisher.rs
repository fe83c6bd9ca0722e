//! Sending: the requests at the target, and the classification of its responses.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{ConnectInfo, Path},
    http::{HeaderMap, Method as HttpMethod, StatusCode, Uri, header},
    response::IntoResponse,
    routing::any,
};
use relais_connect::http::{HttpPublisher, HttpPublisherSettings, Method};
use relais_core::{delivery::Delivery, inbox::Content, message::HeaderValue, publisher::Publisher};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    common::{bind, ingest, settings as source_settings},
    testing::row,
};

fn settings(url: &str) -> HttpPublisherSettings {
    HttpPublisherSettings { allow_private: true, ..HttpPublisherSettings::new(url) }
}

async fn deliver(settings: HttpPublisherSettings) -> Delivery {
    let publisher = HttpPublisher::new(settings).unwrap();
    let mut deliveries = publisher.publish(&[row("{}")]).await;
    assert_eq!(deliveries.len(), 1);
    deliveries.remove(0)
}

pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// A target that reads one request and then behaves as configured.
pub(crate) async fn raw(answer: &'static [u8], and_then: After) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            read_request(&mut stream).await;
            stream.write_all(answer).await.unwrap();
            match and_then {
                After::Close => {}
                After::Stall => std::future::pending().await,
            }
        }
    });
    address
}

#[derive(Clone, Copy)]
pub(crate) enum After {
    Close,
    Stall,
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"{}") {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn the_payload_arrives_byte_for_byte_with_everything_else_in_headers() {
    type Seen = Arc<Mutex<Vec<(HttpMethod, HeaderMap, Bytes, SocketAddr)>>>;
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let target = any(
        move |ConnectInfo(from): ConnectInfo<SocketAddr>,
              method: HttpMethod,
              headers: HeaderMap,
              body: Bytes| async move {
            log.lock().unwrap().push((method, headers, body, from));
            StatusCode::NO_CONTENT
        },
    );
    let address = serve(Router::new().route("/in", target)).await;
    let payload = " {\n\"n\": 9007199254740993,\t\"n\":1e400, \"é\":\"\\u0000😀\"}\r\n";
    let mut message = row(payload);
    message.correlation_id = Some("c-1".into());
    message.causation_id = Some("c-0".into());
    message.headers.set("traceparent", "00-aa-bb-01");
    message.headers.set("tracestate", "v=1");
    message.headers.push("x-twice", HeaderValue::Text("a".into()));
    message.headers.push("x-twice", HeaderValue::Text("b".into()));
    message.headers.set("Host", "evil.example");
    message.headers.set("Content-Length", "1");
    message.headers.set("Transfer-Encoding", "chunked");
    message.headers.set("Message-Id", "evil");
    for method in [Method::Post, Method::Put, Method::Patch] {
        let mut settings = settings(&format!("http://{address}/in"));
        settings.method = method;
        settings.headers.push(("Authorization".into(), "Bearer t0ken".into()));
        let publisher = HttpPublisher::new(settings).unwrap();
        for _ in 0..3 {
            let sent = publisher.publish(std::slice::from_ref(&message)).await;
            assert_eq!(sent, [Delivery::Accepted]);
        }
        let all = std::mem::take(&mut *seen.lock().unwrap());
        assert!(all.iter().all(|one| one.3 == all[0].3), "the connection is used again");
        let (with, headers, body, _) = &all[0];
        assert_eq!((with.as_str(), body.as_ref()), (method.as_str(), payload.as_bytes()));
        let host = address.to_string();
        for (name, value) in [
            ("host", host.as_str()),
            ("content-type", "application/json"),
            ("authorization", "Bearer t0ken"),
            ("idempotency-key", "00000000-0000-0000-0123-456789abcdef"),
            ("message-id", "00000000-0000-0000-0123-456789abcdef"),
            ("event-type", "OrderCreated"),
            ("event-version", "2"),
            ("aggregate-type", "Order"),
            ("aggregate-id", "7"),
            ("message-key", "7"),
            ("correlation-id", "c-1"),
            ("causation-id", "c-0"),
            ("traceparent", "00-aa-bb-01"),
            ("tracestate", "v=1"),
        ] {
            assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
        }
        assert_eq!(headers.get_all("x-twice").iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(!headers.contains_key("transfer-encoding"));
    }
}

#[tokio::test]
async fn each_response_is_classified() {
    let target = any(|Path(status): Path<u16>| async move {
        (StatusCode::from_u16(status).unwrap(), [(header::RETRY_AFTER, "7")], "it says why")
    });
    let address = serve(Router::new().route("/{status}", target)).await;
    let seven = Some(Duration::from_secs(7));
    for status in [200, 202, 400, 401, 404, 408, 409, 410, 413, 422, 425, 429]
        .into_iter()
        .chain([500, 501, 502, 503, 504, 507])
    {
        let delivery = deliver(settings(&format!("http://{address}/{status}"))).await;
        let (kind, problem, after) = match delivery {
            Delivery::Accepted => ("accepted", None, None),
            Delivery::Retry { problem, after } => ("retry", Some(problem), after),
            Delivery::Busy { problem, after } => ("busy", Some(problem), after),
            Delivery::Misconfigured { problem, .. } => ("misconfigured", Some(problem), seven),
            Delivery::Reject { problem } => ("reject", Some(problem), seven),
            Delivery::Outage { problem, after } => ("outage", Some(problem), after),
            Delivery::Held => ("held", None, None),
            _ => ("unknown", None, None),
        };
        let expected = match status {
            200 | 202 => "accepted",
            429 | 502 | 503 | 504 => "busy",
            401 | 404 => "misconfigured",
            408 | 425 | 500.. => "retry",
            _ => "reject",
        };
        assert_eq!(kind, expected, "{status}");
        let Some(problem) = problem else { continue };
        assert_eq!((problem.code, after), (format!("HTTP_{status}"), seven));
        assert!(problem.message.starts_with(&format!("POST http://{address} answered {status}")));
        assert!(problem.message.ends_with(": it says why"), "{}", problem.message);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let inner = serve(Router::new().fallback(move || async move {
        count.fetch_add(1, Ordering::SeqCst);
    }))
    .await;
    for status in [301, 302, 303, 307, 308] {
        let to = format!("http://{inner}/inner?k3y");
        let target = any(move || async move {
            (StatusCode::from_u16(status).unwrap(), [(header::LOCATION, to)])
        });
        let address = serve(Router::new().route("/", target)).await;
        let Delivery::Reject { problem } = deliver(settings(&format!("http://{address}/"))).await
        else {
            panic!("{status} is no success")
        };
        assert_eq!(problem.code, format!("HTTP_{status}"));
        assert!(problem.message.contains("`127.0.0.1`"), "{}", problem.message);
        assert!(!problem.message.contains("k3y"));
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

fn code(delivery: &Delivery) -> (&'static str, &str) {
    match delivery {
        Delivery::Accepted => ("accepted", ""),
        Delivery::Retry { problem, .. } => ("retry", &problem.code),
        Delivery::Busy { problem, .. } => ("busy", &problem.code),
        Delivery::Misconfigured { problem, .. } => ("misconfigured", &problem.code),
        Delivery::Reject { problem } => ("reject", &problem.code),
        Delivery::Outage { problem, .. } => ("outage", &problem.code),
        Delivery::Held => ("held", ""),
        _ => ("unknown", ""),
    }
}

#[tokio::test]
async fn an_unreachable_target_is_an_outage() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let delivery = deliver(settings(&format!("http://{free}/p4th?k3y"))).await;
    assert_eq!(code(&delivery), ("outage", "CONNECT_FAILED"));
    let text = format!("{delivery:?}");
    assert!(text.contains(&format!("POST http://{free}: ")), "{text}");
    assert!(text.contains("check that the target runs, and host and port"), "{text}");
    assert!(!text.contains("p4th") && !text.contains("k3y"), "{text}");

    let delivery = deliver(settings("http://no-such-host.invalid/")).await;
    assert_eq!(code(&delivery), ("outage", "DNS_FAILED"), "{delivery:?}");
    assert!(format!("{delivery:?}").contains("check the host in the URL"), "{delivery:?}");
    let delivery = deliver(HttpPublisherSettings::new("http://no-such-host.invalid/")).await;
    assert_eq!(code(&delivery), ("outage", "DNS_FAILED"), "{delivery:?}");

    // A plain-text answer to the TLS handshake is not the target.
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", plain.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let delivery = deliver(settings(&url)).await;
    assert_eq!(code(&delivery), ("outage", "CONNECT_FAILED"), "{delivery:?}");

    // The TLS handshake is not answered.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut slow = settings(&format!("https://{}/", silent.local_addr().unwrap()));
    slow.connect_timeout = Duration::from_millis(50);
    let delivery = deliver(slow.clone()).await;
    assert_eq!(code(&delivery), ("outage", "CONNECT_TIMEOUT"), "{delivery:?}");
    slow.connect_timeout = Duration::from_secs(60);
    slow.timeout = Duration::from_millis(200);
    let delivery = deliver(slow).await;
    assert_eq!(code(&delivery), ("outage", "CONNECT_TIMEOUT"), "{delivery:?}");
}

#[tokio::test]
async fn a_request_without_a_response_is_retried() {
    let silent = raw(b"", After::Stall).await;
    let mut slow = settings(&format!("http://{silent}/"));
    slow.timeout = Duration::from_millis(100);
    assert_eq!(code(&deliver(slow).await), ("retry", "TIMEOUT"));
    for cut in [&b""[..], b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\ncontent-le", b"garbage\r\n\r\n"] {
        let address = raw(cut, After::Close).await;
        let delivery = deliver(settings(&format!("http://{address}/"))).await;
        assert_eq!(code(&delivery), ("retry", "CONNECTION_CUT"), "{delivery:?}");
    }
}

#[tokio::test]
async fn a_status_counts_even_if_its_body_never_ends() {
    let address = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", After::Close).await;
    assert_eq!(deliver(settings(&format!("http://{address}/"))).await, Delivery::Accepted);
    let address = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", After::Stall).await;
    let mut slow = settings(&format!("http://{address}/"));
    slow.timeout = Duration::from_millis(200);
    assert_eq!(deliver(slow.clone()).await, Delivery::Accepted);
    let address = raw(b"HTTP/1.1 503 No\r\ncontent-length: 9\r\n\r\nab", After::Stall).await;
    slow.url = format!("http://{address}/");
    assert_eq!(code(&deliver(slow).await), ("busy", "HTTP_503"));
}

#[tokio::test]
async fn a_response_is_shown_shortened_and_without_secrets() {
    let target = any(|headers: HeaderMap, uri: Uri| async move {
        let sent = headers[header::AUTHORIZATION].to_str().unwrap().to_owned();
        let said = format!("no\r\n\x1b[31m\0 {sent} {} {uri} c4nary+value", "é".repeat(500));
        (StatusCode::BAD_REQUEST, said + &"é".repeat(500_000)).into_response()
    });
    let address = serve(Router::new().fallback(target)).await;
    let url = format!("http://{address}/hooks/c4nary-path?key=c4nary%2Bvalue&short");
    let mut settings = settings(&url);
    settings.headers.push(("authorization".into(), "Bearer c4nary-t0ken".into()));
    assert!(!format!("{settings:?}").contains("c4nary"));
    let Delivery::Reject { problem } = deliver(settings).await else { panic!("400 rejects") };
    assert!(
        problem.message.contains("no  \u{FFFD}[31m\u{FFFD} [hidden] éé"),
        "{}",
        problem.message
    );
    assert!(!problem.message.contains("c4nary"));
    assert!(problem.message.len() <= 4 * 1024 + 100);
}

#[tokio::test]
async fn no_value_of_a_message_adds_a_line_to_the_request() {
    let evil = "x\r\nevil: 1\r\n\r\nGET /evil HTTP/1.1\r\n";
    let mut message = row("{}");
    message.event_type = evil.into();
    message.aggregate_type = evil.into();
    message.aggregate_id = evil.into();
    message.msg_key = evil.into();
    message.correlation_id = Some(evil.into());
    message.headers.set("traceparent", evil);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let seen = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let seen = read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        seen
    });
    let mut settings = settings(&url);
    settings.cloudevents = true;
    let publisher = HttpPublisher::new(settings).unwrap();
    assert_eq!(publisher.publish(&[message.clone()]).await, [Delivery::Accepted]);
    let seen = seen.await.unwrap();
    assert_eq!(seen.matches("\r\n\r\n").count(), 1, "{seen}");
    assert!(!seen.lines().any(|line| line.starts_with("evil") || line.starts_with("GET")));

    message.headers.set("bad name\r\n", "v");
    let deliveries = publisher.publish(&[message]).await;
    assert_eq!(code(&deliveries[0]), ("reject", "HEADER_INVALID"));
}

#[tokio::test]
async fn one_relais_receives_what_another_sends() {
    let mut receiving = source_settings();
    receiving.secrets = vec!["new".parse().unwrap()];
    let (address, mut stored) = ingest(bind(receiving).await);
    let mut sending = settings(&format!("http://{address}/hook"));
    sending.secrets = vec!["old".parse().unwrap(), "new".parse().unwrap()];
    sending.cloudevents = true;
    let mut message = row("{\"type\" : \"T\"}");
    message.msg_key = "Kunde 7%41 größe\n".into();
    message.headers.set("traceparent", "00-aa-bb-01");
    let publisher = HttpPublisher::new(sending).unwrap();
    for _ in 0..2 {
        assert_eq!(publisher.publish(&[message.clone()]).await, [Delivery::Accepted]);
    }
    let received = stored.recv().await.unwrap();
    assert_eq!(received.message_id, message.message_id.to_string());
    assert_eq!(received.key_str.as_deref(), Some(message.msg_key.as_str()));
    assert_eq!(received.content, Content::Json(message.payload.clone()));
    assert_eq!(received.event_ts, Some(message.created_at));
    assert_eq!(received.headers.get("traceparent"), Some("00-aa-bb-01"));
    assert_eq!(received.headers.get("webhook-signature"), None);
    assert!(stored.try_recv().is_err(), "the second was a duplicate");

    let mut stranger = settings(&format!("http://{address}/hook"));
    stranger.secrets = vec!["other".parse().unwrap()];
    assert_eq!(code(&deliver(stranger).await), ("misconfigured", "HTTP_401"));
}

/// A TLS server with an untrusted certificate, for this test only.
pub(crate) fn untrusted() -> SocketAddr {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let chain = CertificateDer::from_pem_slice(include_bytes!("untrusted-cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("untrusted-key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, stream);
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n");
    });
    address
}

#[tokio::test]
async fn an_untrusted_certificate_is_an_outage() {
    let delivery = deliver(settings(&format!("https://{}/", untrusted()))).await;
    assert_eq!(code(&delivery), ("outage", "CONNECT_FAILED"));
    assert!(format!("{delivery:?}").contains("certificate"), "{delivery:?}");
}
