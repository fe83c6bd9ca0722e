//! `relais check`: validates the configuration and explains it.

use std::fmt::Write;

use relais_core::store::StoreError;
use serde::Serialize;

use super::{CommandContext, process};
use crate::{
    args::CheckArgs,
    failure::{CommandError, Done},
    output::{LineBreaks, escape},
    settings::{
        Finding, Settings, Severity, StoreUrl,
        explain::{Explained, explain},
    },
    wire::{self, Connection, Database},
};

/// The error of `relais check` and `relais run` about an empty configuration. Other commands need only the
/// store.
pub(super) const IDLE: &str = "the configuration has no [[source]], [[route]], [[process]], \
     [[destination]] or [admin]: relais would do nothing; `relais init` writes an example";

/// The result of the check.
#[derive(Debug, Default, Serialize)]
struct CheckReport {
    ok: bool,
    file: String,
    sections: Vec<Explained>,
    /// Name and version of the database; absent if it was not checked.
    database: Option<String>,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// The results of `--connect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<Vec<Connection>>,
    next: String,
    /// True if the configuration itself is wrong, not a system that it names.
    #[serde(skip)]
    wrong: bool,
}

/// Checks the file, the parts and the database, and prints all findings.
pub(crate) async fn check(context: &CommandContext, args: &CheckArgs) -> Done {
    let report = examine(context, args).await;
    if context.output.json {
        context.output.print_json(&report)?;
    } else {
        context.output.print(&show(&report))?;
    }
    match report {
        CheckReport { ok: true, .. } => Ok(()),
        CheckReport { wrong: true, .. } => Err(CommandError::PrintedUsage),
        _ => Err(CommandError::Printed),
    }
}

async fn examine(context: &CommandContext, args: &CheckArgs) -> CheckReport {
    let mut report =
        CheckReport { file: context.config.display().to_string(), ..CheckReport::default() };
    report.wrong = true;
    if !context.config.exists() {
        report.errors.push(context.no_settings());
        report.next = "`relais init` writes an example".to_owned();
        return report;
    }
    let settings = match crate::settings::load(&context.config) {
        Ok((settings, warnings)) => {
            report.note(&warnings);
            settings
        }
        Err(error) => {
            report.note(&error.findings);
            report.next = "fix the lines above, then run `relais check` again".to_owned();
            return report;
        }
    };
    report.sections = explain(&settings);
    if settings.is_idle() {
        report.errors.push(IDLE.to_owned());
    }
    report.errors.extend(wire::rehearse(&settings).iter().map(ToString::to_string));
    if !args.offline {
        report.errors.extend(wire::admin_certificate(&settings).err().map(|e| e.to_string()));
    }
    report.next = "`relais run`".to_owned();
    report.wrong = !report.errors.is_empty();
    if !args.offline {
        let database = database(&settings, &mut report).await;
        if args.connect && !report.wrong {
            report.connections = Some(wire::connect(&settings, database.as_ref()).await);
        }
    }
    let connected = report.connections.iter().flatten().all(|connection| connection.ok);
    report.ok = report.errors.is_empty() && connected;
    if !report.ok && report.next.contains("run") {
        report.next = "fix the errors above, then run `relais check` again".to_owned();
    }
    report
}

impl CheckReport {
    fn note(&mut self, findings: &[Finding]) {
        for finding in findings {
            match finding.severity {
                Severity::Error => self.errors.push(finding.to_string()),
                Severity::Warning => self.warnings.push(finding.to_string()),
            }
        }
    }
}

/// Checks the database. Missing or old tables are no error if `relais run` may migrate them.
async fn database(settings: &Settings, report: &mut CheckReport) -> Option<Database> {
    if let StoreUrl::Sqlite(path) = &settings.store.url
        && !path.exists()
    {
        // The check must not create the file.
        report.database = Some("does not exist yet".to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display();
            let why = format!(
                "store.url: the directory {folder} does not exist; create it, or fix the URL"
            );
            report.errors.push(why);
        }
        report.needs_migration(settings, "the tables are missing; run `relais migrate`");
        return None;
    }
    let database = match Database::connect(settings).await {
        Ok(database) => database,
        Err(error) => {
            report.errors.push(super::unreachable(settings, &error));
            return None;
        }
    };
    let checked = async {
        let store = database.store();
        report.database = Some(store.describe().await?.server);
        let wrong = database.try_hydrate(settings).await;
        report.errors.extend(wrong.iter().map(ToString::to_string));
        store.check().await?;
        report.warnings.extend(process::undeclared(settings, store.as_ref()).await?);
        Ok(())
    };
    match checked.await {
        Ok(()) => {}
        // The advice in the error distinguishes missing migrations from errors that need an operator.
        Err(StoreError::Setup(why)) if why.ends_with("run `relais migrate`") => {
            report.needs_migration(settings, &why);
        }
        Err(error) => report.errors.push(super::unreachable(settings, &error)),
    }
    Some(database)
}

impl CheckReport {
    fn needs_migration(&mut self, settings: &Settings, why: &str) {
        if settings.store.migrate {
            self.next = "`relais run` creates the tables and starts".to_owned();
        } else {
            self.errors.push(format!("store: {why}"));
        }
    }
}

fn show(report: &CheckReport) -> String {
    let mut out = format!("{}\n", report.file);
    for Explained { section, name, lines } in &report.sections {
        let title = match name {
            Some(name) => format!("{section} {name}"),
            None => (*section).to_owned(),
        };
        let _ = writeln!(out, "  {title}");
        for line in lines {
            let _ = writeln!(out, "      {line}");
        }
        if *section == "store"
            && let Some(database) = &report.database
        {
            let _ = writeln!(out, "      {database}");
        }
    }
    for Connection { setting, ok, detail } in report.connections.iter().flatten() {
        let mark = if *ok { "ok  " } else { "FAIL" };
        let detail = escape(detail, LineBreaks::Escape);
        let _ = writeln!(out, "  {mark} {setting}: {detail}");
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "{warning}");
    }
    for error in &report.errors {
        let _ = writeln!(out, "error: {error}");
    }
    let verdict = if report.ok { "ok" } else { "not ok" };
    let _ = write!(out, "{verdict}; next: {}", report.next);
    out
}
