//! `relais reprocess …`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use relais_core::{InvalidSettings, decode::Decoder, json};

use super::{
    DecisionArgs,
    rows::{PageArgs, since},
};

/// Most rows of one `relais reprocess`; run it again for more.
const ROWS_MAX: usize = 100_000;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ReprocessArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ReprocessCommand>,
    #[command(flatten)]
    pub(crate) rows: UndecodableRows,
    /// Decoder to use instead of the one of their source
    #[arg(long, value_name = "NAME", conflicts_with_all = ["payload", "payload_file"])]
    #[arg(value_parser = decoder)]
    pub(crate) decoder: Option<Decoder>,
    /// Corrected payload for one row as JSON
    // It was the name of a file before, and still is if it cannot be JSON.
    #[arg(long, value_name = "JSON", alias = "set", conflicts_with = "payload_file")]
    pub(crate) payload: Option<String>,
    /// File with the corrected payload for one row (- is stdin)
    #[arg(long, value_name = "FILE")]
    pub(crate) payload_file: Option<PathBuf>,
    /// Keep the message ID of the row instead of the one in the message
    #[arg(long)]
    pub(crate) keep_id: bool,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

/// The origin of a corrected payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PayloadOrigin<'a> {
    Json(&'a str),
    File(&'a Path),
}

impl ReprocessArgs {
    /// Returns the corrected payload. A value of `--payload` that cannot be JSON is the name of a file.
    pub(crate) fn corrected(&self) -> Option<PayloadOrigin<'_>> {
        match (&self.payload, &self.payload_file) {
            (_, Some(path)) => Some(PayloadOrigin::File(path)),
            (Some(text), None) => {
                let text = text.trim();
                let is_json =
                    text.starts_with(['{', '[', '"']) || json::check(text.as_bytes()).is_ok();
                Some(if is_json {
                    PayloadOrigin::Json(text)
                } else {
                    PayloadOrigin::File(Path::new(text))
                })
            }
            (None, None) => None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReprocessCommand {
    /// List undecodable rows, newest first
    #[command(after_help = "Example:\n  relais reprocess list --code INVALID_JSON")]
    List(UndecodableList),
    /// Discard undecodable rows: they become FAILED, with a resolved dead letter
    #[command(after_help = "Example:\n  relais reprocess discard 17 --reason \"a test\"")]
    Discard(DiscardRows),
}

#[derive(Debug, Args)]
pub(crate) struct UndecodableList {
    /// Only rows of this source system
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Only rows with this error code, e.g. INVALID_JSON
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Only this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only rows of this time, e.g. 15m or 2d
    #[arg(long, value_name = "DURATION", value_parser = since)]
    pub(crate) since: Option<Duration>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardRows {
    /// Select all SERDE_ERROR rows that match the filters
    #[arg(long, required_unless_present = "ids", conflicts_with = "ids")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) rows: UndecodableRows,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

/// The selection of SERDE_ERROR rows.
#[derive(Debug, Args)]
pub(crate) struct UndecodableRows {
    /// IDs of rows or of their messages (default: all SERDE_ERROR rows that match the filters)
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
    /// Only rows of this time, e.g. 15m or 2d
    #[arg(long, value_name = "DURATION", value_parser = since, conflicts_with = "ids")]
    pub(crate) since: Option<Duration>,
    /// Most rows to reprocess, oldest first
    #[arg(long, value_name = "N", default_value_t = ROWS_MAX, value_parser = rows_limit)]
    pub(crate) limit: usize,
}

fn rows_limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=ROWS_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {ROWS_MAX}"))
}

fn decoder(text: &str) -> Result<Decoder, InvalidSettings> {
    text.parse()
}
