//! Bodies: read with a limit; sent in chunks, compressed, slowly or truncated.

use std::{
    io::{self, Write},
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::stream;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};

use crate::reply::Pieces;

pub(crate) type WireBody = UnsyncBoxBody<Bytes, io::Error>;

/// A refused upload is still read up to this size, so that the client sees the response.
const DISCARD_MAX: u64 = 512 * 1024 * 1024;
/// Bytes per write of a slow body.
const SLOW_PIECES_PER_SECOND: u64 = 10;

/// The reason why a request body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    TooLarge,
    /// The client disconnected.
    Broken,
}

/// Reads a whole body, at most `max` bytes.
pub(crate) async fn read(body: Incoming, max: u64) -> Result<Bytes, ReadError> {
    let announced = body.size_hint().lower();
    let mut body = body;
    let mut bytes = Vec::new();
    let mut too_large = announced > max;
    let mut total: u64 = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| ReadError::Broken)?.into_data() else { continue };
        total += data.len() as u64;
        too_large |= total > max;
        if total > DISCARD_MAX {
            break;
        }
        if too_large {
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    if too_large { Err(ReadError::TooLarge) } else { Ok(bytes.into()) }
}

pub(crate) fn empty() -> WireBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn full(bytes: Vec<u8>) -> WireBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn pieces(pieces: Pieces) -> WireBody {
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Returns the chunks of a body that ends early: cleanly, or with the connection.
pub(crate) fn cut(mut inner: Pieces, bytes: u64, broken: bool) -> WireBody {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut ended = false;
    let frames = std::iter::from_fn(move || {
        if ended {
            return None;
        }
        match inner.next() {
            Some(mut piece) if left > 0 => {
                piece.truncate(left);
                left -= piece.len();
                Some(Ok(Frame::data(piece)))
            }
            _ if broken => {
                ended = true;
                Some(Err(io::Error::other("the answer breaks off, as was asked for")))
            }
            _ => None,
        }
    });
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Limits the chunks to this many bytes per second.
pub(crate) fn slow(inner: Pieces, bytes_per_second: u64) -> WireBody {
    let size = usize::try_from(bytes_per_second / SLOW_PIECES_PER_SECOND).unwrap_or(usize::MAX);
    let size = size.max(1);
    let small = inner.flat_map(move |piece| {
        let starts = (0..piece.len()).step_by(size);
        let parts: Vec<Bytes> =
            starts.map(|start| piece.slice(start..piece.len().min(start + size))).collect();
        parts
    });
    let paced = stream::unfold(small, |mut small| async move {
        let piece = small.next()?;
        tokio::time::sleep(Duration::from_millis(1000 / SLOW_PIECES_PER_SECOND)).await;
        Some((Ok(Frame::data(piece)), small))
    });
    StreamBody::new(paced).boxed_unsync()
}

/// Compresses the chunks.
pub(crate) fn packed(inner: Pieces) -> Pieces {
    let mut encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut inner = inner;
    let packed = std::iter::from_fn(move || {
        while let Some(writer) = encoder.as_mut() {
            let Some(piece) = inner.next() else {
                let rest = encoder.take()?.finish().expect("memory takes every byte");
                return Some(rest.into());
            };
            writer.write_all(&piece).expect("memory takes every byte");
            if !writer.get_ref().is_empty() {
                return Some(std::mem::take(writer.get_mut()).into());
            }
        }
        None
    });
    Box::new(packed)
}
