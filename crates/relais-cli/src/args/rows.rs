//! `relais inbox …` and `relais outbox …`, and the filters of every list.

use std::time::Duration;

use clap::{Args, Subcommand};
use relais_core::query::PAGE_MAX;

use super::DecisionArgs;
use crate::settings::quantity;

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// List inbox rows, newest first
    #[command(after_help = "Example:\n  relais inbox list --status failed --since 1h")]
    List(InboxList),
    /// Show an inbox row with its payload
    #[command(after_help = "Example:\n  relais inbox show m-1")]
    Show(RowId),
    /// Retry a failed inbox row
    #[command(after_help = "Example:\n  relais inbox retry inbox:4 --reason \"route added\"")]
    Retry(RetryRow),
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// List outbox rows, newest first
    #[command(after_help = "Example:\n  relais outbox list --status pending --destination orders")]
    List(OutboxList),
    /// Show an outbox row with its payload
    #[command(after_help = "Example:\n  relais outbox show 17")]
    Show(RowId),
    /// Retry a failed outbox row, or send a pending one now that waits in backoff
    #[command(after_help = "Example:\n  relais outbox retry 17 --reason \"target is back\"")]
    Retry(RetryRow),
    /// Turn a pending row into a dead letter, which can be retried or discarded
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
    pub(crate) matching: RowFilters,
    #[command(flatten)]
    pub(crate) page: PageArgs,
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
    pub(crate) matching: RowFilters,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// The filters of every list.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RowFilters {
    /// Only this event type
    #[arg(long = "type", value_name = "EVENT_TYPE")]
    pub(crate) event_type: Option<String>,
    /// Only this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only rows with this error code, e.g. HTTP_503
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Only rows of this time, e.g. 15m or 2d
    #[arg(long, value_name = "DURATION", value_parser = since)]
    pub(crate) since: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Most rows to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
    /// List the page after the row with this ID
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RowId {
    /// Number of the row (17, inbox:17, outbox:17), or ID of its message (m-1, message:17), also its first
    /// characters ('order-1*'; a UUID needs no *)
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct RetryRow {
    /// Number of the row (17, inbox:17, outbox:17), or ID of its message (m-1, message:17), also its first
    /// characters ('order-1*'; a UUID needs no *)
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

pub(super) fn since(text: &str) -> Result<Duration, String> {
    quantity::duration(text)
}

pub(super) fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=PAGE_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {PAGE_MAX}"))
}
