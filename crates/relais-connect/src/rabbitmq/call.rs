//! The messages of one call. Each round sends the next message of every key and waits for the
//! confirms; so a refused message never has a successor of its key behind it.
//!
//! Invariant: a channel belongs to one round at a time. The library attaches returned messages to any
//! confirm of the channel, so they are found again by their message id, within the round. A channel
//! with unanswered messages is dropped.

use std::collections::HashMap;

use lapin::{
    Channel, Confirmation, PublisherConfirm, message::BasicReturnMessage,
    options::BasicPublishOptions,
};
use relais_core::{delivery::Delivery, outbox::OutboxRow};
use tokio::time::Instant;

use super::{
    classify::{self, RabbitAddress, RabbitFailure, RabbitVerdict},
    connection::OpenConnection,
    outgoing::OutgoingMessage,
    publisher::RabbitPublisher,
};
use crate::key_rounds::{key_heads, prepared};

/// A message that cannot be routed is returned before it is confirmed.
const MANDATORY: BasicPublishOptions = BasicPublishOptions { mandatory: true, immediate: false };
/// A client that waits for a direct reply is no queue: the broker would return every such message.
const DIRECT: BasicPublishOptions = BasicPublishOptions { mandatory: false, immediate: false };
/// Bytes of a frame besides its content.
const FRAME_OVERHEAD: usize = 64;

pub(super) struct RabbitPublishCall<'a> {
    publisher: &'a RabbitPublisher,
    rows: &'a [OutboxRow],
    messages: Vec<Option<OutgoingMessage<'a>>>,
    deliveries: Vec<Option<Delivery>>,
    deadline: Instant,
}

/// The end of a round for the messages without an answer.
enum RoundEnd {
    /// All are answered.
    Complete,
    /// The channel or the connection failed.
    Failed(RabbitFailure),
    /// The broker is blocked, or did not answer in time.
    Unanswered(Delivery),
}

impl<'a> RabbitPublishCall<'a> {
    pub(super) fn new(
        publisher: &'a RabbitPublisher,
        rows: &'a [OutboxRow],
        deadline: Instant,
    ) -> Self {
        let format = publisher.format();
        let (messages, deliveries) = prepared(rows, |row| format.message(row));
        Self { publisher, rows, messages, deliveries, deadline }
    }

    /// Sends the messages. Those that wait for a failed one of their key, or for which there was no
    /// time, are not tried.
    pub(super) async fn run(mut self) -> Vec<Delivery> {
        loop {
            let heads = key_heads(self.rows, &self.deliveries);
            if heads.is_empty() || (self.has_answers() && Instant::now() >= self.deadline) {
                break;
            }
            self.send_together(&heads).await;
        }
        self.deliveries.into_iter().map(|delivery| delivery.unwrap_or(Delivery::Held)).collect()
    }

    fn has_answers(&self) -> bool {
        self.deliveries.iter().any(Option::is_some)
    }

    /// Sends messages of different keys together. If one of them may be the cause of a failure, those
    /// without an answer are sent again, each alone.
    async fn send_together(&mut self, heads: &[usize]) {
        let RoundEnd::Failed(failure) = self.round(heads).await else { return };
        let open: Vec<usize> =
            heads.iter().copied().filter(|at| self.deliveries[*at].is_none()).collect();
        let address = self.publisher.address();
        let is_shared = match failure.verdict {
            RabbitVerdict::Outage | RabbitVerdict::Configuration => true,
            // The routing key may still be the cause of a refused permission.
            RabbitVerdict::Address => self.publisher.route() == RabbitAddress::Fixed,
            RabbitVerdict::Message | RabbitVerdict::Suspect => false,
        };
        if is_shared || open.len() == 1 {
            open.iter().for_each(|at| self.deliveries[*at] = Some(failure.delivery(address)));
            return;
        }
        for at in open {
            if Instant::now() >= self.deadline {
                return;
            }
            if let RoundEnd::Failed(failure) = self.round(&[at]).await {
                self.deliveries[at] = Some(failure.delivery(address));
                if failure.verdict == RabbitVerdict::Outage {
                    return;
                }
            }
        }
    }

    /// Sends these messages and records their answers. After a failure some have none.
    async fn round(&mut self, heads: &[usize]) -> RoundEnd {
        let end = match self.publisher.open(self.deadline).await {
            Ok(connection) => self.round_on(&connection, heads).await,
            Err(delivery) => RoundEnd::Unanswered(delivery),
        };
        if let RoundEnd::Unanswered(delivery) = &end {
            for at in heads {
                self.deliveries[*at].get_or_insert_with(|| delivery.clone());
            }
        }
        end
    }

    async fn round_on(&mut self, connection: &OpenConnection, heads: &[usize]) -> RoundEnd {
        if let Some(reason) = connection.blocked() {
            return RoundEnd::Unanswered(classify::blocked(&reason));
        }
        let heads = self.without_large_headers(heads, connection.frame_max());
        let mut answers = RoundAnswers::default();
        let exchanged = tokio::select! {
            biased;
            exchanged = self.exchange(connection, &heads, &mut answers) => Ok(exchanged),
            reason = connection.until_blocked() => Err(classify::blocked(&reason)),
            () = tokio::time::sleep_until(self.deadline) => Err(classify::timed_out()),
        };
        let route = self.publisher.route();
        for (at, confirmation) in answers.confirmed {
            let returned = answers.returned.get(&self.id(at));
            self.deliveries[at] = Some(match returned {
                Some(message) => classify::returned(message, route),
                None => delivery(&confirmation, route),
            });
        }
        match exchanged {
            Ok(Ok(channel)) => {
                connection.give_back(channel);
                RoundEnd::Complete
            }
            Ok(Err(error)) => RoundEnd::Failed(RabbitFailure::of(&error)),
            Err(delivery) => RoundEnd::Unanswered(delivery),
        }
    }

    /// Sends the messages and waits for their confirms. Returns the channel if all are answered.
    async fn exchange(
        &self,
        connection: &OpenConnection,
        heads: &[usize],
        answers: &mut RoundAnswers,
    ) -> lapin::Result<Channel> {
        let channel = connection.confirming().await?;
        let mut sent: Vec<(usize, PublisherConfirm)> = Vec::with_capacity(heads.len());
        let mut failed = None;
        for at in heads {
            let Some(message) = &self.messages[*at] else { continue };
            let (exchange, key) = (message.exchange.clone(), message.routing_key.clone());
            let properties = message.properties.clone();
            let options = if message.is_direct_reply() { DIRECT } else { MANDATORY };
            match channel.basic_publish(exchange, key, options, &message.body, properties).await {
                Ok(confirm) => sent.push((*at, confirm)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        // After a failure too: confirms that had arrived before it are answers.
        for (at, confirm) in sent {
            match confirm.await {
                Ok(confirmation) => answers.add(at, confirmation),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(channel), Err)
    }

    /// Rejects messages whose headers do not fit into a frame: the broker would close the connection.
    fn without_large_headers(&mut self, heads: &[usize], frame_max: usize) -> Vec<usize> {
        let limit = frame_max.saturating_sub(FRAME_OVERHEAD);
        let (fitting, large): (Vec<usize>, Vec<usize>) = heads.iter().partition(|at| {
            frame_max == 0
                || self.messages[**at].as_ref().is_none_or(|one| one.header_bytes <= limit)
        });
        for at in large {
            let why = format!(
                "the headers are too large; the broker accepts {limit} bytes (`frame_max`)"
            );
            self.deliveries[at] = Some(Delivery::reject("RABBITMQ_TOO_LARGE", &why));
        }
        fitting
    }

    fn id(&self, at: usize) -> String {
        self.rows[at].message_id.to_string()
    }
}

/// The answers of the broker in one round.
#[derive(Default)]
struct RoundAnswers {
    confirmed: Vec<(usize, Confirmation)>,
    /// By message id.
    returned: HashMap<String, BasicReturnMessage>,
}

impl RoundAnswers {
    fn add(&mut self, at: usize, confirmation: Confirmation) {
        let confirmation = match confirmation {
            Confirmation::Ack(Some(returned)) => {
                self.note_returned(returned);
                Confirmation::Ack(None)
            }
            Confirmation::Nack(Some(returned)) => {
                self.note_returned(returned);
                Confirmation::Nack(None)
            }
            other => other,
        };
        self.confirmed.push((at, confirmation));
    }

    fn note_returned(&mut self, message: BasicReturnMessage) {
        if let Some(id) = message.properties.message_id().as_ref() {
            self.returned.insert(id.as_str().to_owned(), message);
        }
    }
}

fn delivery(confirmation: &Confirmation, route: RabbitAddress) -> Delivery {
    match confirmation {
        Confirmation::Ack(_) => Delivery::Accepted,
        Confirmation::Nack(_) => classify::refused_by_queue(route),
        // Never so: the channel is in confirm mode.
        Confirmation::NotRequested => classify::timed_out(),
    }
}
