//! The result files of a bulk job: streamed, read by column name, and matched to rows by external
//! id.
//!
//! Invariant: a row gets the result of the files, whatever their order and however often they
//! contain it. If they contain both, success wins: it did happen. A truncated file is detected.

use std::{borrow::Cow, collections::HashMap};

use csv_core::{ReadRecordResult, Reader};
use relais_core::delivery::Delivery;

use super::{classify::Judge, response::looks_like_html};

/// Maximum number of bytes, and of cells, of one record.
const RECORD_MAX: usize = 4 * 1024 * 1024;
const CELLS_MAX: usize = 8 * 1024;
/// Bytes that are needed to detect a web page or a byte order mark.
const HEAD_MIN: usize = 64;

/// One of the three result files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultFile {
    Successful,
    Failed,
    Unprocessed,
}

impl ResultFile {
    pub(super) const ALL: [Self; 3] = [Self::Successful, Self::Failed, Self::Unprocessed];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Successful => "successfulResults",
            Self::Failed => "failedResults",
            Self::Unprocessed => "unprocessedrecords",
        }
    }
}

/// The reason why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResultError {
    /// A web page.
    Html,
    Csv(String),
}

/// Reads one file.
pub(super) struct ResultReader<'a> {
    external_id: &'a str,
    /// The beginning of the file, until it is long enough.
    head: Option<Vec<u8>>,
    reader: Reader,
    /// The current record: its cells, and where they end.
    cells: Vec<u8>,
    filled: usize,
    ends: Vec<usize>,
    ended: usize,
    columns: Option<ResultColumns>,
    /// Number of quotes so far: odd means inside a cell.
    quotes: usize,
    last_byte: Option<u8>,
    count: u64,
}

/// The columns by the header.
struct ResultColumns {
    count: usize,
    key: Option<usize>,
    error: Option<usize>,
}

impl<'a> ResultReader<'a> {
    pub(super) fn new(external_id: &'a str) -> Self {
        Self {
            external_id,
            head: Some(Vec::with_capacity(HEAD_MIN)),
            reader: Reader::new(),
            cells: vec![0; 4 * 1024],
            filled: 0,
            ends: vec![0; 32],
            ended: 0,
            columns: None,
            quotes: 0,
            last_byte: None,
            count: 0,
        }
    }

    /// Reads the next chunk; calls `each` with the key and error of each complete record.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), ResultError> {
        match &mut self.head {
            None => self.take(piece, each),
            Some(head) => {
                head.extend_from_slice(piece);
                if head.len() < HEAD_MIN { Ok(()) } else { self.begin(each) }
            }
        }
    }

    /// Reads the beginning as one chunk.
    fn begin(&mut self, each: &mut dyn FnMut(&str, &str)) -> Result<(), ResultError> {
        let head = self.head.take().unwrap_or_default();
        if looks_like_html(&head) {
            return Err(ResultError::Html);
        }
        self.take(&head, each)
    }

    fn take(
        &mut self,
        mut piece: &[u8],
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), ResultError> {
        self.quotes += piece.iter().filter(|byte| **byte == b'"').count();
        self.last_byte = piece.last().copied().or(self.last_byte);
        while !piece.is_empty() {
            let read = self.step(piece, each)?;
            piece = &piece[read..];
        }
        Ok(())
    }

    /// Ends the file. Returns the number of records.
    pub(super) fn finish(mut self, each: &mut dyn FnMut(&str, &str)) -> Result<u64, ResultError> {
        self.begin(each)?;
        if !self.quotes.is_multiple_of(2) {
            return Err(ResultError::Csv("it ends inside a value".to_owned()));
        }
        if !matches!(self.last_byte, None | Some(b'\n' | b'\r' | b'"')) && self.columns.is_some() {
            return Err(ResultError::Csv("it ends inside a line".to_owned()));
        }
        while self.step(&[], each)? > 0 {}
        Ok(self.count)
    }

    /// Reads until a record is complete, the chunk is used up or a buffer is full. Returns the
    /// bytes read; at the end of the file, whether there was a record.
    fn step(
        &mut self,
        piece: &[u8],
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<usize, ResultError> {
        let (result, read, written, ended) = self.reader.read_record(
            piece,
            &mut self.cells[self.filled..],
            &mut self.ends[self.ended..],
        );
        self.filled += written;
        self.ended += ended;
        match result {
            ReadRecordResult::InputEmpty => return Ok(read),
            ReadRecordResult::End => return Ok(0),
            ReadRecordResult::OutputFull => {
                self.cells.resize(grown(self.cells.len(), RECORD_MAX)?, 0);
            }
            ReadRecordResult::OutputEndsFull => {
                self.ends.resize(grown(self.ends.len(), CELLS_MAX)?, 0);
            }
            ReadRecordResult::Record => {
                self.record(each)?;
                (self.filled, self.ended) = (0, 0);
            }
        }
        Ok(read.max(usize::from(piece.is_empty())))
    }

    fn record(&mut self, each: &mut dyn FnMut(&str, &str)) -> Result<(), ResultError> {
        let ends = &self.ends[..self.ended];
        let cell = |index: usize| {
            let start = if index == 0 { 0 } else { ends[index - 1] };
            std::str::from_utf8(&self.cells[start..ends[index]])
                .map_err(|_| ResultError::Csv("it is not UTF-8".to_owned()))
        };
        let Some(columns) = &self.columns else {
            let mut names = Vec::with_capacity(ends.len());
            for index in 0..ends.len() {
                names.push(cell(index)?);
            }
            self.columns = Some(ResultColumns::new(&names, self.external_id));
            return Ok(());
        };
        if ends.len() != columns.count {
            let why = format!("a line has {} cells, not {}", ends.len(), columns.count);
            return Err(ResultError::Csv(why));
        }
        let Some(key) = columns.key else {
            let why = format!("it has no column {}", self.external_id);
            return Err(ResultError::Csv(why));
        };
        let error = columns.error.map_or(Ok(""), cell)?;
        each(cell(key)?, error);
        self.count += 1;
        Ok(())
    }
}

impl ResultColumns {
    fn new(names: &[&str], external_id: &str) -> Self {
        let exact = names.iter().position(|name| *name == external_id);
        let key = exact.or_else(|| names.iter().position(|n| n.eq_ignore_ascii_case(external_id)));
        let error = names.iter().position(|name| *name == "sf__Error");
        Self { count: names.len(), key, error }
    }
}

fn grown(length: usize, max: usize) -> Result<usize, ResultError> {
    let twice = length * 2;
    if twice > max {
        Err(ResultError::Csv(format!("a line is longer than {max}")))
    } else {
        Ok(twice)
    }
}

/// Collects the result of each row.
pub(super) struct Matcher<'a> {
    judge: &'a Judge,
    exact: HashMap<&'a str, usize>,
    /// Built when an id comes back in another case; `None` for ambiguous ids.
    folded: Option<HashMap<String, Option<usize>>>,
    results: Vec<Option<Delivery>>,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(ids: &'a [String], judge: &'a Judge) -> Self {
        let exact = ids.iter().enumerate().map(|(at, id)| (id.as_str(), at));
        Self { judge, exact: exact.collect(), folded: None, results: vec![None; ids.len()] }
    }

    /// Records one result. Unknown ids belong to rows that are already settled.
    pub(super) fn note(
        &mut self,
        file: ResultFile,
        key: &str,
        error: &str,
        unprocessed: &Delivery,
    ) {
        let Some(row) = self.find(key) else { return };
        let result = &mut self.results[row];
        match file {
            ResultFile::Successful => *result = Some(Delivery::Accepted),
            ResultFile::Failed if result.is_none() => {
                let (code, message) = split_error(error);
                *result = Some(self.judge.row(code, &message));
            }
            ResultFile::Unprocessed if result.is_none() => *result = Some(unprocessed.clone()),
            ResultFile::Failed | ResultFile::Unprocessed => {}
        }
    }

    /// Returns one delivery per row; `unmentioned` for those in no file.
    pub(super) fn finish(self, unmentioned: &Delivery) -> Vec<Delivery> {
        self.results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| unmentioned.clone()))
            .collect()
    }

    fn find(&mut self, key: &str) -> Option<usize> {
        if let Some(row) = self.exact.get(key) {
            return Some(*row);
        }
        let folded = self.folded.get_or_insert_with(|| {
            let mut folded = HashMap::with_capacity(self.exact.len());
            for (id, row) in &self.exact {
                folded
                    .entry(id.to_ascii_lowercase())
                    .and_modify(|several| *several = None)
                    .or_insert(Some(*row));
            }
            folded
        });
        *folded.get(&key.to_ascii_lowercase())?
    }
}

/// Splits `CODE:message:fields --` into code and message. The message may contain colons. Fields
/// that it does not contain are appended in brackets.
pub(super) fn split_error(error: &str) -> (&str, Cow<'_, str>) {
    let (code, rest) = error.split_once(':').unwrap_or((error, ""));
    let is_code = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if code.is_empty() || !code.chars().all(is_code) {
        return ("UNKNOWN_EXCEPTION", error.into());
    }
    let is_field = |c: char| is_code(c) || matches!(c, '.' | ',' | ' ');
    let tail = rest.strip_suffix("--").and_then(|rest| rest.rsplit_once(':'));
    let Some((message, fields)) = tail.filter(|(_, fields)| fields.chars().all(is_field)) else {
        return (code, rest.into());
    };
    let fields = fields.trim();
    if fields.split([',', ' ']).all(|field| message.contains(field)) {
        (code, message.into())
    } else {
        (code, format!("{message} ({fields})").into())
    }
}

#[cfg(test)]
mod tests;
