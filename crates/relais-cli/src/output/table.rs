//! Tables and field lists.

use std::collections::HashSet;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use super::{
    Output,
    text::{LineBreaks, cut, escape},
};

/// Most characters of a cell.
const CELL_MAX: usize = 48;

/// A column: its title, alignment and way of shortening.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableColumn {
    Text(&'static str),
    Number(&'static str),
    /// One of a few words, for example a state: never cut.
    Word(&'static str),
    /// Operators copy it into the next command: cut only if nothing else can be.
    Id(&'static str),
    /// Copied too, but of any length: cut only if the terminal is too narrow.
    Key(&'static str),
    /// A sentence of any length: continues on the next line if the terminal is too narrow.
    Prose(&'static str),
}

impl TableColumn {
    fn title(self) -> &'static str {
        match self {
            Self::Text(title)
            | Self::Number(title)
            | Self::Word(title)
            | Self::Id(title)
            | Self::Key(title)
            | Self::Prose(title) => title,
        }
    }
}

impl TableColumn {
    /// Returns the fewest characters of a column of texts.
    fn text_min(self) -> Option<usize> {
        match self {
            Self::Text(_) | Self::Key(_) => Some(TEXT_MIN),
            Self::Prose(_) => Some(PROSE_MIN),
            Self::Number(_) | Self::Word(_) | Self::Id(_) => None,
        }
    }

    /// Returns the fewest characters of a column of ids.
    fn id_min(self) -> Option<usize> {
        matches!(self, Self::Id(_)).then_some(ID_MIN)
    }
}

/// The meaning of a cell's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Waiting,
    Bad,
}

impl Tone {
    /// Returns the tone of a row's state.
    pub(crate) fn of_status(status: &str) -> Self {
        match status {
            "FAILED" | "SERDE_ERROR" | "CONFLICT" | "TIMED_OUT" | "COMPENSATION_FAILED" => {
                Self::Bad
            }
            "PROCESSED" | "DISPATCHED" | "SUCCEEDED" => Self::Good,
            "RETRY" | "COMPENSATING" | "COMPENSATED" | "PAUSED" => Self::Waiting,
            _ => Self::Plain,
        }
    }
}

/// Renders a table without borders, one line per row.
pub(crate) fn table(
    output: &Output,
    columns: &[TableColumn],
    rows: impl IntoIterator<Item = Vec<(String, Tone)>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if output.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(columns.iter().map(|c| Cell::new(c.title()).add_attribute(Attribute::Bold)));
    let mut rows: Vec<Vec<(String, Tone)>> = rows.into_iter().collect();
    for (cell, column) in rows.iter_mut().flat_map(|row| row.iter_mut().zip(columns)) {
        cell.0 = match column {
            TableColumn::Id(_) | TableColumn::Key(_) | TableColumn::Prose(_) => {
                escape(&cell.0, LineBreaks::Escape)
            }
            TableColumn::Text(_) | TableColumn::Number(_) | TableColumn::Word(_) => {
                cut(&cell.0, CELL_MAX)
            }
        };
    }
    if let Some(width) = output.width {
        fit(columns, &mut rows, width);
    }
    for row in rows {
        table.add_row(row.into_iter().map(|(text, tone)| paint(Cell::new_owned(text), tone)));
    }
    for (at, (column, shown)) in columns.iter().zip(table.column_iter_mut()).enumerate() {
        let last = at + 1 == columns.len();
        shown.set_padding((0, if last { 0 } else { GAP_WIDTH }));
        if matches!(column, TableColumn::Number(_)) {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Width of the gap between two columns.
const GAP_WIDTH: u16 = 2;
const GAP: usize = GAP_WIDTH as usize;
/// Fewest characters of a shortened text.
const TEXT_MIN: usize = 6;
/// Fewest characters of a shortened UUID; more if two rows have the same prefix.
const ID_MIN: usize = 8;
/// Fewest characters of a line of a sentence.
const PROSE_MIN: usize = 20;
/// Characters of a UUID with its hyphens.
const UUID_LENGTH: usize = 36;

/// Shortens UUIDs to distinct prefixes, then the longest texts, and other ids only if that is not enough. Numbers
/// and states are never cut.
fn fit(columns: &[TableColumn], rows: &mut [Vec<(String, Tone)>], width: usize) {
    let title = |at: usize| columns[at].title().chars().count();
    let measured = |rows: &[Vec<(String, Tone)>], at: usize| {
        let cells = rows.iter().map(|row| row[at].0.chars().count());
        cells.max().unwrap_or_default().max(title(at))
    };
    let mut widths: Vec<usize> = (0..columns.len()).map(|at| measured(rows, at)).collect();
    let too_wide = |widths: &[usize]| {
        (widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)).saturating_sub(width)
    };
    if too_wide(&widths) == 0 {
        return;
    }
    for at in 0..columns.len() {
        if matches!(columns[at], TableColumn::Id(_)) {
            shorten_ids(rows, at);
            widths[at] = measured(rows, at);
        }
    }
    while too_wide(&widths) > 0 {
        let widest = |shrinks: fn(TableColumn) -> Option<usize>| {
            let above = (0..columns.len()).filter(|at| {
                shrinks(columns[*at]).is_some_and(|min| widths[*at] > min.max(title(*at)))
            });
            above.max_by_key(|at| widths[*at])
        };
        let Some(widest) = widest(TableColumn::text_min).or_else(|| widest(TableColumn::id_min))
        else {
            break;
        };
        widths[widest] -= 1;
    }
    for (at, width) in widths.into_iter().enumerate() {
        match columns[at] {
            TableColumn::Number(_) | TableColumn::Word(_) => {}
            TableColumn::Prose(_) => {
                rows.iter_mut().for_each(|row| row[at].0 = wrap(&row[at].0, width))
            }
            _ => rows.iter_mut().for_each(|row| row[at].0 = elide(&row[at].0, width)),
        }
    }
}

/// Shortens UUIDs, also behind a kind as in `process:…`, to the shortest distinct prefixes, which commands accept.
fn shorten_ids(rows: &mut [Vec<(String, Tone)>], at: usize) {
    let uuid = |cell: &str| {
        let start = cell.rfind(':').map_or(0, |colon| colon + 1);
        uuid::Uuid::try_parse(&cell[start..]).ok().map(|_| start)
    };
    let found: HashSet<String> = rows
        .iter()
        .filter_map(|row| uuid(&row[at].0).map(|start| row[at].0[start..].to_owned()))
        .filter(|id| id.len() == UUID_LENGTH)
        .collect();
    let distinct = |digits: usize| {
        let mut seen = HashSet::new();
        found.iter().all(|id| seen.insert(&id[..digits]))
    };
    let digits = (ID_MIN..UUID_LENGTH).find(|digits| distinct(*digits)).unwrap_or(UUID_LENGTH);
    for (cell, _) in rows.iter_mut().map(|row| &mut row[at]) {
        if let Some(start) = uuid(cell).filter(|start| cell.len() - start == UUID_LENGTH) {
            cell.truncate(start + digits);
            cell.truncate(cell.trim_end_matches('-').len());
        }
    }
}

/// Breaks a text into lines of at most this width, between words where possible.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word;
        loop {
            let line = lines.last_mut().expect("there is a line");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            let length = word.chars().count();
            if used + gap + length <= width {
                line.extend(std::iter::repeat_n(' ', gap).chain(word.chars()));
                break;
            }
            if used > 0 {
                lines.push(String::new());
                continue;
            }
            let cut = word.char_indices().nth(width.max(1)).map_or(word.len(), |(at, _)| at);
            line.push_str(&word[..cut]);
            word = &word[cut..];
            lines.push(String::new());
        }
    }
    lines.join("\n")
}

/// Returns the text, cut to the width with an ellipsis.
pub(crate) fn elide(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn paint(cell: Cell, tone: Tone) -> Cell {
    match tone {
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Waiting => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
    }
}

/// Renders each field of a row on its own line, in the order of its columns. Payloads come last and are escaped
/// only for a terminal.
pub(crate) fn fields(output: &Output, row: &impl Serialize) -> Result<String, serde_json::Error> {
    let OrderedObject(fields) = serde_json::from_str(&serde_json::to_string(row)?)?;
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let (mut lines, mut payloads) = (String::new(), String::new());
    for (name, value) in &fields {
        match value {
            Value::String(text) if name == "payload" => {
                payloads.push_str(&format!("{name}\n{}\n", shown(output, text)));
            }
            // Before the current payload.
            Value::String(text) if name == "original_payload" => {
                payloads.insert_str(0, &format!("{name}\n{}\n", shown(output, text)));
            }
            value => {
                // A line end in a value must not look like the next field.
                let next_line = format!("\n{:width$}  ", "");
                let text = escape(&plain(value), LineBreaks::Keep).replace('\n', &next_line);
                lines.push_str(&format!("{name:width$}  {text}\n"));
            }
        }
    }
    Ok(lines + &payloads)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn shown(output: &Output, text: &str) -> String {
    if output.terminal { escape(text, LineBreaks::Keep) } else { text.to_owned() }
}

/// A JSON object that keeps the order of its fields.
struct OrderedObject(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for OrderedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = OrderedObject;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedObject, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(OrderedObject(fields))
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: Output = Output { json: false, color: false, terminal: true, width: None };

    #[test]
    fn a_table_is_plain_text_without_colours() {
        let columns =
            [TableColumn::Id("ID"), TableColumn::Text("STATUS"), TableColumn::Number("N")];
        let cell = |text: &str, tone| (text.to_owned(), tone);
        let rows = [
            vec![cell("7", Tone::Plain), cell("FAILED", Tone::Bad), cell("1", Tone::Plain)],
            vec![cell("123", Tone::Plain), cell("a\nb", Tone::Plain), cell("22", Tone::Plain)],
        ];
        let text = table(&OUTPUT, &columns, rows.clone());
        assert_eq!(text, "ID   STATUS   N\n7    FAILED   1\n123  a\\nb    22");
        let coloured = Output { color: true, ..OUTPUT };
        assert!(table(&coloured, &columns, rows).contains("\u{1b}["));
    }

    #[test]
    fn a_line_fits_the_terminal_and_ids_stay_distinct() {
        let columns = [
            TableColumn::Id("ID"),
            TableColumn::Text("TYPE"),
            TableColumn::Number("N"),
            TableColumn::Text("PROBLEM"),
        ];
        let row = |id: &str| {
            let cells =
                [id, "OrderPlacedWithALongName", "12345", "HTTP_503: the target is down for now"];
            cells.map(|text| (text.to_owned(), Tone::Plain)).to_vec()
        };
        let ids = ["0192f3c4-5a6b-7c8d-9e0f-112233445566", "0192f3c4-5a6b-7c8e-9e0f-112233445566"];
        for width in [50, 60, 80] {
            let output = Output { width: Some(width), ..OUTPUT };
            let text = table(&output, &columns, ids.map(row));
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert!(text.contains("0192f3c4-5a6b-7c8d ") && text.contains("12345"), "{text}");
        }
        assert!(
            table(&OUTPUT, &columns, ids.map(row)).contains(ids[0]),
            "piped output is not shortened"
        );
    }

    #[test]
    fn a_line_fits_although_a_title_is_wider_than_its_cells_and_ids_repeat() {
        let columns = [
            TableColumn::Id("ID"),
            TableColumn::Text("STATUS"),
            TableColumn::Text("KEY"),
            TableColumn::Text("DESTINATION"),
            TableColumn::Id("TARGET"),
            TableColumn::Prose("EVENT"),
        ];
        let id = "process:0192f3c4-5a6b-7c8d-9e0f-112233445566";
        let event = "dead-letter.retried by ann: the target is there again, and its queue is empty";
        let row = |number: &str| {
            let cells = [number, "DISPATCHED", &id[8..], "out", id, event];
            cells.map(|text| (text.to_owned(), Tone::Plain)).to_vec()
        };
        let output = Output { width: Some(80), ..OUTPUT };
        let text = table(&output, &columns, ["1", "2"].map(row));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("process:0192f3c4 "), "{text}");
        assert!(text.contains("is empty"), "nothing of a sentence is lost: {text}");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert_eq!(wrap("abcdefgh ij", 5), "abcde\nfgh\nij");
        assert_eq!(wrap("", 5), "");
    }

    #[test]
    fn fields_keep_their_order_with_the_unchanged_payload_last() {
        #[derive(Serialize)]
        struct Row {
            zeta: u8,
            payload: &'static str,
            alpha: Option<u8>,
        }
        let row = Row { zeta: 1, payload: "{ \"b\":1,\n\"a\":\u{1b}2}", alpha: None };
        let text = fields(&OUTPUT, &row).unwrap();
        assert_eq!(text, "zeta     1\nalpha    -\npayload\n{ \"b\":1,\n\"a\":\\u{1b}2}\n");
        let piped = Output { terminal: false, ..OUTPUT };
        assert!(fields(&piped, &row).unwrap().contains('\u{1b}'));
    }

    #[test]
    fn a_line_end_in_a_field_cannot_look_like_another_field() {
        let row = serde_json::json!({ "key": "a\nstatus  DONE\u{1b}[2J\r" });
        let piped = Output { terminal: false, ..OUTPUT };
        let text = fields(&piped, &row).unwrap();
        assert_eq!(text, "key  a\n     status  DONE\\u{1b}[2J\\r\n");
    }
}
