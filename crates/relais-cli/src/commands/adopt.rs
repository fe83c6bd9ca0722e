//! `relais adopt`: prints, installs, checks and removes the triggers of adopted tables.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
};

use relais::adopt::{AdoptionReport, InstalledAdoption};
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
    let (settings, database) = context.database().await?;
    if let AdoptCommand::Remove(args) = command {
        return remove(context, &database, args).await;
    }
    if settings.adoptions.is_empty() {
        let file = &settings_name(context);
        return Err(CommandError::Usage(format!(
            "cannot find a table to adopt: {file} has no [[adopt]]"
        )));
    }
    match command {
        AdoptCommand::Print => {
            let sql = database.adoption_sql(&settings).await?;
            let name = match &database {
                Database::Postgres(_) => "postgres",
                Database::Sqlite(_) => "sqlite",
            };
            match context.output.json {
                true => context.output.print_json(&json!({ "database": name, "sql": sql })),
                false => context.output.print(&sql),
            }
        }
        AdoptCommand::Install => {
            let installed = waiting("installing", database.install_adopted(&settings)).await?;
            match context.output.json {
                true => context.output.print_json(&json!({ "installed": installed })),
                false => context.output.print(&installed_text(&installed)),
            }
        }
        AdoptCommand::Check | AdoptCommand::Remove(_) => check(context, &settings, &database).await,
    }
}

fn settings_name(context: &CommandContext) -> String {
    context.config.display().to_string()
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

async fn check(context: &CommandContext, settings: &Settings, database: &Database) -> Done {
    let reports = database.adoption_reports(settings).await?;
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

async fn remove(context: &CommandContext, database: &Database, args: RemoveAdoption) -> Done {
    let RemoveAdoption { table, yes } = args;
    if !yes {
        if !io::stdin().is_terminal() {
            return Err(CommandError::Usage(
                "cannot ask for confirmation: stdin is not a terminal; pass --yes".to_owned(),
            ));
        }
        ask(&format!("Remove the triggers of {table}? New rows are no longer delivered."))?;
    }
    let removed = database.remove_adoption(table.clone()).await?;
    match (context.output.json, removed) {
        (true, removed) => context.output.print_json(&json!({ "removed": removed })),
        (false, Some(name)) => context.output.print(&format!("removed the triggers of {name}")),
        (false, None) => {
            context.output.print(&format!("nothing to do: {table} has no triggers of relais"))
        }
    }
}
