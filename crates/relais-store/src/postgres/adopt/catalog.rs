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
    pub(super) columns: Vec<FoundColumn>,
    /// Quoted; for the preset `ef-core`.
    pub(super) dead_letters: Option<String>,
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
    is_key: bool,
    may_read: bool,
    may_update: bool,
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

/// Reads the table of an adoption. Returns what is wrong with it; nothing if it fits.
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
    let rows = client.query(adopt_sql!("columns"), &[&table.oid]).await?;
    table.columns = rows.iter().map(column).collect();
    let role: &str = row.get(6);
    let mut wrong = judge(adoption, &table, role);
    if adoption.preset == AdoptPreset::EfCore {
        let default = format!("{}.outbox_dead_letters", row.get::<_, &str>(5));
        let wanted = adoption.dead_letters.as_deref().unwrap_or(&default);
        match find(client, wanted).await? {
            None => wrong.push(format!("{}; the preset moves dead letters there", missing(wanted))),
            Some(found) => table.dead_letters = Some(found.get(1)),
        }
        if !row.get::<_, bool>(7) {
            wrong.push(format!(
                "role {role} may not delete from {}; GRANT DELETE ON {} TO {role}",
                table.name, table.name
            ));
        }
    }
    Ok(if wrong.is_empty() { Ok(table) } else { Err(wrong) })
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
        columns: Vec::new(),
        dead_letters: None,
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
    }
}

fn judge(adoption: &Adoption, table: &FoundTable, role: &str) -> Vec<String> {
    let mut wrong = Vec::new();
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
            wrong.push(format!(
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
    wrong
}
