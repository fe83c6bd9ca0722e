//! One connection to a consumer, with the messages that it delivers.

use std::time::Duration;

use async_nats::{Request, Subject};
use tokio::time::Instant;

use super::{
    NatsConnection,
    api::{ConsumerInfo, ConsumerPlan},
    classify::NatsFailure,
    connection::OpenNatsConnection,
    delivery::{StreamFormat, StreamMessage},
    keep_alive::KeepAlive,
    pull::{MessagePull, PullEvent},
    recovery::OrderRecovery,
    reread::{LossCount, StreamReread},
};

/// Time to wait until the server has processed acknowledgements or returned messages.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The pause between checks of the consumer while newer messages wait for older ones.
const RECOVERY_PAUSE: Duration = Duration::from_millis(500);

const ACKNOWLEDGED: &[u8] = b"+ACK";
/// Returns a message to the consumer, which delivers it again at once.
const RETURNED: &[u8] = b"-NAK";

pub(super) struct PullSession {
    plan: ConsumerPlan,
    pull: MessagePull,
    keep_alive: KeepAlive,
    recovery: Option<OrderRecovery>,
    /// Open messages that are read from the stream before any is asked for.
    reread: Option<StreamReread>,
    /// The next check of the consumer, if there is a recovery. It outlives a cancelled wait.
    check_at: Instant,
    /// The most messages of all processes without acknowledgement; the server refuses to send more.
    ack_pending_max: usize,
    connection: OpenNatsConnection,
}

impl PullSession {
    /// Connects, and creates the consumer if it does not exist. The inbox holds up to `capacity`
    /// messages.
    pub(super) async fn open(
        plan: &ConsumerPlan,
        connection: &NatsConnection,
        name: &str,
        capacity: usize,
        losses: &mut LossCount,
    ) -> Result<Self, String> {
        let text = |failure: NatsFailure| failure.problem.message;
        let opened = connection.open(name, capacity).await;
        let connection = opened.map_err(|error| text(NatsFailure::of_open(&error)))?;
        let info = consumer(plan, &connection).await.map_err(text)?;
        if let Some(why) = info.config.unusable() {
            return Err(format!("cannot use consumer `{}`: {why}", plan.consumer));
        }
        let opening = MessagePull::open(&connection, plan.next_subject());
        let pull = opening.await.map_err(text)?;
        let keep_alive = KeepAlive::start(connection.client().clone(), info.config.ack_wait());
        let now = Instant::now();
        let reread = losses.opened(&info).then(|| StreamReread::needed(&info)).flatten();
        let recovery = if reread.is_none() { OrderRecovery::needed(&info, now) } else { None };
        let (plan, check_at) = (plan.clone(), now + RECOVERY_PAUSE);
        // Zero and below is without a limit.
        let ack_pending_max =
            usize::try_from(info.config.max_ack_pending).ok().filter(|&max| max > 0);
        let ack_pending_max = ack_pending_max.unwrap_or(usize::MAX);
        Ok(Self { plan, pull, keep_alive, recovery, reread, check_at, ack_pending_max, connection })
    }

    /// Returns whether messages are read from the stream. Then none is asked for.
    pub(super) fn is_rereading(&self) -> bool {
        self.reread.is_some()
    }

    /// Returns whether each message that arrives can be returned at once.
    pub(super) fn is_in_order(&self) -> bool {
        self.reread.is_none() && self.recovery.is_none()
    }

    /// Returns whether the server may still send messages.
    pub(super) fn is_asking(&self) -> bool {
        self.pull.is_open()
    }

    /// Reads the next open message from the stream, and counts one that the client library would have
    /// refused. Returns `None` if there is no more.
    pub(super) async fn reread(
        &mut self,
        format: &StreamFormat,
        losses: &mut LossCount,
    ) -> Result<Option<StreamMessage>, NatsFailure> {
        let Some(reread) = &mut self.reread else { return Ok(None) };
        let stored = match reread.next(&self.plan, &self.connection).await {
            Ok(stored) => stored,
            Err(failure) if !self.connection.is_usable() => return Err(failure),
            Err(failure) => {
                let (stream, reason) = (&self.plan.stream, &failure.problem.message);
                tracing::warn!(stream, reason, "could not read open messages from the stream");
                losses.could_not_read(reread.position());
                reread.stop();
                None
            }
        };
        let Some(stored) = stored else { return Ok(None) };
        let parsed = format.read_stored(&stored, &self.plan)?;
        if parsed.is_refused {
            let (stream, sequence) = (&self.plan.stream, stored.seq);
            tracing::warn!(
                stream,
                sequence,
                subject = stored.subject,
                "read a message from the stream whose headers the client library refuses"
            );
            losses.found_refused();
        }
        self.keep_alive.add(parsed.message.sequence, &parsed.message.reply);
        Ok(Some(parsed.message))
    }

    /// Ends reading from the stream, once what was read is acknowledged.
    pub(super) async fn end_reread(&mut self) -> Result<(), NatsFailure> {
        let info = self.plan.info(&self.connection).await?;
        self.recovery = OrderRecovery::needed(&info, Instant::now());
        self.reread = None;
        Ok(())
    }

    /// Returns what has arrived, without waiting.
    pub(super) fn arrived(&mut self) -> Option<PullEvent> {
        self.pull.arrived()
    }

    /// Waits for an arrival, or until newer messages need not wait any longer. A cancelled wait loses
    /// nothing.
    pub(super) async fn wait(&mut self) -> Result<PullEvent, NatsFailure> {
        tokio::select! {
            biased;
            event = self.pull.next() => return Ok(event),
            reason = self.connection.until_lost() => return Err(NatsFailure::lost(&reason)),
            () = tokio::time::sleep_until(self.check_at), if self.recovery.is_some() => {}
        }
        let info = self.plan.info(&self.connection).await?;
        self.check_at = Instant::now() + RECOVERY_PAUSE;
        if let Some(recovery) = &mut self.recovery {
            recovery.note(&info, Instant::now());
        }
        Ok(PullEvent::Alive)
    }

    /// Asks for more messages, so that at most `max` are held, if no request is open.
    pub(super) async fn ask(&mut self, max: usize, held: usize) -> Result<(), NatsFailure> {
        let space = max.min(self.ack_pending_max).saturating_sub(held);
        let batch = match &self.recovery {
            // At least one: what fills the memory waits for the missing messages.
            Some(recovery) => {
                let space = space.saturating_sub(recovery.waiting());
                recovery.may_ask(space.max(1), Instant::now())
            }
            None => space,
        };
        self.pull.ask(&self.connection, batch).await
    }

    /// Notes a message. Returns it unless it is here already or must wait for older ones.
    pub(super) fn receive(&mut self, message: StreamMessage) -> Option<StreamMessage> {
        // Delivered again although it is here: its acknowledgement settles both.
        if !self.keep_alive.add(message.sequence, &message.reply) {
            return None;
        }
        match &mut self.recovery {
            Some(recovery) => {
                recovery.keep(message, Instant::now());
                None
            }
            None => Some(message),
        }
    }

    /// Returns the messages that have waited for older ones, if they need not wait any longer.
    pub(super) fn released(&mut self) -> Vec<StreamMessage> {
        let over = self.recovery.take_if(|recovery| recovery.is_over());
        over.map(OrderRecovery::into_messages).unwrap_or_default()
    }

    /// Acknowledges messages.
    pub(super) async fn acknowledge(&self, messages: &[StreamMessage]) -> Result<(), NatsFailure> {
        for message in messages {
            self.keep_alive.remove(message.sequence);
        }
        let replies = messages.iter().map(|message| message.reply.clone()).collect();
        answer(&self.connection, replies, ACKNOWLEDGED).await
    }

    /// Disconnects. What has arrived and was not acknowledged goes back to the consumer, in order. The
    /// server delivers again after `ack_wait` what is still on its way.
    pub(super) async fn leave(self, held: impl IntoIterator<Item = StreamMessage>) {
        let Self { plan, pull, keep_alive, recovery, connection, .. } = self;
        drop(keep_alive);
        // What the server sent before its answer has arrived then.
        let _ = plan.info(&connection).await;
        let rest = pull.leave().await;
        // Makes the server drop the request that has no inbox any more. Otherwise an older server (2.9) takes a
        // returned message for that request, and delivers it only after `ack_wait` (nats-server#5338).
        let _ = plan.info(&connection).await;
        let waiting = recovery.map(OrderRecovery::into_messages).unwrap_or_default();
        let replies = held.into_iter().chain(waiting).map(|message| message.reply);
        let replies = replies.chain(rest.into_iter().filter_map(|message| message.reply));
        if let Err(failure) = answer(&connection, replies.collect(), RETURNED).await {
            let (stream, reason) = (&plan.stream, &failure.problem.message);
            tracing::debug!(
                stream,
                reason,
                "could not return messages; they come after `ack_wait`"
            );
        }
    }
}

/// Sends the same answer to messages, and waits until the server has processed it. The server processes
/// answers in order, on a task of its own: only the reply to the last one shows that it is done. An answer of
/// the API does not.
async fn answer(
    connection: &OpenNatsConnection,
    mut replies: Vec<Subject>,
    answer: &'static [u8],
) -> Result<(), NatsFailure> {
    let Some(last) = replies.pop() else { return Ok(()) };
    let client = connection.client();
    for reply in replies {
        let sending = client.publish(reply, answer.into());
        sending.await.map_err(|error| NatsFailure::lost(&error.to_string()))?;
    }
    let request = Request::new().payload(answer.into()).timeout(Some(ANSWER_MAX));
    tokio::select! {
        biased;
        done = client.send_request(last, request) => {
            done.map(drop).map_err(|error| NatsFailure::of_request(&error))
        }
        reason = connection.until_lost() => Err(NatsFailure::lost(&reason)),
    }
}

async fn consumer(
    plan: &ConsumerPlan,
    connection: &OpenNatsConnection,
) -> Result<ConsumerInfo, NatsFailure> {
    match plan.info(connection).await {
        Err(failure) if failure.is_unknown_consumer() => plan.create(connection).await,
        known => known,
    }
}
