//! `relais inbox …` and `relais outbox …`, and the filters that every list has.

use std::time::Duration;

use clap::{Args, Subcommand};
use relais_core::query::PAGE_MAX;

use super::Decision;
use crate::settings::quantity;

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// List rows, newest first
    #[command(after_help = "Example:\n  relais inbox list --status failed --since 1h")]
    List(InboxList),
    /// Show one row with its payload
    #[command(after_help = "Example:\n  relais inbox show m-1")]
    Show(RowId),
    /// Try a failed row again
    #[command(after_help = "Example:\n  relais inbox retry inbox:4 --reason \"route added\"")]
    Retry(RetryRow),
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// List rows, newest first
    #[command(after_help = "Example:\n  relais outbox list --status pending --destination orders")]
    List(OutboxList),
    /// Show one row with its payload
    #[command(after_help = "Example:\n  relais outbox show 17")]
    Show(RowId),
    /// Try a failed row again
    #[command(after_help = "Example:\n  relais outbox retry 17 --reason \"target is back\"")]
    Retry(RetryRow),
    /// Make a dead letter of a pending row, which can then be discarded or retried
    #[command(after_help = "Example:\n  relais outbox fail 17 --reason \"blocks its destination\"")]
    Fail(RetryRow),
}

#[derive(Debug, Args)]
pub(crate) struct InboxList {
    /// Only rows in this state
    #[arg(long, ignore_case = true)]
    #[arg(value_parser = ["RECEIVED", "RETRY", "FAILED", "PROCESSED", "SERDE_ERROR"])]
    pub(crate) status: Option<String>,
    /// Only rows of this source system
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) matching: Matching,
    #[command(flatten)]
    pub(crate) page: Page,
}

#[derive(Debug, Args)]
pub(crate) struct OutboxList {
    /// Only rows in this state
    #[arg(long, ignore_case = true, value_parser = ["PENDING", "DISPATCHED", "FAILED"])]
    pub(crate) status: Option<String>,
    /// Only rows for this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    #[command(flatten)]
    pub(crate) matching: Matching,
    #[command(flatten)]
    pub(crate) page: Page,
}

/// Filters that every list has.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Matching {
    /// Only this event type
    #[arg(long = "type", value_name = "EVENT_TYPE")]
    pub(crate) event_type: Option<String>,
    /// Only this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only those not older than this, e.g. 15m or 2d
    #[arg(long, value_name = "DURATION", value_parser = since)]
    pub(crate) since: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Page {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
    /// The page after the row with this id
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RowId {
    /// The number of the row (17, or inbox:17 and outbox:17), or the id of its message (m-1, message:17)
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct RetryRow {
    /// The number of the row (17, or inbox:17 and outbox:17), or the id of its message (m-1, message:17)
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

pub(super) fn since(text: &str) -> Result<Duration, String> {
    quantity::duration(text)
}

pub(super) fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=PAGE_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {PAGE_MAX}"))
}
