//! Adopted tables: the part of the configuration that needs the database.

use relais::adopt::{AdoptionReport, InstallationOutcome, InstalledAdoption};
use relais_core::store::StoreError;

use super::{Database, WireError};
use crate::settings::Settings;

impl Database {
    /// Writes results of adopted tables back from here on.
    pub(crate) async fn adopt(&self, settings: &Settings) -> Result<(), StoreError> {
        match self {
            _ if settings.adoptions.is_empty() => Ok(()),
            Self::Postgres(store) => store.adopt(settings.adopted()).await,
            Self::Sqlite(store) => store.adopt(settings.adopted()).await,
        }
    }

    /// Installs the triggers of adopted tables.
    pub(crate) async fn install_adopted(
        &self,
        settings: &Settings,
    ) -> Result<Vec<InstalledAdoption>, StoreError> {
        match self {
            _ if settings.adoptions.is_empty() => Ok(Vec::new()),
            Self::Postgres(store) => store.install_adoptions(settings.adopted()).await,
            Self::Sqlite(store) => store.install_adoptions(settings.adopted()).await,
        }
    }

    /// Installs the triggers of adopted tables, for a store that repeats what fails.
    pub(crate) async fn install_repeatedly(
        &self,
        settings: &Settings,
    ) -> Result<InstallationOutcome, StoreError> {
        match self {
            _ if settings.adoptions.is_empty() => Ok(InstallationOutcome::default()),
            Self::Postgres(store) => store.install_repeatedly(settings.adopted()).await,
            Self::Sqlite(store) => store.install_repeatedly(settings.adopted()).await,
        }
    }

    /// Returns the SQL of an installation.
    pub(crate) async fn adoption_sql(&self, settings: &Settings) -> Result<String, StoreError> {
        match self {
            Self::Postgres(store) => store.adoption_sql(settings.adopted()).await,
            Self::Sqlite(store) => store.adoption_sql(settings.adopted()).await,
        }
    }

    /// Compares adopted tables with the configuration.
    pub(crate) async fn adoption_reports(
        &self,
        settings: &Settings,
    ) -> Result<Vec<AdoptionReport>, StoreError> {
        match self {
            Self::Postgres(store) => store.check_adoptions(settings.adopted()).await,
            Self::Sqlite(store) => store.check_adoptions(settings.adopted()).await,
        }
    }

    /// Removes the triggers of a table; returns its name if it had any.
    pub(crate) async fn remove_adoption(
        &self,
        table: String,
    ) -> Result<Option<String>, StoreError> {
        match self {
            Self::Postgres(store) => store.remove_adoption(table).await,
            Self::Sqlite(store) => store.remove_adoption(table).await,
        }
    }

    /// Returns what is wrong with adopted tables. Missing triggers are no error if `relais run` may create them.
    pub(crate) async fn check_adopted(
        &self,
        settings: &Settings,
    ) -> Result<Vec<WireError>, StoreError> {
        let reports = self.adoption_reports(settings).await?;
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
