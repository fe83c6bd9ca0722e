//! `relais dead-letter …`, `relais explain`, `relais audit …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    Decision, IdPrefix,
    rows::{Matching, Page, limit},
};
use crate::settings::quantity::{self, Rate};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List dead letters, newest first
    #[command(after_help = "Example:\n  relais dead-letter list --destination orders --since 2d")]
    List(DeadLetterList),
    /// Show one with its payload, what was tried, and what waits behind it
    #[command(
        after_help = "Example:\n  relais dead-letter show 0192f3c4-5a6b-7c8d-9e0f-112233445566"
    )]
    Show {
        /// Its id, or the first digits of it
        #[arg(value_parser = letter)]
        id: IdPrefix,
    },
    /// Give one another payload, after a rehearsal; the original is kept
    #[command(
        after_help = "Example:\n  relais dead-letter edit 0192f3c4-5a6b-7c8d-9e0f-112233445566 --payload-file mended.json"
    )]
    Edit(EditArgs),
    /// Try again: first in its key, attempts from zero
    #[command(visible_alias = "retry")]
    #[command(
        after_help = "Example:\n  relais dead-letter replay --all --destination orders --rate 50/s"
    )]
    Replay(ReplayArgs),
    /// Leave it failed and let its key go on
    #[command(visible_alias = "skip")]
    #[command(
        after_help = "Example:\n  relais dead-letter discard 0192f3c4-5a6b-7c8d-9e0f-112233445566 --reason \"a test\""
    )]
    Discard(Resolve),
    /// Keys held back behind dead letters, longest first
    #[command(after_help = "Example:\n  relais dead-letter keys")]
    Keys(KeyList),
    /// Replay everything dead of a key, in order; then it goes on
    #[command(after_help = "Example:\n  relais dead-letter release o-1 --reason \"target mended\"")]
    Release(KeyArgs),
    /// Discard everything dead of a key; then it goes on
    #[command(
        after_help = "Example:\n  relais dead-letter skip-key o-1 --destination orders --dry-run"
    )]
    SkipKey(KeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterList {
    /// Which ones
    #[arg(long, ignore_case = true, value_parser = ["open", "resolved", "all"])]
    #[arg(default_value = "open")]
    pub(crate) status: String,
    /// Only those of this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    #[command(flatten)]
    pub(crate) matching: Matching,
    #[command(flatten)]
    pub(crate) page: Page,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// Its id, or the first digits of it
    #[arg(value_parser = letter)]
    pub(crate) id: IdPrefix,
    /// The new payload, as JSON (default: opens $EDITOR)
    #[arg(long, value_name = "JSON", conflicts_with = "payload_file")]
    pub(crate) payload: Option<String>,
    /// Take the new payload from this file (- is stdin)
    #[arg(long, value_name = "FILE")]
    pub(crate) payload_file: Option<PathBuf>,
    /// Take it even if the rehearsal fails; valid JSON it must be all the same
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// At most this many in a time, e.g. 50/s or 100/m
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<Rate>,
    #[command(flatten)]
    pub(crate) resolve: Resolve,
}

/// Which dead letters are decided.
#[derive(Debug, Args)]
pub(crate) struct Resolve {
    /// Ids of dead letters, or the first digits of them
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "ID")]
    #[arg(value_parser = letter)]
    pub(crate) ids: Vec<IdPrefix>,
    /// Every open one that the filters match
    #[arg(long)]
    pub(crate) all: bool,
    /// Only those of this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    #[command(flatten)]
    pub(crate) matching: Matching,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

#[derive(Debug, Args)]
pub(crate) struct KeyList {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The key
    pub(crate) key: String,
    /// Where it is held: messages to this destination
    #[arg(long, value_name = "NAME", conflicts_with = "inbox")]
    pub(crate) destination: Option<String>,
    /// Where it is held: received messages
    #[arg(long)]
    pub(crate) inbox: bool,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A message id, the number of an inbox or outbox row, the id of a process or its TYPE/BUSINESS-KEY,
    /// the id of a dead letter; the first digits of any of these; or a full name such as inbox:17
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List who did what and why, newest first
    #[command(after_help = "Example:\n  relais audit list --actor ann")]
    List(AuditList),
}

#[derive(Debug, Args)]
pub(crate) struct AuditList {
    /// Only what this person did
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Only what was done to this: the id of a dead letter, or the number of an inbox row
    #[arg(long, value_name = "ID")]
    pub(crate) target: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
    /// The page after the line with this id
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<i64>,
}

fn letter(text: &str) -> Result<IdPrefix, String> {
    let id = text.strip_prefix("dead-letter:").unwrap_or(text);
    IdPrefix::parse(id).ok_or_else(|| {
        "not the id of a dead letter; `relais dead-letter list` shows them, and `relais explain` finds one \
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
    use crate::args::{Cli, Command};

    fn parse(rest: &[&str]) -> Result<DeadLetterCommand, String> {
        let parsed = Cli::try_parse_from(["relais", "dead-letter"].iter().chain(rest));
        match parsed.map_err(|error| error.to_string())?.command {
            Command::DeadLetter(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ids_or_all_but_not_both_nor_none() {
        let id = Uuid::nil().to_string();
        for word in ["replay", "retry", "discard", "skip"] {
            assert!(parse(&[word, &id]).is_ok());
            assert!(parse(&[word, "--all", "--destination", "x", "--dry-run"]).is_ok());
            assert!(parse(&[word]).is_err());
            assert!(parse(&[word, &id, "--all"]).is_err());
        }
    }

    #[test]
    fn a_rate_is_read_and_a_wrong_one_says_how_to_write_it() {
        let Ok(DeadLetterCommand::Replay(args)) = parse(&["replay", "--all", "--rate", "50/s"])
        else {
            panic!("not read")
        };
        assert_eq!(args.rate.map(|rate| rate.calls), Some(50));
        let wrong = parse(&["replay", "--all", "--rate", "fast"]).unwrap_err();
        assert!(wrong.contains("50/s"), "{wrong}");
    }

    #[test]
    fn a_payload_comes_from_one_place() {
        let id = Uuid::nil().to_string();
        assert!(parse(&["edit", &id]).is_ok());
        assert!(parse(&["edit", &id, "--payload", "{}", "--payload-file", "-"]).is_err());
        assert!(parse(&["release", "k", "--inbox", "--destination", "d"]).is_err());
    }
}
