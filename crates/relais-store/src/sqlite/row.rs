//! Rows as they come out of the file, and values on their way in.
//!
//! Invariant: no row can make a read fail, but one with a state that this program does not know. Any
//! language may have written it, so text that is no UTF-8, a time in another form or a number out of
//! range is read as well as it can be. A state is guarded by its table: another one is a newer
//! program's, and nothing is done with such a row.

use std::{borrow::Cow, cell::RefCell, time::Duration};

use relais_core::{
    bulk::{BulkCandidate, BulkJob, Phase},
    control::ControlKind,
    dead_letter::{DeadLetter, Origin},
    desk::{Attempt, AuditEntry},
    inbox::{InboxRow, InboxStatus},
    lane::OwnedLane,
    message::{Category, Headers},
    outbox::{OutboxRow, OutboxStatus},
    process::{LogEntry, Process, ProcessStatus},
    query::ParkedKey,
    store::StoreError,
    text,
    time::Timestamp,
};
use rusqlite::{Connection, Params, Row, types::ValueRef};
use serde::Serialize;
use uuid::Uuid;

use super::error;
use crate::newer;

/// Longest pause the database is asked to add to its now: beyond the year 9999 it has no time.
const PAUSE_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// All rows of a statement.
pub(super) fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Cells<'_, '_>) -> T,
) -> Result<Vec<T>, StoreError> {
    let run = || {
        let mut statement = db.prepare_cached(sql)?;
        let rows = statement.query_map(params, |row| {
            let cells = Cells { row, unknown: RefCell::default() };
            let value = read(&cells);
            match cells.unknown.into_inner() {
                None => Ok(value),
                Some((column, name)) => Err(error::unknown(column, &name)),
            }
        })?;
        rows.collect::<rusqlite::Result<Vec<T>>>()
    };
    run().map_err(|e| error::store(&e))
}

/// The first row of a statement, if there is one.
pub(super) fn first<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Cells<'_, '_>) -> T,
) -> Result<Option<T>, StoreError> {
    all(db, sql, params, read).map(|rows| rows.into_iter().next())
}

/// How many rows a statement changed.
pub(super) fn change(db: &Connection, sql: &str, params: impl Params) -> Result<u64, StoreError> {
    let changed = db.prepare_cached(sql).and_then(|mut statement| statement.execute(params));
    changed.map(|rows| rows as u64).map_err(|e| error::store(&e))
}

/// The columns of one row, read so that none can fail.
pub(super) struct Cells<'a, 'b> {
    row: &'a Row<'b>,
    /// Where a state is that this program does not know, and its name.
    unknown: RefCell<Option<(usize, String)>>,
}

impl Cells<'_, '_> {
    pub(super) fn text(&self, column: usize) -> Option<String> {
        match self.row.get_ref(column).unwrap_or(ValueRef::Null) {
            ValueRef::Null => None,
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(lossy(bytes).into_owned()),
            ValueRef::Integer(number) => Some(number.to_string()),
            ValueRef::Real(number) => Some(number.to_string()),
        }
    }

    pub(super) fn string(&self, column: usize) -> String {
        self.text(column).unwrap_or_default()
    }

    pub(super) fn integer(&self, column: usize) -> i64 {
        self.number(column).unwrap_or(0)
    }

    fn number(&self, column: usize) -> Option<i64> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Integer(number)) => Some(number),
            _ => None,
        }
    }

    pub(super) fn count(&self, column: usize) -> u64 {
        u64::try_from(self.integer(column)).unwrap_or_default()
    }

    pub(super) fn flag(&self, column: usize) -> bool {
        self.integer(column) != 0
    }

    /// What `parse` makes of the text, without a copy of it.
    fn parsed<T>(&self, column: usize, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Text(bytes)) => parse(&lossy(bytes)),
            _ => None,
        }
    }

    /// A state by its name. The placeholder of one that is not known leaves [`all`] never.
    fn known<T>(&self, column: usize, parse: fn(&str) -> Option<T>, placeholder: T) -> T {
        self.parsed(column, parse).unwrap_or_else(|| {
            self.unknown.replace(Some((column, self.string(column))));
            placeholder
        })
    }

    pub(super) fn time(&self, column: usize) -> Option<Timestamp> {
        self.parsed(column, time)
    }

    /// 1970 for what is no time at all.
    pub(super) fn some_time(&self, column: usize) -> Timestamp {
        self.time(column).unwrap_or(Timestamp(0))
    }

    fn attempts(&self, column: usize) -> u32 {
        u32::try_from(self.integer(column).max(0)).unwrap_or(u32::MAX)
    }

    fn small(&self, column: usize) -> i32 {
        let number = self.integer(column).clamp(i32::MIN.into(), i32::MAX.into());
        i32::try_from(number).expect("clamped to the range of i32")
    }

    pub(super) fn lane(&self, column: usize) -> i16 {
        i16::try_from(self.integer(column)).unwrap_or_default()
    }

    pub(super) fn uuid(&self, column: usize) -> Uuid {
        self.parsed(column, |text| Some(uuid(text))).unwrap_or_default()
    }

    pub(super) fn inbox(&self) -> InboxRow {
        InboxRow {
            id: self.integer(0),
            message_id: self.string(1),
            source_system: self.string(2),
            topic: self.string(3),
            partition_num: self.small(4),
            offset_num: self.integer(5),
            key_str: self.text(6),
            msg_key: self.string(7),
            lane: self.lane(8),
            aggregate_id: self.text(9),
            event_type: self.text(10),
            payload: self.text(11),
            headers: self.parsed(12, |json| Some(Headers::from_json(json))).unwrap_or_default(),
            raw_payload_base64: self.text(13),
            event_ts: self.time(14),
            received_at: self.some_time(15),
            status: self.known(16, InboxStatus::parse, InboxStatus::Failed),
            attempts: self.attempts(17),
            next_attempt_at: self.time(18),
            processed_at: self.time(19),
            error_stage: self.text(20),
            error_code: self.text(21),
            error_message: self.text(22),
            lost_workers: self.attempts(23),
            unknown_since: self.time(24),
        }
    }

    pub(super) fn outbox(&self) -> OutboxRow {
        OutboxRow {
            id: self.integer(0),
            message_id: self.uuid(1),
            category: self.known(2, Category::parse, Category::Event),
            aggregate_type: self.string(3),
            aggregate_id: self.string(4),
            event_type: self.string(5),
            event_version: self.small(6),
            payload: self.string(7),
            headers: self.parsed(8, |json| Some(Headers::from_json(json))).unwrap_or_default(),
            destination: self.string(9),
            msg_key: self.string(10),
            lane: self.lane(11),
            created_at: self.some_time(12),
            status: self.known(13, OutboxStatus::parse, OutboxStatus::Failed),
            attempts: self.attempts(14),
            next_attempt_at: self.time(15),
            dispatched_at: self.time(16),
            job_id: self.text(17),
            causation_id: self.text(18),
            correlation_id: self.text(19),
            error_code: self.text(20),
            error_message: self.text(21),
            lost_workers: self.attempts(22),
        }
    }

    /// Of a row as [`Cells::outbox`] reads it.
    pub(super) fn bulk_candidate(&self) -> BulkCandidate {
        BulkCandidate {
            id: self.integer(0),
            aggregate_id: self.string(4),
            msg_key: self.string(10),
            lane: self.lane(11),
            lost_workers: self.attempts(22),
        }
    }

    pub(super) fn bulk_job(&self) -> BulkJob {
        BulkJob {
            id: self.uuid(0),
            destination: self.string(1),
            remote_id: self.text(2),
            phase: self.known(3, Phase::parse, Phase::Planned),
            row_count: self.count(4),
            owner: self.text(5),
            epoch: self.integer(6),
            created_at: self.some_time(7),
            finished_at: self.time(8),
            error_message: self.text(9),
        }
    }

    pub(super) fn process(&self) -> Process {
        Process {
            process_id: self.uuid(0),
            process_type: self.string(1),
            definition: self.small(2),
            business_key: self.text(3),
            status: self.known(4, ProcessStatus::parse, ProcessStatus::Failed),
            current_step: self.text(5),
            data: self.string(6),
            retries: self.attempts(7),
            progress: self.string(8),
            version: self.integer(9),
            created_at: self.some_time(10),
            updated_at: self.some_time(11),
        }
    }

    pub(super) fn log_entry(&self) -> LogEntry {
        let entry = self.parsed(5, |json| serde_json::from_str(json).ok());
        LogEntry {
            process_id: self.uuid(0),
            seq: self.integer(1),
            at: self.some_time(2),
            message_id: self.text(3),
            entry: entry.unwrap_or_else(|| newer::entry(&self.string(4), &self.string(5))),
        }
    }

    pub(super) fn dead_letter(&self) -> DeadLetter {
        DeadLetter {
            id: self.uuid(0),
            origin: self.origin(1),
            origin_id: self.number(2),
            message_id: self.string(3),
            source_system: self.text(4),
            destination: self.text(5),
            event_type: self.text(6),
            msg_key: self.string(7),
            payload: self.text(8),
            headers: self.parsed(9, |json| Some(Headers::from_json(json))).unwrap_or_default(),
            failed_status: self.string(10),
            error_class: self.text(11),
            error_message: self.text(12),
            attempts: self.attempts(13),
            parked_by: self.string(14),
            parked_at: self.some_time(15),
            original_payload: self.text(16),
            edited_by: self.text(17),
            edited_at: self.time(18),
            resolution: self.text(19),
            resolved_by: self.text(20),
            resolved_at: self.time(21),
            reason: self.text(22),
        }
    }

    pub(super) fn attempt(&self) -> Attempt {
        Attempt {
            origin: self.origin(0),
            origin_id: self.integer(1),
            attempt: self.attempts(2),
            at: self.some_time(3),
            outcome: self.string(4),
            error_code: self.text(5),
            error_message: self.text(6),
            worker: self.string(7),
        }
    }

    pub(super) fn audit_entry(&self) -> AuditEntry {
        AuditEntry {
            id: self.integer(0),
            at: self.some_time(1),
            actor: self.string(2),
            action: self.string(3),
            target: self.string(4),
            reason: self.string(5),
        }
    }

    pub(super) fn parked_key(&self) -> ParkedKey {
        ParkedKey {
            origin: self.origin(0),
            destination: self.text(1).filter(|name| !name.is_empty()),
            msg_key: self.string(2),
            parked_at: self.some_time(3),
            dead_letter_id: self.uuid(4),
            backlog: self.count(5),
        }
    }

    pub(super) fn control_kind(&self, column: usize) -> ControlKind {
        self.known(column, ControlKind::parse, ControlKind::Destination)
    }

    fn origin(&self, column: usize) -> Origin {
        self.known(column, Origin::parse, Origin::Process)
    }
}

/// What is no UTF-8 is replaced; the common case is only checked.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// A UUID in any usual form. The schema refuses what is none; if one slips by, its hash serves, so
/// that the message keeps one stable id and goes out.
fn uuid(text: &str) -> Uuid {
    Uuid::try_parse(text.trim()).unwrap_or_else(|_| {
        let digest = text::sha256_hex(text.as_bytes());
        let bytes = u128::from_str_radix(&digest[..32], 16).expect("a hash is hexadecimal");
        uuid::Builder::from_custom_bytes(bytes.to_be_bytes()).into_uuid()
    })
}

/// RFC 3339, or SQLite's own `2026-11-15 12:00:00`, which is in UTC.
fn time(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text).or_else(|| Timestamp::parse(&format!("{}Z", text.trim())))
}

/// A time as text, to the microsecond.
pub(super) fn time_text(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| at.to_string(), |at| at.to_string())
}

/// A duration in milliseconds, rounded up: never early.
pub(super) fn millis(duration: Duration) -> i64 {
    let millis = duration.min(PAUSE_MAX).as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).expect("the longest pause fits")
}

/// The lanes as the bits of one integer.
pub(super) fn lane_bits(lanes: &[OwnedLane]) -> i64 {
    lanes.iter().fold(0, |bits, lane| bits | 1_i64.checked_shl(u32_of(lane.lane)).unwrap_or(0))
}

fn u32_of(lane: i16) -> u32 {
    u32::try_from(lane).unwrap_or(u32::MAX)
}

/// Several values in one parameter, for `json_each`.
pub(super) fn json_array<T: Serialize>(values: &[T]) -> String {
    serde_json::to_string(values).expect("plain values are JSON")
}

/// A number of rows as SQLite wants it.
pub(super) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(lane: i16) -> OwnedLane {
        OwnedLane { lane, epoch: 1, unclean: false }
    }

    #[test]
    fn every_lane_has_its_bit_and_nothing_else_has_one() {
        assert_eq!(lane_bits(&[lane(0), lane(5)]), 0b10_0001);
        assert_eq!(lane_bits(&[lane(63)]), i64::MIN);
        assert_eq!(lane_bits(&[lane(-1), lane(64)]), 0);
    }

    #[test]
    fn times_of_other_writers_are_read() {
        let at = Timestamp::parse("2026-11-15T12:00:00Z");
        assert_eq!(time("2026-11-15 12:00:00"), at);
        assert_eq!(time("2026-11-15T12:00:00.000Z"), at);
        assert_eq!(time("2026-11-15T13:00:00+01:00"), at);
        assert_eq!(time("yesterday"), None);
    }

    #[test]
    fn ids_of_other_writers_are_read() {
        let id = Uuid::from_u128(0x0123_4567_89AB_4DEF_8123_4567_89AB_CDEF);
        assert_eq!(uuid(&id.to_string().to_uppercase()), id);
        assert_eq!(uuid(&id.simple().to_string()), id);
        assert_eq!(uuid("order 7"), uuid("order 7"));
        assert_ne!(uuid("order 7"), uuid("order 8"));
    }

    #[test]
    fn pauses_never_end_early_nor_overflow() {
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(millis(Duration::MAX), millis(PAUSE_MAX));
    }
}
