//! Reads an adopted table and its columns from the schema of the file.

use relais_core::store::StoreError;
use rusqlite::Connection;

use super::super::row::{all, first};
use super::dialect::SqliteDialect;
use crate::adopt::{
    AdoptPreset, Adoption,
    catalog::{FoundColumn, FoundTable, judge, judge_dead_letters, missing, no_dead_letters},
    terms::identifier,
};

/// The table of dead letters, unless the configuration names another.
const DEAD_LETTERS: &str = "outbox_dead_letters";

/// Reads the table of an adoption. Returns what is wrong with its layout; nothing if it fits.
pub(super) fn read(
    db: &Connection,
    adoption: &Adoption,
) -> Result<Result<FoundTable, Vec<String>>, StoreError> {
    let Some(found) = find(db, &adoption.table)? else {
        return Ok(Err(vec![missing(&adoption.table)]));
    };
    let NamedTable { mut table, kind } = found;
    let refusal = match kind {
        TableKind::Table => None,
        TableKind::View => Some("is not a table; name a table"),
        TableKind::Virtual => Some("is a virtual table, which cannot have triggers; name a table"),
        TableKind::OfRelais => Some("is a table of relais itself"),
    };
    if let Some(refusal) = refusal {
        return Ok(Err(vec![format!("{} {refusal}", table.name)]));
    }
    table.columns = columns(db, &table.plain)?;
    let (wrong, _) = judge::<SqliteDialect>(adoption, &table, "");
    if adoption.preset == AdoptPreset::EfCore {
        let wanted = adoption.dead_letters.as_deref().unwrap_or(DEAD_LETTERS);
        table.dead_letters = Some(match find(db, wanted)? {
            None => no_dead_letters(wanted),
            Some(found) => {
                let columns = columns(db, &found.table.plain)?;
                let letters = (found.table.name, columns.as_slice());
                judge_dead_letters::<SqliteDialect>(adoption, &table, letters, "")
            }
        });
    }
    Ok(if wrong.is_empty() { Ok(table) } else { Err(wrong) })
}

/// A table or view of the file.
pub(super) struct NamedTable {
    pub(super) table: FoundTable,
    kind: TableKind,
}

#[derive(Clone, Copy)]
enum TableKind {
    Table,
    View,
    Virtual,
    OfRelais,
}

/// Finds a table of the main database by its name as in SQL.
pub(super) fn find(db: &Connection, table: &str) -> Result<Option<NamedTable>, StoreError> {
    let Some(name) = plain_name(table) else { return Ok(None) };
    first(db, adopt_sql!("table"), [name], |c| {
        let plain = c.string(0);
        let kind = match (c.string(1).as_str(), c.flag(2), c.flag(3)) {
            ("view", ..) => TableKind::View,
            (_, _, true) => TableKind::OfRelais,
            (_, true, _) => TableKind::Virtual,
            _ => TableKind::Table,
        };
        let table = FoundTable { name: identifier(&plain), plain, ..FoundTable::default() };
        NamedTable { table, kind }
    })
}

/// Returns the name without quotes and without `main`; none for a table of another database.
pub(super) fn plain_name(table: &str) -> Option<String> {
    let is_main = |text: &str| text.eq_ignore_ascii_case("main") || text == "\"main\"";
    let name = match table.split_once('.') {
        Some((schema, name)) if is_main(schema.trim()) => name.trim(),
        Some(_) if !table.starts_with('"') => return None,
        _ => table.trim(),
    };
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => Some(quoted.replace("\"\"", "\"")),
        None => Some(name.to_owned()),
    }
}

fn columns(db: &Connection, table: &str) -> Result<Vec<FoundColumn>, StoreError> {
    all(db, adopt_sql!("columns"), [table], |c| {
        let type_name = c.string(1);
        FoundColumn {
            name: c.string(0),
            base: base_of(&type_name).to_owned(),
            chars_max: chars_max(&type_name),
            type_name,
            is_enum: false,
            is_not_null: c.flag(2),
            has_default: c.flag(3),
            is_key: c.flag(4),
            may_read: true,
            may_update: true,
            may_insert: true,
        }
    })
}

/// Returns the meaning of a declared type. The order is that in which SQLite decides about affinity.
fn base_of(type_name: &str) -> &'static str {
    const NAMES: [(&str, &str); 17] = [
        ("INT", "integer"),
        ("CHAR", "text"),
        ("CLOB", "text"),
        ("TEXT", "text"),
        ("BLOB", "blob"),
        ("REAL", "real"),
        ("FLOA", "real"),
        ("DOUB", "real"),
        ("UUID", "uuid"),
        ("GUID", "uuid"),
        ("UNIQUEIDENTIFIER", "uuid"),
        ("JSON", "json"),
        ("DATE", "timestamp"),
        ("TIME", "timestamp"),
        ("BOOL", "boolean"),
        ("NUM", "numeric"),
        ("DEC", "numeric"),
    ];
    let upper = type_name.to_ascii_uppercase();
    NAMES.iter().find(|(part, _)| upper.contains(part)).map_or("text", |(_, base)| base)
}

/// Returns the length of a type such as `varchar(50)`: SQLite ignores it, but the application may not.
fn chars_max(type_name: &str) -> Option<i32> {
    let (name, rest) = type_name.split_once('(')?;
    if base_of(name) != "text" {
        return None;
    }
    rest.split_once(')')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_as_in_sql() {
        let name = |text| plain_name(text).unwrap_or_default();
        assert_eq!(
            [name("outbox"), name("main.outbox"), name("temp.outbox")],
            ["outbox", "outbox", ""]
        );
        assert_eq!(name("\"Out \"\"Box\""), "Out \"Box");
    }

    #[test]
    fn declared_types_have_the_meaning_that_sqlite_and_applications_give_them() {
        let bases =
            ["bigint", "varchar(50)", "uuid", "jsonb", "timestamp", "numeric(10)", "", "BLOB"];
        assert_eq!(
            bases.map(base_of),
            ["integer", "text", "uuid", "json", "timestamp", "numeric", "text", "blob"]
        );
        assert_eq!((chars_max("varchar(50)"), chars_max("numeric(10)")), (Some(50), None));
    }
}
