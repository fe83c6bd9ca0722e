//! `relais dead-letter …`, `relais explain`, `relais audit …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use relais_core::id_prefix::{IdKind, IdPrefix};

use super::{
    DecisionArgs,
    rows::{PageArgs, RowFilters, limit},
};
use crate::settings::quantity::{self, Rate};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List dead letters, newest first
    #[command(after_help = "Example:\n  relais dead-letter list --destination orders --since 2d")]
    List(DeadLetterList),
    /// Show a dead letter with its payload, its attempts and its parked key
    #[command(
        after_help = "Example:\n  relais dead-letter show 0192f3c4-5a6b-7c8d-9e0f-112233445566"
    )]
    Show {
        /// ID of the dead letter, or its first digits
        #[arg(value_parser = letter)]
        id: IdPrefix,
    },
    /// Validate and save another payload; the original is kept
    #[command(
        after_help = "Example:\n  relais dead-letter edit 0192f3c4-5a6b-7c8d-9e0f-112233445566 --payload-file fixed.json"
    )]
    Edit(EditArgs),
    /// Retry dead letters ahead of other messages of their keys and reset their attempt counts
    #[command(alias = "replay")]
    #[command(
        after_help = "Example:\n  relais dead-letter retry --all --destination orders --rate 50/s"
    )]
    Retry(RetryArgs),
    /// Discard dead letters; delivery of their keys continues
    #[command(alias = "skip")]
    #[command(
        after_help = "Example:\n  relais dead-letter discard 0192f3c4-5a6b-7c8d-9e0f-112233445566 --reason \"a test\""
    )]
    Discard(Resolve),
    /// List keys parked behind dead letters, longest parked first
    #[command(after_help = "Example:\n  relais dead-letter keys")]
    Keys(KeyList),
    /// Retry all dead letters of a key in order; then delivery continues
    #[command(after_help = "Example:\n  relais dead-letter release o-1 --reason \"target fixed\"")]
    Release(KeyArgs),
    /// Discard all dead letters of a key; then delivery continues
    #[command(
        after_help = "Example:\n  relais dead-letter skip-key o-1 --destination orders --dry-run"
    )]
    SkipKey(KeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterList {
    /// Only dead letters in this state
    #[arg(long, ignore_case = true, value_parser = ["open", "resolved", "all"])]
    #[arg(default_value = "open")]
    pub(crate) status: String,
    /// Only dead letters of this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    #[command(flatten)]
    pub(crate) matching: RowFilters,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// ID of the dead letter, or its first digits
    #[arg(value_parser = letter)]
    pub(crate) id: IdPrefix,
    /// New payload as JSON (default: opens $EDITOR)
    #[arg(long, value_name = "JSON", conflicts_with = "payload_file")]
    pub(crate) payload: Option<String>,
    /// File with the new payload (- is stdin)
    #[arg(long, value_name = "FILE")]
    pub(crate) payload_file: Option<PathBuf>,
    /// Save even if validation fails (must still be valid JSON)
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// Most retries per unit of time, e.g. 50/s or 100/m
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<Rate>,
    #[command(flatten)]
    pub(crate) resolve: Resolve,
}

/// The selection of dead letters.
#[derive(Debug, Args)]
pub(crate) struct Resolve {
    /// IDs of dead letters, or their first digits
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "ID")]
    #[arg(value_parser = letter)]
    pub(crate) ids: Vec<IdPrefix>,
    /// Select all open dead letters that match the filters
    #[arg(long)]
    pub(crate) all: bool,
    /// Only dead letters of this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    #[command(flatten)]
    pub(crate) matching: RowFilters,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyList {
    /// Most keys to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The key
    pub(crate) key: String,
    /// Parked messages to this destination
    #[arg(long, value_name = "NAME", conflicts_with = "inbox")]
    pub(crate) destination: Option<String>,
    /// Parked messages of the inbox
    #[arg(long)]
    pub(crate) inbox: bool,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// ID of a message, process, dead letter or bulk job, or the first digits of a UUID; number of an inbox or
    /// outbox row; TYPE/BUSINESS-KEY of a process; ID of a job at its target; or a full name such as inbox:17
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List actions with actor, target and reason, newest first
    #[command(after_help = "Example:\n  relais audit list --actor ann")]
    List(AuditList),
}

#[derive(Debug, Args)]
pub(crate) struct AuditList {
    /// Only actions of this actor
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Only actions on this target: ID of a dead letter or process, or its first digits; number of an inbox
    /// row; or name
    #[arg(long, value_name = "ID")]
    pub(crate) target: Option<String>,
    /// Most entries to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
    /// List the page after the entry with this ID
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<i64>,
}

fn letter(text: &str) -> Result<IdPrefix, String> {
    let id = text.strip_prefix("dead-letter:").unwrap_or(text);
    IdPrefix::parse(IdKind::DeadLetter, id).ok_or_else(|| {
        "not the ID of a dead letter; `relais dead-letter list` lists them, and `relais explain` finds one \
         by its message"
            .to_owned()
    })
}

fn rate(text: &str) -> Result<Rate, String> {
    quantity::rate(text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use uuid::Uuid;

    use super::*;
    use crate::args::{Cli, RelaisCommand};

    fn parse(rest: &[&str]) -> Result<DeadLetterCommand, String> {
        let parsed = Cli::try_parse_from(["relais", "dead-letter"].iter().chain(rest));
        match parsed.map_err(|error| error.to_string())?.command {
            RelaisCommand::DeadLetter(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn either_ids_or_all_is_required() {
        let id = Uuid::nil().to_string();
        // `replay` and `skip` are hidden aliases.
        for word in ["retry", "replay", "discard", "skip"] {
            assert!(parse(&[word, &id]).is_ok());
            assert!(parse(&[word, "--all", "--destination", "x", "--dry-run"]).is_ok());
            assert!(parse(&[word]).is_err());
            assert!(parse(&[word, &id, "--all"]).is_err());
        }
    }

    #[test]
    fn a_rate_is_parsed_and_a_wrong_one_is_explained() {
        let Ok(DeadLetterCommand::Retry(args)) = parse(&["retry", "--all", "--rate", "50/s"])
        else {
            panic!("not read")
        };
        assert_eq!(args.rate.map(|rate| rate.calls), Some(50));
        let wrong = parse(&["retry", "--all", "--rate", "fast"]).unwrap_err();
        assert!(wrong.contains("50/s"), "{wrong}");
    }

    #[test]
    fn a_payload_has_one_source() {
        let id = Uuid::nil().to_string();
        assert!(parse(&["edit", &id]).is_ok());
        assert!(parse(&["edit", &id, "--payload", "{}", "--payload-file", "-"]).is_err());
        assert!(parse(&["release", "k", "--inbox", "--destination", "d"]).is_err());
    }
}
