//! A target of HTTP requests that answers 204 to each and does nothing else.
//!
//! It has a thread of its own, so that it takes no turn of the runtime that is measured.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";
const LENGTH: &str = "content-length:";
const READ_BYTES: usize = 16 * 1024;

/// Starts the target; it lives as long as the program.
pub(crate) async fn start() -> Result<SocketAddr> {
    let (bound, address) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("target".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime for the target");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let _ = bound.send(listener.local_addr());
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    })?;
    address.await.context("the target did not start")?.context("the target has no address")
}

/// Answers the requests of one connection until the client closes it.
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut unread, mut piece) = (Vec::new(), vec![0; READ_BYTES]);
    loop {
        while let Some(length) = whole_request(&unread) {
            unread.drain(..length);
            stream.write_all(ANSWER).await?;
        }
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        unread.extend_from_slice(&piece[..count]);
    }
}

/// Returns the length of the first request, if all of it is there.
fn whole_request(bytes: &[u8]) -> Option<usize> {
    let headers = bytes.windows(END_OF_HEADERS.len()).position(|part| part == END_OF_HEADERS)?;
    let text = std::str::from_utf8(&bytes[..headers]).ok()?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix(LENGTH))?.trim().parse::<usize>();
    let whole = headers + END_OF_HEADERS.len() + length.ok()?;
    (bytes.len() >= whole).then_some(whole)
}
