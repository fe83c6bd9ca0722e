//! The messages of one call. Each round sends the next message of every key and waits for the outcomes;
//! so a refused message never has a successor of its key behind it.

use std::time::Duration;

use fe2o3_amqp::{Sender, link::SendError};
use futures_util::future::join_all;
use relais_core::{delivery::Delivery, outbox::OutboxRow};
use tokio::time::{Instant, timeout_at};

use super::{
    classify::{self, AmqpAddress, AmqpFailure, AmqpVerdict},
    links::{SendingConnection, is_stale},
    outgoing::AmqpMessage,
    publisher::AmqpPublisher,
};
use crate::key_rounds::{key_heads, prepared};

/// Time to wait for credit: a broker that gives none is full.
const CREDIT_MAX: Duration = Duration::from_secs(5);

pub(super) struct AmqpPublishCall<'a> {
    publisher: &'a AmqpPublisher,
    rows: &'a [OutboxRow],
    messages: Vec<Option<AmqpMessage>>,
    deliveries: Vec<Option<Delivery>>,
    deadline: Instant,
}

/// The answers on one link.
#[derive(Default)]
struct LinkRound {
    answered: Vec<(usize, Delivery)>,
    /// The delivery of the others, if the broker did not answer in time.
    unanswered: Option<Delivery>,
    /// The failure of the link, which concerns the others.
    failure: Option<AmqpFailure>,
}

impl<'a> AmqpPublishCall<'a> {
    pub(super) fn new(
        publisher: &'a AmqpPublisher,
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
        let address = self.publisher.address();
        for (open, failure) in self.round(heads).await {
            let is_shared = match failure.verdict {
                AmqpVerdict::Outage
                | AmqpVerdict::Busy
                | AmqpVerdict::Full
                | AmqpVerdict::Configuration => true,
                // The link has one address, which is the cause for all its messages.
                AmqpVerdict::Address => true,
                AmqpVerdict::Message | AmqpVerdict::Suspect => false,
            };
            if is_shared || open.len() == 1 {
                open.iter().for_each(|at| self.deliveries[*at] = Some(failure.delivery(address)));
                continue;
            }
            self.send_alone(&open, address).await;
        }
    }

    async fn send_alone(&mut self, open: &[usize], address: AmqpAddress) {
        for at in open {
            if Instant::now() >= self.deadline {
                return;
            }
            for (_, failure) in self.round(&[*at]).await {
                self.deliveries[*at] = Some(failure.delivery(address));
                if failure.verdict == AmqpVerdict::Outage {
                    return;
                }
            }
        }
    }

    /// Sends these messages and records their answers. Returns those without one because their link
    /// failed.
    async fn round(&mut self, heads: &[usize]) -> Vec<(Vec<usize>, AmqpFailure)> {
        let connection = match self.publisher.open(self.deadline).await {
            Ok(connection) => connection,
            Err(delivery) => {
                for at in heads {
                    self.deliveries[*at].get_or_insert_with(|| delivery.clone());
                }
                return Vec::new();
            }
        };
        let groups = self.by_address(heads);
        let exchanges =
            groups.iter().map(|(address, heads)| self.exchange(&connection, address, heads));
        let rounds = join_all(exchanges).await;
        let mut failed = Vec::new();
        for ((_, heads), round) in groups.into_iter().zip(rounds) {
            for (at, delivery) in round.answered {
                self.deliveries[at] = Some(delivery);
            }
            let open: Vec<usize> =
                heads.into_iter().filter(|at| self.deliveries[*at].is_none()).collect();
            match (round.unanswered, round.failure) {
                (_, Some(failure)) if !open.is_empty() => failed.push((open, failure)),
                (Some(delivery), _) => {
                    open.iter().for_each(|at| self.deliveries[*at] = Some(delivery.clone()));
                }
                _ => {}
            }
        }
        failed
    }

    /// Groups the messages by their address, in order.
    fn by_address(&self, heads: &[usize]) -> Vec<(String, Vec<usize>)> {
        let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
        for at in heads {
            let Some(message) = &self.messages[*at] else { continue };
            match groups.iter_mut().find(|(address, _)| *address == message.address) {
                Some((_, heads)) => heads.push(*at),
                None => groups.push((message.address.clone(), vec![*at])),
            }
        }
        groups
    }

    /// Sends the messages of one address and waits for their outcomes.
    async fn exchange(
        &self,
        connection: &SendingConnection,
        address: &str,
        heads: &[usize],
    ) -> LinkRound {
        let (mut round, from) = (LinkRound::default(), self.publisher.address());
        let mut link = match timeout_at(self.deadline, connection.link(address)).await {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) => return LinkRound { failure: Some(failure), ..round },
            Err(_) => return LinkRound { unanswered: Some(classify::timed_out()), ..round },
        };
        let mut sent = Vec::with_capacity(heads.len());
        for at in heads {
            let Some(message) = &self.messages[*at] else { continue };
            let credit = self.deadline.min(Instant::now() + CREDIT_MAX);
            let mut sending = timeout_at(credit, link.send_batchable_ref(&message.sendable)).await;
            // The broker may have ended a link that waited for this call.
            if let Ok(Err(error)) = &sending
                && sent.is_empty()
                && is_stale(error)
                && connection.is_usable()
                && let Ok(Ok(fresh)) = timeout_at(credit, connection.link(address)).await
            {
                link = fresh;
                sending = timeout_at(credit, link.send_batchable_ref(&message.sendable)).await;
            }
            match sending {
                Ok(Ok(settlement)) => sent.push((*at, settlement)),
                Ok(Err(error)) => match classify::of_one_message(&error) {
                    Some(delivery) => round.answered.push((*at, delivery)),
                    None => {
                        round.failure = Some(AmqpFailure::of_send(&error));
                        break;
                    }
                },
                Err(_) => {
                    round.unanswered = Some(classify::no_credit(from));
                    break;
                }
            }
        }
        for (at, settlement) in sent {
            match timeout_at(self.deadline, settlement).await {
                Ok(Ok(outcome)) => round.answered.push((at, classify::outcome(&outcome, from))),
                Ok(Err(error)) => round.fail(&error),
                Err(_) => drop(round.unanswered.get_or_insert_with(classify::timed_out)),
            }
        }
        round.keep(connection, address, link);
        round
    }
}

impl LinkRound {
    fn fail(&mut self, error: &SendError) {
        self.failure.get_or_insert_with(|| AmqpFailure::of_send(error));
    }

    /// Keeps a link that is free of unanswered messages.
    fn keep(&self, connection: &SendingConnection, address: &str, link: Sender) {
        if self.failure.is_none() && self.unanswered.is_none() {
            connection.give_back(address, link);
        }
    }
}
