//! Rows as they come and go: one reader for each table, times as microseconds.
//!
//! Invariant: readers of the inbox and the outbox take the columns in the order in which every statement
//! lists them; others read by name. A state that this program does not know is an error: nothing is done with
//! such a row.

use std::{error::Error, fmt::Display, pin::pin, time::Duration};

use futures_util::TryStreamExt;

use relais_core::{
    bulk::{BulkJob, JobTakeover, Phase},
    control::ControlKind,
    dead_letter::{DeadLetter, Origin},
    inbox::{InboxRow, InboxStatus},
    inspect::Attempt,
    message::{Category, Headers},
    outbox::{OutboxRow, OutboxStatus},
    process::{Entry, KeyHold, LogEntry, Process, ProcessStatus},
    time::Timestamp,
};
use tokio_postgres::{
    Row, Statement,
    row::RowIndex,
    types::{FromSql, IsNull, ToSql, Type, accepts, private::BytesMut, to_sql_checked},
};

use super::session::Client;
use super::{error::Failure, fence::Value};
use crate::unknown_value;

pub(super) type Read<T> = Result<T, tokio_postgres::Error>;

/// 2000-01-01 in microseconds since 1970: where PostgreSQL's times start.
const EPOCH_2000: i64 = 946_684_800_000_000;
/// The earliest time PostgreSQL keeps (4713 BC), in microseconds since 2000.
const EARLIEST: i64 = -211_813_488_000_000_000;
/// Longest pause or delay that is written: a hundred years, in milliseconds.
const PAUSE_MAX_MS: i64 = 100 * 366 * 86_400_000;

/// A `timestamptz`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(pub(super) Timestamp);

impl<'a> FromSql<'a> for Micros {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let since_2000 = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(Timestamp(since_2000.saturating_add(EPOCH_2000))))
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for Micros {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let since_2000 = self.0.0.saturating_sub(EPOCH_2000).max(EARLIEST);
        out.extend_from_slice(&since_2000.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

/// A value that is stored by its name, such as a state.
pub(super) trait NamedValue: Sized {
    fn named(name: &str) -> Option<Self>;
}

macro_rules! named {
    ($($name:ty),+) => {
        $(impl NamedValue for $name {
            fn named(name: &str) -> Option<Self> {
                Self::parse(name)
            }
        })+
    };
}
named!(Category, ControlKind, InboxStatus, KeyHold, Origin, OutboxStatus, Phase, ProcessStatus);

struct KnownValue<T>(T);

impl<'a, T: NamedValue> FromSql<'a> for KnownValue<T> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let name = str::from_utf8(raw)?;
        T::named(name).map(Self).ok_or_else(|| unknown_value::unknown(name).into())
    }

    accepts!(TEXT);
}

/// Returns the value of the column, if this program knows it.
pub(super) fn known<T: NamedValue>(row: &Row, column: impl RowIndex + Display) -> Read<T> {
    row.try_get::<_, KnownValue<T>>(column).map(|known| known.0)
}

pub(super) fn time(row: &Row, column: &str) -> Read<Timestamp> {
    row.try_get::<_, Micros>(column).map(|at| at.0)
}

pub(super) fn time_or_none(row: &Row, column: &str) -> Read<Option<Timestamp>> {
    Ok(row.try_get::<_, Option<Micros>>(column)?.map(|at| at.0))
}

/// A count as it comes, by the name of its column.
pub(super) fn amount_in(row: &Row, column: &str) -> Read<u64> {
    row.try_get(column).map(amount)
}

fn attempts_in(row: &Row, column: &str) -> Read<u32> {
    Ok(u32::try_from(row.try_get::<_, i32>(column)?).unwrap_or(0))
}

/// A duration as the statements take it.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(PAUSE_MAX_MS)
}

/// A count as the statements take it.
pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The number as its column holds it.
pub(super) fn lost_workers(number: u32) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

/// The number as its column holds it.
pub(super) fn attempts(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A count as it comes.
pub(super) fn amount(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads the rows of a statement one by one as they come, so that no second copy of all of them is kept.
pub(super) async fn each<T>(
    client: &Client<'_>,
    statement: &Statement,
    values: &[Value<'_>],
    mut read: impl FnMut(&Row) -> Read<T>,
) -> Result<Vec<T>, Failure> {
    let rows = client.query_raw(statement, values.iter().copied()).await?;
    let mut rows = pin!(rows);
    let mut all = Vec::new();
    while let Some(row) = rows.try_next().await? {
        client.carries(row.raw_size_bytes());
        all.push(read(&row)?);
    }
    Ok(all)
}

/// Takes columns one after the other.
struct ColumnCursor<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> ColumnCursor<'r> {
    fn of(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    fn take<T: FromSql<'r>>(&mut self) -> Read<T> {
        let value = self.row.try_get(self.next);
        self.next += 1;
        value
    }

    fn time(&mut self) -> Read<Timestamp> {
        self.take::<Micros>().map(|at| at.0)
    }

    fn time_or_none(&mut self) -> Read<Option<Timestamp>> {
        Ok(self.take::<Option<Micros>>()?.map(|at| at.0))
    }

    fn attempts(&mut self) -> Read<u32> {
        Ok(u32::try_from(self.take::<i32>()?).unwrap_or(0))
    }

    fn lost_workers(&mut self) -> Read<u32> {
        Ok(u32::try_from(self.take::<i16>()?).unwrap_or(0))
    }

    fn known<T: NamedValue>(&mut self) -> Read<T> {
        self.take::<KnownValue<T>>().map(|known| known.0)
    }

    /// None are read without payloads.
    fn headers(&mut self) -> Read<Headers> {
        Ok(self.take::<Option<&str>>()?.map(Headers::from_json).unwrap_or_default())
    }
}

/// In the order in which every statement lists the columns: workers read many rows of this table.
pub(super) fn outbox_row(row: &Row) -> Read<OutboxRow> {
    let mut columns = ColumnCursor::of(row);
    Ok(OutboxRow {
        id: columns.take()?,
        message_id: columns.take()?,
        category: columns.known()?,
        aggregate_type: columns.take()?,
        aggregate_id: columns.take()?,
        event_type: columns.take()?,
        event_version: columns.take()?,
        payload: columns.take()?,
        headers: columns.headers()?,
        destination: columns.take()?,
        msg_key: columns.take()?,
        lane: columns.take()?,
        created_at: columns.time()?,
        status: columns.known()?,
        attempts: columns.attempts()?,
        next_attempt_at: columns.time_or_none()?,
        dispatched_at: columns.time_or_none()?,
        job_id: columns.take()?,
        causation_id: columns.take()?,
        correlation_id: columns.take()?,
        error_code: columns.take()?,
        error_message: columns.take()?,
        lost_workers: columns.lost_workers()?,
    })
}

/// In the order in which every statement lists the columns: workers read many rows of this table.
pub(super) fn inbox_row(row: &Row) -> Read<InboxRow> {
    let mut columns = ColumnCursor::of(row);
    Ok(InboxRow {
        id: columns.take()?,
        message_id: columns.take()?,
        source_system: columns.take()?,
        topic: columns.take()?,
        partition_num: columns.take()?,
        offset_num: columns.take()?,
        key_str: columns.take()?,
        msg_key: columns.take()?,
        lane: columns.take()?,
        aggregate_id: columns.take()?,
        event_type: columns.take()?,
        payload: columns.take()?,
        headers: columns.headers()?,
        raw_payload_base64: columns.take()?,
        event_ts: columns.time_or_none()?,
        received_at: columns.time()?,
        status: columns.known()?,
        attempts: columns.attempts()?,
        next_attempt_at: columns.time_or_none()?,
        processed_at: columns.time_or_none()?,
        error_stage: columns.take()?,
        error_code: columns.take()?,
        error_message: columns.take()?,
        lost_workers: columns.lost_workers()?,
        unknown_since: columns.time_or_none()?,
    })
}

pub(super) fn bulk_job(row: &Row) -> Read<BulkJob> {
    Ok(BulkJob {
        id: row.try_get("id")?,
        destination: row.try_get("destination")?,
        remote_id: row.try_get("remote_id")?,
        phase: known(row, "phase")?,
        row_count: amount_in(row, "row_count")?,
        owner: row.try_get("owner")?,
        epoch: row.try_get("epoch")?,
        created_at: time(row, "created_at")?,
        finished_at: time_or_none(row, "finished_at")?,
        error_message: row.try_get("error_message")?,
    })
}

/// Of a row as [`bulk_job`] reads it, and whether its last worker was lost.
pub(super) fn job_takeover(row: &Row) -> Read<JobTakeover> {
    Ok(JobTakeover { job: bulk_job(row)?, after_loss: row.try_get("after_loss")? })
}

pub(super) fn dead_letter(row: &Row) -> Read<DeadLetter> {
    Ok(DeadLetter {
        id: row.try_get("id")?,
        origin: known(row, "origin")?,
        origin_id: row.try_get("origin_id")?,
        message_id: row.try_get("message_id")?,
        source_system: row.try_get("source_system")?,
        destination: row.try_get("destination")?,
        event_type: row.try_get("event_type")?,
        msg_key: row.try_get("msg_key")?,
        payload: row.try_get("payload")?,
        headers: row
            .try_get::<_, Option<&str>>("headers")?
            .map(Headers::from_json)
            .unwrap_or_default(),
        failed_status: row.try_get("failed_status")?,
        error_class: row.try_get("error_class")?,
        error_message: row.try_get("error_message")?,
        attempts: attempts_in(row, "attempts")?,
        parked_by: row.try_get("parked_by")?,
        parked_at: time(row, "parked_at")?,
        original_payload: row.try_get("original_payload")?,
        edited_by: row.try_get("edited_by")?,
        edited_at: time_or_none(row, "edited_at")?,
        resolution: row.try_get("resolution")?,
        resolved_by: row.try_get("resolved_by")?,
        resolved_at: time_or_none(row, "resolved_at")?,
        reason: row.try_get("reason")?,
    })
}

pub(super) fn attempt(row: &Row) -> Read<Attempt> {
    Ok(Attempt {
        origin: known(row, "origin")?,
        origin_id: row.try_get("origin_id")?,
        attempt: attempts_in(row, "attempt")?,
        at: time(row, "at")?,
        outcome: row.try_get("outcome")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
        worker: row.try_get("worker")?,
    })
}

/// With the place behind it, at which it was asked for.
pub(super) fn placed_process(row: &Row) -> Read<(Process, usize)> {
    let place: i64 = row.try_get("place")?;
    Ok((process(row)?, usize::try_from(place).expect("a place that was sent along")))
}

pub(super) fn process(row: &Row) -> Read<Process> {
    Ok(Process {
        process_id: row.try_get("process_id")?,
        process_type: row.try_get("process_type")?,
        definition: row.try_get("definition")?,
        business_key: row.try_get("business_key")?,
        status: known(row, "status")?,
        current_step: row.try_get("current_step")?,
        data: row.try_get("data")?,
        retries: attempts_in(row, "retries")?,
        progress: row.try_get("progress")?,
        version: row.try_get("version")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        key_hold: known(row, "key_hold")?,
    })
}

pub(super) fn log_entry(row: &Row) -> Read<LogEntry> {
    Ok(LogEntry {
        process_id: row.try_get("process_id")?,
        seq: row.try_get("seq")?,
        at: time(row, "at")?,
        message_id: row.try_get("message_id")?,
        entry: entry(row.try_get("event_type")?, row.try_get("event")?),
    })
}

fn entry(event_type: &str, event: &str) -> Entry {
    serde_json::from_str(event).unwrap_or_else(|_| unknown_value::entry(event_type, event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back_and_extremes_stay_in_range() {
        for micros in [0, 1, -1, 1_763_208_000_123_456] {
            let mut out = BytesMut::new();
            let _ = Micros(Timestamp(micros)).to_sql(&Type::TIMESTAMPTZ, &mut out).unwrap();
            assert_eq!(Micros::from_sql(&Type::TIMESTAMPTZ, &out).unwrap().0, Timestamp(micros));
        }
        let mut out = BytesMut::new();
        let _ = Micros(Timestamp(i64::MIN)).to_sql(&Type::TIMESTAMPTZ, &mut out).unwrap();
        assert_eq!(i64::from_be_bytes(out[..].try_into().unwrap()), EARLIEST);
        assert_eq!(millis(Duration::MAX), PAUSE_MAX_MS);
    }
}
