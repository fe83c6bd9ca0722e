//! The changes of a run: added and removed rows, table by table.

use std::collections::BTreeMap;

use serde_json::Value;

use super::dump::{Dump, Row};

/// Shown instead of what the test does not care about.
const IGNORED: &str = "(ignored)";
/// Tables of relais that a handler writes itself.
const WRITTEN_BY_HANDLERS: [&str; 2] = ["relais_outbox", "relais_handled"];

/// Empty where nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RowChanges(BTreeMap<String, TableChanges>);

/// Rows as text, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TableChanges {
    removed: Vec<String>,
    come: Vec<String>,
}

impl RowChanges {
    /// `ignore` names columns (`table.column`) or places in a JSON column (`table.column/a/b`).
    pub(super) fn between(before: &Dump, after: &Dump, ignore: &[&str]) -> Self {
        let tables = before.0.keys().chain(after.0.keys()).map(|table| {
            let shown = |dump: &Dump| -> Vec<String> {
                let rows = dump.0.get(table).into_iter().flatten();
                let mut rows: Vec<String> = rows.map(|row| show(table, row, ignore)).collect();
                rows.sort();
                rows
            };
            let (before, after) = (shown(before), shown(after));
            let changes =
                TableChanges { removed: without(&before, &after), come: without(&after, &before) };
            (table.clone(), changes)
        });
        Self(tables.filter(|(_, changes)| *changes != TableChanges::default()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tables that were changed by the handler, not by relais.
    pub(super) fn tables(&self) -> impl Iterator<Item = &str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| !name.starts_with("relais_") || WRITTEN_BY_HANDLERS.contains(name))
    }

    /// One line for each change.
    pub(super) fn lines(&self) -> Vec<String> {
        let table = |(table, changes): (&String, &TableChanges)| {
            let removed = changes.removed.iter().map(move |row| format!("- {table}: {row}"));
            let come = changes.come.iter().map(move |row| format!("+ {table}: {row}"));
            removed.chain(come).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(table).collect()
    }

    /// The lines of this that are not in the other.
    pub(super) fn lines_without(&self, other: &Self) -> Vec<String> {
        let (mut mine, mut theirs) = (self.lines(), other.lines());
        mine.sort();
        theirs.sort();
        without(&mine, &theirs)
    }
}

/// Returns what of sorted `all` is not in sorted `some`; equal rows count one by one.
fn without(all: &[String], some: &[String]) -> Vec<String> {
    let mut rest = some.iter().peekable();
    let missing = all.iter().filter(|row| {
        while rest.next_if(|other| other < row).is_some() {}
        rest.next_if(|other| other == row).is_none()
    });
    missing.cloned().collect()
}

fn show(table: &str, row: &Row, ignore: &[&str]) -> String {
    let field = |(name, value): &(String, String)| {
        let place = format!("{table}.{name}");
        let mut value = value.clone();
        for ignored in ignore {
            match ignored.strip_prefix(&place) {
                Some("") => value = IGNORED.to_owned(),
                Some(pointer) if pointer.starts_with('/') => value = hide(&value, pointer),
                _ => {}
            }
        }
        format!("{name}={value}")
    };
    row.iter().map(field).collect::<Vec<_>>().join(" ")
}

/// JSON without what stands at this place; SQLite shows text in quotes.
fn hide(text: &str, pointer: &str) -> String {
    let plain = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let plain = plain.map_or_else(|| text.to_owned(), |text| text.replace("''", "'"));
    let Ok(mut json) = serde_json::from_str::<Value>(&plain) else { return text.to_owned() };
    if let Some(place) = json.pointer_mut(pointer) {
        *place = IGNORED.into();
    }
    json.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(rows: &[(&str, &str)]) -> Dump {
        let row = |(id, data): &(&str, &str)| {
            vec![("id".to_owned(), (*id).to_owned()), ("data".to_owned(), (*data).to_owned())]
        };
        Dump(BTreeMap::from([("t".to_owned(), rows.iter().map(row).collect())]))
    }

    #[test]
    fn equal_rows_count_one_by_one() {
        let changes = RowChanges::between(
            &dump(&[("1", "a"), ("1", "a"), ("2", "b")]),
            &dump(&[("1", "a"), ("3", "c"), ("3", "c")]),
            &[],
        );
        let lines =
            ["- t: id=1 data=a", "- t: id=2 data=b", "+ t: id=3 data=c", "+ t: id=3 data=c"];
        assert_eq!(changes.lines(), lines);
        assert!(RowChanges::between(&dump(&[("1", "a")]), &dump(&[("1", "a")]), &[]).is_empty());
    }

    #[test]
    fn columns_and_places_in_json_can_be_ignored() {
        let (a, b) =
            (dump(&[("1", r#"'{"at":1,"n":[2]}'"#)]), dump(&[("9", r#"'{"at":7,"n":[2]}'"#)]));
        assert!(!RowChanges::between(&a, &b, &["t.id"]).is_empty());
        assert!(RowChanges::between(&a, &b, &["t.id", "t.data/at"]).is_empty());
        assert!(!RowChanges::between(&a, &b, &["t.i", "t.data/at"]).is_empty());
    }
}
