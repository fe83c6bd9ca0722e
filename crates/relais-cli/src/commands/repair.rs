//! `relais reprocess`: decodes undecodable rows again after a fix, or discards them.

mod discard;
mod list;

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    ops::ControlFlow,
    path::Path,
};

use relais::repair::{
    self, DeclaredSource, Fix, Identity, Mode, RepairOutcome, RepairPlan, RepairReport,
    RepairSummary, SerdeErrors,
};
use relais_core::{inspect::InspectExt, query::PAGE_MAX, store::StoreDriver};
use serde_json::json;

use super::{
    CommandContext,
    dead_letter::ask,
    rows::{inbox_row, not_found, seconds},
};
use crate::{
    args::{PayloadOrigin, ReprocessArgs, ReprocessCommand, UndecodableRows},
    failure::{CommandError, Done},
    output::{CommandProgress, LineBreaks, Output, escape},
    wire,
};

/// Largest payload of a file.
const PAYLOAD_MAX: u64 = 256 << 20;

pub(crate) async fn reprocess(context: &CommandContext, args: ReprocessArgs) -> Done {
    match args.command {
        Some(ReprocessCommand::List(args)) => return list::list(context, args).await,
        Some(ReprocessCommand::Discard(args)) => return discard::discard(context, &args).await,
        None => {}
    }
    let plan = plan(&args)?;
    let (settings, store) = context.store().await?;
    let work =
        ReprocessRun { store: store.as_ref(), sources: wire::declared(&settings), plan, args };
    let mut log = ReprocessLog::new(context.output, work.plan.mode);
    if work.args.rows.ids.is_empty() {
        work.matching(&mut log).await
    } else {
        work.named(&mut log).await
    }
}

/// Builds the plan and checks the arguments.
fn plan(args: &ReprocessArgs) -> Result<RepairPlan, CommandError> {
    let corrected = args.corrected();
    if corrected.is_some() && args.rows.ids.len() != 1 {
        return Err(CommandError::Usage(
            "a corrected payload is for one row; pass its ID".to_owned(),
        ));
    }
    let fix = match (corrected, args.decoder) {
        (Some(PayloadOrigin::File(path)), _) => Fix::Payload(read_payload(path)?),
        (Some(PayloadOrigin::Json(json)), _) => Fix::Payload(json.into()),
        (None, Some(decoder)) => Fix::Decoder(decoder),
        (None, None) => Fix::Declared,
    };
    Ok(RepairPlan {
        fix,
        identity: if args.keep_id { Identity::Own } else { Identity::Promised },
        mode: if args.decision.dry_run { Mode::Try } else { Mode::Write },
        actor: args.decision.actor()?,
        reason: args.decision.reason.clone(),
    })
}

/// Reads a payload without the white space around it, such as the line end that editors add.
pub(super) fn read_payload(path: &Path) -> Result<Vec<u8>, CommandError> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(PAYLOAD_MAX + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(PAYLOAD_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| CommandError::failed(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() as u64 > PAYLOAD_MAX {
        return Err(CommandError::failed(format!(
            "the payload is larger than {PAYLOAD_MAX} bytes"
        )));
    }
    Ok(bytes.trim_ascii().to_vec())
}

/// Returns the filter of the store, from the first row on.
fn serde_errors(rows: &UndecodableRows) -> SerdeErrors {
    SerdeErrors {
        source_system: rows.source.clone(),
        error_code: rows.code.clone(),
        key: rows.key.clone(),
        since_seconds: rows.since.map(seconds),
        ..SerdeErrors::default()
    }
}

struct ReprocessRun<'a> {
    store: &'a dyn StoreDriver,
    sources: Vec<DeclaredSource>,
    plan: RepairPlan,
    args: ReprocessArgs,
}

impl ReprocessRun<'_> {
    /// Reprocesses the named rows; all of them must exist.
    async fn named(&self, log: &mut ReprocessLog) -> Done {
        let mut rows = Vec::with_capacity(self.args.rows.ids.len());
        for id in &self.args.rows.ids {
            rows.push(inbox_row(self.store, id).await?.id);
        }
        if self.must_ask() && io::stdin().is_terminal() && !self.payload_on_stdin() {
            ask(&format!("Reprocess {}?", rows_text(rows.len() as u64)))?;
        }
        for id in rows {
            let found = self.store.find_inbox(id.to_string()).await?;
            let row = found.ok_or_else(|| not_found("inbox", &id.to_string()))?;
            log.add(repair::row(self.store, &self.sources, &row, &self.plan).await?)?;
        }
        log.finish()?;
        let failed = log.failed() || log.summary.refused > 0;
        if failed { Err(CommandError::Printed) } else { Ok(()) }
    }

    /// Reprocesses the rows that match the filters; other operators may change some of them meanwhile.
    async fn matching(&self, log: &mut ReprocessLog) -> Done {
        let wanted = serde_errors(&self.args.rows);
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
            log.output.print("possibly more rows: run the command again, or raise --limit")?;
        }
        if log.failed() { Err(CommandError::Printed) } else { Ok(()) }
    }

    fn must_ask(&self) -> bool {
        self.plan.mode == Mode::Write && !self.args.decision.yes
    }

    fn payload_on_stdin(&self) -> bool {
        self.args.corrected() == Some(PayloadOrigin::File(Path::new("-")))
    }

    async fn ask_for(&self, mut wanted: SerdeErrors) -> Done {
        if !io::stdin().is_terminal() {
            return Err(CommandError::Usage(
                "cannot ask for confirmation: stdin is not a terminal; pass --yes to reprocess all matching \
                 rows, or check with --dry-run"
                    .to_owned(),
            ));
        }
        let mut rows = 0;
        while rows < self.args.rows.limit {
            wanted.limit = PAGE_MAX.min(self.args.rows.limit - rows);
            let page = self.store.undecodable_rows(wanted.clone()).await?;
            let Some(last) = page.last() else { break };
            wanted.after = *last;
            rows += page.len();
        }
        if rows == 0 {
            return Ok(());
        }
        ask(&format!("Reprocess {}?", rows_text(rows as u64)))
    }
}

/// Prints the result of each row and the summary.
struct ReprocessLog {
    output: Output,
    mode: Mode,
    summary: RepairSummary,
    /// Reports for JSON, which is one object; bounded by `--limit`.
    reports: Vec<RepairReport>,
    progress: CommandProgress,
}

impl ReprocessLog {
    fn new(output: Output, mode: Mode) -> Self {
        // Without a line per row on the terminal, a counter shows the progress.
        let progress = CommandProgress::new("rows", None, output.json || !output.terminal);
        Self { output, mode, summary: RepairSummary::default(), reports: Vec::new(), progress }
    }

    fn add(&mut self, report: RepairReport) -> Result<(), CommandError> {
        self.summary.add(&report.outcome);
        self.progress.step();
        if self.output.json {
            self.reports.push(report);
            return Ok(());
        }
        self.output.print(&escape(&line(&report, self.mode), LineBreaks::Escape))
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
        return "no undecodable row matches".to_owned();
    }
    let word = if mode == Mode::Try { "dry run: would reprocess" } else { "reprocessed" };
    let mut line = format!("{word} {} of {}", summary.repaired, rows_text(summary.rows()));
    for (count, what) in [
        (summary.duplicates, "duplicates"),
        (summary.conflicts, "conflicts"),
        (summary.unreadable, "still undecodable"),
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
                Identity::Own => " (its own ID)",
            };
            let word = would("reprocessed", "would be reprocessed");
            format!("row {row}: {word}: {kind} {message_id}{own}, key {key}")
        }
        RepairOutcome::Duplicate { message_id, of } => {
            let word = would("closed as its", "would be closed as its");
            format!("row {row}: row {of} is the same message {message_id}; {word} duplicate")
        }
        RepairOutcome::Conflict { message_id, with } => format!(
            "row {row}: row {with} has the message ID {message_id} with other content; compare them with \
             `relais inbox show`, and reprocess this one with --keep-id if it is a different message"
        ),
        RepairOutcome::Unreadable { problem, readable_by } => {
            let hint = hint(*row, readable_by);
            format!("row {row}: still undecodable: {}{hint}", problem.message)
        }
        RepairOutcome::Refused { status: Some(status) } => {
            format!("row {row}: is {}; only a SERDE_ERROR row can be reprocessed", status.as_str())
        }
        RepairOutcome::Refused { status: None } => format!("row {row}: does not exist any more"),
    }
}

/// Suggests a way to reprocess bytes that the decoder rejects.
fn hint(row: i64, readable_by: &[&str]) -> String {
    match readable_by {
        [] => String::new(),
        ["text", ..] | ["bytes"] => format!(
            "; show it with `relais inbox show {row}` and pass a corrected payload with --payload or \
             --payload-file, or accept the bytes with --decoder {}",
            readable_by.join(" or ")
        ),
        [one] => format!("; decoder {one} accepts it"),
        several => format!("; decoders {} accept it", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use relais::Problem;

    use super::*;

    fn text(outcome: RepairOutcome) -> String {
        line(&RepairReport { row: 17, outcome }, Mode::Write)
    }

    #[test]
    fn an_undecodable_row_names_the_decoders_that_accept_it() {
        let undecodable = |readable_by: &[&'static str]| RepairOutcome::Unreadable {
            problem: Problem::new("INVALID_JSON", "not valid JSON: expected value"),
            readable_by: readable_by.to_vec(),
        };
        assert_eq!(
            text(undecodable(&["confluent-json"])),
            "row 17: still undecodable: not valid JSON: expected value; \
             decoder confluent-json accepts it"
        );
        assert!(text(undecodable(&["text", "bytes"])).contains("--decoder text or bytes"));
        assert!(text(undecodable(&[])).ends_with("expected value"));
    }

    #[test]
    fn the_summary_lists_only_counts_above_zero() {
        let summary = RepairSummary { repaired: 2, unreadable: 1, ..RepairSummary::default() };
        assert_eq!(
            summary_line(summary, Mode::Write),
            "reprocessed 2 of 3 rows, 1 still undecodable"
        );
        let one = RepairSummary { repaired: 1, ..RepairSummary::default() };
        assert_eq!(summary_line(one, Mode::Try), "dry run: would reprocess 1 of 1 row");
    }
}
