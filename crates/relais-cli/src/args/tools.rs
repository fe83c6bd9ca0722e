//! `relais cleanup`, `relais top`, `relais health`, `relais bench`, `relais completions` and `relais man`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Access, rows::since};

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print one picture and end; so it does where there is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = every)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Ask whether it can do its work (/readyz), not only whether it runs (/healthz)
    #[arg(long)]
    pub(crate) ready: bool,
    /// Ask at this address instead of `admin.listen`; no configuration is read then
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// How long to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = answer_within)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Messages of each round
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = rows)]
    pub(crate) rows: u64,
    /// How often each figure is taken; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page a command into this folder, made if it is not there (default: print the first)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Messages one `relais bench` writes at most in a round.
const BENCH_ROWS_MAX: u64 = 1_000_000;

fn rows(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (100..=BENCH_ROWS_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 100 to {BENCH_ROWS_MAX}"))
}

/// The shortest time between two looks: each counts rows.
const LOOK_MIN: Duration = Duration::from_millis(100);
/// The longest.
const LOOK_MAX: Duration = Duration::from_secs(3_600);

fn every(text: &str) -> Result<Duration, String> {
    let every = since(text)?;
    if (LOOK_MIN..=LOOK_MAX).contains(&every) {
        Ok(every)
    } else {
        Err("must be from 100ms to 1h".to_owned())
    }
}

/// The longest time that `relais health` waits.
const ANSWER_MAX: Duration = Duration::from_secs(60);

fn answer_within(text: &str) -> Result<Duration, String> {
    let within = since(text)?;
    let allowed = Duration::from_millis(1)..=ANSWER_MAX;
    allowed.contains(&within).then_some(within).ok_or_else(|| "must be from 1ms to 1m".to_owned())
}
