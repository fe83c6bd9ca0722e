//! The upload of a bulk job, by the rules of Salesforce: UTF-8 without a byte order mark, comma as
//! separator, LF as line end, every cell quoted.
//!
//! Invariant: a row is in the body completely or not at all. An empty cell leaves a field
//! unchanged, [`NULL`] clears it. A text that equals [`NULL`] is refused, because it would clear
//! the field.

use relais_core::delivery::Delivery;

use super::row_values::Cell;

/// The text that Salesforce reads as null.
pub(super) const NULL: &str = "#N/A";
/// Maximum number of characters of a value and of a record, counted in UTF-16 like Salesforce.
const VALUE_CHARS_MAX: usize = 32_000;
const RECORD_CHARS_MAX: usize = 400_000;
/// The error for a value with U+0000.
pub(super) const NUL: &str =
    "the value contains U+0000, which Salesforce does not store; remove it";
/// Maximum number of bytes of an upload, all parts together. Salesforce accepts twice as much; this
/// bounds our memory.
pub(super) const BODY_MAX: usize = 50 * 1024 * 1024;

/// The result of adding a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    InBody,
    /// The delivery of a row that can never be uploaded.
    Refused(Delivery),
    /// The body is full.
    Full,
}

/// A growing body, or a later part of one.
#[derive(Debug)]
pub(super) struct Csv {
    out: Vec<u8>,
    /// Bytes of the earlier parts.
    before: usize,
    count: u64,
}

impl Csv {
    /// Creates a body with the header: the external id, then the columns.
    pub(super) fn new<'a>(external_id: &str, columns: impl Iterator<Item = &'a str>) -> Self {
        let mut out = Vec::new();
        cell(&mut out, external_id);
        for name in columns {
            out.push(b',');
            cell(&mut out, name);
        }
        out.push(b'\n');
        Self { out, before: 0, count: 0 }
    }

    /// Creates a later part, without the header.
    pub(super) fn continued(before: usize) -> Self {
        Self { out: Vec::new(), before, count: 0 }
    }

    /// Adds a row. `names` are the columns of `cells`, for error texts.
    pub(super) fn push<'a>(
        &mut self,
        external_id: &str,
        cells: &[Cell<'_>],
        names: impl Iterator<Item = &'a str>,
    ) -> PushOutcome {
        let start = self.out.len();
        cell(&mut self.out, external_id);
        for (value, name) in cells.iter().zip(names) {
            self.out.push(b',');
            if let Err(why) = self.value(value) {
                self.out.truncate(start);
                let why = format!("{name}: {why}");
                return PushOutcome::Refused(Delivery::reject("VALUE_INVALID", &why));
            }
        }
        self.out.push(b'\n');
        let length = self.out.len() - start;
        if length > RECORD_CHARS_MAX && chars(&self.out[start..]) > RECORD_CHARS_MAX {
            self.out.truncate(start);
            let why = format!("the row has more than {RECORD_CHARS_MAX} characters");
            return PushOutcome::Refused(Delivery::reject("ROW_TOO_LONG", &why));
        }
        if self.before + self.out.len() > BODY_MAX {
            self.out.truncate(start);
            return PushOutcome::Full;
        }
        self.count += 1;
        PushOutcome::InBody
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the body; empty if it has no row.
    pub(super) fn into_body(self) -> Vec<u8> {
        if self.count == 0 { Vec::new() } else { self.out }
    }

    fn value(&mut self, value: &Cell<'_>) -> Result<(), String> {
        let text = match value {
            Cell::Absent => "",
            // An empty text is null in Salesforce; an empty cell would keep the old value.
            Cell::Null => NULL,
            Cell::Text(text) if text.is_empty() => NULL,
            Cell::Text(text) if text == NULL => {
                return Err(format!(
                    "the text {NULL} would clear the field in a bulk job; send it by collections \
                     or change it"
                ));
            }
            Cell::Text(text) | Cell::Plain(text) => text,
        };
        if text.contains('\0') {
            return Err(NUL.to_owned());
        }
        if text.len() > VALUE_CHARS_MAX && chars(text.as_bytes()) > VALUE_CHARS_MAX {
            return Err(format!("the value has more than {VALUE_CHARS_MAX} characters"));
        }
        cell(&mut self.out, text);
        Ok(())
    }
}

/// Adds a quoted cell. Line ends in it become LF: Salesforce refuses a file with mixed line ends.
fn cell(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\r')) {
        out.extend_from_slice(&rest[..at]);
        if rest[at] == b'"' {
            out.extend_from_slice(b"\"\"");
        } else if rest.get(at + 1) != Some(&b'\n') {
            out.push(b'\n');
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Counts UTF-16 code units: one per character, two per character of four bytes.
fn chars(utf8: &[u8]) -> usize {
    utf8.iter().map(|byte| usize::from(byte & 0xC0 != 0x80) + usize::from(*byte >= 0xF0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 2] = ["LastName", "Notes__c"];

    fn push(csv: &mut Csv, id: &str, cells: &[Cell<'_>]) -> PushOutcome {
        csv.push(id, cells, COLUMNS.into_iter())
    }

    fn new() -> Csv {
        Csv::new("ExternalId__c", COLUMNS.into_iter())
    }

    fn text(text: &str) -> Cell<'_> {
        Cell::Text(text.into())
    }

    fn written(value: &str) -> String {
        let mut csv = new();
        assert_eq!(push(&mut csv, "M-1", &[text(value), Cell::Absent]), PushOutcome::InBody);
        String::from_utf8(csv.into_body()).unwrap()
    }

    fn refused(cells: &[Cell<'_>]) -> String {
        let mut csv = new();
        match push(&mut csv, "M-1", cells) {
            PushOutcome::Refused(Delivery::Reject { problem }) => {
                assert!(csv.into_body().is_empty());
                problem.message
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_cell_is_quoted_and_every_line_ends_in_lf() {
        let mut csv = new();
        let cells = [text("Doe"), Cell::Plain("9007199254740993".into())];
        assert_eq!(push(&mut csv, "M-1", &cells), PushOutcome::InBody);
        assert_eq!(push(&mut csv, "M-2", &[Cell::Null, Cell::Absent]), PushOutcome::InBody);
        assert_eq!(
            push(&mut csv, "M-3", &[text(""), Cell::Plain("true".into())]),
            PushOutcome::InBody
        );
        assert_eq!(csv.count(), 3);
        let expected = "\"ExternalId__c\",\"LastName\",\"Notes__c\"\n\
                        \"M-1\",\"Doe\",\"9007199254740993\"\n\
                        \"M-2\",\"#N/A\",\"\"\n\
                        \"M-3\",\"#N/A\",\"true\"\n";
        assert_eq!(String::from_utf8(csv.into_body()).unwrap(), expected);
    }

    #[test]
    fn quotes_commas_line_ends_and_emoji_survive() {
        for (value, cell) in [
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("\"", "\"\"\"\""),
            ("a\nb", "\"a\nb\""),
            ("a\r\nb", "\"a\nb\""),
            ("a\rb", "\"a\nb\""),
            ("a\r\r\nb\r", "\"a\n\nb\n\""),
            ("\u{feff}x", "\"\u{feff}x\""),
            ("😀 é", "\"😀 é\""),
            (" blank ", "\" blank \""),
            // Formulas of spreadsheets are not escaped: the file is read by Salesforce only.
            ("=cmd|' /C calc'!A0", "\"=cmd|' /C calc'!A0\""),
            ("+1", "\"+1\""),
            ("-1", "\"-1\""),
            ("@SUM(A1)", "\"@SUM(A1)\""),
            ("\t=1", "\"\t=1\""),
        ] {
            let body = written(value);
            assert!(body.ends_with(&format!("\n\"M-1\",{cell},\"\"\n")), "{body}");
            assert!(!body.contains('\r') && !body.starts_with('\u{feff}'));
        }
    }

    #[test]
    fn text_that_means_null_does_not_become_null() {
        let why = refused(&[text("#N/A"), Cell::Absent]);
        assert!(why.starts_with("LastName: the text #N/A would clear"), "{why}");
        assert!(written("#N/A ").contains("#N/A "));
    }

    #[test]
    fn a_value_with_nul_is_refused_with_its_field() {
        let why = refused(&[Cell::Absent, text("a\0b")]);
        assert!(why.starts_with("Notes__c: the value contains U+0000"), "{why}");
    }

    #[test]
    fn a_value_has_at_most_32_000_characters() {
        written(&"é".repeat(32_000));
        written(&"😀".repeat(16_000));
        let long = "x".repeat(32_001);
        assert!(refused(&[Cell::Null, text(&long)]).starts_with("Notes__c: the value has more"));
        assert!(refused(&[text(&"😀".repeat(16_001)), Cell::Null]).contains("32000"));
    }

    proptest::proptest! {
        #[test]
        fn another_reader_reads_what_was_written(values in proptest::collection::vec(".*", 1..20)) {
            let mut csv = new();
            for value in &values {
                let written = push(&mut csv, "M-1", &[text(value), Cell::Null]);
                let refused = value == NULL || value.contains('\0');
                proptest::prop_assert_eq!(written == PushOutcome::InBody, !refused);
            }
            let mut reader = ::csv::Reader::from_reader(std::io::Cursor::new(csv.into_body()));
            let read: Vec<String> = reader.records().map(|row| row.unwrap()[1].to_owned()).collect();
            let plain = |value: &String| match value.as_str() {
                "" => NULL.to_owned(),
                value => value.replace("\r\n", "\n").replace('\r', "\n"),
            };
            let expected: Vec<String> = values.iter().filter(|v| *v != NULL && !v.contains('\0')).map(plain).collect();
            proptest::prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn a_row_that_is_refused_leaves_no_trace() {
        let mut csv = new();
        assert_eq!(push(&mut csv, "M-1", &[text("a"), Cell::Absent]), PushOutcome::InBody);
        assert!(matches!(
            push(&mut csv, "M-2", &[text("b"), text("#N/A")]),
            PushOutcome::Refused(_)
        ));
        assert_eq!(push(&mut csv, "M-3", &[text("c"), Cell::Absent]), PushOutcome::InBody);
        let body = String::from_utf8(csv.into_body()).unwrap();
        assert_eq!(body.lines().count(), 3);
        assert!(!body.contains("M-2"));
    }

    #[test]
    fn a_row_has_at_most_400_000_characters() {
        let columns: Vec<String> = (0..13).map(|n| format!("F{n}__c")).collect();
        let names = || columns.iter().map(String::as_str);
        let value = "x".repeat(31_000);
        let cells = vec![text(&value); 13];
        let mut csv = Csv::new("ExternalId__c", names());
        assert!(matches!(csv.push("M-1", &cells, names()), PushOutcome::Refused(_)));
        assert_eq!(csv.push("M-1", &cells[..12], names()), PushOutcome::InBody);
    }

    #[test]
    fn a_full_body_takes_no_more_rows() {
        let columns: Vec<String> = (0..12).map(|n| format!("F{n}__c")).collect();
        let names = || columns.iter().map(String::as_str);
        let value = "x".repeat(32_000);
        let cells = vec![text(&value); 12];
        let mut csv = Csv::new("ExternalId__c", names());
        let mut rows = 0;
        while csv.push("M-1", &cells, names()) == PushOutcome::InBody {
            rows += 1;
        }
        assert_eq!(csv.count(), rows);
        assert!(csv.into_body().len() <= BODY_MAX);
        assert!(rows > 100);
    }
}
