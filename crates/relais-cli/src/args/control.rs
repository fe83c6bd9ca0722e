//! `relais destination …`, `relais source …`, and the arguments to pause a process type.

use clap::{Args, Subcommand};
use relais_core::control;

use super::DecisionArgs;
use crate::settings::quantity::{self, Rate};

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationCommand {
    /// Pause deliveries to a destination in all processes until it is resumed
    #[command(
        after_help = "Example:\n  relais destination pause orders --reason \"target is being upgraded\""
    )]
    #[command(mut_arg("name", |arg| arg.help("Name of the destination")))]
    Pause(ControlArgs),
    /// Resume deliveries to a destination
    #[command(
        after_help = "Example:\n  relais destination resume orders --reason \"upgrade done\""
    )]
    #[command(mut_arg("name", |arg| arg.help("Name of the destination")))]
    Resume(ControlArgs),
    /// Change rate and concurrency in all processes until they are reset
    #[command(
        after_help = "Example:\n  relais destination limit orders --rate 5/s --reason \"target is slow\""
    )]
    #[command(mut_arg("name", |arg| arg.help("Name of the destination")))]
    Limit(LimitArgs),
    /// End the pause of an open circuit breaker in all processes: the next call shows whether the target works
    #[command(
        after_help = "Example:\n  relais destination reset-breaker orders --reason \"certificate renewed\""
    )]
    #[command(mut_arg("name", |arg| arg.help("Name of the destination")))]
    ResetBreaker(ControlArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Pause reception from a source in all processes until it is resumed
    #[command(
        after_help = "Example:\n  relais source pause hook --reason \"database maintenance\""
    )]
    #[command(mut_arg("name", |arg| arg.help("Name of the source")))]
    Pause(ControlArgs),
    /// Resume reception from a source
    #[command(after_help = "Example:\n  relais source resume hook --reason \"maintenance done\"")]
    #[command(mut_arg("name", |arg| arg.help("Name of the source")))]
    Resume(ControlArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Name of the destination, source or process type
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// Most messages per unit of time, e.g. 50/s or 100/m
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<Rate>,
    /// Most calls in flight at once, 1 to 1000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CONCURRENCY_MAX))]
    pub(crate) concurrency: Option<u32>,
    /// Restore the configured limits
    #[arg(long, conflicts_with_all = ["rate", "concurrency"])]
    pub(crate) reset: bool,
}

/// Largest concurrency, as clap needs it.
const CONCURRENCY_MAX: i64 = control::CONCURRENCY_MAX as i64;

fn rate(text: &str) -> Result<Rate, String> {
    quantity::rate(text)
}
