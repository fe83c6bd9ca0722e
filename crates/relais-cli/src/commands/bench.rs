//! `relais bench`: how fast this database is for relais, beside a bare loop that promises nothing.
//!
//! Invariant: works in a database or schema of its own, which is removed at the end whatever happened; the
//! rows of the settings' store are never touched.
//!
//! - here: the rounds and the report
//! - `bed`: the scratch database; `sqlite`, `postgres`: the bare loops in it
//! - `figures`: the same through relais

/// A statement of the project's own benchmark, which measures the same with more care.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../../../../relais/benches/throughput/sql/", $name, ".sql"))
    };
}

mod bed;
mod figures;
mod postgres;
mod sqlite;

use serde::Serialize;

use self::bed::Bed;
use super::{Context, rows::plain};
use crate::{
    args::BenchArgs,
    failure::{Done, Failure},
    output::{Column, Progress, table},
};

/// Figures of one round: three, each bare and through relais.
const STEPS: u32 = 6;
/// Characters of a full bar.
const BAR: usize = 30;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    /// Messages written one by one, a commit each.
    Send,
    /// Received messages stored in batches.
    Accept,
    /// A backlog delivered to a target that takes everything.
    Relay,
}

impl Name {
    const ALL: [Self; 3] = [Self::Send, Self::Accept, Self::Relay];

    fn title(self) -> &'static str {
        match self {
            Self::Send => "send, a commit each",
            Self::Accept => "accept, in batches",
            Self::Relay => "relay a backlog",
        }
    }
}

/// Messages a second, round by round.
#[derive(Debug, Serialize)]
struct Figure {
    name: Name,
    raw: Vec<f64>,
    relais: Vec<f64>,
    /// Median by median.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    database: String,
    rows: u64,
    rounds: u32,
    figures: Vec<Figure>,
}

pub(crate) async fn bench(context: &Context, args: &BenchArgs) -> Done {
    let (settings, _) = context.settings()?;
    let bed = Bed::make(&settings).await?;
    let measured = tokio::select! {
        measured = measure(&bed, args) => measured,
        _ = tokio::signal::ctrl_c() => Err(Failure::failed("stopped; what it made is removed")),
    };
    let removed = bed.remove().await;
    let report = measured?;
    removed?;
    if context.output.json {
        return context.output.print_json(&report);
    }
    context.output.print(&show(context, &report))
}

async fn measure(bed: &Bed, args: &BenchArgs) -> Result<Report, Failure> {
    let store = bed.store();
    let database = store.describe().await?;
    let mut progress = Progress::new("measurements", Some((STEPS * args.rounds).into()), true);
    let mut found: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); Name::ALL.len()];
    for _ in 0..args.rounds {
        // Taking turns: what else the machine does hits both.
        for (name, (raw, relais)) in Name::ALL.into_iter().zip(&mut found) {
            raw.push(bed.raw(name, args.rows).await?);
            progress.step()?;
            relais.push(figures::measure(name, &store, args.rows).await?);
            progress.step()?;
        }
    }
    progress.finish();
    let figures = Name::ALL.into_iter().zip(found).map(|(name, (raw, relais))| {
        let ratio = median(&relais) / median(&raw).max(f64::MIN_POSITIVE);
        Figure { name, raw, relais, ratio }
    });
    let figures = figures.collect();
    Ok(Report { database, rows: args.rows, rounds: args.rounds, figures })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn show(context: &Context, report: &Report) -> String {
    const COLUMNS: [Column; 5] = [
        Column::Text("MESSAGES A SECOND"),
        Column::Number("BARE LOOP"),
        Column::Number("RELAIS"),
        Column::Number("RATIO"),
        Column::Id(""),
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
    let Report { database, rows, rounds, .. } = report;
    let head = format!("{database}, {rows} messages of about 400 bytes, median of {rounds}");
    let doubt = match cfg!(debug_assertions) {
        true => "\nthis relais is not built with --release: its side of the figures says nothing",
        false => "",
    };
    format!("{head}{doubt}\n\n{}", table(&context.output, &COLUMNS, lines))
}

/// A full bar is as fast as the bare loop.
fn bar(ratio: f64) -> String {
    let filled = ((ratio * BAR as f64).round() as usize).min(BAR);
    format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_and_a_bar_ends() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(bar(0.5).chars().filter(|c| *c == '█').count(), BAR / 2);
        assert_eq!(bar(7.0).chars().count(), BAR);
    }
}
