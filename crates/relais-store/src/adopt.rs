//! Adopted tables: the parts that do not depend on the database. A trigger copies rows of an application's own table
//! into `relais_outbox` or `relais_inbox`, and results are written back into that table in the transaction that
//! settles the copy.

pub(crate) mod catalog;
mod layout;
pub(crate) mod terms;

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use relais_core::{inbox::InboxFate, inspect::AdoptedProblems, store::StoreError};
use serde::Serialize;
use uuid::Uuid;

pub use self::layout::{ADOPT_COLUMNS, ADOPT_STATES, AdoptDestination, AdoptPreset, Adoption};

/// The interval at which a running program compares its adopted tables with the configuration.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// Most changes of one pass.
pub(crate) const CHANGES_MAX: usize = 100;
/// The actor in the audit log.
pub(crate) const ACTOR: &str = "relais";
/// `message_id` of a change of an inbox table by an UPDATE: the message is to be handled again. A duplicate has another.
pub(crate) const BY_UPDATE: Uuid = Uuid::max();
/// The next step of what an installation creates.
pub(crate) const INSTALL: &str = "run `relais adopt install`";
pub(crate) const NOT_MIGRATED: &str =
    "the tables of relais do not exist here; run `relais migrate`";

/// The state of one adopted table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdoptionReport {
    /// The table as the configuration names it.
    pub table: String,
    /// The preset.
    pub preset: &'static str,
    /// Problems, each with the next step; none if the adoption works.
    pub problems: Vec<String>,
}

/// The result of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstalledAdoption {
    /// The table with its schema.
    pub table: String,
    /// False if the triggers were there already.
    pub changed: bool,
    /// The number of existing rows that were copied.
    pub copied: u64,
}

/// The result of installing several tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstallationOutcome {
    /// The tables whose triggers are there now.
    pub installed: Vec<InstalledAdoption>,
    /// The tables that could not be installed, with the reason.
    pub refused: Vec<(Adoption, String)>,
}

impl InstallationOutcome {
    /// Returns what was installed; the first table that could not be is the error.
    pub(crate) fn all(self) -> Result<Vec<InstalledAdoption>, StoreError> {
        match self.refused.into_iter().next() {
            Some((_, why)) => Err(StoreError::setup(why)),
            None => Ok(self.installed),
        }
    }
}

/// The copies whose results are written back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SettledCopies<'a> {
    /// Of one destination, or of any.
    Outbox(Option<&'a str>),
    Inbox,
}

/// A received message of an adopted row: its copy, or the copy of that for a handler.
pub(crate) struct ReceivedCopy {
    pub(crate) id: i64,
    pub(crate) status: String,
    /// It is linked with the row.
    pub(crate) is_own: bool,
    /// It differs from what the row has now.
    pub(crate) is_changed: bool,
    pub(crate) is_for_handler: bool,
    /// The row of this table that gets its result.
    pub(crate) row: Option<String>,
}

/// The decision about a row of an inbox table that has the message of another row.
pub(crate) enum OtherRow {
    /// The result of the message, which is known or has no other row.
    Result,
    /// The message is handled again.
    Again,
    /// The result, once the message is handled: the other row gets it first.
    Later,
}

impl ReceivedCopy {
    /// Decides about another row; `other_is_open` if the row with the result waits for it.
    pub(crate) fn for_other_row(&self, was_reset: bool, other_is_open: bool) -> OtherRow {
        match (self.status.as_str(), was_reset) {
            ("RECEIVED" | "RETRY", _) if other_is_open => OtherRow::Later,
            ("RECEIVED" | "RETRY", _) | (_, false) => OtherRow::Result,
            (_, true) => OtherRow::Again,
        }
    }
}

/// Returns whether the result of a row is that of its only copy.
pub(crate) fn leaves_the_result_to_its_copy(fate: &InboxFate) -> bool {
    matches!(fate, InboxFate::Processed { copies, .. } if copies.len() == 1)
}

/// One adopted table while the program runs; without a script it does not fit its description now.
#[derive(Clone, Debug)]
pub(crate) struct AdoptedTable<S> {
    pub(crate) adoption: Adoption,
    pub(crate) script: Option<Arc<S>>,
}

impl<S> AdoptedTable<S> {
    /// Returns whether the copies may be of this table.
    pub(crate) fn concerns(&self, copies: SettledCopies<'_>) -> bool {
        match copies {
            SettledCopies::Inbox => self.adoption.is_inbox(),
            SettledCopies::Outbox(None) => !self.adoption.is_inbox(),
            SettledCopies::Outbox(Some(destination)) => self.adoption.may_have(destination),
        }
    }
}

/// The adopted tables of a store.
#[derive(Debug)]
pub(crate) struct AdoptedTables<S> {
    tables: RwLock<Arc<Vec<AdoptedTable<S>>>>,
    checked: Mutex<Option<Instant>>,
    /// The last change that was handled; the next pass starts behind it.
    cursor: Mutex<i64>,
    /// Tables whose installation failed; it is repeated when the tables are compared.
    to_install: Mutex<Vec<Adoption>>,
}

impl<S> Default for AdoptedTables<S> {
    fn default() -> Self {
        let (tables, checked, cursor, to_install) = Default::default();
        Self { tables, checked, cursor, to_install }
    }
}

impl<S> AdoptedTables<S> {
    pub(crate) fn all(&self) -> Arc<Vec<AdoptedTable<S>>> {
        Arc::clone(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether these copies may be of one of them.
    pub(crate) fn concern(&self, copies: SettledCopies<'_>) -> bool {
        self.all().iter().any(|table| table.concerns(copies))
    }

    pub(crate) fn descriptions(&self) -> Vec<Adoption> {
        self.all().iter().map(|table| table.adoption.clone()).collect()
    }

    pub(crate) fn set(&self, tables: Vec<AdoptedTable<S>>) {
        *self.tables.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tables);
    }

    /// Returns whether the tables are to be compared again, and remembers that they are.
    pub(crate) fn is_due(&self) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = checked.is_none_or(|at| at.elapsed() >= CHECK_EVERY);
        if is_due {
            *checked = Some(Instant::now());
        }
        is_due
    }

    pub(crate) fn cursor(&self) -> i64 {
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers where the next pass starts: behind the last of as many changes as one pass reads, else at the first.
    pub(crate) fn pass_ended(&self, last: Option<i64>, changes: usize) {
        let next = last.filter(|_| changes == CHANGES_MAX).unwrap_or(0);
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Returns the tables whose installation failed.
    pub(crate) fn to_install(&self) -> Vec<Adoption> {
        self.to_install.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn install_later(&self, outcome: &InstallationOutcome) {
        let refused = outcome.refused.iter().map(|(adoption, _)| adoption.clone()).collect();
        *self.to_install.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }
}

/// Fails with the first problem of each table that does not work; for readiness.
pub(crate) fn all_work(reports: &[AdoptionReport]) -> Result<(), StoreError> {
    let problems: Vec<String> = reports
        .iter()
        .filter_map(|report| Some(format!("adopt[{}]: {}", report.table, report.problems.first()?)))
        .collect();
    match problems.as_slice() {
        [] => Ok(()),
        problems => Err(StoreError::setup(problems.join("; "))),
    }
}

/// Returns the tables with their problems; for the metrics.
pub(crate) fn problems_of(reports: Vec<AdoptionReport>) -> Vec<AdoptedProblems> {
    let of_table = |AdoptionReport { table, problems, .. }| AdoptedProblems { table, problems };
    reports.into_iter().map(of_table).collect()
}

/// The triggers of a table.
pub(crate) enum TriggerState {
    Missing,
    /// They are those of the script.
    Same,
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Disabled,
    /// Their functions run with other settings, or other roles may call them.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Altered,
    Different,
}

impl TriggerState {
    /// Returns what is wrong with them, and what an installation would refuse.
    pub(crate) fn problems(&self, table: &str, unordered: Option<&String>) -> Vec<String> {
        let refused = unordered.filter(|_| matches!(self, Self::Missing));
        self.problem(table).into_iter().chain(refused.cloned()).collect()
    }

    fn problem(&self, table: &str) -> Option<String> {
        Some(match self {
            Self::Same => return None,
            Self::Missing => format!("{table} has no triggers of relais; {INSTALL}"),
            Self::Disabled => format!(
                "a trigger of relais on {table} is disabled: new rows are not copied; ALTER TABLE {table} \
                 ENABLE TRIGGER relais_adopted_copy, ENABLE TRIGGER relais_adopted_reset"
            ),
            Self::Altered => format!(
                "the functions of relais for {table} were altered, or other roles may execute them; {INSTALL}"
            ),
            Self::Different => {
                format!(
                    "the triggers on {table} were made from another configuration or by another version; {INSTALL}"
                )
            }
        })
    }
}

/// Returns the problem of results that wait, if there are any.
pub(crate) fn late(table: &str, results: i64) -> Option<String> {
    (results > 0).then(|| {
        format!(
            "{results} results wait for more than a minute to be written into {table}; is a row locked, or does a \
             trigger or constraint of the table refuse the UPDATE?"
        )
    })
}

/// Returns a problem as a comment in SQL.
pub(crate) fn sql_comment(problem: Option<&str>) -> String {
    let line = |problem: &str| format!("-- {}\n", problem.replace(['\n', '\r'], " "));
    problem.map(line).unwrap_or_default()
}

/// Returns the error of a table that cannot be adopted.
pub(crate) fn cannot_adopt(table: &str, problems: &[String]) -> StoreError {
    StoreError::setup(format!("cannot adopt {table}: {}", problems.join("; ")))
}

/// Remembers a table; an error if it is adopted already.
pub(crate) fn only_once(seen: &mut Vec<String>, table: &str) -> Result<(), StoreError> {
    if seen.iter().any(|other| other == table) {
        let text = format!("cannot adopt {table} twice; remove one `[[adopt]]`");
        return Err(StoreError::setup(text));
    }
    seen.push(table.to_owned());
    Ok(())
}
