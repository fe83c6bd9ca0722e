//! The result files of a bulk job: read piece by piece, by the names of their columns, and matched to
//! rows by external id.
//!
//! Invariant: a row has the answer the files give it, however they are ordered and however often they
//! name it. If they say both, success goes first: it did happen. A file that breaks off is noticed.

use std::{borrow::Cow, collections::HashMap};

use csv_core::{ReadRecordResult, Reader};
use relais_core::delivery::Delivery;

use super::{answer::looks_like_html, classify::Judge};

/// The most bytes of one record, and cells of it, that are read.
const RECORD_MAX: usize = 4 * 1024 * 1024;
const CELLS_MAX: usize = 8 * 1024;
/// Bytes that show what a file begins with: a web page, or a mark in front of the header.
const HEAD_MIN: usize = 64;

/// Which of the three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Successful,
    Failed,
    Unprocessed,
}

impl File {
    pub(super) const ALL: [Self; 3] = [Self::Successful, Self::Failed, Self::Unprocessed];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Successful => "successfulResults",
            Self::Failed => "failedResults",
            Self::Unprocessed => "unprocessedrecords",
        }
    }
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A web page.
    Html,
    Csv(String),
}

/// Reads one file.
pub(super) struct ResultReader<'a> {
    external_id: &'a str,
    /// The beginning of the file, until there is enough of it.
    head: Option<Vec<u8>>,
    reader: Reader,
    /// The record under way: its cells, and where they end.
    cells: Vec<u8>,
    filled: usize,
    ends: Vec<usize>,
    ended: usize,
    columns: Option<Columns>,
    /// Quotes so far: an odd number means inside a cell.
    quotes: usize,
    last_byte: Option<u8>,
    count: u64,
}

/// Where the header says things are.
struct Columns {
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

    /// Takes the next piece; gives each whole record's key and error.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), Broken> {
        match &mut self.head {
            None => self.take(piece, each),
            Some(head) => {
                head.extend_from_slice(piece);
                if head.len() < HEAD_MIN { Ok(()) } else { self.begin(each) }
            }
        }
    }

    /// Takes the beginning as one piece, however it came.
    fn begin(&mut self, each: &mut dyn FnMut(&str, &str)) -> Result<(), Broken> {
        let head = self.head.take().unwrap_or_default();
        if looks_like_html(&head) {
            return Err(Broken::Html);
        }
        self.take(&head, each)
    }

    fn take(&mut self, mut piece: &[u8], each: &mut dyn FnMut(&str, &str)) -> Result<(), Broken> {
        self.quotes += piece.iter().filter(|byte| **byte == b'"').count();
        self.last_byte = piece.last().copied().or(self.last_byte);
        while !piece.is_empty() {
            let read = self.step(piece, each)?;
            piece = &piece[read..];
        }
        Ok(())
    }

    /// After the last piece: how many records there were.
    pub(super) fn finish(mut self, each: &mut dyn FnMut(&str, &str)) -> Result<u64, Broken> {
        self.begin(each)?;
        if !self.quotes.is_multiple_of(2) {
            return Err(Broken::Csv("it breaks off inside a value".to_owned()));
        }
        if !matches!(self.last_byte, None | Some(b'\n' | b'\r' | b'"')) && self.columns.is_some() {
            return Err(Broken::Csv("it breaks off inside a line".to_owned()));
        }
        while self.step(&[], each)? > 0 {}
        Ok(self.count)
    }

    /// Reads until a record is whole, the piece is used up or a buffer is full. How far it came; at
    /// the end of the file, whether there was anything.
    fn step(&mut self, piece: &[u8], each: &mut dyn FnMut(&str, &str)) -> Result<usize, Broken> {
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

    fn record(&mut self, each: &mut dyn FnMut(&str, &str)) -> Result<(), Broken> {
        let ends = &self.ends[..self.ended];
        let cell = |index: usize| {
            let start = if index == 0 { 0 } else { ends[index - 1] };
            std::str::from_utf8(&self.cells[start..ends[index]])
                .map_err(|_| Broken::Csv("it is not UTF-8".to_owned()))
        };
        let Some(columns) = &self.columns else {
            let mut names = Vec::with_capacity(ends.len());
            for index in 0..ends.len() {
                names.push(cell(index)?);
            }
            self.columns = Some(Columns::new(&names, self.external_id));
            return Ok(());
        };
        if ends.len() != columns.count {
            let why = format!("a line has {} cells, not {}", ends.len(), columns.count);
            return Err(Broken::Csv(why));
        }
        let Some(key) = columns.key else {
            let why = format!("it has no column {}", self.external_id);
            return Err(Broken::Csv(why));
        };
        let error = columns.error.map_or(Ok(""), cell)?;
        each(cell(key)?, error);
        self.count += 1;
        Ok(())
    }
}

impl Columns {
    fn new(names: &[&str], external_id: &str) -> Self {
        let exact = names.iter().position(|name| *name == external_id);
        let key = exact.or_else(|| names.iter().position(|n| n.eq_ignore_ascii_case(external_id)));
        let error = names.iter().position(|name| *name == "sf__Error");
        Self { count: names.len(), key, error }
    }
}

fn grown(length: usize, max: usize) -> Result<usize, Broken> {
    let twice = length * 2;
    if twice > max { Err(Broken::Csv(format!("a line is longer than {max}"))) } else { Ok(twice) }
}

/// What the files say of each row.
pub(super) struct Matcher<'a> {
    judge: &'a Judge,
    exact: HashMap<&'a str, usize>,
    /// Made when an id comes back in another case; `None` for ids that are then the same.
    folded: Option<HashMap<String, Option<usize>>>,
    said: Vec<Option<Delivery>>,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(ids: &'a [String], judge: &'a Judge) -> Self {
        let exact = ids.iter().enumerate().map(|(at, id)| (id.as_str(), at));
        Self { judge, exact: exact.collect(), folded: None, said: vec![None; ids.len()] }
    }

    /// Notes a record of a file. Ids that are not ours are those of rows settled before.
    pub(super) fn note(&mut self, file: File, key: &str, error: &str, unprocessed: &Delivery) {
        let Some(row) = self.find(key) else { return };
        let said = &mut self.said[row];
        match file {
            File::Successful => *said = Some(Delivery::Accepted),
            File::Failed if said.is_none() => {
                let (code, message) = split_error(error);
                *said = Some(self.judge.row(code, &message));
            }
            File::Unprocessed if said.is_none() => *said = Some(unprocessed.clone()),
            File::Failed | File::Unprocessed => {}
        }
    }

    /// One answer for each row; `unmentioned` for those in no file.
    pub(super) fn finish(self, unmentioned: &Delivery) -> Vec<Delivery> {
        self.said.into_iter().map(|said| said.unwrap_or_else(|| unmentioned.clone())).collect()
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

/// `CODE:message:fields --` as code and message. The message may hold colons itself. Fields that it
/// does not name are added in brackets.
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
