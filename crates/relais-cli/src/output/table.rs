//! Tables and field lists for people.

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use super::{
    Output,
    text::{Lines, cut, escape},
};

/// Longest text of one cell.
const CELL_MAX: usize = 48;

/// A column: its title and on which side numbers line up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
    /// Never cut: people copy it into the next command.
    Id(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Text(title) | Self::Number(title) | Self::Id(title) => title,
        }
    }
}

/// What a cell's colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Waiting,
    Bad,
}

impl Tone {
    /// The tone of a row's state.
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

/// A table without borders, one line a row.
pub(crate) fn table(
    output: &Output,
    columns: &[Column],
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
    for row in rows {
        let cells = row.into_iter().zip(columns).map(|((text, tone), column)| {
            let text = match column {
                Column::Id(_) => escape(&text, Lines::Escape),
                _ => cut(&text, CELL_MAX),
            };
            paint(Cell::new_owned(text), tone)
        });
        table.add_row(cells);
    }
    for (column, shown) in columns.iter().zip(table.column_iter_mut()) {
        shown.set_padding((0, 2));
        if matches!(column, Column::Number(_)) {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

fn paint(cell: Cell, tone: Tone) -> Cell {
    match tone {
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Waiting => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
    }
}

/// Every field of a row on its line, in the order of its columns; payloads last, and as they are unless
/// they go to a terminal.
pub(crate) fn fields(output: &Output, row: &impl Serialize) -> Result<String, serde_json::Error> {
    let Ordered(fields) = serde_json::from_str(&serde_json::to_string(row)?)?;
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let (mut lines, mut payloads) = (String::new(), String::new());
    for (name, value) in &fields {
        match value {
            Value::String(text) if name == "payload" => {
                payloads.push_str(&format!("{name}\n{}\n", shown(output, text)));
            }
            // Before the one that counts now.
            Value::String(text) if name == "original_payload" => {
                payloads.insert_str(0, &format!("{name}\n{}\n", shown(output, text)));
            }
            value => {
                // A line end in a value must not look like the next field.
                let next_line = format!("\n{:width$}  ", "");
                let text = escape(&plain(value), Lines::Keep).replace('\n', &next_line);
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
    if output.terminal { escape(text, Lines::Keep) } else { text.to_owned() }
}

/// An object with its fields in the order they are written.
struct Ordered(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Ordered;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Ordered(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: Output = Output { json: false, color: false, terminal: true };

    #[test]
    fn a_table_is_plain_text_without_colours() {
        let columns = [Column::Id("ID"), Column::Text("STATUS"), Column::Number("N")];
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
    fn fields_keep_their_order_and_the_payload_comes_last_unchanged() {
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
    fn no_field_poses_as_another_one_even_when_it_is_piped() {
        let row = serde_json::json!({ "key": "a\nstatus  DONE\u{1b}[2J\r" });
        let piped = Output { terminal: false, ..OUTPUT };
        let text = fields(&piped, &row).unwrap();
        assert_eq!(text, "key  a\n     status  DONE\\u{1b}[2J\\r\n");
    }
}
