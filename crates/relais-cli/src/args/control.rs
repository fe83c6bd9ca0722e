//! `relais destination …`, `relais source …`, and what pauses a process type.

use clap::{Args, Subcommand};

use super::Decision;
use crate::settings::quantity::{self, Rate};

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationCommand {
    /// Stop deliveries to a destination in every process, until it is resumed
    #[command(
        after_help = "Example:\n  relais destination pause orders --reason \"target is being upgraded\""
    )]
    Pause(ControlArgs),
    /// End the pause of a destination
    #[command(
        after_help = "Example:\n  relais destination resume orders --reason \"upgrade done\""
    )]
    Resume(ControlArgs),
    /// Change rate and concurrency in every process that runs, until that restarts
    #[command(
        after_help = "Example:\n  relais destination limit orders --rate 5/s --reason \"target is slow\"\n\n\
            Without --rate and --concurrency the configured limits are in force again."
    )]
    Limit(LimitArgs),
    /// Close the circuit breaker of a destination in every process
    #[command(
        after_help = "Example:\n  relais destination reset-breaker orders --reason \"certificate renewed\""
    )]
    ResetBreaker(ControlArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Stop reading from a source in every process, until it is resumed
    #[command(
        after_help = "Example:\n  relais source pause hook --reason \"database maintenance\""
    )]
    Pause(ControlArgs),
    /// End the pause of a source
    #[command(after_help = "Example:\n  relais source resume hook --reason \"maintenance done\"")]
    Resume(ControlArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Its name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// At most this many messages in a time, e.g. 50/s or 100/m
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<Rate>,
    /// At most this many calls in flight at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrency: Option<u32>,
}

fn rate(text: &str) -> Result<Rate, String> {
    quantity::rate(text)
}
