//! Reads an adopted table and its columns from the catalog.

use tokio_postgres::{Row, error::SqlState};

use super::super::{error::Failure, session::Client};
use super::dialect::PostgresDialect;
use crate::adopt::{
    AdoptPreset, Adoption,
    catalog::{
        DeadLetterTable, FoundColumn, FoundTable, judge, judge_dead_letters, missing,
        no_dead_letters,
    },
};

/// Reads the table of an adoption. Returns what is wrong with its layout; nothing if it fits.
pub(super) async fn read(
    client: &Client<'_>,
    adoption: &Adoption,
) -> Result<Result<FoundTable, Vec<String>>, Failure> {
    let row = match find(client, &adoption.table).await? {
        TableLookup::Found(row) => row,
        TableLookup::Missing => return Ok(Err(vec![missing(&adoption.table)])),
        TableLookup::Forbidden(problem) => return Ok(Err(vec![problem])),
    };
    let mut table = of_row(&row);
    let kind: &str = row.get(3);
    if !matches!(kind, "r" | "p") {
        return Ok(Err(vec![format!("{} is not a table; name a table", table.name)]));
    }
    if row.get(8) {
        return Ok(Err(vec![format!("{} is a table of relais itself", table.name)]));
    }
    table.columns = columns(client, &row).await?;
    let role: &str = row.get(6);
    let (wrong, rights) = judge::<PostgresDialect>(adoption, &table, role);
    table.rights = rights;
    if row.get(9) {
        table.rights.push(hidden_rows(&table.name, role));
    }
    if adoption.preset == AdoptPreset::EfCore {
        let default = format!("{}.outbox_dead_letters", table.schema);
        let wanted = adoption.dead_letters.as_deref().unwrap_or(&default);
        let found = match find(client, wanted).await? {
            TableLookup::Missing => no_dead_letters(wanted),
            TableLookup::Forbidden(problem) => DeadLetterTable {
                name: wanted.to_owned(),
                problems: vec![problem],
                ..DeadLetterTable::default()
            },
            TableLookup::Found(found) => {
                let columns = columns(client, &found).await?;
                let letters = (of_row(&found).name, columns.as_slice());
                judge_dead_letters::<PostgresDialect>(adoption, &table, letters, role)
            }
        };
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

/// Returns the problem of row-level security: a hidden row looks like a deleted one.
fn hidden_rows(table: &str, role: &str) -> String {
    format!(
        "row-level security of {table} may hide rows from role {role}: their results would not be written; \
         CREATE POLICY relais ON {table} TO {role} USING (true), or give it BYPASSRLS"
    )
}

async fn columns(client: &Client<'_>, table: &Row) -> Result<Vec<FoundColumn>, Failure> {
    let oid: u32 = table.get(0);
    let rows = client.query(adopt_sql!("columns"), &[&oid]).await?;
    Ok(rows.iter().map(column).collect())
}

/// The result of looking a table up by its name.
pub(super) enum TableLookup {
    /// The row of `table.sql`.
    Found(Row),
    Missing,
    /// The role may not use the schema: the problem.
    Forbidden(String),
}

/// Looks a table up. A name that is no name is a table that does not exist.
pub(super) async fn find(client: &Client<'_>, table: &str) -> Result<TableLookup, Failure> {
    let error = match client.query_opt(adopt_sql!("table"), &[&table]).await {
        Ok(row) => return Ok(row.map_or(TableLookup::Missing, TableLookup::Found)),
        Err(error) => error,
    };
    match error.as_db_error() {
        Some(answer) if *answer.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            Ok(TableLookup::Forbidden(format!(
                "cannot read table {table}: {}; GRANT USAGE of the schema to the role of relais",
                answer.message()
            )))
        }
        Some(answer) if answer.code().code().starts_with("42") => Ok(TableLookup::Missing),
        Some(answer) if *answer.code() == SqlState::FEATURE_NOT_SUPPORTED => {
            Ok(TableLookup::Missing)
        }
        _ => Err(error.into()),
    }
}

pub(super) fn of_row(row: &Row) -> FoundTable {
    FoundTable {
        name: row.get(1),
        plain: row.get(2),
        relais_schema: row.get(4),
        schema: row.get(5),
        ..FoundTable::default()
    }
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
