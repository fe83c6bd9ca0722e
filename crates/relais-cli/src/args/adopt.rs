//! `relais adopt`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum AdoptCommand {
    /// Print the SQL that `install` runs; changes nothing
    #[command(after_help = "Example:\n  relais adopt print > adopt.sql")]
    Print,
    /// Create the triggers of the tables in `[[adopt]]`, or update them
    #[command(after_help = "Example:\n  relais adopt install")]
    Install,
    /// Compare the tables and their triggers with the configuration; exit code 0 or 1
    #[command(after_help = "Example:\n  relais adopt check")]
    Check,
    /// Remove the triggers; messages that were copied are still delivered
    #[command(after_help = "Example:\n  relais adopt remove shop.outbox")]
    Remove(RemoveAdoption),
}

#[derive(Debug, Args)]
pub(crate) struct RemoveAdoption {
    /// Table, as in SQL; also one that is no longer in the configuration
    #[arg(value_name = "TABLE")]
    pub(crate) table: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}
