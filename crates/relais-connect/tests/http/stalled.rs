//! Senders that stop in the middle of a body.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::common::{bind, ingest, post, send, settings};

async fn from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sends all of a body except its last byte.
async fn stall(mut stream: TcpStream, bytes: usize) -> TcpStream {
    let head = format!(
        "POST /hook HTTP/1.1\r\nhost: a\r\nmessage-id: s\r\ncontent-length: {bytes}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A refused sender may find its connection closed.
    let _ = stream.write_all(&vec![b' '; bytes - 1]).await;
    stream
}

#[tokio::test]
async fn stalled_bodies_of_one_address_leave_room_for_those_of_others() {
    let mut settings = settings();
    settings.body_max = 1_000;
    settings.buffered_max = 4_000;
    settings.body_pause_max = Duration::from_secs(600);
    settings.body_timeout = Duration::from_secs(600);
    let (address, _stored) = ingest(bind(settings).await);
    let mut stalled = Vec::new();
    for _ in 0..6 {
        stalled.push(stall(from(2, address).await, 1_000).await);
    }
    // Two bodies use up the share of one address; the others were refused.
    for stream in &mut stalled[2..] {
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 503");
    }
    for n in 0..3 {
        let body = format!("{:<1000}", "{}");
        let wire = post(&[&format!("message-id: {n}")], body.as_bytes());
        assert_eq!(send(address, &wire).await.status, 202);
    }
}

#[tokio::test]
async fn a_stalled_body_is_cut_off_before_its_time_limit() {
    let mut settings = settings();
    settings.body_pause_max = Duration::from_millis(50);
    settings.body_timeout = Duration::from_secs(600);
    let (address, mut stored) = ingest(bind(settings).await);
    let mut stream = stall(from(2, address).await, 100).await;
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 408");
    assert!(stored.try_recv().is_err());
}
