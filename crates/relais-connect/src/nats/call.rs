//! The messages of one call. Each round sends the next message of every key and waits for the
//! acknowledgements; so a refused message never has a successor of its key behind it.

use std::{collections::HashMap, time::Duration};

use async_nats::{Message, Request, RequestError, RequestErrorKind};
use futures_util::{StreamExt, stream::FuturesUnordered};
use relais_core::{delivery::Delivery, outbox::OutboxRow};
use tokio::time::Instant;

use super::{
    api::{self, PublishAnswer},
    classify::{self, NatsFailure},
    connection::OpenNatsConnection,
    outgoing::SubjectMessage,
    publisher::NatsPublisher,
};
use crate::key_rounds::{key_heads, prepared};

/// The time after which an answer is late enough to ask whether the subject of a message has a stream.
const DOUBT_AFTER: Duration = Duration::from_secs(2);

pub(super) struct NatsPublishCall<'a> {
    publisher: &'a NatsPublisher,
    rows: &'a [OutboxRow],
    messages: Vec<Option<SubjectMessage>>,
    deliveries: Vec<Option<Delivery>>,
    deadline: Instant,
}

/// The end of a round for the messages without an answer.
enum NatsRoundEnd {
    Complete,
    /// The connection is lost.
    Lost(NatsFailure),
    /// The server did not answer in time.
    TimedOut,
}

impl<'a> NatsPublishCall<'a> {
    pub(super) fn new(
        publisher: &'a NatsPublisher,
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
            let has_answers = self.deliveries.iter().any(Option::is_some);
            if heads.is_empty() || (has_answers && Instant::now() >= self.deadline) {
                break;
            }
            self.round(&heads).await;
        }
        self.deliveries.into_iter().map(|delivery| delivery.unwrap_or(Delivery::Held)).collect()
    }

    async fn round(&mut self, heads: &[usize]) {
        let connection = match self.publisher.open(self.deadline).await {
            Ok(connection) => connection,
            Err(failure) => return self.fail(heads, &failure),
        };
        let mut unroutable = Vec::new();
        match self.exchange(&connection, heads, &mut unroutable).await {
            NatsRoundEnd::Complete => {}
            NatsRoundEnd::Lost(failure) => self.fail(heads, &failure),
            NatsRoundEnd::TimedOut => {
                // Its late answers belong to nothing.
                self.publisher.forget(&connection);
                self.fail(heads, &NatsFailure::timed_out());
            }
        }
        self.explain_unroutable(&connection, &unroutable).await;
    }

    /// Sends messages and records the answers. Those without a stream are returned in `unroutable`.
    async fn exchange(
        &mut self,
        connection: &OpenNatsConnection,
        heads: &[usize],
        unroutable: &mut Vec<usize>,
    ) -> NatsRoundEnd {
        let mut refusals = connection.refusals();
        let doubt = Instant::now() + DOUBT_AFTER;
        let mut in_doubt = true;
        let mut sending: FuturesUnordered<_> = heads
            .iter()
            .filter_map(|at| Some((*at, self.messages[*at].as_ref()?)))
            .map(|(at, message)| {
                let (headers, body) = (message.headers.clone(), message.body.clone());
                let request = Request::new().headers(headers).payload(body).timeout(None);
                let (client, subject) = (connection.client(), message.subject.clone());
                async move { (at, client.send_request(subject, request).await) }
            })
            .collect();
        loop {
            tokio::select! {
                biased;
                answered = sending.next() => match answered {
                    None => return NatsRoundEnd::Complete,
                    Some((at, Err(error))) if error.kind() == RequestErrorKind::NoResponders => {
                        unroutable.push(at);
                        // Keeps the key busy; `explain_unroutable` replaces it.
                        self.deliveries[at] = Some(Delivery::Held);
                    }
                    Some((at, answer)) => {
                        let delivery = self.delivery(answer);
                        self.deliveries[at].get_or_insert(delivery);
                    }
                },
                (subjects, newest) = connection.refused_after(refusals) => {
                    refusals = newest;
                    self.refuse(heads, &subjects);
                    if heads.iter().all(|at| self.deliveries[*at].is_some()) {
                        return NatsRoundEnd::Complete;
                    }
                }
                reason = connection.until_lost() => {
                    return NatsRoundEnd::Lost(NatsFailure::lost(&reason));
                }
                () = tokio::time::sleep_until(doubt), if in_doubt => {
                    in_doubt = false;
                    self.fail_without_stream(connection, heads).await;
                    if heads.iter().all(|at| self.deliveries[*at].is_some()) {
                        return NatsRoundEnd::Complete;
                    }
                }
                () = tokio::time::sleep_until(self.deadline) => return NatsRoundEnd::TimedOut,
            }
        }
    }

    /// Fails messages that wait for an answer on a subject without a stream: a program that listens
    /// to it gets them and acknowledges nothing.
    async fn fail_without_stream(&mut self, connection: &OpenNatsConnection, heads: &[usize]) {
        let address = self.publisher.address();
        let mut known: HashMap<String, bool> = HashMap::new();
        for at in
            heads.iter().filter(|at| self.deliveries[**at].is_none()).copied().collect::<Vec<_>>()
        {
            let Some(message) = &self.messages[at] else { continue };
            let subject = message.subject.as_str();
            let is_without = match known.get(subject) {
                Some(is_without) => *is_without,
                None => {
                    let asking = api::streams_of(connection, subject);
                    let answer = tokio::time::timeout_at(self.deadline, asking).await;
                    // Otherwise it has a stream, or JetStream does not answer either.
                    matches!(answer, Ok(Ok(streams)) if streams.is_empty())
                }
            };
            known.insert(subject.to_owned(), is_without);
            if is_without {
                let failure = classify::unacknowledged(subject);
                self.deliveries[at] = Some(failure.delivery(address));
            }
        }
    }

    fn delivery(&self, answer: Result<Message, RequestError>) -> Delivery {
        let address = self.publisher.address();
        let message = match answer {
            Ok(message) => message,
            Err(error) => return NatsFailure::of_request(&error).delivery(address),
        };
        match serde_json::from_slice(&message.payload) {
            Ok(PublishAnswer { error: Some(error), .. }) => {
                NatsFailure::of_answer(&error).delivery(address)
            }
            // A duplicate too: the stream has the message.
            Ok(PublishAnswer { stream: Some(_), .. }) => Delivery::Accepted,
            // A subscriber without a stream has answered.
            _ => NatsFailure::unreadable(&message.payload).delivery(address),
        }
    }

    /// Records refused permissions of messages without an answer.
    fn refuse(&mut self, heads: &[usize], subjects: &[String]) {
        let address = self.publisher.address();
        for at in
            heads.iter().filter(|at| self.deliveries[**at].is_none()).copied().collect::<Vec<_>>()
        {
            let subject = self.messages[at].as_ref().map(|message| message.subject.as_str());
            if let Some(subject) =
                subject.filter(|one| subjects.iter().any(|refused| refused == one))
            {
                self.deliveries[at] = Some(NatsFailure::forbidden(subject).delivery(address));
            }
        }
    }

    fn fail(&mut self, heads: &[usize], failure: &NatsFailure) {
        let delivery = failure.delivery(self.publisher.address());
        for at in heads {
            self.deliveries[*at].get_or_insert_with(|| delivery.clone());
        }
    }

    /// Asks for the streams of subjects that did not answer: without one a message is unroutable;
    /// with one, or if JetStream does not answer either, it is an outage.
    async fn explain_unroutable(&mut self, connection: &OpenNatsConnection, unroutable: &[usize]) {
        let mut known: HashMap<String, Delivery> = HashMap::new();
        for at in unroutable {
            let Some(message) = &self.messages[*at] else { continue };
            let subject = message.subject.clone();
            let delivery = match known.get(&subject) {
                Some(delivery) => delivery.clone(),
                None => self.explain(connection, &subject).await,
            };
            known.insert(subject, delivery.clone());
            self.deliveries[*at] = Some(delivery);
        }
    }

    async fn explain(&self, connection: &OpenNatsConnection, subject: &str) -> Delivery {
        let asking = api::streams_of(connection, subject);
        match tokio::time::timeout_at(self.deadline, asking).await {
            Ok(Ok(streams)) => match streams.first() {
                None => classify::unroutable(subject).delivery(self.publisher.address()),
                Some(stream) => classify::without_leader(stream),
            },
            Ok(Err(failure)) => failure.delivery(self.publisher.address()),
            Err(_) => NatsFailure::timed_out().delivery(self.publisher.address()),
        }
    }
}
