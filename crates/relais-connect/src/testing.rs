//! A message to send, for the tests of this crate and its fuzz targets.

use relais_core::{
    message::{Category, Headers},
    outbox::{OutboxRow, OutboxStatus},
    time::Timestamp,
};
use uuid::Uuid;

pub(crate) fn row(payload: &str) -> OutboxRow {
    OutboxRow {
        id: 1,
        message_id: Uuid::from_u128(0x0123_4567_89ab_cdef),
        category: Category::Event,
        aggregate_type: "Order".into(),
        aggregate_id: "7".into(),
        event_type: "OrderCreated".into(),
        event_version: 2,
        payload: payload.into(),
        headers: Headers::default(),
        destination: "orders".into(),
        msg_key: "7".into(),
        lane: 3,
        created_at: Timestamp::parse("2026-11-15T12:00:00.123Z").expect("RFC 3339"),
        status: OutboxStatus::Pending,
        attempts: 0,
        lost_workers: 0,
        next_attempt_at: None,
        dispatched_at: None,
        job_id: None,
        causation_id: None,
        correlation_id: None,
        error_code: None,
        error_message: None,
    }
}
