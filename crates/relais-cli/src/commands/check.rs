//! `relais check`: what the settings mean, and whether they work.

use std::fmt::Write;

use relais_core::store::StoreError;
use serde::Serialize;

use super::{Context, process};
use crate::{
    args::CheckArgs,
    failure::{Done, Failure},
    output::{Lines, escape},
    settings::{
        Finding, Settings, Severity, StoreUrl,
        explain::{Explained, explain},
    },
    wire::{self, Connection, Database},
};

/// Why an empty configuration is refused by `relais check` and `relais run`. Other commands need no more
/// than the store.
pub(super) const IDLE: &str = "the configuration has no [[source]], [[route]], [[process]], \
     [[destination]] or [admin]: relais would do nothing; `relais init` writes an example";

/// Everything that was found.
#[derive(Debug, Default, Serialize)]
struct Report {
    ok: bool,
    file: String,
    sections: Vec<Explained>,
    /// What the database is; absent if nobody looked or could.
    database: Option<String>,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// What `--connect` tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<Vec<Connection>>,
    next: String,
    /// Whether the configuration itself is wrong, not what it names.
    #[serde(skip)]
    wrong: bool,
}

/// Looks at the file, then at the parts, then at the database, and says all of it.
pub(crate) async fn check(context: &Context, args: &CheckArgs) -> Done {
    let report = examine(context, args).await;
    if context.output.json {
        context.output.print_json(&report)?;
    } else {
        context.output.print(&show(&report))?;
    }
    match report {
        Report { ok: true, .. } => Ok(()),
        Report { wrong: true, .. } => Err(Failure::SaidUsage),
        _ => Err(Failure::Said),
    }
}

async fn examine(context: &Context, args: &CheckArgs) -> Report {
    let mut report = Report { file: context.config.display().to_string(), ..Report::default() };
    report.wrong = true;
    if !context.config.exists() {
        report.errors.push(context.no_settings());
        report.next = "`relais init` writes a file to start from".to_owned();
        return report;
    }
    let settings = match crate::settings::load(&context.config) {
        Ok((settings, warnings)) => {
            report.note(&warnings);
            settings
        }
        Err(error) => {
            report.note(&error.findings);
            report.next = "correct the lines above, then `relais check` again".to_owned();
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
    report.next = "`relais run` starts it".to_owned();
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
        report.next = "correct what is named above, then `relais check` again".to_owned();
    }
    report
}

impl Report {
    fn note(&mut self, findings: &[Finding]) {
        for finding in findings {
            match finding.severity {
                Severity::Error => self.errors.push(finding.to_string()),
                Severity::Warning => self.warnings.push(finding.to_string()),
            }
        }
    }
}

/// Connects and looks. Tables that are missing or old are no error if `relais run` may change that.
async fn database(settings: &Settings, report: &mut Report) -> Option<Database> {
    if let StoreUrl::Sqlite(path) = &settings.store.url
        && !path.exists()
    {
        // Looking must not make the file.
        report.database = Some("not there yet".to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display();
            let why =
                format!("store.url: there is no folder {folder}; create it, or correct the URL");
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
    let looked = async {
        let store = database.store();
        report.database = Some(store.describe().await?);
        let wrong = database.try_hydrate(settings).await;
        report.errors.extend(wrong.iter().map(ToString::to_string));
        store.check().await?;
        report.warnings.extend(process::undeclared(settings, store.as_ref()).await?);
        Ok(())
    };
    match looked.await {
        Ok(()) => {}
        // The store's own advice tells this refusal from those that only a person can mend.
        Err(StoreError::Setup(why)) if why.ends_with("run `relais migrate`") => {
            report.needs_migration(settings, &why);
        }
        Err(error) => report.errors.push(super::unreachable(settings, &error)),
    }
    Some(database)
}

impl Report {
    fn needs_migration(&mut self, settings: &Settings, why: &str) {
        if settings.store.migrate {
            self.next = "`relais run` makes the tables and starts it".to_owned();
        } else {
            self.errors.push(format!("store: {why}"));
        }
    }
}

fn show(report: &Report) -> String {
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
        let detail = escape(detail, Lines::Escape);
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
