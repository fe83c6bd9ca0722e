//! `relais check`: what the settings mean, and whether they work.

use std::fmt::Write;

use relais_core::store::StoreError;
use serde::Serialize;

use super::{Context, process};
use crate::{
    args::CheckArgs,
    failure::{Done, Failure},
    settings::{
        Finding, Settings, Severity, StoreUrl,
        explain::{Explained, explain},
    },
    wire::{self, Database},
};

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
    next: String,
}

/// Looks at the file, then at the parts, then at the database, and says all of it.
pub(crate) async fn check(context: &Context, args: &CheckArgs) -> Done {
    let report = examine(context, args).await;
    if context.output.json {
        context.output.print_json(&report)?;
    } else {
        context.output.print(&show(&report))?;
    }
    if report.ok { Ok(()) } else { Err(Failure::Said) }
}

async fn examine(context: &Context, args: &CheckArgs) -> Report {
    let mut report = Report { file: context.config.display().to_string(), ..Report::default() };
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
    report.errors.extend(wire::rehearse(&settings).iter().map(ToString::to_string));
    report.next = "`relais run` starts it".to_owned();
    if !args.offline {
        database(&settings, &mut report).await;
    }
    report.ok = report.errors.is_empty();
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
async fn database(settings: &Settings, report: &mut Report) {
    if let StoreUrl::Sqlite(path) = &settings.store.url
        && !path.exists()
    {
        // Looking must not make the file.
        report.database = Some("not there yet".to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            report.errors.push(format!("store.url: there is no folder {}", folder.display()));
        }
        return report.needs_migration(settings, "the tables are missing; run `relais migrate`");
    }
    let looked = async {
        let database = Database::connect(settings).await?;
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
        Err(error) => report.errors.push(format!("store: {error}")),
    }
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
