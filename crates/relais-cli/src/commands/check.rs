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
        ConfigFinding, Settings, Severity, StoreUrl,
        explain::{SectionExplanation, explain},
    },
    wire::{self, ConnectionCheck, Database, WireError},
};

/// The error of `relais check` and `relais run` about an empty configuration. Other commands need only the
/// store.
pub(super) const IDLE: &str = "the configuration has no [[source]], [[route]], [[process]], [[handler]], [[adopt]], \
     [admin] or [[destination]] that relais itself serves: relais would do nothing; `relais init` writes an example";

/// The result of the check.
#[derive(Debug, Default, Serialize)]
struct CheckReport {
    ok: bool,
    file: String,
    sections: Vec<SectionExplanation>,
    /// Name and version of the database; absent if it was not checked.
    database: Option<String>,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// The errors and warnings about the configuration file, each with its place.
    problems: Vec<ConfigFinding>,
    /// The results of `--connect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<Vec<ConnectionCheck>>,
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
        context.output.print(&show(&report, context.output.color))?;
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
    report.note_parts(wire::validate(&settings));
    if !args.offline {
        report.note_parts(wire::admin_certificate(&settings).err().into_iter().collect());
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
    fn note(&mut self, findings: &[ConfigFinding]) {
        for finding in findings {
            match finding.severity {
                Severity::Error => self.errors.push(finding.to_string()),
                Severity::Warning => self.warnings.push(finding.to_string()),
            }
            self.problems.push(finding.clone());
        }
    }

    fn note_parts(&mut self, errors: Vec<WireError>) {
        let file = self.file.clone();
        let findings: Vec<_> = errors.into_iter().map(|error| error.finding(&file)).collect();
        self.note(&findings);
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
        let described = store.describe().await?;
        report.database = Some(described.server);
        report.warnings.extend(described.warnings);
        let wrong = database.try_hydrate(settings).await;
        report.note_parts(wrong);
        store.check().await?;
        report.warnings.extend(process::undeclared(settings, store.as_ref()).await?);
        report.note_parts(database.check_adopted(settings).await?);
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

fn show(report: &CheckReport, color: bool) -> String {
    let mut out = format!("{}\n", report.file);
    for SectionExplanation { section, name, lines } in &report.sections {
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
    for ConnectionCheck { setting, ok, detail } in report.connections.iter().flatten() {
        let mark = if *ok { "ok  " } else { "FAIL" };
        let detail = escape(detail, LineBreaks::Escape);
        let _ = writeln!(out, "  {mark} {setting}: {detail}");
    }
    for problem in &report.problems {
        let _ = writeln!(out, "{}", problem.render(color));
    }
    let is_new = |text: &&String| report.problems.iter().all(|p| p.to_string() != **text);
    for warning in report.warnings.iter().filter(is_new) {
        let _ = writeln!(out, "warning: {warning}");
    }
    for error in report.errors.iter().filter(is_new) {
        let _ = writeln!(out, "error: {error}");
    }
    let verdict = if report.ok { "ok" } else { "not ok" };
    let _ = write!(out, "{verdict}; next: {}", report.next);
    out
}
