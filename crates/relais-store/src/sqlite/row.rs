//! Rows as they come out of the file, and values on their way in.
//!
//! Invariant: no row can make a read fail, but one with a state that this program does not know. Any
//! language may have written it, so text that is no UTF-8, a time in another form or a number out of
//! range is read as well as it can be. A state is guarded by its table: another one is a newer
//! program's, and nothing is done with such a row.

use std::{borrow::Cow, cell::RefCell, time::Duration};

use relais_core::{
    bulk::{BulkJob, Phase},
    control::ControlKind,
    dead_letter::{DeadLetter, Origin},
    inbox::{InboxRow, InboxStatus},
    inspect::AuditEntry,
    lane::OwnedLane,
    message::{Category, Headers},
    outbox::{OutboxRow, OutboxStatus},
    process::{KeyHold, LogEntry, Process, ProcessStatus},
    query::ParkedKey,
    store::StoreError,
    text,
    time::Timestamp,
};
use rusqlite::{Connection, Params, Row, RowIndex, types::ValueRef};
use serde::Serialize;
use uuid::Uuid;

use super::error;
use crate::unknown_value;

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
        let rows = statement.query_map(params, |row| self::read(row, &read))?;
        rows.collect::<rusqlite::Result<Vec<T>>>()
    };
    run().map_err(|e| error::store(&e))
}

/// Reads one row; an error if it has a state that this program does not know.
pub(super) fn read<T>(
    row: &Row<'_>,
    read: impl FnOnce(&Cells<'_, '_>) -> T,
) -> rusqlite::Result<T> {
    let cells = Cells::new(row);
    let value = read(&cells);
    match cells.unknown.into_inner() {
        None => Ok(value),
        Some(name) => Err(error::unknown(&name)),
    }
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

/// Returns the number of rows that a statement changed.
pub(super) fn change(db: &Connection, sql: &str, params: impl Params) -> Result<u64, StoreError> {
    let changed = db.prepare_cached(sql).and_then(|mut statement| statement.execute(params));
    changed.map(|rows| rows as u64).map_err(|e| error::store(&e))
}

/// A column by its name, or by its place.
pub(super) trait Column: RowIndex + Copy {}

impl<T: RowIndex + Copy> Column for T {}

/// The columns of one row, read so that none can fail.
pub(super) struct Cells<'a, 'b> {
    row: &'a Row<'b>,
    /// The name of a state that this program does not know.
    unknown: RefCell<Option<String>>,
}

impl<'a, 'b> Cells<'a, 'b> {
    pub(super) fn new(row: &'a Row<'b>) -> Self {
        Self { row, unknown: RefCell::default() }
    }

    /// Returns a text without a copy; an empty one for what is no text.
    pub(super) fn text_ref(&self, column: impl Column) -> Cow<'_, str> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => lossy(bytes),
            _ => Cow::Borrowed(""),
        }
    }

    pub(super) fn size(&self, column: impl Column) -> usize {
        usize::try_from(self.integer(column)).unwrap_or_default()
    }

    pub(super) fn text(&self, column: impl Column) -> Option<String> {
        match self.row.get_ref(column).unwrap_or(ValueRef::Null) {
            ValueRef::Null => None,
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(lossy(bytes).into_owned()),
            ValueRef::Integer(number) => Some(number.to_string()),
            ValueRef::Real(number) => Some(number.to_string()),
        }
    }

    pub(super) fn string(&self, column: impl Column) -> String {
        self.text(column).unwrap_or_default()
    }

    pub(super) fn integer(&self, column: impl Column) -> i64 {
        self.number(column).unwrap_or(0)
    }

    pub(super) fn number(&self, column: impl Column) -> Option<i64> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Integer(number)) => Some(number),
            _ => None,
        }
    }

    pub(super) fn count(&self, column: impl Column) -> u64 {
        u64::try_from(self.integer(column)).unwrap_or_default()
    }

    pub(super) fn flag(&self, column: impl Column) -> bool {
        self.integer(column) != 0
    }

    /// Parses the text without a copy of it.
    fn parsed<T>(&self, column: impl Column, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Text(bytes)) => parse(&lossy(bytes)),
            _ => None,
        }
    }

    /// A state by its name. The placeholder of one that is not known leaves [`all`] never.
    fn known<T>(&self, column: impl Column, parse: fn(&str) -> Option<T>, placeholder: T) -> T {
        self.parsed(column, parse).unwrap_or_else(|| {
            self.unknown.replace(Some(self.string(column)));
            placeholder
        })
    }

    pub(super) fn time(&self, column: impl Column) -> Option<Timestamp> {
        self.parsed(column, time)
    }

    /// 1970 for what is no time at all.
    pub(super) fn some_time(&self, column: impl Column) -> Timestamp {
        self.time(column).unwrap_or(Timestamp(0))
    }

    pub(super) fn attempts(&self, column: impl Column) -> u32 {
        u32::try_from(self.integer(column).max(0)).unwrap_or(u32::MAX)
    }

    fn small(&self, column: impl Column) -> i32 {
        let number = self.integer(column).clamp(i32::MIN.into(), i32::MAX.into());
        i32::try_from(number).expect("clamped to the range of i32")
    }

    pub(super) fn lane(&self, column: impl Column) -> i16 {
        i16::try_from(self.integer(column)).unwrap_or_default()
    }

    pub(super) fn uuid(&self, column: impl Column) -> Uuid {
        self.parsed(column, |text| Some(uuid(text))).unwrap_or_default()
    }

    /// In the order in which every statement lists the columns: workers read many rows of this table.
    pub(super) fn inbox(&self) -> InboxRow {
        let mut places = 0_usize..;
        let mut next = || places.next().unwrap_or_default();
        InboxRow {
            id: self.integer(next()),
            message_id: self.string(next()),
            source_system: self.string(next()),
            topic: self.string(next()),
            partition_num: self.small(next()),
            offset_num: self.integer(next()),
            key_str: self.text(next()),
            msg_key: self.string(next()),
            lane: self.lane(next()),
            aggregate_id: self.text(next()),
            event_type: self.text(next()),
            payload: self.text(next()),
            headers: self.parsed(next(), |json| Some(Headers::from_json(json))).unwrap_or_default(),
            raw_payload_base64: self.text(next()),
            event_ts: self.time(next()),
            received_at: self.some_time(next()),
            status: self.known(next(), InboxStatus::parse, InboxStatus::Failed),
            attempts: self.attempts(next()),
            next_attempt_at: self.time(next()),
            processed_at: self.time(next()),
            error_stage: self.text(next()),
            error_code: self.text(next()),
            error_message: self.text(next()),
            lost_workers: self.attempts(next()),
            unknown_since: self.time(next()),
        }
    }

    /// In the order in which every statement lists the columns: workers read many rows of this table.
    pub(super) fn outbox(&self) -> OutboxRow {
        let mut places = 0_usize..;
        let mut next = || places.next().unwrap_or_default();
        OutboxRow {
            id: self.integer(next()),
            message_id: self.uuid(next()),
            category: self.known(next(), Category::parse, Category::Event),
            aggregate_type: self.string(next()),
            aggregate_id: self.string(next()),
            event_type: self.string(next()),
            event_version: self.small(next()),
            payload: self.string(next()),
            headers: self.parsed(next(), |json| Some(Headers::from_json(json))).unwrap_or_default(),
            destination: self.string(next()),
            msg_key: self.string(next()),
            lane: self.lane(next()),
            created_at: self.some_time(next()),
            status: self.known(next(), OutboxStatus::parse, OutboxStatus::Failed),
            attempts: self.attempts(next()),
            next_attempt_at: self.time(next()),
            dispatched_at: self.time(next()),
            job_id: self.text(next()),
            causation_id: self.text(next()),
            correlation_id: self.text(next()),
            error_code: self.text(next()),
            error_message: self.text(next()),
            lost_workers: self.attempts(next()),
        }
    }

    pub(super) fn bulk_job(&self) -> BulkJob {
        BulkJob {
            id: self.uuid("id"),
            destination: self.string("destination"),
            remote_id: self.text("remote_id"),
            phase: self.known("phase", Phase::parse, Phase::Planned),
            row_count: self.count("row_count"),
            owner: self.text("owner"),
            epoch: self.integer("epoch"),
            created_at: self.some_time("created_at"),
            finished_at: self.time("finished_at"),
            error_message: self.text("error_message"),
        }
    }

    pub(super) fn process(&self) -> Process {
        Process {
            process_id: self.uuid("process_id"),
            process_type: self.string("process_type"),
            definition: self.small("definition"),
            business_key: self.text("business_key"),
            status: self.known("status", ProcessStatus::parse, ProcessStatus::Failed),
            current_step: self.text("current_step"),
            data: self.string("data"),
            retries: self.attempts("retries"),
            progress: self.string("progress"),
            version: self.integer("version"),
            created_at: self.some_time("created_at"),
            updated_at: self.some_time("updated_at"),
            key_hold: self.known("key_hold", KeyHold::parse, KeyHold::Once),
        }
    }

    pub(super) fn log_entry(&self) -> LogEntry {
        let entry = self.parsed("event", |json| serde_json::from_str(json).ok());
        LogEntry {
            process_id: self.uuid("process_id"),
            seq: self.integer("seq"),
            at: self.some_time("at"),
            message_id: self.text("message_id"),
            entry: entry.unwrap_or_else(|| {
                unknown_value::entry(&self.string("event_type"), &self.string("event"))
            }),
        }
    }

    pub(super) fn dead_letter(&self) -> DeadLetter {
        DeadLetter {
            id: self.uuid("id"),
            origin: self.origin("origin"),
            origin_id: self.number("origin_id"),
            message_id: self.string("message_id"),
            source_system: self.text("source_system"),
            destination: self.text("destination"),
            event_type: self.text("event_type"),
            msg_key: self.string("msg_key"),
            payload: self.text("payload"),
            headers: self
                .parsed("headers", |json| Some(Headers::from_json(json)))
                .unwrap_or_default(),
            failed_status: self.string("failed_status"),
            error_class: self.text("error_class"),
            error_message: self.text("error_message"),
            attempts: self.attempts("attempts"),
            parked_by: self.string("parked_by"),
            parked_at: self.some_time("parked_at"),
            original_payload: self.text("original_payload"),
            edited_by: self.text("edited_by"),
            edited_at: self.time("edited_at"),
            resolution: self.text("resolution"),
            resolved_by: self.text("resolved_by"),
            resolved_at: self.time("resolved_at"),
            reason: self.text("reason"),
        }
    }

    pub(super) fn audit_entry(&self) -> AuditEntry {
        AuditEntry {
            id: self.integer("id"),
            at: self.some_time("at"),
            actor: self.string("actor"),
            action: self.string("action"),
            target: self.string("target"),
            reason: self.string("reason"),
        }
    }

    pub(super) fn parked_key(&self) -> ParkedKey {
        ParkedKey {
            origin: self.origin("origin"),
            destination: self.text("destination").filter(|name| !name.is_empty()),
            msg_key: self.string("msg_key"),
            parked_at: self.some_time("parked_at"),
            dead_letter_id: self.uuid("dead_letter_id"),
            backlog: self.count("backlog"),
        }
    }

    pub(super) fn control_kind(&self, column: impl Column) -> ControlKind {
        self.known(column, ControlKind::parse, ControlKind::Destination)
    }

    pub(super) fn origin(&self, column: impl Column) -> Origin {
        self.known(column, Origin::parse, Origin::Process)
    }
}

/// Replaces bytes that are not UTF-8; the common case is only checked.
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
    let bit = |lane: &OwnedLane| 1_i64.checked_shl(u32::try_from(lane.lane).ok()?);
    lanes.iter().filter_map(bit).fold(0, |bits, bit| bits | bit)
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
