//! Adopted tables: the part of the configuration that needs the database.

use relais::postgres::InstallationOutcome;
use relais_core::store::StoreError;

use super::{Database, WireError};
use crate::settings::{Settings, StoreUrl};

const NOT_HERE: &str = "is for PostgreSQL; must be used with a postgres:// `store.url`";

/// Returns an error for each adopted table if the store cannot adopt any.
pub(super) fn refused(settings: &Settings) -> impl Iterator<Item = WireError> {
    let is_sqlite = matches!(settings.store.url, StoreUrl::Sqlite(_));
    settings.adoptions.iter().filter(move |_| is_sqlite).map(|adopt| WireError {
        place: adopt.place,
        section: format!("adopt[{}]", adopt.adoption.table),
        message: NOT_HERE.to_owned(),
    })
}

impl Database {
    /// Writes results of adopted tables back from here on.
    pub(crate) async fn adopt(&self, settings: &Settings) -> Result<(), StoreError> {
        match self {
            Self::Postgres(store) if !settings.adoptions.is_empty() => {
                store.adopt(settings.adopted()).await
            }
            Self::Sqlite(_) if !settings.adoptions.is_empty() => {
                Err(StoreError::setup(format!("[[adopt]] {NOT_HERE}")))
            }
            _ => Ok(()),
        }
    }

    /// Installs the triggers of adopted tables, for a store that repeats what fails.
    pub(crate) async fn install_repeatedly(
        &self,
        settings: &Settings,
    ) -> Result<InstallationOutcome, StoreError> {
        match self {
            Self::Postgres(store) if !settings.adoptions.is_empty() => {
                store.install_repeatedly(settings.adopted()).await
            }
            _ => Ok(InstallationOutcome::default()),
        }
    }

    /// Returns what is wrong with adopted tables. Missing triggers are no error if `relais run` may create them.
    pub(crate) async fn check_adopted(
        &self,
        settings: &Settings,
    ) -> Result<Vec<WireError>, StoreError> {
        let Self::Postgres(store) = self else { return Ok(Vec::new()) };
        let reports = store.check_adoptions(settings.adopted()).await?;
        let is_installed_later = |why: &str| {
            let later = ["run `relais adopt install`", "run `relais migrate`"];
            settings.store.migrate && later.iter().any(|end| why.ends_with(end))
        };
        let all = settings.adoptions.iter().zip(reports).flat_map(|(adopt, report)| {
            let section = format!("adopt[{}]", adopt.adoption.table);
            report.problems.into_iter().map(move |message| WireError {
                place: adopt.place,
                section: section.clone(),
                message,
            })
        });
        Ok(all.filter(|error| !is_installed_later(&error.message)).collect())
    }
}
