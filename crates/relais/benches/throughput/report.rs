//! The figures: collected, shown as a table, kept as JSON.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::options::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Millis,
    PercentOfCore,
    Percent,
    Megabytes,
    Micros,
    Bytes,
    BytesPerSecond,
    Number,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Millis => "ms",
            Self::PercentOfCore | Self::Percent => "%",
            Self::Megabytes => "MB",
            Self::Micros => "us",
            Self::Bytes => "B",
            Self::BytesPerSecond => "B/s",
            Self::Number => "",
        }
    }

    fn show(self, value: f64) -> String {
        let digits = match self {
            Self::PerSecond | Self::Megabytes | Self::Bytes | Self::BytesPerSecond => 0,
            Self::Micros | Self::Percent => 1,
            Self::Millis | Self::PercentOfCore => 2,
            Self::Number => 3,
        };
        format!("{value:.digits$} {}", self.name()).trim_end().to_owned()
    }
}

/// A target; shown, never enforced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    RatioAtLeast(f64),
    AtLeast(f64),
    AtMost(f64),
    None,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) store: &'static str,
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// The baseline of relais, round by round.
    pub(crate) raw: Vec<f64>,
    /// relais, round by round.
    pub(crate) relais: Vec<f64>,
    pub(crate) target: Target,
    pub(crate) note: String,
}

impl Entry {
    fn ratio(&self) -> Option<f64> {
        let (raw, relais) = (median(&self.raw)?, median(&self.relais)?);
        (raw > 0.0).then(|| relais / raw)
    }

    fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::RatioAtLeast(least) => Some(self.ratio()? >= least),
            Target::AtLeast(least) => Some(median(&self.relais)? >= least),
            Target::AtMost(most) => Some(median(&self.relais)? <= most),
            Target::None => None,
        }
    }

    fn cells(&self) -> [String; 7] {
        let show = |value: Option<f64>| value.map_or("-".into(), |value| self.unit.show(value));
        let target = match self.target {
            Target::RatioAtLeast(least) => format!(">= {least:.2}"),
            Target::AtLeast(least) => format!(">= {least} {}", self.unit.name()),
            Target::AtMost(most) => format!("<= {most} {}", self.unit.name()),
            Target::None => "-".into(),
        };
        let result = match self.is_met() {
            Some(true) => "ok",
            Some(false) => "MISSED",
            None => "-",
        };
        [
            format!("{} {}", self.store, self.name),
            show(median(&self.raw)),
            show(median(&self.relais)),
            self.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}")),
            target,
            result.into(),
            self.note.clone(),
        ]
    }

    fn json(&self) -> Value {
        let (kind, target) = match self.target {
            Target::RatioAtLeast(least) => ("ratio-at-least", Some(least)),
            Target::AtLeast(least) => ("at-least", Some(least)),
            Target::AtMost(most) => ("at-most", Some(most)),
            Target::None => ("none", None),
        };
        json!({
            "store": self.store,
            "name": self.name,
            "unit": self.unit.name(),
            "raw": median(&self.raw),
            "relais": median(&self.relais),
            "ratio": self.ratio(),
            "target": {"kind": kind, "value": target},
            "met": self.is_met(),
            "raw_rounds": self.raw,
            "relais_rounds": self.relais,
            "note": self.note,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    quick: bool,
    stores: Vec<Value>,
    entries: Vec<Entry>,
    /// Left out because the machine does not have it.
    left_out: Vec<String>,
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            quick: options.quick,
            stores: Vec::new(),
            entries: Vec::new(),
            left_out: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn store(&mut self, name: &str, version: &str) {
        eprintln!("{version}");
        self.stores.push(json!({"store": name, "version": version}));
    }

    pub(crate) fn add(&mut self, entry: Entry) {
        let [name, raw, relais, ratio, ..] = entry.cells();
        eprintln!("  {name}: raw {raw}, relais {relais}, ratio {ratio} {}", entry.note);
        self.entries.push(entry);
    }

    pub(crate) fn left_out(&mut self, what: &str) {
        eprintln!("NOT MEASURED: {what}");
        self.left_out.push(what.into());
    }

    pub(crate) fn failed(&mut self, what: &str, error: &anyhow::Error) {
        eprintln!("FAILED: {what}: {error:#}");
        self.failures.push(format!("{what}: {error:#}"));
    }

    /// `true` if everything requested was measured, whatever the targets.
    pub(crate) fn is_complete(&self) -> bool {
        self.failures.is_empty()
    }

    pub(crate) fn table(&self) -> String {
        let head = ["figure", "raw", "relais", "ratio", "target", "result", ""];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.entries.iter().map(Entry::cells));
        let widths: Vec<usize> = (0..head.len())
            .map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or_default())
            .collect();
        let mut lines: Vec<String> = rows.iter().map(|row| line(row, &widths)).collect();
        lines.extend(self.left_out.iter().map(|what| format!("NOT MEASURED: {what}")));
        lines.extend(self.failures.iter().map(|what| format!("FAILED: {what}")));
        lines.join("\n")
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let figures: Vec<Value> = self.entries.iter().map(Entry::json).collect();
        let json = json!({
            "quick": self.quick,
            "machine": {"os": std::env::consts::OS, "arch": std::env::consts::ARCH, "cores": cores},
            "stores": self.stores,
            "figures": figures,
            "not_measured": self.left_out,
            "failures": self.failures,
        });
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, format!("{json:#}\n")).with_context(|| path.display().to_string())
    }
}

/// Numbers to the right, names and notes to the left.
fn line(row: &[String; 7], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate().map(|(n, (cell, &width))| match n {
        1..=3 => format!("{cell:>width$}"),
        _ => format!("{cell:<width$}"),
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

/// The value below which this share of the values lies.
pub(crate) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    sorted.get(((last as f64) * share).round() as usize).copied()
}
