//! `relais migrate`: applies the migrations, or prints their SQL.

use std::fmt::Write;

use relais::{postgres, sqlite};
use serde_json::json;

use super::{CommandContext, adopt};
use crate::{
    args::{DatabaseKind, MigrateArgs},
    failure::{CommandError, Done},
    output::waiting,
    settings::StoreUrl,
    wire,
};

/// Migrates the tables, or prints the SQL.
pub(crate) async fn migrate(context: &CommandContext, args: &MigrateArgs) -> Done {
    if let Some(prefix) = &args.roles {
        let sql = postgres::roles_sql(prefix, &args.schema);
        let sql = sql.map_err(|error| CommandError::Usage(error.to_string()))?;
        return print_sql(context, "postgres", &sql);
    }
    if args.print {
        let database = match args.database {
            Some(database) => database,
            None => database_of_settings(context)?,
        };
        let (name, sql) = match database {
            DatabaseKind::Sqlite => ("sqlite", sqlite::schema_sql()),
            DatabaseKind::Postgres => ("postgres", postgres::schema_sql()),
        };
        return print_sql(context, name, &sql);
    }
    let (settings, _) = context.settings()?;
    let connected = wire::Database::connect(&settings).await;
    let database =
        connected.map_err(|error| CommandError::failed(super::unreachable(&settings, &error)))?;
    let migrated = waiting("migrating the tables", database.store().migrate()).await?;
    let adopted = database.install_adopted(&settings).await?;
    if context.output.json {
        let mut report = serde_json::to_value(&migrated).map_err(CommandError::failed)?;
        report["adopted"] = json!(adopted);
        return context.output.print_json(&report);
    }
    let mut out = String::new();
    for name in &migrated.applied {
        let _ = writeln!(out, "applied {name}");
    }
    let _ = match migrated.applied.len() {
        0 => write!(out, "nothing to do: the tables are at version {}", migrated.to),
        _ => write!(out, "migrated the tables from version {} to {}", migrated.from, migrated.to),
    };
    let _ = write!(out, "\n{}", adopt::installed_text(&adopted));
    context.output.print(&out)
}

fn print_sql(context: &CommandContext, database: &str, sql: &str) -> Done {
    match context.output.json {
        true => context.output.print_json(&json!({ "database": database, "sql": sql })),
        false => context.output.print(sql),
    }
}

fn database_of_settings(context: &CommandContext) -> Result<DatabaseKind, CommandError> {
    if !context.config.exists() {
        return Err(CommandError::Usage(format!(
            "{}, or pass --database sqlite or --database postgres",
            context.no_settings()
        )));
    }
    Ok(match context.settings()?.0.store.url {
        StoreUrl::Sqlite(_) => DatabaseKind::Sqlite,
        StoreUrl::Postgres { .. } => DatabaseKind::Postgres,
    })
}
