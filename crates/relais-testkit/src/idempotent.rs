//! [`assert_idempotent!`](crate::assert_idempotent): a handler's effect is the same, however often its
//! message is delivered and wherever its worker dies.
//!
//! Invariant: everything between the test and the handler is the real thing: the store, its lanes and
//! their fence, the inbox rows, the handler's own transaction. Each run has a database of its own, made
//! by the test. What a run did is compared with what the run without faults did.
//!
//! - `point`: where it goes wrong; `run`: messages and workers; `sabotage`: writes that fail
//! - `dump`: what is in a database; `changes`: what a run changed, without what may differ

mod changes;
mod dump;
mod point;
mod report;
mod run;
mod sabotage;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    handler::Handler,
    inbox::{Content, NewInbox},
    message::Headers,
    query::PAGE_MAX,
};

use self::{
    changes::RowChanges,
    run::{FaultRun, RunEnd},
};
pub use self::{
    point::FaultPoint,
    report::{HandlerFault, NotIdempotent},
};
use crate::database::Database;

/// Most places inside one handler where its worker is let die.
const AWAITS_MAX: usize = 100;
/// Most messages of one check.
const MESSAGES_MAX: usize = PAGE_MAX;
/// A clock that counts in seconds shows another time after this long.
const CLOCK_STEP: Duration = Duration::from_millis(1_100);

/// The handler's effect is the same, however often its messages are delivered and wherever its worker
/// dies.
///
/// The first argument makes a fresh database and the handler for it, each time it is called: an async
/// closure or function that gives `(database, Arc<dyn Handler>)`. The second is a message or a list of
/// them ([`arrived`]). `ignore` names columns that may differ (`"orders.created_at"`), or a place in a
/// JSON column (`"relais_outbox.payload/occurredAt"`).
///
/// ```text
/// assert_idempotent!(shop, arrived("m-1", "PaymentReceived", json!({"cents": 500})));
/// assert_idempotent!(shop, messages, ignore = ["payments.seen_at"]);
/// ```
#[macro_export]
macro_rules! assert_idempotent {
    ($setup:expr, $messages:expr $(,)?) => {
        $crate::assert_idempotent!($setup, $messages, ignore = [])
    };
    ($setup:expr, $messages:expr, ignore = [$($ignored:expr),* $(,)?] $(,)?) => {
        match $crate::idempotent::check($setup, $messages, &[$($ignored),*]).await {
            Ok(points) => points,
            Err(found) => panic!("{found}"),
        }
    };
}

/// A message as a source would hand it over; its fields can be changed.
pub fn arrived(message_id: &str, event_type: &str, payload: serde_json::Value) -> NewInbox {
    NewInbox {
        source_system: "test".to_owned(),
        message_id: message_id.to_owned(),
        topic: "test".to_owned(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: message_id.to_owned(),
        aggregate_id: None,
        event_type: Some(event_type.to_owned()),
        content: Content::Json(payload.to_string()),
        headers: Headers::default(),
        event_ts: None,
    }
}

/// One message or several.
pub trait Messages {
    /// Returns the messages.
    fn into_messages(self) -> Vec<NewInbox>;
}

impl Messages for NewInbox {
    fn into_messages(self) -> Vec<NewInbox> {
        vec![self]
    }
}

impl Messages for Vec<NewInbox> {
    fn into_messages(self) -> Vec<NewInbox> {
        self
    }
}

impl<const N: usize> Messages for [NewInbox; N] {
    fn into_messages(self) -> Vec<NewInbox> {
        self.into()
    }
}

/// Runs the handler without faults, and then once for each [`FaultPoint`]; returns the points it passed.
///
/// # Panics
/// If a call of the store or the database fails.
///
/// # Errors
/// The first point whose run ends otherwise than the one without faults.
pub async fn check<S, D>(
    setup: S,
    messages: impl Messages,
    ignore: &[&str],
) -> Result<Vec<FaultPoint>, NotIdempotent>
where
    S: AsyncFn() -> (D, Arc<dyn Handler>),
    D: Database,
{
    let messages = messages.into_messages();
    assert!(messages.len() <= MESSAGES_MAX, "a check takes at most {MESSAGES_MAX} messages");
    let check = IdempotenceCheck { setup, messages, ignore };
    check.all().await
}

struct IdempotenceCheck<'a, S> {
    setup: S,
    messages: Vec<NewInbox>,
    ignore: &'a [&'a str],
}

impl<S, D> IdempotenceCheck<'_, S>
where
    S: AsyncFn() -> (D, Arc<dyn Handler>),
    D: Database,
{
    async fn all(&self) -> Result<Vec<FaultPoint>, NotIdempotent> {
        let started = Instant::now();
        let (expected, _) = self.run(&FaultPoint::Clean).await?;
        let mut points = vec![FaultPoint::CleanAgain];
        self.expect(&FaultPoint::CleanAgain, &expected).await?;
        let writes = expected.tables().map(|table| FaultPoint::WriteFails(table.to_owned()));
        for point in FaultPoint::FIXED.into_iter().chain(writes) {
            self.expect(&point, &expected).await?;
            points.push(point);
        }
        for polls in 1..=AWAITS_MAX {
            let point = FaultPoint::DiesInside(polls);
            if self.expect(&point, &expected).await? == RunEnd::PointPassed {
                break;
            }
            points.push(point);
        }
        tokio::time::sleep(CLOCK_STEP.saturating_sub(started.elapsed())).await;
        self.expect(&FaultPoint::CleanAgain, &expected).await?;
        Ok(points)
    }

    /// A run with this fault must end as the one without.
    async fn expect(
        &self,
        point: &FaultPoint,
        expected: &RowChanges,
    ) -> Result<RunEnd, NotIdempotent> {
        let (changes, end) = self.run(point).await?;
        if changes == *expected {
            return Ok(end);
        }
        // Perhaps no two runs are the same, whatever the point.
        let (clean, _) = self.run(&FaultPoint::Clean).await?;
        Err(if clean == *expected {
            NotIdempotent::differs(point, expected, &changes)
        } else {
            NotIdempotent::differs(&FaultPoint::CleanAgain, expected, &clean)
        })
    }

    /// One run on a database of its own; what it changed.
    async fn run(&self, point: &FaultPoint) -> Result<(RowChanges, RunEnd), NotIdempotent> {
        let (database, handler) = (self.setup)().await;
        let before = dump::read(&database).await;
        let mut run = FaultRun::new(&database, handler, point);
        for message in &self.messages {
            run.message(message).await?;
        }
        let after = dump::read(&database).await;
        Ok((RowChanges::between(&before, &after, self.ignore), run.end()))
    }
}
