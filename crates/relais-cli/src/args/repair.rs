//! `relais repair …`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use relais_core::{InvalidSettings, decode::Decoder};

use super::{
    Decision,
    rows::{Page, since},
};

/// Most rows one `relais repair` takes; run it again for more.
const REPAIRED_MAX: usize = 100_000;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RepairArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RepairCommand>,
    #[command(flatten)]
    pub(crate) rows: BrokenRows,
    /// Read them with this decoder, whatever their source declares now
    #[arg(long, value_name = "NAME", conflicts_with_all = ["payload", "set"])]
    #[arg(value_parser = decoder)]
    pub(crate) decoder: Option<Decoder>,
    /// Take the JSON of this file (- is stdin) in place of the bytes of one row
    #[arg(long, value_name = "FILE", conflicts_with = "set")]
    pub(crate) payload: Option<PathBuf>,
    /// Take this JSON in place of the bytes of one row
    #[arg(long, value_name = "JSON")]
    pub(crate) set: Option<String>,
    /// Keep the message id the row has, whatever the message says
    #[arg(long)]
    pub(crate) keep_id: bool,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RepairCommand {
    /// List rows that could not be decoded, newest first
    #[command(after_help = "Example:\n  relais repair list --code INVALID_JSON")]
    List(BrokenList),
    /// Close rows that nobody can repair: FAILED, with a dead letter that is resolved
    #[command(after_help = "Example:\n  relais repair discard 17 --reason \"a test\"")]
    Discard(DiscardRows),
}

#[derive(Debug, Args)]
pub(crate) struct BrokenList {
    /// Only rows of this source system
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Only rows with this error code, e.g. INVALID_JSON
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Only this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only those not older than this, e.g. 15m or 2d
    #[arg(long, value_name = "DURATION", value_parser = since)]
    pub(crate) since: Option<Duration>,
    #[command(flatten)]
    pub(crate) page: Page,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardRows {
    /// Every SERDE_ERROR row that the filters match
    #[arg(long, required_unless_present = "ids", conflicts_with = "ids")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) rows: BrokenRows,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

/// Which SERDE_ERROR rows.
#[derive(Debug, Args)]
pub(crate) struct BrokenRows {
    /// Ids of rows, or of their messages (default: every SERDE_ERROR row the filters match)
    pub(crate) ids: Vec<String>,
    /// Only rows of this source system
    #[arg(long, value_name = "NAME", conflicts_with = "ids")]
    pub(crate) source: Option<String>,
    /// Only rows with this error code, e.g. INVALID_JSON
    #[arg(long, conflicts_with = "ids")]
    pub(crate) code: Option<String>,
    /// Only this key
    #[arg(long, conflicts_with = "ids")]
    pub(crate) key: Option<String>,
    /// Only those not older than this, e.g. 15m or 2d
    #[arg(long, value_name = "DURATION", value_parser = since, conflicts_with = "ids")]
    pub(crate) since: Option<Duration>,
    /// At most this many rows, oldest first
    #[arg(long, value_name = "N", default_value_t = REPAIRED_MAX, value_parser = repair_limit)]
    pub(crate) limit: usize,
}

fn repair_limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=REPAIRED_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {REPAIRED_MAX}"))
}

fn decoder(text: &str) -> Result<Decoder, InvalidSettings> {
    text.parse()
}
