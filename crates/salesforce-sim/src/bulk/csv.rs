//! The CSV of an upload: split into rows without copying, and a row into cells.
//!
//! Stricter than most CSV readers, like Salesforce: the line ending must be that of the job, even
//! within quotes, and nothing may be between delimiter and quote.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;

use crate::faults::Pattern;

const QUOTE: u8 = b'"';
/// Maximum number of characters of the header row.
pub(super) const HEADER_MAX: usize = 32_000;
/// Maximum number of characters of a row.
pub(super) const ROW_MAX: usize = 400_000;
/// Maximum number of characters of a value.
pub(super) const VALUE_MAX: usize = 32_000;
pub(super) const COLUMNS_MAX: usize = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnding {
    Lf,
    Crlf,
}

impl LineEnding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lf => "LF",
            Self::Crlf => "CRLF",
        }
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::Crlf => b"\r\n",
        }
    }
}

/// The format of the file of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) delimiter: u8,
    pub(crate) ending: LineEnding,
}

/// A file with the positions of its rows.
#[derive(Debug)]
pub(crate) struct CsvFile {
    bytes: Bytes,
    format: Format,
    header: Range<usize>,
    rows: Vec<Range<usize>>,
}

impl CsvFile {
    /// Finds the rows, or the reason why the whole file is refused.
    pub(crate) fn scan(bytes: Bytes, format: Format) -> Result<Self, String> {
        if std::str::from_utf8(&bytes).is_err() {
            return Err("ClientInputError : Failed to parse CSV. It is not UTF-8".to_owned());
        }
        let mut rows = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = row_end(&bytes, at, format)?;
            if end > at {
                rows.push(at..end);
            }
            at = end + format.ending.bytes().len();
        }
        let header = if rows.is_empty() { 0..0 } else { rows.remove(0) };
        Ok(Self { bytes, format, header, rows })
    }

    /// Creates a file without parsing it.
    pub(crate) fn unread(bytes: Bytes, format: Format) -> Self {
        Self { bytes, format, header: 0..0, rows: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Returns the header row as uploaded.
    pub(crate) fn raw_header(&self) -> &str {
        self.text(&self.header)
    }

    /// Returns a row as uploaded.
    pub(crate) fn raw_row(&self, row: usize) -> &str {
        self.text(&self.rows[row])
    }

    /// Returns the cells of the header as uploaded, with quotes.
    pub(crate) fn raw_header_cells(&self) -> Vec<&str> {
        split(self.raw_header(), self.format.delimiter)
    }

    pub(crate) fn header(&self) -> Result<Vec<Cow<'_, str>>, &'static str> {
        self.raw_header_cells().into_iter().map(cell).collect()
    }

    pub(crate) fn row(&self, row: usize) -> Result<Vec<Cow<'_, str>>, &'static str> {
        split(self.raw_row(row), self.format.delimiter).into_iter().map(cell).collect()
    }

    /// Returns whether any value of a row matches.
    pub(crate) fn has(&self, pattern: &Pattern) -> bool {
        let mut rows = (0..self.len()).filter_map(|row| self.row(row).ok());
        rows.any(|cells| cells.iter().any(|cell| pattern.fits(cell)))
    }

    fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(&self.bytes[range.clone()]).expect("the whole file was checked")
    }
}

/// Scans a row byte by byte and tracks whether it is within quotes.
struct Quotes {
    delimiter: u8,
    open: bool,
    /// The cell began with a quote; in other cells a quote has no meaning.
    cell: bool,
    at_start: bool,
    after_quote: bool,
}

impl Quotes {
    fn new(delimiter: u8) -> Self {
        Self { delimiter, open: false, cell: false, at_start: true, after_quote: false }
    }

    /// Scans the next byte. Returns whether it ends a cell.
    fn ends_cell(&mut self, byte: u8) -> bool {
        let is_quote = byte == QUOTE;
        if is_quote && self.open {
            self.open = false;
        } else if is_quote && (self.at_start || (self.cell && self.after_quote)) {
            // The second of a doubled quote opens the text again.
            (self.open, self.cell) = (true, true);
        }
        self.after_quote = is_quote;
        self.at_start = byte == self.delimiter && !self.open;
        self.cell &= !self.at_start;
        self.at_start
    }
}

/// Returns the end of the row that starts at `at`.
fn row_end(bytes: &[u8], mut at: usize, format: Format) -> Result<usize, String> {
    let mut quotes = Quotes::new(format.delimiter);
    while let Some(&byte) = bytes.get(at) {
        if byte != b'\n' && byte != b'\r' {
            quotes.ends_cell(byte);
            at += 1;
        } else if !bytes[at..].starts_with(format.ending.bytes()) {
            return Err(format!(
                "ClientInputError : LineEnding is invalid on user data. \
                 Current LineEnding setting is {}",
                format.ending.name()
            ));
        } else if quotes.open {
            at += format.ending.bytes().len();
        } else {
            return Ok(at);
        }
    }
    if quotes.open {
        let why = "ClientInputError : Failed to parse CSV. EOF reached before closing an opened \
                   quote";
        return Err(why.to_owned());
    }
    Ok(bytes.len())
}

fn split(row: &str, delimiter: u8) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut quotes = Quotes::new(delimiter);
    let mut start = 0;
    for (at, &byte) in row.as_bytes().iter().enumerate() {
        if quotes.ends_cell(byte) {
            cells.push(&row[start..at]);
            start = at + 1;
        }
    }
    cells.push(&row[start..]);
    cells
}

fn cell(raw: &str) -> Result<Cow<'_, str>, &'static str> {
    if !raw.contains('"') {
        return Ok(Cow::Borrowed(raw));
    }
    const STRAY: &str = "Failed to parse CSV. Found unescaped quote. A value with quote should be \
                         within a quote";
    let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(STRAY)?;
    let plain = inner.replace("\"\"", "");
    if plain.contains('"') {
        return Err(STRAY);
    }
    Ok(if inner.contains('"') { Cow::Owned(inner.replace("\"\"", "\"")) } else { inner.into() })
}

/// Writes a cell of a result, always quoted.
pub(crate) fn push_quoted(line: &mut String, text: &str) {
    line.push('"');
    if text.contains('"') {
        line.push_str(&text.replace('"', "\"\""));
    } else {
        line.push_str(text);
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const LF: Format = Format { delimiter: b',', ending: LineEnding::Lf };
    const CRLF: Format = Format { delimiter: b',', ending: LineEnding::Crlf };

    fn scan(text: &str, format: Format) -> Result<Vec<Vec<String>>, String> {
        let file = CsvFile::scan(Bytes::copy_from_slice(text.as_bytes()), format)?;
        let owned = |cells: Vec<Cow<'_, str>>| cells.iter().map(ToString::to_string).collect();
        let mut rows = vec![file.header().map(owned).unwrap()];
        for row in 0..file.len() {
            rows.push(file.row(row).map(owned)?);
        }
        Ok(rows)
    }

    #[test]
    fn quotes_hold_delimiters_newlines_and_quotes() {
        let rows = scan("A,B\n\"x,\"\"y\"\"\",\"1\n2\"\n\"\",\"\"\"\"\nü,\u{1F600}", LF).unwrap();
        assert_eq!(rows[1], ["x,\"y\"", "1\n2"]);
        assert_eq!(rows[2], ["", "\""]);
        assert_eq!(rows[3], ["ü", "\u{1F600}"]);
        let rows = scan("A\r\n\"1\r\n2\"\r\n", CRLF).unwrap();
        assert_eq!(rows, [["A"], ["1\r\n2"]]);
    }

    #[test]
    fn blanks_are_kept_and_empty_lines_are_not_rows() {
        assert_eq!(scan("A\n x \n\n\ny", LF).unwrap(), [["A"], [" x "], ["y"]]);
        assert_eq!(scan("", LF).unwrap(), [vec![String::new()]]);
    }

    #[test]
    fn a_foreign_line_ending_fails_the_file_even_in_quotes() {
        for (text, format, name) in [
            ("A\r\nx\r\n", LF, "LF"),
            ("A\n\"x\r\ny\"\n", LF, "LF"),
            ("A\nx\n", CRLF, "CRLF"),
            ("A\r\n\"x\ny\"\r\n", CRLF, "CRLF"),
        ] {
            let expected = format!(
                "ClientInputError : LineEnding is invalid on user data. \
                 Current LineEnding setting is {name}"
            );
            assert_eq!(scan(text, format).unwrap_err(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_open_quote_fails_the_file_and_a_stray_one_its_row() {
        assert!(scan("A\n\"x", LF).unwrap_err().contains("EOF reached"));
        for row in ["1, \"2\"", "1,2\"", "1,a\"b", "1,a\"\"b", "\"1\"x,2"] {
            assert!(scan(&format!("A,B\n{row}\n"), LF).is_err(), "{row}");
        }
    }

    #[test]
    fn a_byte_order_mark_becomes_part_of_the_first_name() {
        assert_eq!(scan("\u{FEFF}Name\nx", LF).unwrap()[0], ["\u{FEFF}Name"]);
    }

    #[test]
    fn other_delimiters_leave_commas_alone() {
        let format = Format { delimiter: b'^', ending: LineEnding::Lf };
        assert_eq!(scan("A^B\n1,5^2", format).unwrap()[1], ["1,5", "2"]);
    }
}
