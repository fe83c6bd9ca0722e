//! Adopted outbox tables: a trigger copies rows of an application's own table into `relais_outbox`, and results
//! are written back into that table in the transaction that settles the copy.
//!
//! Invariant: relais locks its own rows before rows of the application; a trigger on an adopted table only inserts,
//! and locks no row of relais. So neither side waits for the other in a circle.

/// The statement or template in `adopt/<name>.sql`.
macro_rules! adopt_sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/adopt/", $name, ".sql"))
    };
}

mod catalog;
mod follow;
mod install;
mod layout;
mod script;
mod write_back;

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use relais_core::store::{StoreError, StoreResult};
use serde::Serialize;

pub use self::layout::{ADOPT_COLUMNS, ADOPT_STATES, AdoptDestination, AdoptPreset, Adoption};
use self::script::AdoptScript;
pub(super) use self::{follow::follow, write_back::write_back};
use super::{PostgresStore, error::Failure, session::Client};

/// The interval at which a running program compares its adopted tables with the configuration.
const CHECK_EVERY: Duration = Duration::from_secs(10);

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

/// One adopted table while the program runs; without a script it does not fit its description now.
#[derive(Clone, Debug)]
pub(super) struct AdoptedTable {
    adoption: Adoption,
    script: Option<Arc<AdoptScript>>,
}

/// The adopted tables of a store.
#[derive(Debug, Default)]
pub(super) struct AdoptedTables {
    tables: RwLock<Arc<Vec<AdoptedTable>>>,
    checked: Mutex<Option<Instant>>,
    /// The last change that was handled; the next pass starts behind it.
    cursor: Mutex<i64>,
    /// Tables whose installation failed; it is repeated when the tables are compared.
    to_install: Mutex<Vec<Adoption>>,
}

impl AdoptedTables {
    pub(super) fn all(&self) -> Arc<Vec<AdoptedTable>> {
        Arc::clone(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether rows of a destination may have been copied from one of them.
    pub(super) fn may_have(&self, destination: &str) -> bool {
        self.all().iter().any(|table| table.adoption.may_have(destination))
    }

    fn set(&self, tables: Vec<AdoptedTable>) {
        *self.tables.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tables);
    }

    /// Returns whether the tables are to be compared again, and remembers that they are.
    fn is_due(&self) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = checked.is_none_or(|at| at.elapsed() >= CHECK_EVERY);
        if is_due {
            *checked = Some(Instant::now());
        }
        is_due
    }

    /// Reads the tables again: a column may have been renamed, or a lost one may be back.
    async fn refresh(&self, client: &Client<'_>) -> Result<(), Failure> {
        let mut tables = Vec::new();
        for AdoptedTable { adoption, .. } in self.all().iter() {
            let script = match catalog::read(client, adoption).await? {
                Ok(table) => Some(Arc::new(AdoptScript::of(adoption, &table))),
                Err(_) => None,
            };
            tables.push(AdoptedTable { adoption: adoption.clone(), script });
        }
        self.set(tables);
        Ok(())
    }

    /// Repeats installations that failed: a transaction may have held the table for too long.
    async fn install_rest(&self, client: &mut Client<'_>) -> Result<(), Failure> {
        let rest = self.to_install.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if rest.is_empty() {
            return Ok(());
        }
        let outcome = install::install(client, &rest, install::REPEAT_LOCK_TIMEOUT).await?;
        self.install_later(&outcome);
        Ok(())
    }

    fn install_later(&self, outcome: &InstallationOutcome) {
        let refused = outcome.refused.iter().map(|(adoption, _)| adoption.clone()).collect();
        *self.to_install.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    /// Fails with the first problem of each table that does not work; for readiness.
    pub(super) async fn check(&self, client: &Client<'_>) -> Result<(), Failure> {
        let adoptions: Vec<Adoption> = self.all().iter().map(|t| t.adoption.clone()).collect();
        let reports = install::check(client, &adoptions).await?;
        let problems: Vec<String> = reports
            .iter()
            .filter_map(|report| {
                Some(format!("adopt[{}]: {}", report.table, report.problems.first()?))
            })
            .collect();
        match problems.as_slice() {
            [] => Ok(()),
            problems => Err(StoreError::setup(problems.join("; ")).into()),
        }
    }
}

impl PostgresStore {
    /// Makes the store write results of these tables back, and handle their changes. Tables that do not fit are
    /// compared again every 10 seconds; [`Store::check`](relais_core::store::Store::check) reports them.
    pub async fn adopt(&self, adoptions: Vec<Adoption>) -> StoreResult<()> {
        let tables = adoptions.into_iter().map(|adoption| AdoptedTable { adoption, script: None });
        self.shared.adopted.set(tables.collect());
        self.others()
            .run((), |client, shared, ()| Box::pin(async { shared.adopted.refresh(client).await }))
            .await
    }

    /// Compares the tables and their triggers with the description. Changes nothing.
    pub async fn check_adoptions(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<Vec<AdoptionReport>> {
        self.others()
            .run(adoptions, |client, _, adoptions| Box::pin(install::check(client, adoptions)))
            .await
    }

    /// Returns the statements that [`Self::install_adoptions`] runs. Changes nothing.
    pub async fn adoption_sql(&self, adoptions: Vec<Adoption>) -> StoreResult<String> {
        self.others()
            .run(adoptions, |client, _, adoptions| Box::pin(install::print(client, adoptions)))
            .await
    }

    /// Creates what each table needs, or replaces it where it differs: one transaction for each table. The first
    /// table that cannot be installed is the error; the others are installed.
    pub async fn install_adoptions(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<Vec<InstalledAdoption>> {
        let outcome = self.install_all(adoptions).await?;
        match outcome.refused.into_iter().next() {
            Some((_, why)) => Err(StoreError::setup(why)),
            None => Ok(outcome.installed),
        }
    }

    /// Installs as [`Self::install_adoptions`] does. A running store repeats what could not be installed every 10
    /// seconds, for the tables of [`Self::adopt`].
    pub async fn install_repeatedly(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<InstallationOutcome> {
        let outcome = self.install_all(adoptions).await?;
        self.shared.adopted.install_later(&outcome);
        Ok(outcome)
    }

    async fn install_all(&self, adoptions: Vec<Adoption>) -> StoreResult<InstallationOutcome> {
        self.others()
            .run(adoptions, |client, _, adoptions| {
                Box::pin(install::install(client, adoptions, install::LOCK_TIMEOUT))
            })
            .await
    }

    /// Removes what an installation created, and changes that are not handled yet. Copies that exist are still
    /// delivered. Returns the table with its schema if it was adopted.
    pub async fn remove_adoption(&self, table: String) -> StoreResult<Option<String>> {
        self.others().run(table, |client, _, table| Box::pin(install::remove(client, table))).await
    }
}
