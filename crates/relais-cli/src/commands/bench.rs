//! `relais bench`: measures the database with relais and with a bare loop without guarantees.
//!
//! Invariant: it works in its own database file or schema, which is removed in any case at the end; the rows of
//! the configured store are never touched.
//!
//! - this file: the rounds and the report
//! - `scratch`: the temporary database; `sqlite`, `postgres`: the bare loops in it
//! - `figures`: the same measurements with relais

/// Includes a statement of the project's own benchmark.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../../../../relais/benches/throughput/sql/", $name, ".sql"))
    };
}

mod figures;
mod postgres;
mod scratch;
mod sqlite;

use serde::Serialize;

use self::scratch::ScratchDatabase;
use super::{CommandContext, rows::plain};
use crate::{
    args::BenchArgs,
    failure::{CommandError, Done},
    output::{CommandProgress, TableColumn, table},
};

/// Measurements of one round: three, each with the bare loop and with relais.
const STEPS: u32 = 6;
/// Characters of a full bar.
const BAR: usize = 30;

/// The kind of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Measurement {
    /// Messages written one by one, with one commit each.
    Send,
    /// Received messages stored in batches.
    Accept,
    /// A backlog delivered to a target that accepts everything.
    Relay,
}

impl Measurement {
    const ALL: [Self; 3] = [Self::Send, Self::Accept, Self::Relay];

    fn title(self) -> &'static str {
        match self {
            Self::Send => "send, one commit each",
            Self::Accept => "accept in batches",
            Self::Relay => "deliver a backlog",
        }
    }
}

/// Messages per second, round by round.
#[derive(Debug, Serialize)]
struct Figure {
    name: Measurement,
    raw: Vec<f64>,
    relais: Vec<f64>,
    /// The ratio of the medians.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct BenchReport {
    database: String,
    rows: u64,
    rounds: u32,
    figures: Vec<Figure>,
}

pub(crate) async fn bench(context: &CommandContext, args: &BenchArgs) -> Done {
    let (settings, _) = context.settings()?;
    let scratch = ScratchDatabase::create(&settings).await?;
    let measured = tokio::select! {
        measured = measure(&scratch, args) => measured,
        _ = tokio::signal::ctrl_c() => Err(CommandError::failed("stopped; the temporary tables are removed")),
    };
    let removed = scratch.remove().await;
    let report = measured?;
    removed?;
    if context.output.json {
        return context.output.print_json(&report);
    }
    context.output.print(&show(context, &report))
}

async fn measure(scratch: &ScratchDatabase, args: &BenchArgs) -> Result<BenchReport, CommandError> {
    let store = scratch.store();
    let database = store.describe().await?.server;
    let progress = CommandProgress::new("measurements", Some((STEPS * args.rounds).into()), true);
    let mut found: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); Measurement::ALL.len()];
    for _ in 0..args.rounds {
        // Both take turns, so that other load on the machine affects both.
        for (name, (raw, relais)) in Measurement::ALL.into_iter().zip(&mut found) {
            raw.push(scratch.raw(name, args.rows).await?);
            progress.step();
            relais.push(figures::measure(name, &store, args.rows).await?);
            progress.step();
        }
    }
    progress.finish();
    let figures = Measurement::ALL.into_iter().zip(found).map(|(name, (raw, relais))| {
        let ratio = median(&relais) / median(&raw).max(f64::MIN_POSITIVE);
        Figure { name, raw, relais, ratio }
    });
    let figures = figures.collect();
    Ok(BenchReport { database, rows: args.rows, rounds: args.rounds, figures })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn show(context: &CommandContext, report: &BenchReport) -> String {
    const COLUMNS: [TableColumn; 5] = [
        TableColumn::Text("MESSAGES PER SECOND"),
        TableColumn::Number("BARE LOOP"),
        TableColumn::Number("RELAIS"),
        TableColumn::Number("RATIO"),
        TableColumn::Id(""),
    ];
    let lines = report.figures.iter().map(|figure| {
        vec![
            plain(figure.name.title()),
            plain(format!("{:.0}", median(&figure.raw))),
            plain(format!("{:.0}", median(&figure.relais))),
            plain(format!("{:.2}", figure.ratio)),
            plain(bar(figure.ratio)),
        ]
    });
    let BenchReport { database, rows, rounds, .. } = report;
    let head = format!("{database}, {rows} messages of about 400 bytes, median of {rounds} rounds");
    let doubt = match cfg!(debug_assertions) {
        true => "\nthis relais is a debug build: its figures are not meaningful",
        false => "",
    };
    format!("{head}{doubt}\n\n{}", table(&context.output, &COLUMNS, lines))
}

/// Renders a bar; a full one is as fast as the bare loop.
fn bar(ratio: f64) -> String {
    let filled = ((ratio * BAR as f64).round() as usize).min(BAR);
    format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_computed_and_a_bar_is_bounded() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(bar(0.5).chars().filter(|c| *c == '█').count(), BAR / 2);
        assert_eq!(bar(7.0).chars().count(), BAR);
    }
}
