//! `relais cleanup`, `relais top`, `relais health`, `relais bench`, `relais completions` and `relais man`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Access, rows::since};

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Only print the number of expired rows
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print the state once and exit; this is the default without a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Refresh interval
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = every)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Check readiness (/readyz) instead of liveness (/healthz)
    #[arg(long)]
    pub(crate) ready: bool,
    /// Address to check instead of `admin.listen`; the configuration is not read then
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Time limit for the response
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = answer_within)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Messages per round
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = rows)]
    pub(crate) rows: u64,
    /// Number of rounds; the median is reported
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
    /// Write one page per command to this directory, which is created if missing (default: print the first)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Most messages of one round of `relais bench`.
const BENCH_ROWS_MAX: u64 = 1_000_000;

fn rows(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (100..=BENCH_ROWS_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 100 to {BENCH_ROWS_MAX}"))
}

/// The shortest refresh interval: each refresh counts rows.
const REFRESH_MIN: Duration = Duration::from_millis(100);
/// The longest refresh interval.
const REFRESH_MAX: Duration = Duration::from_secs(3_600);

fn every(text: &str) -> Result<Duration, String> {
    let every = since(text)?;
    if (REFRESH_MIN..=REFRESH_MAX).contains(&every) {
        Ok(every)
    } else {
        Err("must be from 100ms to 1h".to_owned())
    }
}

/// Longest time limit of `relais health`.
const ANSWER_MAX: Duration = Duration::from_secs(60);

fn answer_within(text: &str) -> Result<Duration, String> {
    let within = since(text)?;
    let allowed = Duration::from_millis(1)..=ANSWER_MAX;
    allowed.contains(&within).then_some(within).ok_or_else(|| "must be from 1ms to 1m".to_owned())
}
