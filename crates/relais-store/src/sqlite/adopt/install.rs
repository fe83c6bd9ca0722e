//! Installs, compares and removes the triggers of adopted tables.

use relais_core::store::StoreError;
use rusqlite::{Connection, Transaction};

use super::super::{
    error,
    row::{all, change, first},
    writer::Writer,
};
use super::{catalog, script::AdoptScript};
use crate::adopt::{
    Adoption, AdoptionReport, InstallationOutcome, InstalledAdoption, NOT_MIGRATED, TriggerState,
    cannot_adopt, late, only_once, terms::identifier,
};

/// Compares tables and triggers with the descriptions.
pub(super) fn check(
    db: &Connection,
    adoptions: &[Adoption],
) -> Result<Vec<AdoptionReport>, StoreError> {
    let mut reports = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for adoption in adoptions {
        let problems = match catalog::read(db, adoption)? {
            Err(problems) => problems,
            Ok(table) if seen.contains(&table.name) => {
                vec![format!("{} is adopted twice; remove one of the two", table.name)]
            }
            Ok(table) => {
                seen.push(table.name.clone());
                let script = AdoptScript::of(adoption, &table);
                let letters = table.dead_letters.into_iter().flat_map(|letters| letters.problems);
                letters.chain(installed_problems(db, &script)?).collect()
            }
        };
        let (table, preset) = (adoption.table.clone(), adoption.preset.name());
        reports.push(AdoptionReport { table, preset, problems });
    }
    Ok(reports)
}

/// Returns what is wrong with the triggers, and whether results wait.
fn installed_problems(db: &Connection, script: &AdoptScript) -> Result<Vec<String>, StoreError> {
    if !is_migrated(db)? {
        return Ok(vec![NOT_MIGRATED.to_owned()]);
    }
    let state = state(db, script)?;
    let results = first(db, adopt_sql!("late"), [&script.name], |c| c.integer(0))?.unwrap_or(0);
    let mut problems = state.problems(&script.name, script.unordered.as_ref());
    problems.extend(late(&script.name, results));
    Ok(problems)
}

fn is_migrated(db: &Connection) -> Result<bool, StoreError> {
    Ok(first(db, adopt_sql!("is_migrated"), [], |c| c.flag(0))?.unwrap_or(false))
}

/// Returns names and texts of the triggers of relais on a table.
fn installed(db: &Connection, table: &str) -> Result<Vec<(String, String)>, StoreError> {
    all(db, adopt_sql!("installed"), [table], |c| (c.string(0), c.string(1)))
}

fn state(db: &Connection, script: &AdoptScript) -> Result<TriggerState, StoreError> {
    let found = installed(db, &script.plain)?;
    let is_same = |(_, text): &(String, String)| script.triggers.contains(text);
    Ok(match found.len() {
        0 => TriggerState::Missing,
        n if n == script.triggers.len() && found.iter().all(is_same) => TriggerState::Same,
        _ => TriggerState::Different,
    })
}

/// Returns the script of a table, or the reasons why it cannot be adopted as an error.
fn script(db: &Connection, adoption: &Adoption) -> Result<AdoptScript, StoreError> {
    let cannot = |problems: &[String]| cannot_adopt(&adoption.table, problems);
    let table = catalog::read(db, adoption)?.map_err(|problems| cannot(&problems))?;
    match &table.dead_letters {
        Some(letters) if !letters.problems.is_empty() => Err(cannot(&letters.problems)),
        _ => Ok(AdoptScript::of(adoption, &table)),
    }
}

pub(super) fn print(db: &Connection, adoptions: &[Adoption]) -> Result<String, StoreError> {
    adoptions.iter().map(|one| Ok(script(db, one)?.print(one.existing))).collect()
}

/// Installs each table that can be installed, and returns the others with the reason.
pub(super) async fn install(
    writer: &Writer,
    adoptions: Vec<Adoption>,
) -> Result<InstallationOutcome, StoreError> {
    let (mut outcome, mut seen) = (InstallationOutcome::default(), Vec::new());
    for adoption in adoptions {
        let (one, mut known) = (adoption.clone(), seen.clone());
        match writer.run(move |tx| install_one(tx, &one, &mut known)).await {
            Ok(installed) => {
                seen.push(installed.table.clone());
                outcome.installed.push(installed);
            }
            Err(StoreError::Setup(why)) => outcome.refused.push((adoption, why.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// Creates the triggers, and copies the rows that exist. The transaction keeps writers out, so every existing row
/// gets a lower id than any new one.
fn install_one(
    tx: &Transaction<'_>,
    adoption: &Adoption,
    seen: &mut Vec<String>,
) -> Result<InstalledAdoption, StoreError> {
    let script = script(tx, adoption)?;
    only_once(seen, &script.name)?;
    if !is_migrated(tx)? {
        return Err(cannot_adopt(&adoption.table, &[NOT_MIGRATED.to_owned()]));
    }
    let found = state(tx, &script)?;
    let mut result = InstalledAdoption { table: script.name.clone(), changed: false, copied: 0 };
    let is_first = matches!(found, TriggerState::Missing);
    if let Some(why) = script.unordered.clone().filter(|_| is_first) {
        return Err(cannot_adopt(&adoption.table, &[why]));
    }
    if matches!(found, TriggerState::Missing | TriggerState::Different) {
        drop_triggers(tx, &script.plain)?;
        for trigger in &script.triggers {
            tx.execute_batch(trigger).map_err(|e| error::store(&e))?;
        }
        if is_first && adoption.existing {
            result.copied = change(tx, &script.existing, [])?;
        }
        result.changed = true;
    }
    Ok(result)
}

fn drop_triggers(tx: &Transaction<'_>, table: &str) -> Result<usize, StoreError> {
    let found = installed(tx, table)?;
    for (name, _) in &found {
        let drop = adopt_sql!("drop_trigger").replace(":trigger", &identifier(name));
        tx.execute_batch(&drop).map_err(|e| error::store(&e))?;
    }
    Ok(found.len())
}

pub(super) fn remove(tx: &Transaction<'_>, table: &str) -> Result<Option<String>, StoreError> {
    let Some(found) = catalog::find(tx, table)? else { return forget_dropped(tx, table) };
    if drop_triggers(tx, &found.table.plain)? == 0 {
        return Ok(None);
    }
    change(tx, adopt_sql!("forget"), [&found.table.name])?;
    Ok(Some(found.table.name))
}

/// Forgets changes of a table that was dropped. SQLite has dropped its triggers.
fn forget_dropped(tx: &Transaction<'_>, table: &str) -> Result<Option<String>, StoreError> {
    let name = catalog::plain_name(table).filter(|_| is_migrated(tx).unwrap_or(false));
    let Some(name) = name.map(|plain| identifier(&plain)) else { return Ok(None) };
    Ok((change(tx, adopt_sql!("forget"), [&name])? > 0).then_some(name))
}
