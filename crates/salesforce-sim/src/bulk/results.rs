//! The three results of a job, produced row by row while they are sent.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    csv::push_quoted,
    job::{IngestJob, JobState},
    run::{JobRun, RowOutcome},
};
use crate::{
    data::version::Version,
    faults::{EarlyResults, EmptyResults, FaultState},
    reply::{ApiReply, CSV},
    schema::SchemaObject,
};

/// Approximate size of the chunks of a result.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultKind {
    Successful,
    Failed,
    Unprocessed,
}

impl ResultKind {
    /// Parses the last segment of the path, ignoring case.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "successfulresults" => Some(Self::Successful),
            "failedresults" => Some(Self::Failed),
            "unprocessedrecords" => Some(Self::Unprocessed),
            _ => None,
        }
    }

    fn takes(self, outcome: &RowOutcome) -> bool {
        match self {
            Self::Successful => matches!(outcome, RowOutcome::Done { .. }),
            Self::Failed => matches!(outcome, RowOutcome::Failed { .. }),
            Self::Unprocessed => matches!(outcome, RowOutcome::Pending),
        }
    }
}

pub(super) fn results(job: &IngestJob, kind: ResultKind, faults: &mut FaultState) -> ApiReply {
    let settings = faults.faults().results.clone();
    if !job.state.is_terminal() && settings.early == EarlyResults::Error {
        let message = format!("The job is {}: it has no results yet", job.state.name());
        return ApiReply::error(400, "INVALIDJOBSTATE", &message);
    }
    let (run, is_ended) = match &job.run {
        Some(run) if job.state.is_terminal() => (Arc::clone(run), true),
        // Nothing was processed: all uploaded rows remain.
        _ => (Arc::new(nothing(job)), job.state == JobState::Aborted),
    };
    let mut rows: Vec<u32> = Vec::new();
    for (row, outcome) in run.outcomes.iter().enumerate() {
        if is_ended && kind.takes(outcome) {
            let twice = settings.repeat.as_ref().is_some_and(|pattern| {
                let key = run.plan.as_ref().map(|plan| plan.key_of(&run.file, row));
                key.is_some_and(|key| pattern.fits(&key))
            });
            let row = row as u32;
            rows.extend(std::iter::repeat_n(row, if twice { 2 } else { 1 }));
        }
    }
    // A file that could not be split into rows is returned unchanged.
    let is_whole = kind == ResultKind::Unprocessed && is_ended && run.outcomes.is_empty();
    if is_whole && !run.file.bytes().is_empty() {
        let whole = run.file.bytes().clone();
        return ApiReply::stream(CSV, Box::new(std::iter::once(whole)));
    }
    if rows.is_empty() {
        match settings.empty {
            EmptyResults::Header => {}
            EmptyResults::NoContent => return ApiReply::empty(204),
            EmptyResults::Body => return ApiReply::text(200, CSV, ""),
        }
    }
    if settings.shuffle_rows {
        faults.shuffle(&mut rows);
    }
    let mut order: Vec<usize> = (0..run.file.raw_header_cells().len()).collect();
    if settings.shuffle_columns && kind != ResultKind::Unprocessed {
        faults.shuffle(&mut order);
        if order.is_sorted() && !order.is_empty() {
            order.rotate_left(1);
        }
    }
    let object = Arc::clone(&job.spec.object);
    let table = ResultTable { run, object, kind, order, version: job.version };
    ApiReply::stream(CSV, table.pieces(rows))
}

/// Returns the run of a job that was never started.
fn nothing(job: &IngestJob) -> JobRun {
    let (bytes, format) = (job.upload.clone().unwrap_or_default(), job.spec.format);
    let file = super::csv::CsvFile::scan(Bytes::clone(&bytes), format);
    JobRun::refused(file.unwrap_or_else(|_| super::csv::CsvFile::unread(bytes, format)))
}

/// Writes the rows of a result.
struct ResultTable {
    run: Arc<JobRun>,
    object: Arc<SchemaObject>,
    kind: ResultKind,
    order: Vec<usize>,
    version: Version,
}

impl ResultTable {
    fn pieces(self, rows: Vec<u32>) -> crate::reply::Pieces {
        let mut rows = rows.into_iter().map(|row| row as usize);
        let mut piece = self.header();
        let mut ended = false;
        Box::new(std::iter::from_fn(move || {
            while piece.len() < PIECE_BYTES {
                let Some(row) = rows.next() else {
                    let is_last = !ended && !piece.is_empty();
                    ended = true;
                    return is_last.then(|| std::mem::take(&mut piece).into());
                };
                self.push_row(&mut piece, row);
            }
            Some(std::mem::take(&mut piece).into())
        }))
    }

    fn delimiter(&self) -> char {
        char::from(self.run.file.format().delimiter)
    }

    fn has_id(&self) -> bool {
        self.kind == ResultKind::Successful || self.version >= Version::FAILED_RESULTS_HAVE_ID
    }

    fn header(&self) -> String {
        let raw = self.run.file.raw_header();
        let mut line = String::new();
        if raw.is_empty() {
            return line;
        }
        if self.kind == ResultKind::Unprocessed {
            return format!("{raw}\n");
        }
        if self.has_id() {
            line.push_str("\"sf__Id\"");
            line.push(self.delimiter());
        }
        let second = if self.kind == ResultKind::Successful { "sf__Created" } else { "sf__Error" };
        push_quoted(&mut line, second);
        let cells = self.run.file.raw_header_cells();
        for column in &self.order {
            line.push(self.delimiter());
            line.push_str(cells[*column]);
        }
        line.push('\n');
        line
    }

    fn push_row(&self, line: &mut String, row: usize) {
        if self.kind == ResultKind::Unprocessed {
            line.push_str(self.run.file.raw_row(row));
            line.push('\n');
            return;
        }
        let (id, second) = match &self.run.outcomes[row] {
            RowOutcome::Done { id, created } => (Some(*id), created.to_string()),
            RowOutcome::Failed { id, error } => (*id, error.to_string()),
            RowOutcome::Pending | RowOutcome::Missing => (None, String::new()),
        };
        if self.has_id() {
            push_quoted(line, id.as_ref().map_or("", |id| id.as_str()));
            line.push(self.delimiter());
        }
        push_quoted(line, &second);
        let cells = self.run.file.row(row).unwrap_or_default();
        for column in &self.order {
            line.push(self.delimiter());
            let cell = cells.get(*column).map_or("", |cell| cell.as_ref());
            push_quoted(line, &self.cell(*column, cell));
        }
        line.push('\n');
    }

    fn cell(&self, column: usize, cell: &str) -> String {
        let Some(plan) = &self.run.plan else { return cell.to_owned() };
        match self.kind {
            ResultKind::Successful => plan.rendered(&self.object, column, cell),
            _ if plan.columns[column].misspelled => String::new(),
            _ => cell.to_owned(),
        }
    }
}
