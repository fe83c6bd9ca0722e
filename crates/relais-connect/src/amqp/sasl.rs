//! SASL EXTERNAL: the client certificate of the TLS connection is the login.
//!
//! The client library does the other mechanisms. For this one it sends no initial response and knows no
//! challenge, which brokers answer with.

use std::io;

use fe2o3_amqp::connection::OpenError;
use fe2o3_amqp_types::{
    primitives::Binary,
    sasl::{SaslCode, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const HEADER: &[u8; 8] = b"AMQP\x03\x01\x00\x00";
/// The type of frames with SASL.
const FRAME_TYPE: u8 = 1;
/// The largest frame of SASL, by the protocol.
const FRAME_MAX: usize = 512;
/// Descriptors of frames.
const CHALLENGE: u8 = 0x42;
const OUTCOME: u8 = 0x44;
/// Challenges of one login, at most.
const CHALLENGES_MAX: usize = 4;
const NAME: &str = "EXTERNAL";

/// Logs in with the certificate of the connection.
pub(super) async fn external<S>(stream: &mut S) -> Result<(), OpenError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(HEADER).await?;
    let mut header = [0; 8];
    stream.read_exact(&mut header).await?;
    if &header != HEADER {
        return Err(OpenError::ProtocolHeaderMismatch(header.to_vec().into()));
    }
    let mechanisms: SaslMechanisms = decoded(&read(stream).await?)?;
    let mut offered = mechanisms.sasl_server_mechanisms.0.iter();
    if !offered.any(|name| name.as_str() == NAME) {
        return Err(OpenError::NotImplemented(Some(NAME.to_owned())));
    }
    let empty = || Binary::from(Vec::new());
    let init = SaslInit { mechanism: NAME.into(), initial_response: Some(empty()), hostname: None };
    write(stream, &encoded(&init)?).await?;
    for _ in 0..CHALLENGES_MAX {
        let frame = read(stream).await?;
        match frame.get(2) {
            Some(&CHALLENGE) => {
                write(stream, &encoded(&SaslResponse { response: empty() })?).await?;
            }
            Some(&OUTCOME) => {
                let SaslOutcome { code, additional_data } = decoded(&frame)?;
                return match code {
                    SaslCode::Ok => Ok(()),
                    code => Err(OpenError::SaslError { code, additional_data }),
                };
            }
            _ => break,
        }
    }
    Err(OpenError::DecodeError("an unexpected frame of SASL".to_owned()))
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, OpenError> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await?;
    let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let offset = usize::from(head[4]) * 4;
    if size > FRAME_MAX || offset < head.len() || size < offset {
        return Err(OpenError::DecodeError(format!("a frame of SASL with {size} bytes")));
    }
    let mut rest = vec![0; size - head.len()];
    stream.read_exact(&mut rest).await?;
    Ok(rest.split_off(offset - head.len()))
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, body: &[u8]) -> io::Result<()> {
    let size = u32::try_from(body.len() + 8).map_err(io::Error::other)?;
    let head = [&size.to_be_bytes()[..], &[2, FRAME_TYPE, 0, 0]].concat();
    stream.write_all(&[&head, body].concat()).await?;
    stream.flush().await
}

fn decoded<'a, T: serde::Deserialize<'a>>(frame: &'a [u8]) -> Result<T, OpenError> {
    serde_amqp::from_slice(frame).map_err(|error| OpenError::DecodeError(error.to_string()))
}

fn encoded(value: &impl serde::Serialize) -> Result<Vec<u8>, OpenError> {
    serde_amqp::to_vec(value).map_err(|error| OpenError::DecodeError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays the broker: offers these mechanisms, then answers with these frames.
    async fn login(offered: &[&str], answers: Vec<Vec<u8>>) -> Result<(), OpenError> {
        let (mut client, mut broker) = tokio::io::duplex(4_096);
        let names: Vec<_> = offered.iter().map(|name| (*name).into()).collect();
        let mechanisms = SaslMechanisms { sasl_server_mechanisms: names.into() };
        let playing = tokio::spawn(async move {
            let mut header = [0; 8];
            broker.read_exact(&mut header).await.unwrap();
            broker.write_all(HEADER).await.unwrap();
            write(&mut broker, &encoded(&mechanisms).unwrap()).await.unwrap();
            for answer in answers {
                read(&mut broker).await.unwrap();
                write(&mut broker, &answer).await.unwrap();
            }
        });
        let result = external(&mut client).await;
        drop(client);
        playing.await.unwrap();
        result
    }

    fn outcome(code: SaslCode) -> Vec<u8> {
        encoded(&SaslOutcome { code, additional_data: None }).unwrap()
    }

    #[tokio::test]
    async fn a_broker_may_ask_again_before_it_accepts() {
        let challenge = fe2o3_amqp_types::sasl::SaslChallenge { challenge: Binary::from(vec![]) };
        let challenge = encoded(&challenge).unwrap();
        assert!(login(&["PLAIN", NAME], vec![outcome(SaslCode::Ok)]).await.is_ok());
        assert!(login(&[NAME], vec![challenge, outcome(SaslCode::Ok)]).await.is_ok());
    }

    #[tokio::test]
    async fn a_refusal_and_a_missing_mechanism_are_different_errors() {
        let refused = login(&[NAME], vec![outcome(SaslCode::Auth)]).await;
        assert!(matches!(refused, Err(OpenError::SaslError { code: SaslCode::Auth, .. })));
        let missing = login(&["PLAIN"], Vec::new()).await;
        assert!(matches!(missing, Err(OpenError::NotImplemented(_))));
    }
}
