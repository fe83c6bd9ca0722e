//! The contract of connectors: one list of checks for every source and every publisher.
//!
//! A connector implements [`SourceFixture`] or [`PublisherFixture`] for its real server and calls
//! [`source_contract!`](crate::source_contract) or [`publisher_contract!`](crate::publisher_contract).
//! A fixture stands for one queue, topic or address of its own, so that tests do not meet.
//!
//! Invariant: no check asserts a time. What must happen is awaited, at most [`LONG`].

mod publisher;
mod source;

use std::{future::Future, time::Duration};

use relais_core::{
    async_trait,
    message::Headers,
    outbox::{OutboxRow, OutboxStatus},
    publisher::Publisher,
    source::Source,
};
use uuid::Uuid;

pub use publisher::*;
pub use source::*;

use crate::proxy::FaultProxy;

/// The longest wait for something that must happen.
pub const LONG: Duration = Duration::from_secs(60);

/// A message as the server has it, whatever its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireMessage {
    /// The message id, where the protocol or the format has its place.
    pub id: String,
    /// The ordering key.
    pub key: String,
    /// Other headers. Values are bytes.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

impl WireMessage {
    /// Returns a message with this id, key and body.
    pub fn new(id: &str, key: &str, body: &[u8]) -> Self {
        Self { id: id.to_owned(), key: key.to_owned(), headers: Vec::new(), body: body.to_vec() }
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// A place at a server that sources read.
#[async_trait]
pub trait SourceFixture: Send + Sync {
    /// Returns a new source of this place. Its mapping takes the message id from `message-id` and the
    /// aggregate id from the key. It connects through [`SourceFixture::proxy`].
    async fn source(&self) -> Box<dyn Source>;

    /// Sends messages to this place, in order, without relais. Returns when the server has them.
    async fn send(&self, messages: &[WireMessage]);

    /// Returns the network between source and server.
    fn proxy(&self) -> &FaultProxy;

    /// Returns the size of a body that is larger than a usual batch of the source, and still allowed.
    fn large_body(&self) -> usize {
        512 * 1024
    }

    /// Returns whether headers can hold any bytes.
    fn has_binary_headers(&self) -> bool {
        true
    }

    /// Returns whether a message without a body means something, as a tombstone does. It is undecodable
    /// otherwise.
    fn has_empty_messages(&self) -> bool {
        true
    }

    /// Returns whether the source implements [`Source::read_ahead`].
    fn reads_ahead(&self) -> bool {
        false
    }
}

/// A place at a server that publishers write to.
#[async_trait]
pub trait PublisherFixture: Send + Sync {
    /// Returns a new publisher for this place. It connects through [`PublisherFixture::proxy`].
    async fn publisher(&self) -> Box<dyn Publisher>;

    /// Returns a publisher for an address at which no server listens.
    async fn unreachable(&self) -> Box<dyn Publisher>;

    /// Waits until this place has received `count` different messages; returns all in order.
    async fn received(&self, count: usize) -> Vec<WireMessage>;

    /// Returns the network between publisher and server.
    fn proxy(&self) -> &FaultProxy;

    /// Returns the size of a payload that the server refuses.
    fn oversized(&self) -> usize;

    /// Returns a part of the code with which it is refused.
    fn oversized_code(&self) -> &'static str {
        "TOO_LARGE"
    }

    /// Returns a row that no receiver gets, if the protocol knows that; the others of its call are
    /// delivered.
    fn unroutable(&self, number: usize) -> Option<OutboxRow>;
}

/// Returns a row with this number as message id, and this key.
pub fn outbox_row(number: usize, key: &str) -> OutboxRow {
    let id = u128::try_from(number).unwrap_or_default() + 1;
    OutboxRow {
        id: i64::try_from(number).unwrap_or_default(),
        message_id: Uuid::from_u128(id),
        category: relais_core::message::Category::Event,
        aggregate_type: "Order".to_owned(),
        aggregate_id: key.to_owned(),
        event_type: "OrderCreated".to_owned(),
        event_version: 1,
        payload: format!("{{\"number\": {number}}}"),
        headers: Headers::default(),
        destination: "orders".to_owned(),
        msg_key: key.to_owned(),
        lane: 0,
        created_at: relais_core::time::Timestamp::from_millis(1_794_744_000_123),
        status: OutboxStatus::Pending,
        attempts: 0,
        lost_workers: 0,
        next_attempt_at: None,
        dispatched_at: None,
        job_id: None,
        causation_id: None,
        correlation_id: None,
        error_code: None,
        error_message: None,
    }
}

/// Waits for something that must happen.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, happens).await {
        Ok(value) => value,
        Err(_) => panic!("it did not happen in {LONG:?}: {what}"),
    }
}

/// Runs every check of a source: `source_contract!(fixture)`, where `fixture()` returns a future of
/// `Option<impl SourceFixture>`; `None` leaves the checks out, because there is no server.
#[macro_export]
macro_rules! source_contract {
    ($fixture:path) => {
        $crate::connector_checks! { $fixture:
            messages_without_acknowledgement_arrive_again,
            acknowledged_messages_do_not_arrive_again,
            a_refused_batch_is_returned_again,
            a_batch_read_ahead_follows_the_one_before,
            a_cancelled_next_loses_nothing,
            messages_of_a_key_keep_their_order,
            ids_headers_and_bodies_arrive_byte_for_byte,
            undecodable_and_empty_bodies_are_messages,
            a_large_body_arrives_whole,
            several_sources_share_the_messages,
            a_cut_connection_loses_nothing,
            a_paused_source_continues,
            a_closed_source_gives_its_messages_back,
        }
    };
}

/// Runs every check of a publisher: `publisher_contract!(fixture)`, where `fixture()` returns a future
/// of `Option<impl PublisherFixture>`; `None` leaves the checks out, because there is no server.
#[macro_export]
macro_rules! publisher_contract {
    ($fixture:path) => {
        $crate::connector_checks! { $fixture:
            accepted_messages_have_arrived,
            a_message_has_its_id_key_headers_and_payload,
            messages_of_a_key_arrive_in_order,
            an_oversized_message_is_rejected_and_the_others_arrive,
            an_unroutable_message_is_rejected_and_the_others_arrive,
            no_message_passes_a_rejected_one_of_its_key,
            without_a_server_every_message_is_an_outage,
            a_cut_connection_is_an_outage_and_the_retry_arrives_in_order,
            a_closed_publisher_has_delivered_everything,
        }
    };
}

/// Writes one test for each check.
#[doc(hidden)]
#[macro_export]
macro_rules! connector_checks {
    ($fixture:path: $($check:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $check() {
            if let Some(fixture) = $fixture().await {
                $crate::connector::$check(&fixture).await;
            }
        }
    )*};
}
