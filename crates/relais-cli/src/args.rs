//! The definition of the command line: commands, arguments and help texts.

mod adopt;
mod control;
mod dead_letters;
mod decision;
mod process;
mod reprocess;
mod rows;
mod token;
mod tools;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    adopt::{AdoptCommand, RemoveAdoption},
    control::{ControlArgs, DestinationCommand, SourceCommand},
    dead_letters::{
        AuditCommand, DeadLetterCommand, DeadLetterList, EditArgs, ExplainArgs, KeyArgs, Resolve,
    },
    decision::DecisionArgs,
    process::{
        Act, Diagram, ProcessCommand, ProcessId, ProcessList, ProcessLog, ProcessMatching,
        ProcessName,
    },
    reprocess::{
        DiscardRows, PayloadOrigin, ReprocessArgs, ReprocessCommand, UndecodableList,
        UndecodableRows,
    },
    rows::{InboxCommand, OutboxCommand, PageArgs, RetryRow, RowFilters},
    token::TokenArgs,
    tools::{BenchArgs, CleanupArgs, CompletionsArgs, HealthArgs, ManArgs, TopArgs},
};

/// Reliable messaging between a database and other systems: transactional inbox and outbox, sagas and
/// dead letters.
#[derive(Debug, Parser)]
#[command(name = "relais", version, propagate_version = true)]
pub(crate) struct Cli {
    /// The configuration file
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
    pub(crate) command: RelaisCommand,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RelaisCommand {
    /// Receive, route and deliver messages until stopped
    #[command(after_help = "Example:\n  relais run --log json")]
    Run(RunArgs),
    /// Run a demonstration with generated messages and injected faults
    #[cfg(feature = "demo")]
    #[command(after_help = "Example:\n  relais demo --once")]
    Demo(DemoArgs),
    /// Write a commented configuration: an example, or one for a source and a destination
    #[command(after_help = "Example:\n  relais init --from kafka --to rabbitmq")]
    Init(InitArgs),
    /// Validate the configuration and explain it
    #[command(after_help = "Example:\n  relais check --connect")]
    Check(CheckArgs),
    /// Print the JSON schema of the configuration, for editors
    #[command(after_help = "Example:\n  relais schema > relais.schema.json")]
    Schema,
    /// Create the tables, or update them to this version
    #[command(after_help = "Example:\n  relais migrate --print --database postgres > relais.sql")]
    Migrate(MigrateArgs),
    /// Deliver rows of an application's own outbox table
    #[command(subcommand)]
    Adopt(AdoptCommand),
    /// Show counts, backlogs, circuit breakers and workers
    #[command(after_help = "Example:\n  relais status")]
    Status(StatusArgs),
    /// Show rates, backlogs, circuit breakers and workers live on the terminal
    #[command(after_help = "Example:\n  relais top --every 2s\n\n\
        Keys: q quits, p pauses, up and down select a destination, ? shows help")]
    Top(TopArgs),
    /// Check whether the running relais is alive or ready; exit code 0 or 1
    #[command(after_help = "Example:\n  relais health --ready")]
    Health(HealthArgs),
    /// List, show and retry received messages
    #[command(subcommand)]
    Inbox(InboxCommand),
    /// List, show, retry and fail messages to send
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// List, edit, retry and discard dead letters
    #[command(subcommand)]
    DeadLetter(DeadLetterCommand),
    /// List, show and control processes (sagas)
    #[command(subcommand)]
    Process(ProcessCommand),
    /// Pause and resume deliveries, change limits, reset a circuit breaker
    #[command(subcommand)]
    Destination(DestinationCommand),
    /// Pause and resume reception
    #[command(subcommand)]
    Source(SourceCommand),
    /// Reprocess messages that failed to decode (SERDE_ERROR)
    #[command(alias = "repair")]
    #[command(after_help = "Example:\n  relais reprocess --code INVALID_JSON --dry-run")]
    Reprocess(Box<ReprocessArgs>),
    /// Show the history of a message, a process or a dead letter
    #[command(after_help = "Example:\n  relais explain m-1")]
    Explain(ExplainArgs),
    /// List the actions of operators
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Delete rows past their retention now, as `relais run` does in the background
    #[command(after_help = "Example:\n  relais cleanup --dry-run")]
    Cleanup(CleanupArgs),
    /// Benchmark the database using temporary tables
    #[command(after_help = "Example:\n  relais bench --rows 5000 --rounds 1")]
    Bench(BenchArgs),
    /// Create a token for the console and the API
    #[command(after_help = "Example:\n  relais token ann --role operator --expires 2027-01-31")]
    Token(TokenArgs),
    /// Print a shell completion script
    #[command(
        after_help = "Example:\n  relais completions bash > ~/.local/share/bash-completion/completions/relais"
    )]
    Completions(CompletionsArgs),
    /// Print the manual page, or write the manual pages of all commands
    #[command(after_help = "Example:\n  relais man --out ~/.local/share/man/man1")]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Log format; overrides `[log]`. RUST_LOG, then `[log]`, sets the level
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Debug, Args)]
#[cfg(feature = "demo")]
pub(crate) struct DemoArgs {
    /// Stop when all messages are delivered
    #[arg(long)]
    pub(crate) once: bool,
    /// Number of messages to generate
    #[arg(long, value_name = "N")]
    pub(crate) messages: Option<u64>,
    /// Seed of a run, to repeat its messages and faults
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Kind of the source; alone it delivers to a log
    #[arg(long, value_name = "KIND")]
    pub(crate) from: Option<InitSource>,
    /// Kind of the destination; alone it reads from HTTP
    #[arg(long, value_name = "KIND")]
    pub(crate) to: Option<InitTarget>,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// The kinds of sources that `relais init` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InitSource {
    Amqp,
    Http,
    Kafka,
    Nats,
    Rabbitmq,
    Servicebus,
}

/// The kinds of destinations that `relais init` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InitTarget {
    Amqp,
    Http,
    Kafka,
    Log,
    Nats,
    Rabbitmq,
    Salesforce,
    Servicebus,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) access: Access,
}

/// Access to the running relais at `[admin]`, which reports breakers and API calls.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Access {
    /// Token for the running relais; required if `[admin]` has only named tokens
    #[arg(long, env = "RELAIS_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
}

impl Access {
    /// Returns the token of the command line, if any.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref().filter(|token| !token.is_empty())
    }
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Check the file only, without connecting to the database
    #[arg(long)]
    pub(crate) offline: bool,
    /// Also check ports, brokers, targets, log-ins and `hydrate`; sends no message
    #[arg(long, conflicts_with = "offline")]
    pub(crate) connect: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Print the SQL without connecting to the database
    #[arg(long)]
    pub(crate) print: bool,
    /// Print it for this database (default: the configured one)
    #[arg(long, value_enum, requires = "print", value_name = "KIND")]
    pub(crate) database: Option<DatabaseKind>,
    /// Print the SQL that creates the PostgreSQL roles PREFIX_owner, PREFIX_runtime, PREFIX_producer,
    /// PREFIX_consumer, PREFIX_publisher and PREFIX_reader with their grants, without connecting to the
    /// database
    #[arg(long, value_name = "PREFIX", conflicts_with = "print")]
    pub(crate) roles: Option<String>,
    /// Schema of the tables
    #[arg(long, value_name = "NAME", requires = "roles", default_value = "public")]
    pub(crate) schema: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}

#[cfg(test)]
mod tests;
