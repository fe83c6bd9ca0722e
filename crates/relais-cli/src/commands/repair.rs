//! `relais repair`: rows that could not be decoded, read again after a fix, or given up.

mod discard;
mod list;

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    ops::ControlFlow,
    path::Path,
};

use relais::repair::{
    self, Declared, Fix, Identity, Mode, RepairOutcome, RepairPlan, RepairReport, RepairSummary,
    SerdeErrors,
};
use relais_core::{query::PAGE_MAX, store::Store};
use serde_json::json;

use super::{
    Context,
    dead_letter::ask,
    rows::{inbox_row, not_found, seconds},
};
use crate::{
    args::{BrokenRows, RepairArgs, RepairCommand},
    failure::{Done, Failure},
    output::{Lines, Output, Progress, escape},
    wire,
};

/// Largest payload that is read from a file.
const PAYLOAD_MAX: u64 = 256 << 20;

pub(crate) async fn repair(context: &Context, args: RepairArgs) -> Done {
    match args.command {
        Some(RepairCommand::List(args)) => return list::list(context, args).await,
        Some(RepairCommand::Discard(args)) => return discard::discard(context, &args).await,
        None => {}
    }
    let plan = plan(&args)?;
    let (settings, store) = context.store().await?;
    let work = Work { store: store.as_ref(), sources: wire::declared(&settings), plan, args };
    let mut log = Log::new(context.output, work.plan.mode);
    if work.args.rows.ids.is_empty() {
        work.matching(&mut log).await
    } else {
        work.named(&mut log).await
    }
}

/// What is to be done, checked as far as the command line goes.
fn plan(args: &RepairArgs) -> Result<RepairPlan, Failure> {
    let by_hand = args.payload.is_some() || args.set.is_some();
    if by_hand && args.rows.ids.len() != 1 {
        return Err(Failure::Usage("a payload by hand is for one row; name its id".to_owned()));
    }
    let fix = match (&args.payload, &args.set, args.decoder) {
        (Some(path), ..) => Fix::Payload(read_payload(path)?),
        (None, Some(json), _) => Fix::Payload(json.trim().into()),
        (None, None, Some(decoder)) => Fix::Decoder(decoder),
        (None, None, None) => Fix::Declared,
    };
    Ok(RepairPlan {
        fix,
        identity: if args.keep_id { Identity::Own } else { Identity::Promised },
        mode: if args.decision.dry_run { Mode::Try } else { Mode::Write },
        actor: args.decision.actor()?,
        reason: args.decision.reason.clone(),
    })
}

/// Without the line end that editors add: white space around JSON says nothing.
pub(super) fn read_payload(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(PAYLOAD_MAX + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(PAYLOAD_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() as u64 > PAYLOAD_MAX {
        return Err(Failure::failed(format!("the payload is larger than {PAYLOAD_MAX} bytes")));
    }
    Ok(bytes.trim_ascii().to_vec())
}

/// The rows the filters match, from the first on.
fn wanted(rows: &BrokenRows) -> SerdeErrors {
    SerdeErrors {
        source_system: rows.source.clone(),
        error_code: rows.code.clone(),
        key: rows.key.clone(),
        since_seconds: rows.since.map(seconds),
        ..SerdeErrors::default()
    }
}

struct Work<'a> {
    store: &'a dyn Store,
    sources: Vec<Declared>,
    plan: RepairPlan,
    args: RepairArgs,
}

impl Work<'_> {
    /// The rows that were named; all of them must be there.
    async fn named(&self, log: &mut Log) -> Done {
        let mut rows = Vec::with_capacity(self.args.rows.ids.len());
        for id in &self.args.rows.ids {
            rows.push(inbox_row(self.store, id).await?.id);
        }
        if self.must_ask() && io::stdin().is_terminal() && !self.payload_on_stdin() {
            ask(&format!("repair {}?", rows_text(rows.len() as u64)))?;
        }
        for id in rows {
            let found = self.store.find_inbox(id.to_string()).await?;
            let row = found.ok_or_else(|| not_found("inbox", &id.to_string()))?;
            log.add(repair::row(self.store, &self.sources, &row, &self.plan).await?)?;
        }
        log.finish()?;
        let failed = log.failed() || log.summary.refused > 0;
        if failed { Err(Failure::Said) } else { Ok(()) }
    }

    /// Every row the filters match; somebody else may be faster with some.
    async fn matching(&self, log: &mut Log) -> Done {
        let wanted = wanted(&self.args.rows);
        if self.must_ask() {
            self.ask_for(wanted.clone()).await?;
        }
        let mut printed = Ok(());
        let each = |report| {
            printed = log.add(report);
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let most = self.args.rows.limit;
        repair::all(self.store, &self.sources, wanted, &self.plan, most, each).await?;
        printed?;
        log.finish()?;
        if log.summary.rows() >= most as u64 && !log.output.json {
            log.output.print("perhaps more: run it again, with filters or a larger --limit")?;
        }
        if log.failed() { Err(Failure::Said) } else { Ok(()) }
    }

    fn must_ask(&self) -> bool {
        self.plan.mode == Mode::Write && !self.args.decision.yes
    }

    fn payload_on_stdin(&self) -> bool {
        self.args.payload.as_deref() == Some(Path::new("-"))
    }

    async fn ask_for(&self, mut wanted: SerdeErrors) -> Done {
        if !io::stdin().is_terminal() {
            return Err(Failure::Usage(
                "without ids many rows change at once and nobody is here to ask; add --yes, or \
                 look with --dry-run"
                    .to_owned(),
            ));
        }
        let mut rows = 0;
        while rows < self.args.rows.limit {
            wanted.limit = PAGE_MAX.min(self.args.rows.limit - rows);
            let page = self.store.serde_errors(wanted.clone()).await?;
            let Some(last) = page.last() else { break };
            wanted.after = *last;
            rows += page.len();
        }
        if rows == 0 {
            return Ok(());
        }
        ask(&format!("read {} again and repair what can be?", rows_text(rows as u64)))
    }
}

/// Says what becomes of each row, and at the end of all.
struct Log {
    output: Output,
    mode: Mode,
    summary: RepairSummary,
    /// For JSON, which is one object: at most as many as `--limit` allows.
    reports: Vec<RepairReport>,
    progress: Progress,
}

impl Log {
    fn new(output: Output, mode: Mode) -> Self {
        // Where the rows are not seen going by.
        let progress = Progress::new("rows", None, output.json || !output.terminal);
        Self { output, mode, summary: RepairSummary::default(), reports: Vec::new(), progress }
    }

    fn add(&mut self, report: RepairReport) -> Result<(), Failure> {
        self.summary.add(&report.outcome);
        self.progress.step()?;
        if self.output.json {
            self.reports.push(report);
            return Ok(());
        }
        self.output.print(&escape(&line(&report, self.mode), Lines::Escape))
    }

    fn finish(&self) -> Done {
        self.progress.finish();
        if self.output.json {
            let RepairSummary { repaired, duplicates, conflicts, unreadable, refused } =
                self.summary;
            return self.output.print_json(&json!({
                "dry_run": self.mode == Mode::Try, "repaired": repaired, "duplicates": duplicates,
                "conflicts": conflicts, "unreadable": unreadable, "refused": refused,
                "rows": self.reports,
            }));
        }
        self.output.print(&summary_line(self.summary, self.mode))
    }

    fn failed(&self) -> bool {
        self.summary.conflicts + self.summary.unreadable > 0
    }
}

fn rows_text(rows: u64) -> String {
    format!("{rows} row{}", if rows == 1 { "" } else { "s" })
}

fn summary_line(summary: RepairSummary, mode: Mode) -> String {
    if summary.rows() == 0 {
        return "no SERDE_ERROR row matches".to_owned();
    }
    let word = if mode == Mode::Try { "dry run: would repair" } else { "repaired" };
    let mut line = format!("{word} {} of {}", summary.repaired, rows_text(summary.rows()));
    for (count, what) in [
        (summary.duplicates, "there already"),
        (summary.conflicts, "in conflict"),
        (summary.unreadable, "still unreadable"),
        (summary.refused, "not SERDE_ERROR"),
    ] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}

fn line(RepairReport { row, outcome }: &RepairReport, mode: Mode) -> String {
    let would = |done: &'static str, tried: &'static str| match mode {
        Mode::Write => done,
        Mode::Try => tried,
    };
    match outcome {
        RepairOutcome::Repaired { message_id, identity, key, event_type } => {
            let kind = event_type.as_deref().unwrap_or("no type");
            let own = match identity {
                Identity::Promised => "",
                Identity::Own => " (its own id)",
            };
            let word = would("repaired", "would be repaired");
            format!("row {row}: {word}: {kind} {message_id}{own}, key {key}")
        }
        RepairOutcome::Duplicate { message_id, of } => {
            let word = would("settled as its", "would be settled as its");
            format!("row {row}: {message_id} is row {of} already, {word} duplicate")
        }
        RepairOutcome::Conflict { message_id, with } => format!(
            "row {row}: message id {message_id} is row {with}'s already, with other content; \
             compare them with `relais inbox show`; if this is a message of its own, repair it \
             with --keep-id"
        ),
        RepairOutcome::Unreadable { problem, readable_by } => {
            let hint = hint(*row, readable_by);
            format!("row {row}: still unreadable: {}{hint}", problem.message)
        }
        RepairOutcome::Refused { status: Some(status) } => {
            format!("row {row}: is {}; only a SERDE_ERROR row can be repaired", status.as_str())
        }
        RepairOutcome::Refused { status: None } => format!("row {row}: is gone"),
    }
}

/// What could be done about bytes that this decoder does not read.
fn hint(row: i64, readable_by: &[&str]) -> String {
    match readable_by {
        [] => String::new(),
        ["text", ..] | ["bytes"] => format!(
            "; look at it with `relais inbox show {row}` and give it a payload with --payload, or \
             take it as it is with --decoder {}",
            readable_by.join(" or ")
        ),
        [one] => format!("; decoder {one} would read it"),
        several => format!("; decoders {} would read it", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use relais::Problem;

    use super::*;

    fn said(outcome: RepairOutcome) -> String {
        line(&RepairReport { row: 17, outcome }, Mode::Write)
    }

    #[test]
    fn a_row_that_cannot_be_read_says_what_would_read_it() {
        let unreadable = |readable_by: &[&'static str]| RepairOutcome::Unreadable {
            problem: Problem::new("INVALID_JSON", "not valid JSON: expected value"),
            readable_by: readable_by.to_vec(),
        };
        assert_eq!(
            said(unreadable(&["confluent-json"])),
            "row 17: still unreadable: not valid JSON: expected value; \
             decoder confluent-json would read it"
        );
        assert!(said(unreadable(&["text", "bytes"])).contains("--decoder text or bytes"));
        assert!(said(unreadable(&[])).ends_with("expected value"));
    }

    #[test]
    fn the_last_line_counts_only_what_there_is() {
        let summary = RepairSummary { repaired: 2, unreadable: 1, ..RepairSummary::default() };
        assert_eq!(summary_line(summary, Mode::Write), "repaired 2 of 3 rows, 1 still unreadable");
        let one = RepairSummary { repaired: 1, ..RepairSummary::default() };
        assert_eq!(summary_line(one, Mode::Try), "dry run: would repair 1 of 1 row");
    }
}
