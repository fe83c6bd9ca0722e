//! Rows as they come and go: one reader for each table, times as microseconds.
//!
//! Invariant: a reader takes the columns in the order in which every statement lists them. A state that
//! this program does not know is an error that says so: nothing is done with such a row.

use std::{error::Error, pin::pin, time::Duration};

use futures_util::TryStreamExt;

use relais_core::{
    bulk::{BulkCandidate, BulkJob, JobTakeover, Phase},
    control::ControlKind,
    dead_letter::{DeadLetter, Origin},
    inbox::{InboxRow, InboxStatus},
    message::{Category, Headers},
    outbox::{OutboxRow, OutboxStatus},
    process::{Entry, LogEntry, Process, ProcessStatus},
    time::Timestamp,
};
use tokio_postgres::{
    Row, Statement,
    types::{FromSql, IsNull, ToSql, Type, accepts, private::BytesMut, to_sql_checked},
};

use super::session::Client;
use super::{error::Failure, fence::Value};
use crate::newer;

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

/// A state, and whatever else is stored by its name.
pub(super) trait Named: Sized {
    fn named(name: &str) -> Option<Self>;
}

macro_rules! named {
    ($($name:ty),+) => {
        $(impl Named for $name {
            fn named(name: &str) -> Option<Self> {
                Self::parse(name)
            }
        })+
    };
}
named!(Category, ControlKind, InboxStatus, Origin, OutboxStatus, Phase, ProcessStatus);

struct Known<T>(T);

impl<'a, T: Named> FromSql<'a> for Known<T> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let name = str::from_utf8(raw)?;
        T::named(name).map(Self).ok_or_else(|| newer::unknown(name).into())
    }

    accepts!(TEXT);
}

/// What the column says, if this program knows it.
pub(super) fn known<T: Named>(row: &Row, column: usize) -> Read<T> {
    row.try_get::<_, Known<T>>(column).map(|known| known.0)
}

/// A duration as the statements take it.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(PAUSE_MAX_MS)
}

/// A count as the statements take it.
pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Attempts as their column holds them.
/// As the column holds it.
pub(super) fn lost_workers(number: u32) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

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
struct Columns<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Columns<'r> {
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

    fn known<T: Named>(&mut self) -> Read<T> {
        self.take::<Known<T>>().map(|known| known.0)
    }

    fn headers(&mut self) -> Read<Headers> {
        self.take().map(Headers::from_json)
    }
}

pub(super) fn outbox_row(row: &Row) -> Read<OutboxRow> {
    let mut columns = Columns::of(row);
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

/// Of a row as [`outbox_row`] reads it.
pub(super) fn bulk_candidate(row: &Row) -> Read<BulkCandidate> {
    Ok(BulkCandidate {
        id: row.try_get("id")?,
        lane: row.try_get("lane")?,
        msg_key: row.try_get("msg_key")?,
        aggregate_id: row.try_get("aggregate_id")?,
        lost_workers: u32::try_from(row.try_get::<_, i16>("lost_workers")?).unwrap_or(0),
    })
}

pub(super) fn inbox_row(row: &Row) -> Read<InboxRow> {
    let mut columns = Columns::of(row);
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
    let mut columns = Columns::of(row);
    Ok(BulkJob {
        id: columns.take()?,
        destination: columns.take()?,
        remote_id: columns.take()?,
        phase: columns.known()?,
        row_count: amount(columns.take()?),
        owner: columns.take()?,
        epoch: columns.take()?,
        created_at: columns.time()?,
        finished_at: columns.time_or_none()?,
        error_message: columns.take()?,
    })
}

/// Of a row as [`bulk_job`] reads it, and whether its last worker was lost.
pub(super) fn job_takeover(row: &Row) -> Read<JobTakeover> {
    Ok(JobTakeover { job: bulk_job(row)?, after_loss: row.try_get("after_loss")? })
}

pub(super) fn dead_letter(row: &Row) -> Read<DeadLetter> {
    let mut columns = Columns::of(row);
    Ok(DeadLetter {
        id: columns.take()?,
        origin: columns.known()?,
        origin_id: columns.take()?,
        message_id: columns.take()?,
        source_system: columns.take()?,
        destination: columns.take()?,
        event_type: columns.take()?,
        msg_key: columns.take()?,
        payload: columns.take()?,
        headers: columns.headers()?,
        failed_status: columns.take()?,
        error_class: columns.take()?,
        error_message: columns.take()?,
        attempts: columns.attempts()?,
        parked_by: columns.take()?,
        parked_at: columns.time()?,
        original_payload: columns.take()?,
        edited_by: columns.take()?,
        edited_at: columns.time_or_none()?,
        resolution: columns.take()?,
        resolved_by: columns.take()?,
        resolved_at: columns.time_or_none()?,
        reason: columns.take()?,
    })
}

pub(super) fn process(row: &Row) -> Read<Process> {
    read_process(&mut Columns::of(row))
}

/// With the place behind it, at which it was asked for.
pub(super) fn placed_process(row: &Row) -> Read<(Process, usize)> {
    let mut columns = Columns::of(row);
    let process = read_process(&mut columns)?;
    let place: i64 = columns.take()?;
    Ok((process, usize::try_from(place).expect("a place that was sent along")))
}

fn read_process(columns: &mut Columns<'_>) -> Read<Process> {
    Ok(Process {
        process_id: columns.take()?,
        process_type: columns.take()?,
        definition: columns.take()?,
        business_key: columns.take()?,
        status: columns.known()?,
        current_step: columns.take()?,
        data: columns.take()?,
        retries: columns.attempts()?,
        progress: columns.take()?,
        version: columns.take()?,
        created_at: columns.time()?,
        updated_at: columns.time()?,
    })
}

pub(super) fn log_entry(row: &Row) -> Read<LogEntry> {
    let mut columns = Columns::of(row);
    Ok(LogEntry {
        process_id: columns.take()?,
        seq: columns.take()?,
        at: columns.time()?,
        message_id: columns.take()?,
        entry: entry(columns.take()?, columns.take()?),
    })
}

fn entry(event_type: &str, event: &str) -> Entry {
    serde_json::from_str(event).unwrap_or_else(|_| newer::entry(event_type, event))
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
