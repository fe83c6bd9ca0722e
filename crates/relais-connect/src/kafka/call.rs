//! One call: its messages are sent together; what is in doubt then is sent again, one by one.
//!
//! Invariant: of one key, a message is sent only while every earlier one of the call is accepted or
//! on its way before it in the same line. Whoever drops a call ends the line that has its messages.

use std::{collections::HashSet, sync::Arc, time::Duration};

use rdkafka::error::RDKafkaErrorCode as Code;
use relais_core::{
    delivery::{Delivery, Problem},
    fault::FailureKind,
    outbox::OutboxRow,
};
use tokio::time::Instant;

use super::{
    classify::{self, Verdict},
    line::{Line, Report, Tally, Trouble},
    publisher::KafkaPublisher,
    record::Record,
};

/// How long nothing may be acknowledged while no broker can be reached.
const DOWN_PATIENCE: Duration = Duration::from_secs(5);
/// The same while the brokers refuse us.
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);
/// The same once the producer has come to an end: what was under way is answered by then.
const FATAL_PATIENCE: Duration = Duration::from_millis(200);
/// How often a waiting call looks at its line.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long an ended line may take to report what it had.
const PURGE_MAX: Duration = Duration::from_secs(1);
/// Most lines of its own one call opens.
const LINES_ALONE_MAX: usize = 4;

pub(super) struct Call<'a> {
    publisher: &'a KafkaPublisher,
    rows: &'a [OutboxRow],
    /// None while in doubt.
    deliveries: Vec<Option<Delivery>>,
    /// Keys with a message that is not accepted: nothing of them is sent any more.
    blocked: HashSet<&'a str>,
    deadline: Instant,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        publisher: &'a KafkaPublisher,
        rows: &'a [OutboxRow],
        deadline: Instant,
    ) -> Self {
        let deliveries = vec![None; rows.len()];
        Self { publisher, rows, deliveries, blocked: HashSet::new(), deadline }
    }

    pub(super) async fn run(mut self) -> Vec<Delivery> {
        match self.together().await {
            Ok(()) => self.one_by_one().await,
            Err(problem) => self.give_up(&problem),
        }
        self.answers()
    }

    /// Sends everything, the first message of each key before the others: a broker that has nothing
    /// of this producer yet takes a batch although it has refused the one before it. Once it has, it
    /// refuses what follows. An error is one of the cluster, and ends the call.
    async fn together(&mut self) -> Result<(), Problem> {
        let line = self.publisher.line(self.deadline).await?;
        let mut seen = HashSet::with_capacity(self.rows.len());
        let is_first = |at: &usize| seen.insert(self.rows[*at].msg_key.as_str());
        let (first, others): (Vec<_>, Vec<_>) = (0..self.rows.len()).partition(is_first);
        for wave in [first, others] {
            let hand = Hand::new(Arc::clone(&line));
            self.hand_over(&hand, wave);
            let waited = self.wait(&hand).await;
            let clean = self.judge(hand.tally.take());
            if waited.is_err() || !clean {
                // Some errors mark the producer for good (a refused batch, an unknown topic), and
                // none is frequent: the next call begins with a new one.
                line.end();
                waited?;
                return self.publisher.until_ended(&line, self.deadline).await;
            }
        }
        Ok(())
    }

    /// Hands over what can be handed over; the rest stays in doubt.
    fn hand_over(&mut self, hand: &Hand, wave: Vec<usize>) {
        for at in wave {
            let key = self.rows[at].msg_key.as_str();
            if self.blocked.contains(key) {
                continue;
            }
            let Err(code) = self.send(hand, at) else { continue };
            match classify::verdict(code) {
                Verdict::Again => return,
                // The queue of the line is full: the others would not find room either.
                _ if code == Code::QueueFull => return,
                _ => {
                    self.blocked.insert(key);
                    self.deliveries[at] = Some(classify::delivery(code, self.publisher.topic()));
                }
            }
        }
    }

    fn send(&self, hand: &Hand, at: usize) -> Result<(), Code> {
        let record = Record::of(&self.rows[at], self.publisher.dress());
        hand.line.send(self.publisher.topic(), record, &hand.tally, at)
    }

    /// Waits for all reports. An error says why nothing more is to be expected.
    async fn wait(&self, hand: &Hand) -> Result<(), Problem> {
        while hand.tally.awaited() > 0 {
            let now = Instant::now();
            let trouble = hand.line.trouble();
            let quiet = now.saturating_duration_since(hand.tally.last());
            if quiet >= FATAL_PATIENCE && trouble.as_ref().is_some_and(|trouble| trouble.fatal) {
                // librdkafka purges what waits, but not what it takes back from a broker later.
                hand.end().await;
                return Ok(());
            }
            let patience = trouble.as_ref().and_then(patience);
            if now >= self.deadline || patience.is_some_and(|patience| quiet >= patience) {
                hand.end().await;
                return Err(self.problem(trouble));
            }
            let look = (now + LOOK_EVERY).min(self.deadline);
            let _ = tokio::time::timeout_at(look, hand.tally.complete()).await;
        }
        Ok(())
    }

    fn problem(&self, trouble: Option<Trouble>) -> Problem {
        let (code, text) = trouble
            .map_or((Code::MessageTimedOut, String::new()), |trouble| (trouble.code, trouble.text));
        classify::problem(code, self.publisher.topic(), &text)
    }

    /// Takes reports in; whether all of them were good.
    fn judge(&mut self, reports: Vec<(usize, Report)>) -> bool {
        let mut clean = true;
        for (at, report) in reports {
            self.deliveries[at] = match report {
                Ok(()) => Some(Delivery::Accepted),
                Err(code) => {
                    clean = false;
                    match classify::verdict(code) {
                        Verdict::Again | Verdict::Suspect => None,
                        Verdict::Configuration | Verdict::Retry | Verdict::Outage => {
                            Some(classify::delivery(code, self.publisher.topic()))
                        }
                    }
                }
            };
        }
        clean
    }

    /// Sends what is in doubt again, each message alone on a line of this call's own: so that one
    /// that is refused fails alone. Stops at an outage; what was not tried then comes again.
    async fn one_by_one(&mut self) {
        let mut lines = Lines { current: None, opened: 0 };
        for at in 0..self.rows.len() {
            let key = self.rows[at].msg_key.as_str();
            if self.deliveries[at].is_none() && !self.blocked.contains(key) {
                let delivery = self.alone(at, &mut lines).await;
                let stop = delivery.failure() == Some(FailureKind::Unreachable);
                self.deliveries[at] = Some(delivery);
                if stop {
                    return;
                }
            }
            if self.deliveries[at] != Some(Delivery::Accepted) {
                self.blocked.insert(key);
            }
        }
    }

    async fn alone(&self, at: usize, lines: &mut Lines) -> Delivery {
        let outage = |problem| Delivery::Outage { problem, after: None };
        loop {
            let hand = match lines.hand(self.publisher) {
                Ok(hand) => hand,
                Err(problem) => return outage(problem),
            };
            let code = match self.send(&hand, at) {
                Err(code) => code,
                Ok(()) => {
                    let waited = self.wait(&hand).await;
                    match (hand.tally.take().pop(), waited) {
                        (Some((_, Ok(()))), _) => return Delivery::Accepted,
                        (_, Err(problem)) => return outage(problem),
                        (Some((_, Err(code))), Ok(())) => code,
                        (None, Ok(())) => Code::Fail,
                    }
                }
            };
            if classify::verdict(code) != Verdict::Again {
                return classify::delivery(code, self.publisher.topic());
            }
            let trouble = hand.line.trouble();
            hand.line.end();
            if let Err(problem) = self.publisher.until_ended(&hand.line, self.deadline).await {
                return outage(problem);
            }
            if lines.opened >= LINES_ALONE_MAX {
                let code = trouble.map_or(code, |trouble| trouble.code);
                return classify::delivery(code, self.publisher.topic());
            }
        }
    }

    fn give_up(&mut self, problem: &Problem) {
        for delivery in &mut self.deliveries {
            let outage = || Delivery::Outage { problem: problem.clone(), after: None };
            delivery.get_or_insert_with(outage);
        }
    }

    /// The answers: behind a message that was not accepted its key is held.
    fn answers(self) -> Vec<Delivery> {
        let mut blocked = HashSet::new();
        let answer = |(row, delivery): (&'a OutboxRow, Option<Delivery>)| match delivery {
            Some(Delivery::Accepted) => Delivery::Accepted,
            Some(delivery) if blocked.insert(row.msg_key.as_str()) => delivery,
            _ => {
                blocked.insert(row.msg_key.as_str());
                Delivery::Held
            }
        };
        self.rows.iter().zip(self.deliveries).map(answer).collect()
    }
}

/// How long to go on while the cluster is in this state; None: as long as the call may take.
fn patience(trouble: &Trouble) -> Option<Duration> {
    match trouble.code {
        Code::AllBrokersDown | Code::Resolve => Some(DOWN_PATIENCE),
        Code::Authentication | Code::SSL => Some(REFUSED_PATIENCE),
        _ => None,
    }
}

/// What a call has given to a line. Dropped before all is reported, it ends the line: nothing may be
/// delivered late, behind messages that are sent again or are newer.
struct Hand {
    line: Arc<Line>,
    tally: Arc<Tally>,
}

impl Hand {
    fn new(line: Arc<Line>) -> Self {
        Self { line, tally: Tally::new() }
    }

    /// Ends the line and waits for the reports of what it had.
    async fn end(&self) {
        self.line.end();
        let all = async {
            while self.tally.awaited() > 0 {
                self.tally.complete().await;
            }
        };
        let _ = tokio::time::timeout(PURGE_MAX, all).await;
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if self.tally.awaited() > 0 {
            self.line.end();
        }
    }
}

/// The lines of a call's own, one after the other.
struct Lines {
    current: Option<Arc<Line>>,
    opened: usize,
}

impl Lines {
    fn hand(&mut self, publisher: &KafkaPublisher) -> Result<Hand, Problem> {
        if let Some(line) = self.current.as_ref().filter(|line| !line.is_ending()) {
            return Ok(Hand::new(Arc::clone(line)));
        }
        self.opened += 1;
        Ok(Hand::new(Arc::clone(self.current.insert(publisher.line_alone()?))))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if let Some(line) = &self.current {
            line.end();
        }
    }
}
