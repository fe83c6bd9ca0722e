//! `relais adopt`: prints, installs, checks and removes the triggers of adopted tables.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
};

use relais::postgres::{Adoption, AdoptionReport, InstalledAdoption, PostgresStore};
use serde_json::json;

use super::{CommandContext, dead_letter::ask};
use crate::{
    args::{AdoptCommand, RemoveAdoption},
    failure::{CommandError, Done},
    output::waiting,
    settings::Settings,
    wire::Database,
};

pub(crate) async fn adopt(context: &CommandContext, command: AdoptCommand) -> Done {
    let (settings, _) = context.settings()?;
    let connected = Database::connect(&settings).await;
    let database =
        connected.map_err(|error| CommandError::failed(super::unreachable(&settings, &error)))?;
    let Database::Postgres(store) = &database else {
        return Err(CommandError::failed(
            "cannot adopt tables of SQLite; use a postgres:// `store.url`",
        ));
    };
    if let AdoptCommand::Remove(args) = command {
        return remove(context, store, args).await;
    }
    let adoptions = settings.adopted();
    if adoptions.is_empty() {
        let file = &settings_name(context);
        return Err(CommandError::Usage(format!(
            "cannot find a table to adopt: {file} has no [[adopt]]"
        )));
    }
    match command {
        AdoptCommand::Print => {
            let sql = store.adoption_sql(adoptions).await?;
            match context.output.json {
                true => context.output.print_json(&json!({ "database": "postgres", "sql": sql })),
                false => context.output.print(&sql),
            }
        }
        AdoptCommand::Install => {
            let installed = waiting("installing", store.install_adoptions(adoptions)).await?;
            match context.output.json {
                true => context.output.print_json(&json!({ "installed": installed })),
                false => context.output.print(&installed_text(&installed)),
            }
        }
        AdoptCommand::Check | AdoptCommand::Remove(_) => check(context, store, adoptions).await,
    }
}

fn settings_name(context: &CommandContext) -> String {
    context.config.display().to_string()
}

/// Installs the triggers of the configuration; for `relais migrate`.
pub(super) async fn install(
    settings: &Settings,
    database: &Database,
) -> Result<Vec<InstalledAdoption>, relais_core::store::StoreError> {
    match database {
        Database::Postgres(store) if !settings.adoptions.is_empty() => {
            store.install_adoptions(settings.adopted()).await
        }
        _ => Ok(Vec::new()),
    }
}

/// Returns one line for each table.
pub(super) fn installed_text(installed: &[InstalledAdoption]) -> String {
    let mut out = String::new();
    for InstalledAdoption { table, changed, copied } in installed {
        let _ = match (changed, copied) {
            (false, _) => writeln!(out, "{table}: nothing to do, the triggers are installed"),
            (true, 0) => writeln!(out, "{table}: installed the triggers"),
            (true, n) => {
                writeln!(out, "{table}: installed the triggers and copied {n} waiting rows")
            }
        };
    }
    out
}

async fn check(context: &CommandContext, store: &PostgresStore, adoptions: Vec<Adoption>) -> Done {
    let reports = store.check_adoptions(adoptions).await?;
    let ok = reports.iter().all(|report| report.problems.is_empty());
    if context.output.json {
        context.output.print_json(&json!({ "ok": ok, "tables": reports }))?;
    } else {
        context.output.print(&report_text(&reports))?;
    }
    if ok { Ok(()) } else { Err(CommandError::Printed) }
}

fn report_text(reports: &[AdoptionReport]) -> String {
    let mut out = String::new();
    for AdoptionReport { table, preset, problems } in reports {
        let verdict = if problems.is_empty() { "ok" } else { "not ok" };
        let _ = writeln!(out, "{table} ({preset}): {verdict}");
        for problem in problems {
            let _ = writeln!(out, "  {problem}");
        }
    }
    out
}

async fn remove(context: &CommandContext, store: &PostgresStore, args: RemoveAdoption) -> Done {
    let RemoveAdoption { table, yes } = args;
    if !yes {
        if !io::stdin().is_terminal() {
            return Err(CommandError::Usage(
                "cannot ask for confirmation: stdin is not a terminal; pass --yes".to_owned(),
            ));
        }
        ask(&format!("Remove the triggers of {table}? New rows are no longer delivered."))?;
    }
    let removed = store.remove_adoption(table.clone()).await?;
    match (context.output.json, removed) {
        (true, removed) => context.output.print_json(&json!({ "removed": removed })),
        (false, Some(name)) => context.output.print(&format!("removed the triggers of {name}")),
        (false, None) => {
            context.output.print(&format!("nothing to do: {table} has no triggers of relais"))
        }
    }
}
