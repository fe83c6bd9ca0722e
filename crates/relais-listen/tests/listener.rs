//! The listener with real connections: floods from one address, and TLS.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{Request, Response, body::Bytes};
use relais_listen::{ListenLimits, Peer, Tls, serve};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsConnector;

const LIMITS: ListenLimits = ListenLimits {
    connections_max: 64,
    per_address_max: 32,
    // No test waits for it.
    head_time: Duration::from_secs(600),
};
const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// Responds with whether the connection is encrypted. `/wait` is never answered.
async fn start(tls: Option<Tls>) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (closing, closed) = watch::channel(false);
    let answer = |peer: Peer, request: Request<_>| async move {
        if request.uri().path() == "/wait" {
            std::future::pending::<()>().await;
        }
        Response::new(Full::new(Bytes::from(format!("encrypted: {}", peer.encrypted))))
    };
    tokio::spawn(serve(listener, LIMITS, tls, closed, answer));
    (address, closing)
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    stream.write_all(ASK).await.unwrap();
    let mut text = Vec::new();
    // The server closes the connection without a TLS close_notify.
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn idle_connections_of_one_address_block_no_other_connection() {
    let (address, _open) = start(None).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Half a request head.
        let _ = stream.write_all(b"GET / HT").await;
        idle.push(stream);
    }
    let answer = ask(TcpStream::connect(address).await.unwrap()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn busy_connections_of_one_address_leave_room_for_others() {
    let (address, _open) = start(None).await;
    let from = |last: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(address)
    };
    let mut busy = Vec::new();
    for _ in 0..100 {
        if let Ok(mut stream) = from(2).await {
            let _ = stream.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await;
            busy.push(stream);
        }
    }
    let answer = ask(from(3).await.unwrap()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn write_certificate(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
}

/// Sends a request as a client that trusts only the certificate in the file.
async fn ask_encrypted(address: SocketAddr, certificate: &Path) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    Some(ask(stream).await)
}

#[tokio::test]
async fn a_new_certificate_is_loaded_while_the_listener_serves() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    write_certificate(folder.path());
    let tls = Tls::load(&certificate, &key).unwrap();
    let (address, _open) = start(Some(tls)).await;
    let answer = ask_encrypted(address, &certificate).await.unwrap();
    assert!(answer.contains("encrypted: true"), "{answer}");
    write_certificate(folder.path());
    let renewed = async {
        while ask_encrypted(address, &certificate).await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), renewed).await.expect("the new certificate");
}
