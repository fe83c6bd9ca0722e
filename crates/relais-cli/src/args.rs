//! The command line: names and options, nothing else.

mod desk;
mod process;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use relais_core::{decode::Decoder, query::PAGE_MAX};

pub(crate) use self::{
    desk::{
        AuditCommand, DeadLetterCommand, DeadLetterList, EditArgs, ExplainArgs, KeyArgs, Resolve,
    },
    process::{Act, Diagram, ProcessCommand, ProcessId, ProcessList, ProcessLog, ProcessMatching},
};
use crate::settings::quantity;

/// Most rows one `relais repair` takes; run it again for more.
const REPAIRED_MAX: usize = 100_000;

/// Moves messages between a database and the world so that nothing is lost, nothing happens twice,
/// and order holds.
#[derive(Debug, Parser)]
#[command(name = "relais", version, propagate_version = true)]
pub(crate) struct Cli {
    /// The settings file
    #[arg(short, long, global = true, env = "RELAIS_CONFIG", value_name = "FILE")]
    #[arg(default_value = "relais.toml", hide_env_values = true)]
    pub(crate) config: PathBuf,
    /// Print JSON with stable field names
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receive, route and deliver until told to stop
    Run(RunArgs),
    /// Show everything at work with made-up messages
    Demo(DemoArgs),
    /// Write a commented relais.toml to start from
    Init(InitArgs),
    /// Say what the settings mean and whether they work
    Check(CheckArgs),
    /// Bring the tables up to date
    Migrate(MigrateArgs),
    /// The store at a glance
    Status,
    /// Received messages
    #[command(subcommand)]
    Inbox(InboxCommand),
    /// Messages to send
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Messages that need a person
    #[command(subcommand)]
    DeadLetter(DeadLetterCommand),
    /// Work of several steps
    #[command(subcommand)]
    Process(ProcessCommand),
    /// Read again what could not be decoded (SERDE_ERROR), after a fix
    Repair(Box<RepairArgs>),
    /// Tell what became of a message, a process or a dead letter, and where it came from
    Explain(ExplainArgs),
    /// Who did what, and why
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Print a completion script
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// How log lines look; which ones is up to RUST_LOG (default: info)
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// End when everything is delivered
    #[arg(long)]
    pub(crate) once: bool,
    /// How many messages to make
    #[arg(long, value_name = "N")]
    pub(crate) messages: Option<u64>,
    /// Make the same messages and faults again
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Overwrite a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Look at the file only, not at the database
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Print the SQL instead, without connecting
    #[arg(long)]
    pub(crate) print: bool,
    /// Print it for this database (default: the one in the settings)
    #[arg(long, value_enum, requires = "print", value_name = "KIND")]
    pub(crate) database: Option<Database>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// List rows, newest first
    List(InboxList),
    /// Show one row with its payload
    Show(RowId),
    /// Try a failed row again
    Retry(RetryRow),
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// List rows, newest first
    List(OutboxList),
    /// Show one row with its payload
    Show(RowId),
    /// Try a failed row again
    Retry(RetryRow),
}

#[derive(Debug, Args)]
pub(crate) struct InboxList {
    /// Only rows in this state
    #[arg(long, ignore_case = true)]
    #[arg(value_parser = ["RECEIVED", "RETRY", "FAILED", "PROCESSED", "SERDE_ERROR"])]
    pub(crate) status: Option<String>,
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
    /// The id of the row, or of its message
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct RetryRow {
    /// The id of the row, or of its message
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

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
    /// Close rows that nobody can repair: FAILED, with a dead letter that is resolved
    Discard(DiscardRows),
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

/// Who decides, why, and how sure they are.
#[derive(Debug, Args)]
pub(crate) struct Decision {
    /// Why, for the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Who, for the audit (default: the user)
    #[arg(long, env = "USER", value_name = "NAME", default_value = "unknown")]
    #[arg(hide_env = true, hide_default_value = true)]
    pub(crate) actor: String,
    /// Only say what would happen
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

fn since(text: &str) -> Result<Duration, String> {
    quantity::duration(text)
}

fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=PAGE_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {PAGE_MAX}"))
}

fn repair_limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=REPAIRED_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {REPAIRED_MAX}"))
}

fn decoder(text: &str) -> Result<Decoder, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn filters_are_read() {
        let cli = Cli::try_parse_from([
            "relais", "outbox", "list", "--status", "pending", "--since", "15m", "--type", "A",
            "--json",
        ])
        .unwrap();
        assert!(cli.json);
        let Command::Outbox(OutboxCommand::List(list)) = cli.command else { panic!("{cli:?}") };
        assert_eq!(list.matching.since, Some(Duration::from_secs(900)));
        assert_eq!(list.matching.event_type.as_deref(), Some("A"));
        assert_eq!(list.page.limit, 50);
    }
}
