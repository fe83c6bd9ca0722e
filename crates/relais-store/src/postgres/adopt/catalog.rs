//! An adopted table as the database has it, and whether it fits its description.

use tokio_postgres::Row;

use super::super::{error::Failure, session::Client};
use super::layout::{AdoptDestination, AdoptPreset, Adoption};

/// A table of the database.
#[derive(Clone, Debug)]
pub(super) struct FoundTable {
    pub(super) oid: u32,
    /// With its schema, quoted.
    pub(super) name: String,
    /// Without its schema, not quoted.
    pub(super) plain: String,
    /// The schema of relais's own tables, quoted.
    pub(super) relais_schema: String,
    /// Quoted.
    pub(super) schema: String,
    pub(super) columns: Vec<FoundColumn>,
    /// For the preset `ef-core`.
    pub(super) dead_letters: Option<DeadLetterTable>,
    /// Rights that this role lacks: results are written when it has them. The triggers need none of them.
    pub(super) rights: Vec<String>,
}

/// The table that gets dead letters of an adopted table. One that does not fit delays only rows that failed.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadLetterTable {
    /// Quoted.
    pub(super) name: String,
    /// The most characters of an error.
    pub(super) error_max: Option<i32>,
    pub(super) problems: Vec<String>,
    /// Rights that this role lacks.
    rights: Vec<String>,
}

/// A column of such a table.
#[derive(Clone, Debug)]
pub(super) struct FoundColumn {
    pub(super) name: String,
    /// As it is written in SQL.
    pub(super) type_name: String,
    /// The name of the base type, such as `int4`.
    pub(super) base: String,
    is_enum: bool,
    pub(super) chars_max: Option<i32>,
    is_not_null: bool,
    has_default: bool,
    is_key: bool,
    may_read: bool,
    may_update: bool,
    may_insert: bool,
}

impl FoundTable {
    pub(super) fn column(&self, name: &str) -> Option<&FoundColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// The types that a column may have, by its meaning.
fn types_of(meaning: &str) -> &'static [&'static str] {
    match meaning {
        "id" => &["uuid", "int2", "int4", "int8", "numeric", "text", "varchar"],
        "payload" => &["text", "varchar", "json", "jsonb"],
        "headers" => &["json", "jsonb"],
        "status" | "error" => &["text", "varchar"],
        "sent_at" | "next_attempt_at" => &["timestamptz", "timestamp"],
        "attempts" => &["int2", "int4", "int8", "numeric"],
        _ => &[],
    }
}

/// Columns that relais sets to NULL.
const CLEARED: [&str; 3] = ["sent_at", "next_attempt_at", "error"];
/// Columns that relais writes.
const WRITTEN: [&str; 5] = ["status", "sent_at", "attempts", "next_attempt_at", "error"];

/// Reads the table of an adoption. Returns what is wrong with its layout; nothing if it fits.
pub(super) async fn read(
    client: &Client<'_>,
    adoption: &Adoption,
) -> Result<Result<FoundTable, Vec<String>>, Failure> {
    let Some(row) = find(client, &adoption.table).await? else {
        return Ok(Err(vec![missing(&adoption.table)]));
    };
    let mut table = of_row(&row);
    let kind: &str = row.get(3);
    if !matches!(kind, "r" | "p") {
        return Ok(Err(vec![format!("{} is not a table; name a table", table.name)]));
    }
    if row.get(8) {
        return Ok(Err(vec![format!("{} is a table of relais itself", table.name)]));
    }
    table.columns = columns(client, table.oid).await?;
    let role: &str = row.get(6);
    let (wrong, rights) = judge(adoption, &table, role);
    table.rights = rights;
    if adoption.preset == AdoptPreset::EfCore {
        let default = format!("{}.outbox_dead_letters", table.schema);
        let wanted = adoption.dead_letters.as_deref().unwrap_or(&default);
        let found = dead_letters(client, adoption, &table, wanted).await?;
        if !row.get::<_, bool>(7) {
            table.rights.push(format!(
                "role {role} may not delete from {}; GRANT DELETE ON {} TO {role}",
                table.name, table.name
            ));
        }
        table.rights.extend(found.rights.iter().cloned());
        table.dead_letters = Some(found);
    }
    Ok(if wrong.is_empty() { Ok(table) } else { Err(wrong) })
}

async fn columns(client: &Client<'_>, oid: u32) -> Result<Vec<FoundColumn>, Failure> {
    let rows = client.query(adopt_sql!("columns"), &[&oid]).await?;
    Ok(rows.iter().map(column).collect())
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

/// Reads the table of dead letters of the preset `ef-core`.
async fn dead_letters(
    client: &Client<'_>,
    adoption: &Adoption,
    outbox: &FoundTable,
    wanted: &str,
) -> Result<DeadLetterTable, Failure> {
    let mut table = DeadLetterTable { name: wanted.to_owned(), ..DeadLetterTable::default() };
    let Some(row) = find(client, wanted).await? else {
        table.problems.push(format!("{}; the preset moves dead letters there", missing(wanted)));
        return Ok(table);
    };
    let FoundTable { oid, name, .. } = of_row(&row);
    let role: &str = row.get(6);
    let columns = columns(client, oid).await?;
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
    Ok(table)
}

/// Returns the row of `table.sql`. A name that is no name is a table that does not exist.
pub(super) async fn find(client: &Client<'_>, table: &str) -> Result<Option<Row>, Failure> {
    match client.query_opt(adopt_sql!("table"), &[&table]).await {
        Ok(row) => Ok(row),
        Err(error) if error.code().is_some_and(|code| code.code().starts_with("42")) => Ok(None),
        Err(error) if error.code().is_some_and(|code| code.code() == "0A000") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn of_row(row: &Row) -> FoundTable {
    FoundTable {
        oid: row.get(0),
        name: row.get(1),
        plain: row.get(2),
        relais_schema: row.get(4),
        schema: row.get(5),
        columns: Vec::new(),
        dead_letters: None,
        rights: Vec::new(),
    }
}

fn missing(table: &str) -> String {
    format!(
        "table {table} does not exist in this database, or not in the search_path; write it with its \
         schema, as in SQL"
    )
}

fn column(row: &Row) -> FoundColumn {
    FoundColumn {
        name: row.get(0),
        type_name: row.get(1),
        base: row.get(2),
        is_enum: row.get::<_, &str>(3) == "e",
        chars_max: row.get(4),
        is_not_null: row.get(5),
        is_key: row.get(6),
        may_read: row.get(7),
        may_update: row.get(8),
        may_insert: row.get(9),
        has_default: row.get(10),
    }
}

/// Returns what is wrong with the layout, and the rights that the role lacks.
fn judge(adoption: &Adoption, table: &FoundTable, role: &str) -> (Vec<String>, Vec<String>) {
    let (mut wrong, mut rights) = (Vec::new(), Vec::new());
    let used = super::layout::ADOPT_COLUMNS
        .iter()
        .filter_map(|meaning| Some((*meaning, adoption.column(meaning)?)));
    let destination = match &adoption.destination {
        AdoptDestination::Column(name) => Some(("destination", name.as_str())),
        AdoptDestination::Name(_) => None,
    };
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
        let types = types_of(meaning);
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
            let words = super::layout::ADOPT_STATES.iter().filter_map(|s| adoption.state(s));
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
