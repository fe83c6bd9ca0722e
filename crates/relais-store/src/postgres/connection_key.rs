//! The identity of a connection, which tokio-postgres keeps to itself.
//!
//! A request to cancel a query consists of it, so it is read from such a request, written to memory. Nothing
//! is sent, and no query is cancelled.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Client,
    tls::{ChannelBinding, TlsConnect, TlsStream},
};

/// The key by which a connection cancels its queries: the number of its process, and a random secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionKey {
    process_id: i32,
    secret: i32,
}

impl ConnectionKey {
    #[cfg(test)]
    pub(super) fn new(process_id: i32, secret: i32) -> Self {
        Self { process_id, secret }
    }

    /// Returns the key of a connection; `None` if the server gave none.
    pub(super) async fn of(client: &Client) -> Option<Self> {
        let mut written = Vec::new();
        let request = Memory { written: &mut written };
        client.cancel_token().cancel_query_raw(request, InMemory).await.ok()?;
        let [a, b, c, d, secret @ ..] = *written.last_chunk::<8>()?;
        let key = Self {
            process_id: i32::from_be_bytes([a, b, c, d]),
            secret: i32::from_be_bytes(secret),
        };
        (key.process_id != 0).then_some(key)
    }

    pub(super) fn process_id(self) -> i32 {
        self.process_id
    }
}

/// A stream that keeps what is written. It answers a request for encryption with yes.
struct Memory<'a> {
    written: &'a mut Vec<u8>,
}

impl AsyncRead for Memory<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for Memory<'_> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// A stream in memory instead of an encrypted one: nothing leaves the process.
struct InMemory;

impl<'a> TlsConnect<Memory<'a>> for InMemory {
    type Stream = Memory<'a>;
    type Error = Infallible;
    type Future = Ready<Result<Memory<'a>, Infallible>>;

    fn connect(self, stream: Memory<'a>) -> Self::Future {
        ready(Ok(stream))
    }
}
