//! The command line: names and options, nothing else.

mod control;
mod decision;
mod desk;
mod id;
mod process;
mod repair;
mod rows;
mod token;
mod tools;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    control::{ControlArgs, DestinationCommand, SourceCommand},
    decision::Decision,
    desk::{
        AuditCommand, DeadLetterCommand, DeadLetterList, EditArgs, ExplainArgs, KeyArgs, Resolve,
    },
    id::IdPrefix,
    process::{
        Act, Diagram, ProcessCommand, ProcessId, ProcessList, ProcessLog, ProcessMatching,
        ProcessName,
    },
    repair::{BrokenList, BrokenRows, DiscardRows, RepairArgs, RepairCommand},
    rows::{InboxCommand, Matching, OutboxCommand, Page, RetryRow},
    token::TokenArgs,
    tools::{BenchArgs, CleanupArgs, CompletionsArgs, HealthArgs, ManArgs, TopArgs},
};

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
    #[command(after_help = "Example:\n  relais run --log json")]
    Run(RunArgs),
    /// Show everything at work with made-up messages
    #[cfg(feature = "demo")]
    #[command(after_help = "Example:\n  relais demo --once")]
    Demo(DemoArgs),
    /// Write a commented relais.toml to start from
    #[command(after_help = "Example:\n  relais init --config orders.toml")]
    Init(InitArgs),
    /// Validate the configuration and explain it
    #[command(after_help = "Example:\n  relais check --connect")]
    Check(CheckArgs),
    /// Bring the tables up to date
    #[command(after_help = "Example:\n  relais migrate --print --database postgres > relais.sql")]
    Migrate(MigrateArgs),
    /// The store at a glance
    #[command(after_help = "Example:\n  relais status")]
    Status(StatusArgs),
    /// The same, live on the terminal: rates, depths, ages, breakers, workers
    #[command(after_help = "Example:\n  relais top --every 2s\n\n\
        Keys: q ends, p pauses, up and down choose a destination, ? helps")]
    Top(TopArgs),
    /// Ask the running relais whether it is alive or ready; exit code 0 or 1
    #[command(after_help = "Example:\n  relais health --ready")]
    Health(HealthArgs),
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
    /// Pause and resume deliveries, change limits, reset a circuit breaker
    #[command(subcommand)]
    Destination(DestinationCommand),
    /// Pause and resume reception
    #[command(subcommand)]
    Source(SourceCommand),
    /// Read again what could not be decoded (SERDE_ERROR), after a fix
    #[command(after_help = "Example:\n  relais repair --code INVALID_JSON --dry-run")]
    Repair(Box<RepairArgs>),
    /// Tell what became of a message, a process or a dead letter, and where it came from
    #[command(after_help = "Example:\n  relais explain m-1")]
    Explain(ExplainArgs),
    /// Who did what, and why
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Remove now what is past its retention, as `relais run` does by itself
    #[command(after_help = "Example:\n  relais cleanup --dry-run")]
    Cleanup(CleanupArgs),
    /// Measure the store, in tables of its own that are removed again
    #[command(after_help = "Example:\n  relais bench --rows 5000 --rounds 1")]
    Bench(BenchArgs),
    /// Make a token for somebody to use the console and the API with
    #[command(after_help = "Example:\n  relais token ann --role operator --expires 2027-01-31")]
    Token(TokenArgs),
    /// Print a completion script
    #[command(
        after_help = "Example:\n  relais completions bash > ~/.local/share/bash-completion/completions/relais"
    )]
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands
    #[command(after_help = "Example:\n  relais man --out ~/.local/share/man/man1")]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// How log lines look, whatever `[log]` says; which ones is up to RUST_LOG, then `[log]`
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Debug, Args)]
#[cfg(feature = "demo")]
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
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) access: Access,
}

/// How the running relais at `[admin]` is asked for what only it knows: breakers and API calls.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Access {
    /// Token for the running relais; needed where `[admin]` has only named tokens
    #[arg(long, env = "RELAIS_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
}

impl Access {
    /// The token that was given, if any.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref().filter(|token| !token.is_empty())
    }
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Look at the file only, not at the database
    #[arg(long)]
    pub(crate) offline: bool,
    /// Also try ports, brokers, targets, log-ins and `hydrate`; sends no message
    #[arg(long, conflicts_with = "offline")]
    pub(crate) connect: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Print the SQL instead, without connecting
    #[arg(long)]
    pub(crate) print: bool,
    /// Print it for this database (default: the one in the settings)
    #[arg(long, value_enum, requires = "print", value_name = "KIND")]
    pub(crate) database: Option<Database>,
    /// Print the SQL that makes the PostgreSQL roles PREFIX_owner, PREFIX_runtime, PREFIX_producer and
    /// PREFIX_reader and grants what each needs, without connecting
    #[arg(long, value_name = "PREFIX", conflicts_with = "print")]
    pub(crate) roles: Option<String>,
    /// The schema that holds the tables
    #[arg(long, value_name = "NAME", requires = "roles", default_value = "public")]
    pub(crate) schema: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

#[cfg(test)]
mod tests;
