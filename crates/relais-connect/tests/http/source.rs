//! Receiving: responses, stored headers and bodies, and protection against hostile senders.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use relais_connect::http::{HttpSource, HttpSourceSettings, OnInvalidBody};
use relais_core::{
    inbox::{AcceptOutcome, Content},
    message::{HeaderValue, HeaderValues},
    source::{Source, SourceError},
    time::Timestamp,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::common::{Reply, bind, ingest, post, read_reply, request, send, settings};

#[tokio::test]
async fn a_message_is_stored_then_a_duplicate_then_a_conflict() {
    let (address, mut stored) = ingest(bind(settings()).await);
    let body = "{\"type\": \"A\",\n \"n\": 9007199254740993, \"é\": \"\\u0000\" }";
    for (body, status) in [(body, "stored"), (body, "duplicate"), ("{}", "conflict")] {
        let reply = send(address, &post(&["Message-Id: m-1"], body.as_bytes())).await;
        assert_eq!(reply.status, 202);
        assert_eq!(reply.json(), serde_json::json!({ "status": status, "message_id": "m-1" }));
    }
    let row = stored.recv().await.unwrap();
    assert_eq!(row.content, Content::Json(body.into()));
    assert_eq!((row.topic.as_str(), row.partition_num, row.offset_num), ("hook", 0, 0));
    assert_eq!((row.source_system.as_str(), row.event_type.as_deref()), ("crm", Some("A")));
    assert_eq!((row.key_str, row.event_ts), (None, None));
}

#[tokio::test]
async fn the_response_is_sent_only_after_the_commit() {
    let mut source = bind(settings()).await;
    let wire = post(&["message-id: m-1"], b"{}");
    let mut answer = pin!(send(source.local_addr(), &wire));
    let batch = tokio::select! {
        _ = answer.as_mut() => panic!("answered before it was stored"),
        batch = source.next(10) => batch.unwrap(),
    };
    assert_eq!((batch.messages.len(), batch.positions.len()), (1, 0));
    let open = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_pending())).await;
    assert!(open, "answered before it was acknowledged");
    source.acknowledge(vec![AcceptOutcome::Stored]).await.unwrap();
    assert_eq!(answer.await.status, 202);
}

/// Fills a queue of `queue_max` and returns the requests that wait in it.
async fn fill(source: &HttpSource, queue_max: usize) -> tokio::task::JoinSet<Reply> {
    let address = source.local_addr();
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..=queue_max {
        let wire = post(&[&format!("message-id: m-{n}")], b"{}");
        waiting.spawn(async move { send(address, &wire).await });
    }
    // The request that found no room is answered first, and reports that the queue is full.
    let refused = waiting.join_next().await.unwrap().unwrap();
    assert_eq!((refused.status, refused.error().as_str()), (503, "BUSY"));
    assert!(refused.head.contains("retry-after: 1"));
    waiting
}

#[tokio::test]
async fn waiting_requests_are_batched_up_to_the_limit() {
    let mut source = bind(HttpSourceSettings { queue_max: 5, ..settings() }).await;
    let mut waiting = fill(&source, 5).await;
    assert_eq!(source.next(3).await.unwrap().messages.len(), 3);
    source
        .acknowledge(vec![AcceptOutcome::Stored, AcceptOutcome::Duplicate, AcceptOutcome::Conflict])
        .await
        .unwrap();
    assert_eq!(source.next(100).await.unwrap().messages.len(), 2);
    source.refuse("the database is unavailable".into()).await;
    let mut answers = Vec::new();
    while let Some(reply) = waiting.join_next().await {
        let reply = reply.unwrap();
        let json = reply.json();
        if reply.status == 503 {
            assert_eq!(json["message"], "the database is unavailable");
            assert!(reply.head.contains("retry-after: 1"));
        }
        answers.push(json["status"].as_str().or(json["error"].as_str()).unwrap().to_owned());
    }
    answers.sort();
    assert_eq!(answers, ["NOT_STORED", "NOT_STORED", "conflict", "duplicate", "stored"]);
}

#[tokio::test]
async fn a_cancelled_next_loses_nothing() {
    let mut source = bind(settings()).await;
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = source.next(1) => panic!("nothing was sent"),
            () = std::future::ready(()) => {}
        }
    }
    let address = source.local_addr();
    let answer = tokio::spawn(async move { send(address, &post(&["message-id: 1"], b"{}")).await });
    assert_eq!(source.next(1).await.unwrap().messages[0].message_id, "1");
    source.acknowledge(vec![AcceptOutcome::Stored]).await.unwrap();
    assert_eq!(answer.await.unwrap().status, 202);
}

#[tokio::test]
async fn a_body_that_is_not_json_is_stored_with_its_reason() {
    let (address, mut stored) = ingest(bind(settings()).await);
    let deep = "[".repeat(5_000);
    let table: [(&[u8], &str); 5] = [
        (b"", "EMPTY"),
        (b"{oops", "INVALID_JSON"),
        (b"{} {}", "INVALID_JSON"),
        (b"{\"a\":\"\xff\"}", "NOT_UTF8"),
        (deep.as_bytes(), "JSON_TOO_DEEP"),
    ];
    for (body, code) in table {
        let reply = send(address, &post(&[], body)).await;
        let json = reply.json();
        assert_eq!((reply.status, json["status"].as_str()), (202, Some("stored")), "{json}");
        assert_eq!((json["decoded"].as_bool(), json["error"].as_str()), (Some(false), Some(code)));
        let row = stored.recv().await.unwrap();
        assert_eq!(json["message_id"], row.message_id.as_str());
        let Content::Undecodable { bytes, problem } = row.content else { panic!() };
        assert_eq!((bytes.as_slice(), problem.code.as_str()), (body, code));
    }
    let strict = HttpSourceSettings { invalid: OnInvalidBody::Reject, ..settings() };
    let (address, mut stored) = ingest(bind(strict).await);
    for (body, code) in table {
        let reply = send(address, &post(&["message-id: 1"], body)).await;
        assert_eq!((reply.status, reply.error().as_str()), (400, code));
    }
    assert!(stored.try_recv().is_err());
}

#[tokio::test]
async fn invalid_requests_are_refused_with_advice() {
    let (address, mut stored) = ingest(bind(settings()).await);
    let id = "message-id: 1";
    let table = [
        (request("POST", "/", &[id], b"{}"), 404, "NOT_FOUND"),
        (request("POST", "/hook/", &[id], b"{}"), 404, "NOT_FOUND"),
        (request("POST", "/hook/../hook", &[id], b"{}"), 404, "NOT_FOUND"),
        (request("GET", "/other", &[id], b""), 404, "NOT_FOUND"),
        (request("GET", "/hook", &[id], b""), 405, "METHOD_NOT_ALLOWED"),
        (request("PUT", "/hook", &[id], b"{}"), 405, "METHOD_NOT_ALLOWED"),
        (request("DELETE", "/hook?x", &[id], b""), 405, "METHOD_NOT_ALLOWED"),
        (post(&[], b"{}"), 400, "MISSING_MESSAGE_ID"),
        (post(&["message-id: "], b"{}"), 400, "MISSING_MESSAGE_ID"),
        (post(&[id, "content-type: text/plain"], b"{}"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (post(&[id, "content-encoding: gzip"], b"{}"), 415, "UNSUPPORTED_MEDIA_TYPE"),
    ];
    for (wire, status, code) in table {
        let reply = send(address, &wire).await;
        assert_eq!((reply.status, reply.error().as_str()), (status, code));
        assert_eq!(status == 405, reply.head.contains("allow: POST"));
    }
    assert!(stored.try_recv().is_err());
    for path in ["/hook", "/%68ook", "/hook?a=b"] {
        let kind = "content-type: application/cloudevents+json; charset=utf-8";
        assert_eq!(send(address, &request("POST", path, &[id, kind], b"{}")).await.status, 202);
    }
}

#[tokio::test]
async fn headers_are_kept_but_secrets_are_not() {
    let mut settings = settings();
    settings.token = Some("t0ken".into());
    let (address, mut stored) = ingest(bind(settings).await);
    let mut wire = b"POST /hook HTTP/1.1\r\nhost: a\r\nconnection: close\r\n".to_vec();
    wire.extend_from_slice(
        b"Authorization: bearer t0ken\r\nCookie: c0okie\r\nProxy-Authorization: pr0xy\r\n\
          Message-Id: 1\r\nX-Twice: a\r\nx-twice: b\r\nX-Bytes: \xff\xfe\r\nX-Text: \xc3\xa9\r\n\
          traceparent: 00-aa-bb-01\r\nmessage-key: k%C3%A9y 50%\r\n\
          ce-time: 2026-11-15T12:00:00Z\r\nwebhook-signature: v1,kept\r\n\
          content-length: 2\r\n\r\n{}",
    );
    assert_eq!(send(address, &wire).await.status, 202);
    let row = stored.recv().await.unwrap();
    let json = row.headers.to_json();
    for secret in ["t0ken", "c0okie", "pr0xy", "authorization", "cookie"] {
        assert!(!json.contains(secret), "{json}");
    }
    let text = |text: &str| HeaderValue::Text(text.into());
    assert_eq!(row.headers.0["x-twice"], HeaderValues::Many(vec![text("a"), text("b")]));
    let bytes = HeaderValue::Bytes { base64: "//4=".into() };
    assert_eq!(row.headers.0["x-bytes"], HeaderValues::One(bytes));
    assert_eq!(row.headers.get("x-text"), Some("é"));
    assert_eq!(row.headers.get("traceparent"), Some("00-aa-bb-01"));
    assert_eq!(row.headers.get("webhook-signature"), Some("v1,kept"));
    assert_eq!(row.key_str.as_deref(), Some("kéy 50%"));
    assert_eq!(row.event_ts, Timestamp::parse("2026-11-15T12:00:00Z"));
}

#[tokio::test]
async fn a_token_is_requested() {
    let mut settings = settings();
    settings.token = Some("t0ken".into());
    assert!(!format!("{settings:?}").contains("t0ken"));
    let (address, _stored) = ingest(bind(settings).await);
    for wrong in
        ["x: y", "authorization: t0ken", "authorization: Bearer t0ke", "authorization: Basic t0ken"]
    {
        let reply = send(address, &post(&["message-id: 1", wrong], b"{}")).await;
        assert_eq!((reply.status, reply.error().as_str()), (401, "UNAUTHORIZED"), "{wrong}");
        assert!(reply.head.contains("www-authenticate"));
        assert!(!reply.body.contains("t0ken"));
    }
    let right = ["message-id: 1", "authorization: Bearer t0ken"];
    assert_eq!(send(address, &post(&right, b"{}")).await.status, 202);
}

#[tokio::test]
async fn an_unsigned_or_old_request_is_refused() {
    let mut settings = settings();
    settings.secrets = vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap()];
    let (address, mut stored) = ingest(bind(settings).await);
    let old = [
        "message-id: 1",
        "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp: 1614265330",
        "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ];
    for headers in [&old[..], &old[..3], &old[..1]] {
        let reply = send(address, &post(headers, br#"{"test": 2432232314}"#)).await;
        assert_eq!((reply.status, reply.error().as_str()), (401, "UNAUTHORIZED"));
    }
    assert!(stored.try_recv().is_err());
}

#[cfg(target_os = "linux")]
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_body_of_100_mb_is_refused_and_never_held() {
    const SIZE: usize = 100 * 1024 * 1024;
    let (address, _stored) = ingest(bind(settings()).await);
    let before = peak_memory_kib();
    let chunk = vec![b' '; 64 * 1024];
    let framed = [format!("{:x}\r\n", chunk.len()).into_bytes(), chunk.clone(), b"\r\n".to_vec()];
    for (header, piece) in [
        (format!("content-length: {SIZE}"), chunk.clone()),
        ("transfer-encoding: chunked".to_owned(), framed.concat()),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /hook HTTP/1.1\r\nhost: a\r\nmessage-id: 1\r\n{header}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..SIZE / chunk.len() {
            stream.write_all(&piece).await.unwrap();
        }
        if header.starts_with("transfer") {
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
        let reply = read_reply(&mut stream).await;
        assert_eq!((reply.status, reply.error().as_str()), (413, "TOO_LARGE"), "{header}");
    }
    let grown = peak_memory_kib() - before;
    // Parallel tests use some memory too; a held body would use all of its size.
    assert!(grown < 90 * 1024, "{grown} KiB for bodies that are refused");
}

#[tokio::test]
async fn a_length_that_is_too_large_is_refused_before_the_body_is_sent() {
    let (address, _stored) = ingest(bind(settings()).await);
    for more in ["", "expect: 100-continue\r\n"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /hook HTTP/1.1\r\nhost: a\r\nmessage-id: 1\r\n{more}content-length: 8388609\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 413");
    }
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_accepted() {
    let mut settings = settings();
    settings.body_max = 100_000;
    settings.buffered_max = 1;
    let (address, _stored) = ingest(bind(settings).await);
    let body = format!("{{}}{}", " ".repeat(99_998));
    assert_eq!(send(address, &post(&["message-id: 1"], body.as_bytes())).await.status, 202);
    let body = format!("{{}}{}", " ".repeat(99_999));
    assert_eq!(send(address, &post(&["message-id: 1"], body.as_bytes())).await.status, 413);
}

#[tokio::test]
async fn bodies_together_have_a_limit_too() {
    let mut settings = settings();
    settings.body_max = 1_000;
    settings.buffered_max = 1_500;
    let mut source = bind(settings).await;
    let address = source.local_addr();
    let body = format!("{:<1000}", "{}");
    let wire = move |id: &str| post(&[&format!("message-id: {id}")], body.as_bytes());
    let first = wire("1");
    let waiting = tokio::spawn(async move { send(address, &first).await });
    assert_eq!(source.next(1).await.unwrap().messages.len(), 1);
    let refused = send(address, &wire("2")).await;
    assert_eq!((refused.status, refused.error().as_str()), (503, "BUSY"));
    source.acknowledge(vec![AcceptOutcome::Stored]).await.unwrap();
    assert_eq!(waiting.await.unwrap().status, 202);
    let (address, _stored) = ingest(source);
    assert_eq!(send(address, &wire("2")).await.status, 202);
}

#[tokio::test]
async fn a_sender_that_is_too_slow_is_cut_off() {
    let mut settings = settings();
    settings.body_timeout = Duration::from_millis(50);
    settings.header_timeout = Duration::from_millis(50);
    let (address, mut stored) = ingest(bind(settings).await);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = b"POST /hook HTTP/1.1\r\nhost: a\r\nmessage-id: 1\r\ncontent-length: 9\r\n\r\n{";
    stream.write_all(head).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 408");
    for slow in [&b"POST /hook HTTP/1.1\r\nhost: a"[..], b"P", b""] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(slow).await.unwrap();
        assert!(read_reply(&mut stream).await.status != 202);
    }
    assert!(stored.try_recv().is_err());
}

#[tokio::test]
async fn a_slow_commit_asks_the_sender_to_send_again() {
    let mut settings = settings();
    settings.answer_timeout = Duration::from_millis(50);
    let source = bind(settings).await;
    let reply = send(source.local_addr(), &post(&["message-id: 1"], b"{}")).await;
    assert_eq!((reply.status, reply.error().as_str()), (503, "UNKNOWN"));
    assert!(reply.body.contains("same message id"));
}

#[tokio::test]
async fn a_sender_that_disconnects_loses_nothing() {
    let mut source = bind(settings()).await;
    let address = source.local_addr();
    let wire = post(&["message-id: 1"], b"{}");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&wire).await.unwrap();
    let batch = source.next(1).await.unwrap();
    drop(stream);
    assert_eq!(batch.messages[0].message_id, "1");
    source.acknowledge(vec![AcceptOutcome::Stored]).await.unwrap();
    let again = tokio::spawn(async move { send(address, &wire).await });
    source.next(1).await.unwrap();
    source.acknowledge(vec![AcceptOutcome::Duplicate]).await.unwrap();
    assert_eq!(again.await.unwrap().json()["status"], "duplicate");
}

#[tokio::test]
async fn a_batch_that_was_not_settled_is_sent_again_by_its_senders() {
    let mut source = bind(settings()).await;
    let address = source.local_addr();
    let wire = post(&["message-id: 1"], b"{}");
    let answer = tokio::spawn(async move { send(address, &wire).await });
    source.next(1).await.unwrap();
    let handle = source.close_handle();
    tokio::join!(handle.close(), async {
        assert!(matches!(source.next(1).await, Err(SourceError::Closed)));
    });
    assert_eq!(answer.await.unwrap().status, 503);
}

#[tokio::test]
async fn closing_answers_waiting_senders_and_accepts_no_new_ones() {
    let mut closed = bind(HttpSourceSettings { queue_max: 2, ..settings() }).await;
    let mut waiting = fill(&closed, 2).await;
    let address = closed.local_addr();
    let handle = closed.close_handle();
    tokio::join!(handle.close(), async {
        assert!(matches!(closed.next(1).await, Err(SourceError::Closed)));
    });
    while let Some(reply) = waiting.join_next().await {
        let reply = reply.unwrap();
        assert_eq!((reply.status, reply.error().as_str()), (503, "SHUTTING_DOWN"));
    }
    assert!(TcpStream::connect(address).await.is_err());

    let dropped = bind(HttpSourceSettings { queue_max: 2, ..settings() }).await;
    let mut waiting = fill(&dropped, 2).await;
    let (address, handle) = (dropped.local_addr(), dropped.close_handle());
    drop(dropped);
    while let Some(reply) = waiting.join_next().await {
        assert_eq!(reply.unwrap().error(), "SHUTTING_DOWN");
    }
    handle.close().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn input_that_is_not_http_is_refused() {
    let (address, mut stored) = ingest(bind(settings()).await);
    let long = format!("POST /hook HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(200_000));
    let many = format!("POST /hook HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(500));
    let smuggled = "POST /hook HTTP/1.1\r\nhost: a\r\nmessage-id: 1\r\ncontent-length: 2\r\n\
                    content-length: 3\r\n\r\n{}";
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01"[..],
        b"\r\n\r\n\r\n\r\n \x00\r\n\r\n",
        b"POST\r\n\r\n",
        b"POST /hook HTTP/9.9\r\n\r\n",
        b"POST /hook HTTP/1.1\r\nmessage-id : 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /hook HTTP/1.1\r\nmessage-id: 1\r\ncontent-length: -2\r\n\r\n{}",
        b"POST /hook HTTP/1.1\r\nmessage-id: 1\r\ncontent-length: 99999999999999999999\r\n\r\n{}",
        b"POST /hook HTTP/1.1\r\nmessage-id: 1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
        smuggled.as_bytes(),
        long.as_bytes(),
        many.as_bytes(),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let status = read_reply(&mut stream).await.status;
        assert!(status == 0 || (400..500).contains(&status), "{status}");
    }
    assert!(stored.try_recv().is_err());
    assert_eq!(send(address, &post(&["message-id: 1"], b"{}")).await.status, 202);
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let (address, _stored) = ingest(bind(settings()).await);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for n in 0..3 {
        let url = format!("http://{address}/hook");
        let request = client.post(url).header("message-id", n.to_string()).body("{}");
        assert_eq!(request.send().await.unwrap().status(), 202);
    }
}

#[tokio::test]
async fn invalid_settings_are_refused_with_advice() {
    let mut position = settings();
    position.mapping.message_id = "position".parse().unwrap();
    let mut secret = settings();
    secret.mapping.message_id = "header:Authorization".parse().unwrap();
    let mut unnamed = settings();
    unnamed.name = String::new();
    for (wrong, word) in [(position, "header:NAME"), (secret, "never stored"), (unnamed, "name")] {
        let error = HttpSource::bind(wrong).await.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let first = bind(settings()).await;
    let mut taken = settings();
    taken.listen = first.local_addr();
    let error = HttpSource::bind(taken).await.unwrap_err().to_string();
    assert!(error.contains("use another address"), "{error}");
}
