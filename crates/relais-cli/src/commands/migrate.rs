//! `relais migrate`: applies the scripts, or prints them for somebody who may.

use std::fmt::Write;

use relais::{postgres, sqlite};
use serde_json::json;

use super::Context;
use crate::{
    args::{Database, MigrateArgs},
    failure::{Done, Failure},
    output::waiting,
    settings::StoreUrl,
    wire,
};

/// Brings the schema up to date, or prints how.
pub(crate) async fn migrate(context: &Context, args: &MigrateArgs) -> Done {
    if let Some(prefix) = &args.roles {
        let sql = postgres::roles_sql(prefix, &args.schema);
        let sql = sql.map_err(|error| Failure::Usage(error.to_string()))?;
        return print_sql(context, "postgres", &sql);
    }
    if args.print {
        let database = match args.database {
            Some(database) => database,
            None => database_of_settings(context)?,
        };
        let (name, sql) = match database {
            Database::Sqlite => ("sqlite", sqlite::schema_sql()),
            Database::Postgres => ("postgres", postgres::schema_sql()),
        };
        return print_sql(context, name, &sql);
    }
    let (settings, _) = context.settings()?;
    let connected = wire::Database::connect(&settings).await;
    let store =
        connected.map_err(|error| Failure::failed(super::unreachable(&settings, &error)))?.store();
    let migrated = waiting("bringing the tables up to date", store.migrate()).await?;
    if context.output.json {
        return context.output.print_json(&migrated);
    }
    let mut out = String::new();
    for name in &migrated.applied {
        let _ = writeln!(out, "applied {name}");
    }
    let _ = match migrated.applied.len() {
        0 => write!(out, "nothing to do: the tables are at version {}", migrated.to),
        _ => write!(out, "the tables went from version {} to {}", migrated.from, migrated.to),
    };
    context.output.print(&out)
}

fn print_sql(context: &Context, database: &str, sql: &str) -> Done {
    match context.output.json {
        true => context.output.print_json(&json!({ "database": database, "sql": sql })),
        false => context.output.print(sql),
    }
}

fn database_of_settings(context: &Context) -> Result<Database, Failure> {
    if !context.config.exists() {
        return Err(Failure::Usage(format!(
            "{}, or say --database sqlite or --database postgres",
            context.no_settings()
        )));
    }
    Ok(match context.settings()?.0.store.url {
        StoreUrl::Sqlite(_) => Database::Sqlite,
        StoreUrl::Postgres { .. } => Database::Postgres,
    })
}
