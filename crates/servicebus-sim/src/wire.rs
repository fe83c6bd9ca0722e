//! Frames of AMQP 1.0: bytes in, performatives out, and back. The types and their encoding are those of
//! fe2o3-amqp-types; the frames around them are ours.

use std::io;

use fe2o3_amqp_types::{
    messaging::{
        Body, Message,
        message::{__private::Serializable, DecodeIntoMessage},
    },
    performatives::Performative,
    primitives::Value,
    sasl::{SaslCode, SaslInit, SaslMechanisms, SaslOutcome},
};
use serde::{Deserialize, Serialize};
use serde_amqp::{de::Deserializer, read::IoReader};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::lenient;

const SASL_HEADER: &[u8; 8] = b"AMQP\x03\x01\x00\x00";
const AMQP_HEADER: &[u8; 8] = b"AMQP\x00\x01\x00\x00";
const TYPE_AMQP: u8 = 0;
const TYPE_SASL: u8 = 1;
/// The largest frame that we accept.
pub(crate) const FRAME_MAX: u32 = 65_536;

/// A message with any body.
pub(crate) type AnyMessage = Message<Body<Value>>;

/// One frame. Without a performative it only keeps the connection alive.
#[derive(Debug)]
pub(crate) struct WireFrame {
    pub(crate) channel: u16,
    pub(crate) performative: Option<Performative>,
    /// Bytes behind a transfer.
    pub(crate) payload: Vec<u8>,
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Exchanges the protocol headers; accepts SASL ANONYMOUS, PLAIN and EXTERNAL with any value, as Service
/// Bus does before claims are put.
pub(crate) async fn handshake<S>(stream: &mut S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    expect(stream, SASL_HEADER).await?;
    stream.write_all(SASL_HEADER).await?;
    let names = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"];
    let mechanisms =
        SaslMechanisms { sasl_server_mechanisms: names.map(Into::into).to_vec().into() };
    send(stream, TYPE_SASL, 0, &encode(&mechanisms)?).await?;
    stream.flush().await?;
    let (_, body) = read_raw(stream).await?;
    let _: SaslInit = serde_amqp::from_slice(&body).map_err(invalid)?;
    let outcome = SaslOutcome { code: SaslCode::Ok, additional_data: None };
    send(stream, TYPE_SASL, 0, &encode(&outcome)?).await?;
    stream.flush().await?;
    expect(stream, AMQP_HEADER).await?;
    stream.write_all(AMQP_HEADER).await?;
    stream.flush().await
}

async fn expect<S: AsyncRead + Unpin>(stream: &mut S, header: &[u8; 8]) -> io::Result<()> {
    let mut found = [0; 8];
    stream.read_exact(&mut found).await?;
    if &found == header { Ok(()) } else { Err(invalid(format!("protocol header {found:?}"))) }
}

async fn read_raw<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(u16, Vec<u8>)> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await?;
    let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let offset = u32::from(head[4]) * 4;
    if size > FRAME_MAX || size < offset || offset < 8 {
        return Err(invalid(format!("a frame of {size} bytes")));
    }
    let mut rest = vec![0; size as usize - 8];
    stream.read_exact(&mut rest).await?;
    Ok((u16::from_be_bytes([head[6], head[7]]), rest.split_off(offset as usize - 8)))
}

/// Reads the next frame.
pub(crate) async fn read_frame<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<WireFrame> {
    let (channel, body) = read_raw(stream).await?;
    if body.is_empty() {
        return Ok(WireFrame { channel, performative: None, payload: Vec::new() });
    }
    let mut rest = body.as_slice();
    let decoded = {
        let mut deserializer = Deserializer::new(IoReader::new(&mut rest));
        Performative::deserialize(&mut deserializer)
    };
    let performative = match decoded {
        Ok(performative) => performative,
        Err(error) => match lenient::rejection(&body) {
            Some(rejection) => Performative::Disposition(rejection),
            None => return Err(invalid(error)),
        },
    };
    Ok(WireFrame { channel, performative: Some(performative), payload: rest.to_vec() })
}

/// Returns the bytes of a performative.
pub(crate) fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_amqp::to_vec(value).map_err(invalid)
}

/// Writes a frame of AMQP; an empty body keeps the connection alive.
pub(crate) async fn write_frame<S: AsyncWrite + Unpin>(
    stream: &mut S,
    channel: u16,
    body: &[u8],
) -> io::Result<()> {
    send(stream, TYPE_AMQP, channel, body).await
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    kind: u8,
    channel: u16,
    body: &[u8],
) -> io::Result<()> {
    let size = u32::try_from(body.len() + 8).map_err(invalid)?;
    stream.write_all(&size.to_be_bytes()).await?;
    stream.write_all(&[2, kind]).await?;
    stream.write_all(&channel.to_be_bytes()).await?;
    stream.write_all(body).await
}

pub(crate) fn decode_message(bytes: &[u8]) -> io::Result<AnyMessage> {
    let reader = IoReader::new(bytes);
    <Body<Value>>::decode_message_from_reader(reader).map_err(invalid)
}

pub(crate) fn encode_message(message: &AnyMessage) -> io::Result<Vec<u8>> {
    serde_amqp::to_vec(&Serializable(message)).map_err(invalid)
}
