//! An adopted table as the database has it, and whether it fits its description.

use super::{ADOPT_COLUMNS, ADOPT_STATES, Adoption, terms::AdoptSql};

/// A table of the database.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "schemas and rights exist on PostgreSQL only")
)]
pub(crate) struct FoundTable {
    /// As it is written in SQL; with its schema on PostgreSQL.
    pub(crate) name: String,
    /// Without its schema, not quoted.
    pub(crate) plain: String,
    /// The schema of relais's own tables, quoted; empty on SQLite.
    pub(crate) relais_schema: String,
    /// Quoted; empty on SQLite.
    pub(crate) schema: String,
    pub(crate) columns: Vec<FoundColumn>,
    /// For the preset `ef-core`.
    pub(crate) dead_letters: Option<DeadLetterTable>,
    /// Rights that this role lacks: results are written when it has them. The triggers need none of them.
    pub(crate) rights: Vec<String>,
}

/// The table that gets dead letters of an adopted table. One that does not fit delays only rows that failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeadLetterTable {
    /// Quoted.
    pub(crate) name: String,
    /// The most characters of an error.
    pub(crate) error_max: Option<i32>,
    pub(crate) problems: Vec<String>,
    /// Rights that this role lacks.
    pub(crate) rights: Vec<String>,
}

/// A column of such a table.
#[derive(Clone, Debug)]
pub(crate) struct FoundColumn {
    pub(crate) name: String,
    /// As it is written in SQL.
    pub(crate) type_name: String,
    /// The name of the base type, such as `int4`.
    pub(crate) base: String,
    pub(crate) is_enum: bool,
    pub(crate) chars_max: Option<i32>,
    pub(crate) is_not_null: bool,
    pub(crate) has_default: bool,
    pub(crate) is_key: bool,
    pub(crate) may_read: bool,
    pub(crate) may_update: bool,
    pub(crate) may_insert: bool,
}

impl FoundTable {
    pub(crate) fn column(&self, name: &str) -> Option<&FoundColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// Columns that relais sets to NULL.
const CLEARED: [&str; 3] = ["sent_at", "next_attempt_at", "error"];
/// Columns that relais writes.
pub(crate) const WRITTEN: [&str; 5] = ["status", "sent_at", "attempts", "next_attempt_at", "error"];

pub(crate) fn missing(table: &str) -> String {
    format!(
        "table {table} does not exist in this database, or not in the search_path; write it with its \
         schema, as in SQL"
    )
}

/// Returns the problem of a missing table of dead letters.
pub(crate) fn no_dead_letters(table: &str) -> DeadLetterTable {
    let problem = format!("{}; the preset moves dead letters there", missing(table));
    DeadLetterTable { name: table.to_owned(), problems: vec![problem], ..Default::default() }
}

/// The columns of a table of dead letters, and the types that each may have.
const DEAD_LETTER_COLUMNS: [(&str, &[&str]); 8] = [
    ("id", &["uuid"]),
    ("original_message_id", &[]),
    ("type", &["text", "varchar"]),
    ("content", &["text", "varchar", "json", "jsonb"]),
    ("error", &["text", "varchar"]),
    ("retry_count", &["int2", "int4", "int8", "numeric"]),
    ("created_at", &["timestamptz", "timestamp"]),
    ("dead_lettered_at", &["timestamptz", "timestamp"]),
];

/// Returns what is wrong with a table of dead letters of the preset `ef-core`.
pub(crate) fn judge_dead_letters<D: AdoptSql>(
    adoption: &Adoption,
    outbox: &FoundTable,
    (name, columns): (String, &[FoundColumn]),
    role: &str,
) -> DeadLetterTable {
    let mut table = DeadLetterTable::default();
    for (wanted, types) in DEAD_LETTER_COLUMNS {
        let Some(column) = columns.iter().find(|column| column.name == wanted) else {
            table.problems.push(format!("{name} has no column `{wanted}` for dead letters"));
            continue;
        };
        // They are copied as they are.
        let source = match wanted {
            "original_message_id" => adoption.column("id"),
            "content" => adoption.column("payload"),
            "created_at" => adoption.column("created_at"),
            _ => None,
        };
        let source = source.and_then(|name| outbox.column(name)).map(|column| column.base.as_str());
        let fits = match source {
            _ if !D::IS_TYPED => true,
            Some(base) => column.base == base || column.base == "text",
            None => types.contains(&column.base.as_str()),
        };
        if !fits {
            let types = source.map_or_else(|| types.join(", "), str::to_owned);
            let (place, found) = (format!("column `{wanted}` of {name}"), &column.type_name);
            table.problems.push(format!("{place} has type {found}; it must be {types}"));
        }
        if !column.may_insert {
            table.rights.push(format!(
                "role {role} lacks INSERT on column `{wanted}` of {name}; GRANT INSERT ON {name} TO {role}"
            ));
        }
    }
    let is_filled = |name: &str| DEAD_LETTER_COLUMNS.iter().any(|(known, _)| *known == name);
    for column in columns.iter().filter(|column| !is_filled(&column.name)) {
        if column.is_not_null && !column.has_default {
            table.problems.push(format!(
                "column `{}` of {name} is NOT NULL without a default; relais does not fill it",
                column.name
            ));
        }
    }
    table.error_max =
        columns.iter().find(|column| column.name == "error").and_then(|c| c.chars_max);
    table.name = name;
    table
}

/// Returns why rows that exist cannot be copied in the order of their keys; nothing if they can, or have no key.
pub(crate) fn unordered(adoption: &Adoption, table: &FoundTable) -> Option<String> {
    let has_keys = adoption.column("key").or_else(|| adoption.column("aggregate_id")).is_some();
    if !adoption.existing || !has_keys || adoption.column("created_at").is_some() {
        return None;
    }
    let id = adoption.column("id").and_then(|name| table.column(name))?;
    let rises = ["int2", "int4", "int8", "integer", "numeric"].contains(&id.base.as_str());
    (!rises).then(|| {
        format!(
            "the order of the rows that wait in {} is not known, because column `{}` has type {}; name the column \
             of their time in `columns` as `created_at`, or `{}` itself if its values rise with time (UUIDv7)",
            table.name, id.name, id.type_name, id.name
        )
    })
}

/// Returns what is wrong with the layout, and the rights that the role lacks.
pub(crate) fn judge<D: AdoptSql>(
    adoption: &Adoption,
    table: &FoundTable,
    role: &str,
) -> (Vec<String>, Vec<String>) {
    let (mut wrong, mut rights) = (Vec::new(), Vec::new());
    let used =
        ADOPT_COLUMNS.iter().filter_map(|meaning| Some((*meaning, adoption.column(meaning)?)));
    let destination = adoption.destination_column().map(|name| ("destination", name));
    for (meaning, name) in used.chain(destination) {
        let Some(column) = table.column(name) else {
            let known: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
            wrong.push(format!(
                "{} has no column `{name}` for `{meaning}`; it has {}",
                table.name,
                known.join(", ")
            ));
            continue;
        };
        let place = format!("column `{name}` of {} for `{meaning}`", table.name);
        let types = D::types_of(meaning);
        let fits = types.is_empty()
            || types.contains(&column.base.as_str())
            || (meaning == "status" && column.is_enum);
        if !fits {
            wrong.push(format!(
                "{place} has type {}; it must be {}",
                column.type_name,
                types.join(", ")
            ));
        }
        if meaning == "id" && !column.is_key {
            wrong.push(format!(
                "{place} is not the primary key by itself; relais needs a primary key of one column"
            ));
        }
        if CLEARED.contains(&meaning) && column.is_not_null {
            wrong.push(format!("{place} is NOT NULL, but relais must clear it"));
        }
        if meaning == "status"
            && let Some(max) = column.chars_max
        {
            let words = ADOPT_STATES.iter().filter_map(|s| adoption.state(s));
            for word in words.filter(|word| word.chars().count() > max as usize) {
                wrong.push(format!("{place} has {max} characters: too few for `{word}`"));
            }
        }
        let mut grant = |right: &str| {
            rights.push(format!(
                "role {role} lacks {right} on {place}; GRANT {right} ON {} TO {role}",
                table.name
            ));
        };
        if !column.may_read {
            grant("SELECT");
        }
        if WRITTEN.contains(&meaning) && !column.may_update {
            grant("UPDATE");
        }
    }
    (wrong, rights)
}
