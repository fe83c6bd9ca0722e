//! Raw records on the wire, which no client library would send.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// One record in its own batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRecord {
    pub(crate) value: Vec<u8>,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) timestamp: i64,
    /// 0 is none; Kafka knows up to 4.
    pub(crate) codec: i16,
    pub(crate) damage: Damage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Damage {
    #[default]
    None,
    /// A wrong checksum.
    Checksum,
}

/// Sends the record to the leader of a partition. Returns the broker's error code.
pub(crate) async fn produce(broker: &str, topic: &str, partition: i32, record: &RawRecord) -> i16 {
    let batch = batch(record);
    let mut body = Vec::new();
    body.extend(0_i16.to_be_bytes()); // Produce
    body.extend(3_i16.to_be_bytes()); // version
    body.extend(7_i32.to_be_bytes()); // correlation id
    string(&mut body, "raw");
    body.extend((-1_i16).to_be_bytes()); // no transaction
    body.extend((-1_i16).to_be_bytes()); // acks
    body.extend(10_000_i32.to_be_bytes()); // timeout
    body.extend(1_i32.to_be_bytes()); // topics
    string(&mut body, topic);
    body.extend(1_i32.to_be_bytes()); // partitions
    body.extend(partition.to_be_bytes());
    body.extend(length(&batch).to_be_bytes());
    body.extend(&batch);
    let mut stream = TcpStream::connect(broker).await.unwrap();
    stream.write_all(&length(&body).to_be_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let size = stream.read_i32().await.unwrap();
    let mut answer = vec![0; usize::try_from(size).unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    // Correlation id, one topic with its name, one partition with its number, then the error.
    let at = 4 + 4 + 2 + topic.len() + 4 + 4;
    i16::from_be_bytes([answer[at], answer[at + 1]])
}

fn batch(record: &RawRecord) -> Vec<u8> {
    let mut one = vec![0]; // attributes
    varint(&mut one, 0); // timestamp delta
    varint(&mut one, 0); // offset delta
    varint(&mut one, -1); // no key
    bytes(&mut one, &record.value);
    varint(&mut one, i64::try_from(record.headers.len()).unwrap());
    for (name, value) in &record.headers {
        bytes(&mut one, name);
        bytes(&mut one, value);
    }
    let mut summed = Vec::new();
    summed.extend(record.codec.to_be_bytes()); // attributes
    summed.extend(0_i32.to_be_bytes()); // last offset delta
    summed.extend(record.timestamp.to_be_bytes()); // first
    summed.extend(record.timestamp.to_be_bytes()); // last
    summed.extend((-1_i64).to_be_bytes()); // no producer id
    summed.extend((-1_i16).to_be_bytes());
    summed.extend((-1_i32).to_be_bytes());
    summed.extend(1_i32.to_be_bytes()); // records
    bytes(&mut summed, &one);
    let checksum = crc32c(&summed) ^ u32::from(record.damage == Damage::Checksum);
    let mut batch = Vec::new();
    batch.extend(0_i64.to_be_bytes()); // base offset
    batch.extend((length(&summed) + 9).to_be_bytes());
    batch.extend(0_i32.to_be_bytes()); // leader epoch
    batch.push(2); // the version of the format
    batch.extend(checksum.to_be_bytes());
    batch.extend(summed);
    batch
}

fn length(bytes: &[u8]) -> i32 {
    i32::try_from(bytes.len()).unwrap()
}

fn string(to: &mut Vec<u8>, text: &str) {
    to.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
    to.extend(text.as_bytes());
}

fn bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    varint(to, i64::from(length(bytes)));
    to.extend(bytes);
}

fn varint(to: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag > 0x7f {
        to.push(u8::try_from(zigzag & 0x7f).unwrap() | 0x80);
        zigzag >>= 7;
    }
    to.push(u8::try_from(zigzag).unwrap());
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 }
        })
    })
}
