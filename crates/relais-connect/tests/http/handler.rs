//! The handler calls real sockets: what arrives, and what counts as an answer.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use relais_connect::http::{HttpHandler, HttpHandlerSettings};
use relais_core::{
    inbox::{InboxRow, NewInbox},
    remote_handler::{ANSWER_INVALID, RemoteHandler, RemoteReply},
};

use super::publisher::{After, raw, serve, untrusted};

fn row(payload: &str) -> InboxRow {
    let message = NewInbox::new("@billing::shop", "m-é", "OrderPlaced", payload)
        .aggregate("o-1")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("attempt", "99")
        .header("host", "elsewhere");
    InboxRow { attempts: 2, ..InboxRow::received(1, message) }
}

fn settings(url: &str) -> HttpHandlerSettings {
    let mut settings = HttpHandlerSettings::new("billing", url);
    settings.allow_private = true;
    settings.destinations.push("mail".to_owned());
    settings
}

async fn call(url: &str) -> RemoteReply {
    HttpHandler::new(settings(url)).unwrap().call(&row("{}")).await
}

fn code(reply: &RemoteReply) -> &str {
    reply.problem().map_or("", |problem| problem.code.as_str())
}

#[tokio::test]
async fn the_payload_arrives_byte_for_byte_with_the_same_id_in_each_call() {
    let seen = Arc::<Mutex<Vec<(HeaderMap, Bytes)>>>::default();
    let calls = Arc::clone(&seen);
    let take = move |headers: HeaderMap, body: Bytes| {
        calls.lock().unwrap().push((headers, body));
        std::future::ready(axum::http::StatusCode::NO_CONTENT)
    };
    let address = serve(Router::new().route("/relais", post(take))).await;
    let mut settings = settings(&format!("http://{address}/relais"));
    settings.secrets = ["one", "two"].map(|text| text.parse().unwrap()).into();
    let handler = HttpHandler::new(settings).unwrap();
    for _ in 0..2 {
        assert_eq!(
            handler.call(&row(r#"{ "n": 1.0 }"#)).await,
            RemoteReply::Done { messages: Vec::new(), data: None }
        );
    }
    let seen = seen.lock().unwrap();
    let text = |at: usize, name: &str| seen[at].0[name].to_str().unwrap().to_owned();
    assert_eq!(seen[0].1, r#"{ "n": 1.0 }"#);
    assert_eq!(text(0, "idempotency-key"), text(1, "idempotency-key"));
    assert_eq!(text(0, "idempotency-key"), text(0, "webhook-id"));
    assert_eq!(
        (text(0, "message-id"), text(0, "source-system")),
        ("m-%C3%A9".into(), "shop".into())
    );
    assert_eq!(text(0, "attempt"), "3", "no header of the message replaces it");
    assert_eq!(text(0, "host"), address.to_string());
    assert!(text(0, "traceparent").starts_with("00-4bf9"));
    assert_eq!(text(0, "webhook-signature").split(' ').count(), 2);
}

#[tokio::test]
async fn only_a_complete_and_valid_answer_counts() {
    let large = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}",
        (1 << 20) + 1,
        " ".repeat((1 << 20) + 1)
    );
    let large: &'static [u8] = Box::leak(large.into_bytes().into_boxed_slice());
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"outcome\":";
    let done = b"HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\n{\"outcome\":\"done\"}";
    for (answer, expected) in [
        (&done[..], ""),
        (half, "CONNECTION_CUT"),
        (b"", "CONNECTION_CUT"),
        (large, ANSWER_INVALID),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ANSWER_INVALID),
        (b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", ANSWER_INVALID),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", "HTTP_302"),
        (b"HTTP/1.1 422 No\r\ncontent-length: 0\r\n\r\n", "HTTP_422"),
        (b"HTTP/1.1 503 Later\r\ncontent-length: 0\r\n\r\n", "HTTP_503"),
    ] {
        let address = raw(answer, After::Close).await;
        let reply = call(&format!("http://{address}/")).await;
        assert_eq!(code(&reply), expected, "{reply:?}");
    }
}

#[tokio::test]
async fn an_invalid_answer_is_shown_without_secrets() {
    let page = b"HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n<p>token t0ken-s3cret!";
    let address = raw(page, After::Close).await;
    let mut settings = settings(&format!("http://{address}/"));
    settings.headers.push(("authorization".into(), "Bearer t0ken-s3cret".into()));
    let reply = HttpHandler::new(settings).unwrap().call(&row("{}")).await;
    let text = reply.problem().unwrap().message.clone();
    assert!(text.contains("<p>token [hidden]!") && !text.contains("t0ken-s3cret"), "{text}");
}

#[tokio::test]
async fn an_endpoint_without_a_valid_certificate_is_not_called() {
    let reply = call(&format!("https://{}/", untrusted())).await;
    assert_eq!(code(&reply), "CONNECT_FAILED", "{reply:?}");
}

#[test]
fn a_private_address_and_a_header_of_relais_are_refused() {
    let refused = HttpHandler::new(HttpHandlerSettings::new("billing", "http://127.0.0.1:1/"));
    assert!(refused.unwrap_err().to_string().contains("allow_private"));
    let mut settings = settings("https://billing.example/");
    settings.headers.push(("Attempt".into(), "9".into()));
    let refused = HttpHandler::new(settings).unwrap_err().to_string();
    assert!(refused.contains("`attempt` is set by relais"), "{refused}");
}
