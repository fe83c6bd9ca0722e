//! Fuzz targets: the files of bulk jobs. Each function panics if a property does not hold.

use relais_core::delivery::Delivery;

use super::{
    classify::Judge,
    csv::{Csv, NULL, PushOutcome},
    external_id::ExternalIds,
    results::{Matcher, ResultError, ResultFile, ResultReader, split_error},
    row_values::Cell,
};
use crate::fuzz_parts::Parts;

const EXTERNAL_ID: &str = "ExternalId__c";
const COLUMNS: [&str; 2] = ["LastName", "Notes__c"];

/// A strict CSV reader of another library finds exactly the values that were written to the upload.
pub fn bulk_csv(input: &[u8]) {
    let mut parts = Parts::new(input);
    let rows: Vec<[String; 3]> =
        (0..parts.byte() % 5).map(|_| [parts.text(), parts.text(), parts.text()]).collect();
    let mut csv = Csv::new(EXTERNAL_ID, COLUMNS.into_iter());
    let mut expected = vec![[EXTERNAL_ID, COLUMNS[0], COLUMNS[1]].map(str::to_owned).to_vec()];
    let mut keys = ExternalIds::default();
    for [id, first, second] in &rows {
        if keys.admit(id).is_err() {
            continue;
        }
        let cells = [cell(first), cell(second)];
        match csv.push(id, &cells, COLUMNS.into_iter()) {
            PushOutcome::InBody => {
                expected.push(vec![id.clone(), as_read(&cells[0]), as_read(&cells[1])]);
            }
            PushOutcome::Refused(delivery) => assert!(matches!(delivery, Delivery::Reject { .. })),
            PushOutcome::Full => panic!("so few rows fill nothing"),
        }
    }
    assert_eq!(csv.count() as usize, expected.len() - 1);
    let body = csv.into_body();
    if expected.len() == 1 {
        assert!(body.is_empty());
        return;
    }
    assert_eq!(strict(&body), expected);
    let reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(&body[..]);
    let read: Vec<Vec<String>> = reader
        .into_records()
        .map(|row| row.expect("a row").iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(read, expected);
}

/// The first character selects the kind of value.
fn cell(text: &str) -> Cell<'_> {
    match (text.chars().next(), text.strip_prefix(['A', 'N', 'P'])) {
        (Some('A'), _) => Cell::Absent,
        (Some('N'), _) => Cell::Null,
        (Some('P'), Some(number)) => Cell::Plain(number.into()),
        _ => Cell::Text(text.into()),
    }
}

fn as_read(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Absent => String::new(),
        Cell::Null => NULL.to_owned(),
        Cell::Text(text) if text.is_empty() => NULL.to_owned(),
        Cell::Text(text) | Cell::Plain(text) => text.replace("\r\n", "\n").replace('\r', "\n"),
    }
}

/// Checks the RFC 4180 subset of Salesforce: every cell quoted, every line ended by LF.
fn strict(body: &[u8]) -> Vec<Vec<String>> {
    let text = std::str::from_utf8(body).expect("UTF-8");
    assert!(!text.contains('\r'), "one kind of line end");
    let (mut rows, mut rest) = (vec![Vec::new()], text);
    loop {
        rest = rest.strip_prefix('"').expect("a cell begins with a quote");
        let mut cell = String::new();
        loop {
            let (before, after) = rest.split_once('"').expect("a cell ends with a quote");
            cell.push_str(before);
            rest = after;
            let Some(after) = rest.strip_prefix('"') else { break };
            cell.push('"');
            rest = after;
        }
        rows.last_mut().expect("a row").push(cell);
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
            continue;
        }
        rest = rest.strip_prefix('\n').expect("a line ends with LF");
        if rest.is_empty() {
            return rows;
        }
        rows.push(Vec::new());
    }
}

type ResultRecords = Vec<(String, String)>;

/// Any file is read the same in chunks of any size, each of its records once, or is reported as
/// broken.
pub fn bulk_results(input: &[u8]) {
    let mut parts = Parts::new(input);
    let size = usize::from(parts.byte()) + 1;
    let file = parts.rest();
    let whole = read(file, file.len());
    let pieces = read(file, size);
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces, "in pieces of {size}"),
        (Err(_), Err(_)) => {}
        _ => panic!("in pieces of {size} it is {pieces:?}, as a whole {whole:?}"),
    }
    matched(whole.unwrap_or_default());
    written_and_read(file, size);
}

fn read(file: &[u8], size: usize) -> Result<ResultRecords, ResultError> {
    let mut found = ResultRecords::new();
    let mut each = |key: &str, error: &str| found.push((key.to_owned(), error.to_owned()));
    let mut reader = ResultReader::new(EXTERNAL_ID);
    for piece in file.chunks(size.max(1)) {
        reader.feed(piece, &mut each)?;
    }
    let count = reader.finish(&mut each)?;
    assert_eq!(count as usize, found.len(), "no record is counted twice");
    Ok(found)
}

/// Every row has one delivery, and a row that a file reports as successful is not sent again.
fn matched(records: ResultRecords) {
    let judge = Judge { external_id: EXTERNAL_ID.into(), superseded: None };
    let ids = ["M-1", "m-1", "M-2"].map(str::to_owned);
    let (unprocessed, unmentioned) = (Delivery::retry("U", "u"), Delivery::retry("N", "n"));
    let mut matcher = Matcher::new(&ids, &judge);
    for (n, (key, error)) in records.iter().enumerate() {
        let (code, _) = split_error(error);
        assert!(!code.is_empty());
        matcher.note(ResultFile::ALL[n % 3], key, error, &unprocessed);
    }
    let answers = matcher.finish(&unmentioned);
    assert_eq!(answers.len(), ids.len());
    for (id, answer) in ids.iter().zip(answers) {
        let mut named = records.iter().step_by(3).map(|(key, _)| key);
        if named.any(|key| key == id) {
            assert_eq!(answer, Delivery::Accepted);
        }
    }
}

/// A file written by another library is read back unchanged.
fn written_and_read(input: &[u8], size: usize) {
    let mut parts = Parts::new(input);
    let records: ResultRecords = (0..3).map(|_| (parts.text(), parts.text())).collect();
    let mut writer =
        ::csv::WriterBuilder::new().quote_style(::csv::QuoteStyle::Always).from_writer(Vec::new());
    writer.write_record(["sf__Id", "sf__Error", EXTERNAL_ID]).expect("it takes all");
    for (key, error) in &records {
        writer.write_record(["003", error, key]).expect("it takes all");
    }
    let file = writer.into_inner().expect("it takes all");
    assert_eq!(read(&file, size).as_ref(), Ok(&records));
}

#[cfg(test)]
mod tests {
    use crate::fuzz_run::run;

    #[test]
    fn any_upload_is_read_by_a_strict_reader_as_it_was_meant() {
        run("bulk_csv", 4_000, super::bulk_csv);
    }

    #[test]
    fn any_result_file_is_read_once_and_whole_or_is_broken() {
        run("bulk_results", 1_500, super::bulk_results);
    }
}
