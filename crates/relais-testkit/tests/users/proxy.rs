//! The effect of each fault on a caller and on the server.

use std::{io, net::SocketAddr, time::Duration};

use relais_testkit::proxy::{Fault, FaultProxy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A server that answers each byte with the next one, and reports to the test what it got.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (report, got) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let report = report.clone();
            tokio::spawn(async move {
                while let Ok(byte) = stream.read_u8().await {
                    report.send(byte).ok();
                    stream.write_u8(byte + 1).await.ok();
                }
            });
        }
    });
    (address, got)
}

async fn ask(stream: &mut TcpStream, byte: u8) -> io::Result<u8> {
    stream.write_u8(byte).await?;
    stream.read_u8().await
}

#[tokio::test]
async fn without_a_fault_bytes_are_forwarded_and_counted() {
    let (address, _got) = server().await;
    let proxy = FaultProxy::to(address).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut stream, 1).await.unwrap(), 2);
    proxy.set(Fault::Delay(Duration::from_millis(1)));
    assert_eq!(ask(&mut stream, 3).await.unwrap(), 4);
    let traffic = proxy.traffic();
    assert_eq!((traffic.connections, traffic.requests, traffic.replies), (1, 2, 2));
}

#[tokio::test]
async fn a_dropped_reply_was_asked_for_and_is_never_heard() {
    let (address, mut got) = server().await;
    let proxy = FaultProxy::to(address).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.set(Fault::DropReplies);
    let error = ask(&mut stream, 7).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(got.recv().await, Some(7), "the server did it");
    assert_eq!(proxy.traffic().dropped, 1);
    proxy.set(Fault::None);
    let mut again = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut again, 7).await.unwrap(), 8);
}

#[tokio::test]
async fn a_black_hole_says_nothing_and_gives_back_what_it_held() {
    let (address, mut got) = server().await;
    let proxy = FaultProxy::to(address).await.unwrap();
    proxy.set(Fault::BlackHole);
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_u8(5).await.unwrap();
    let mut byte = [0];
    let silent = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut byte)).await;
    assert!(silent.is_err(), "neither an answer nor an end");
    assert!(got.try_recv().is_err(), "the server got nothing");
    proxy.set(Fault::None);
    assert_eq!(stream.read_u8().await.unwrap(), 6);
}

#[tokio::test]
async fn a_cut_ends_and_a_reset_breaks_open_and_new_connections() {
    let (address, _got) = server().await;
    let proxy = FaultProxy::to(address).await.unwrap();
    for (fault, end) in [(Fault::Cut, Ok(0)), (Fault::Reset, Err(io::ErrorKind::ConnectionReset))] {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut stream, 1).await.unwrap(), 2);
        proxy.set(fault);
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.map_err(|error| error.kind()), end, "{fault:?}");
        // A new one may be refused, or end at once.
        if let Ok(mut new) = TcpStream::connect(proxy.address()).await {
            assert!(ask(&mut new, 1).await.is_err(), "{fault:?}");
        }
        proxy.set(Fault::None);
    }
}

#[tokio::test]
async fn an_unavailable_server_is_an_end_and_a_dropped_proxy_takes_its_connections_along() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = FaultProxy::to(closed).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(ask(&mut stream, 1).await.is_err());

    let (address, _got) = server().await;
    let proxy = FaultProxy::to(address).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut stream, 1).await.unwrap(), 2);
    drop(proxy);
    assert!(ask(&mut stream, 1).await.is_err());
}
