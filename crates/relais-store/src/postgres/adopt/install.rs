//! Installs, compares and removes the triggers of adopted tables.

use relais_core::store::StoreError;
use tokio_postgres::{Error, Row, error::SqlState};

use super::super::{error::Failure, session::Client};
use super::{
    catalog::{self, TableLookup},
    script::{AdoptScript, function_names},
};
use crate::adopt::{
    Adoption, AdoptionReport, InstallationOutcome, InstalledAdoption, NOT_MIGRATED, TriggerState,
    cannot_adopt, catalog::FoundTable, late, only_once,
};

/// The longest wait for writers of the table; new writers wait meanwhile.
pub(super) const LOCK_TIMEOUT: &str = "10s";
/// The same for an installation that a running program repeats.
pub(super) const REPEAT_LOCK_TIMEOUT: &str = "1s";

/// Compares tables and triggers with the descriptions.
pub(super) async fn check(
    client: &Client<'_>,
    adoptions: &[Adoption],
) -> Result<Vec<AdoptionReport>, Failure> {
    let mut reports = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    let is_migrated: bool = client.query_one(adopt_sql!("is_migrated"), &[]).await?.get(0);
    for adoption in adoptions {
        let problems = match catalog::read(client, adoption).await? {
            Err(problems) => problems,
            Ok(table) if seen.contains(&table.name) => {
                vec![format!("{} is adopted twice; remove one of the two", table.name)]
            }
            Ok(table) => {
                seen.push(table.name.clone());
                let mut problems = table.rights.clone();
                problems.extend(table.dead_letters.iter().flat_map(|t| t.problems.clone()));
                match is_migrated {
                    true => problems.extend(installed_problems(client, adoption, &table).await?),
                    false => problems.push(NOT_MIGRATED.to_owned()),
                }
                problems
            }
        };
        let (table, preset) = (adoption.table.clone(), adoption.preset.name());
        reports.push(AdoptionReport { table, preset, problems });
    }
    Ok(reports)
}

/// Returns what is wrong with the triggers, and whether results wait.
async fn installed_problems(
    client: &Client<'_>,
    adoption: &Adoption,
    table: &FoundTable,
) -> Result<Vec<String>, Failure> {
    let script = AdoptScript::of(adoption, table);
    let state = state(client, &script).await?;
    let results: i64 = client.query_one(adopt_sql!("late"), &[&script.name]).await?.get(0);
    let mut problems = state.problems(&script.name, script.unordered.as_ref());
    problems.extend(late(&script.name, results));
    Ok(problems)
}

async fn state(client: &Client<'_>, script: &AdoptScript) -> Result<TriggerState, Failure> {
    let rows = installed(client, &script.name, &script.schema).await?;
    if rows.is_empty() {
        return Ok(TriggerState::Missing);
    }
    let bodies = [script.copy_body.trim(), script.reset_body.trim()];
    let is_same = |row: &Row| bodies.contains(&row.get::<_, &str>(2).trim());
    if rows.len() != bodies.len() || !rows.iter().all(is_same) {
        return Ok(TriggerState::Different);
    }
    let all = |column: usize| rows.iter().all(|row| row.get(column));
    Ok(match (all(4), all(1)) {
        (false, _) => TriggerState::Altered,
        (true, false) => TriggerState::Disabled,
        (true, true) => TriggerState::Same,
    })
}

/// Returns the rows of `installed.sql`: triggers with their functions, which have the settings of `functions.sql`.
async fn installed(client: &Client<'_>, table: &str, schema: &str) -> Result<Vec<Row>, Failure> {
    let settings = vec![format!("search_path={schema}, pg_temp")];
    Ok(client.query(adopt_sql!("installed"), &[&table, &settings]).await?)
}

/// Returns the script of a table, or the reasons why it cannot be adopted as an error.
async fn script(client: &Client<'_>, adoption: &Adoption) -> Result<AdoptScript, Failure> {
    let cannot = |problems: &[String]| cannot_adopt(&adoption.table, problems);
    let table = catalog::read(client, adoption).await?.map_err(|problems| cannot(&problems))?;
    match &table.dead_letters {
        Some(letters) if !letters.problems.is_empty() => Err(cannot(&letters.problems).into()),
        _ => Ok(AdoptScript::of(adoption, &table)),
    }
}

pub(super) async fn print(client: &Client<'_>, adoptions: &[Adoption]) -> Result<String, Failure> {
    let mut out = String::new();
    for adoption in adoptions {
        out.push_str(&script(client, adoption).await?.print(adoption.existing));
    }
    Ok(out)
}

/// Installs each table that can be installed, and returns the others with the reason.
pub(super) async fn install(
    client: &mut Client<'_>,
    adoptions: &[Adoption],
    lock_timeout: &str,
) -> Result<InstallationOutcome, Failure> {
    let mut outcome = InstallationOutcome::default();
    let mut seen = Vec::new();
    for adoption in adoptions {
        match install_one(client, adoption, &mut seen, lock_timeout).await {
            Ok(installed) => outcome.installed.push(installed),
            Err(Failure::Final(StoreError::Setup(why))) => {
                outcome.refused.push((adoption.clone(), why.to_string()));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(outcome)
}

async fn install_one(
    client: &mut Client<'_>,
    adoption: &Adoption,
    seen: &mut Vec<String>,
    lock_timeout: &str,
) -> Result<InstalledAdoption, Failure> {
    let script = script(client, adoption).await?;
    only_once(seen, &script.name)?;
    let found = state(client, &script).await?;
    let mut installed = InstalledAdoption { table: script.name.clone(), changed: false, copied: 0 };
    if !matches!(found, TriggerState::Same | TriggerState::Disabled) {
        let is_first = matches!(found, TriggerState::Missing);
        if let Some(why) = script.unordered.clone().filter(|_| is_first) {
            return Err(cannot_adopt(&adoption.table, &[why]).into());
        }
        let copies = is_first && adoption.existing;
        installed.copied = create(client, &script, (is_first, copies), lock_timeout)
            .await
            .map_err(|error| failed(&script.name, error))?;
        installed.changed = true;
    }
    Ok(installed)
}

/// Creates functions and triggers, and copies the rows that exist. CREATE TRIGGER keeps writers out until the
/// commit, so every existing row gets a lower id than any new one.
async fn create(
    client: &mut Client<'_>,
    script: &AdoptScript,
    (is_first, copies): (bool, bool),
    lock_timeout: &str,
) -> Result<u64, Error> {
    let transaction = client.transaction().await?;
    transaction.query_one(sql!("migration_limits"), &[&lock_timeout]).await?;
    transaction.batch_execute(&script.functions).await?;
    if !is_first {
        transaction.batch_execute(&script.drop_triggers).await?;
    }
    transaction.batch_execute(&script.triggers).await?;
    let copied = match copies {
        true => {
            transaction.execute(adopt_sql!("unvalidated"), &[]).await?;
            transaction.execute(script.existing.as_str(), &[]).await?
        }
        false => 0,
    };
    transaction.commit().await?;
    Ok(copied)
}

fn failed(table: &str, error: Error) -> Failure {
    let code = error.code().cloned();
    let text = error.as_db_error().map(|answer| answer.message().to_owned()).unwrap_or_default();
    let next = match code {
        Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            "run `relais adopt install` as a role that owns relais's tables and has SELECT and TRIGGER on \
             the table, or have the owner run what `relais adopt print` prints"
        }
        Some(SqlState::LOCK_NOT_AVAILABLE) => {
            "a transaction uses the table for too long; end it and try again"
        }
        _ => return Failure::from(error),
    };
    StoreError::setup(format!("cannot install the triggers on {table}: {text}; {next}")).into()
}

pub(super) async fn remove(
    client: &mut Client<'_>,
    table: &str,
) -> Result<Option<String>, Failure> {
    let row = match catalog::find(client, table).await? {
        TableLookup::Found(row) => row,
        TableLookup::Missing => return remove_dropped(client, table).await,
        TableLookup::Forbidden(problem) => return Err(StoreError::setup(problem).into()),
    };
    let table = catalog::of_row(&row);
    let rows = installed(client, &table.name, &table.relais_schema).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let functions: Vec<&str> = rows.iter().map(|row| row.get(3)).collect();
    let drop_triggers = adopt_sql!("drop_triggers").replace(":table", &table.name);
    drop_all(client, &table.name, &drop_triggers, &functions).await?;
    Ok(Some(table.name))
}

/// Removes what is left of an adopted table that was dropped: its functions, and results that wait for it.
async fn remove_dropped(client: &mut Client<'_>, table: &str) -> Result<Option<String>, Failure> {
    let names = match client.query(adopt_sql!("names_of_dropped"), &[&table]).await {
        // The text is no name.
        Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => Vec::new(),
        names => names?,
    };
    for name in names.iter().map(|row| row.get::<_, String>(0)) {
        let functions: Vec<String> = function_names(&name).into();
        let rows = client.query(adopt_sql!("functions_of_dropped"), &[&functions]).await?;
        if !rows.is_empty() {
            let functions: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
            drop_all(client, &name, "", &functions).await?;
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Drops triggers and functions, and forgets changes that are not handled yet. Functions have the names that the
/// database itself writes.
async fn drop_all(
    client: &mut Client<'_>,
    table: &str,
    drop_triggers: &str,
    functions: &[&str],
) -> Result<(), Failure> {
    let transaction = client.transaction().await?;
    transaction.query_one(sql!("migration_limits"), &[&LOCK_TIMEOUT]).await?;
    let remove = async {
        transaction.batch_execute(drop_triggers).await?;
        for function in functions {
            let function = adopt_sql!("drop_function").replace(":function", function);
            transaction.batch_execute(&function).await?;
        }
        transaction.execute(adopt_sql!("forget"), &[&table]).await
    };
    remove.await.map_err(|error| failed(table, error))?;
    transaction.commit().await?;
    Ok(())
}
