//! The temporary database, created beside the configured one on the same disk and server.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use relais::{
    postgres::PostgresStore,
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_core::store::StoreDriver;
use secrecy::ExposeSecret;

use super::{Measurement, postgres, sqlite};
use crate::{
    failure::{CommandError, Done},
    settings::{Settings, StoreUrl},
};

pub(super) enum ScratchDatabase {
    Sqlite { folder: PathBuf, store: SqliteStore },
    Postgres { schema: String, server: PostgresStore, store: PostgresStore },
}

impl ScratchDatabase {
    pub(super) async fn create(settings: &Settings) -> Result<Self, CommandError> {
        let unsafe_durability = settings.store.unsafe_durability;
        let scratch = match &settings.store.url {
            StoreUrl::Sqlite(path) => {
                let options = SqliteOptions::default().unsafe_durability(unsafe_durability);
                let folder = beside(path)?;
                let opened = SqliteStore::open(&folder.join("bench.db"), options).await;
                Self::Sqlite { store: opened?, folder }
            }
            StoreUrl::Postgres { url, .. } => {
                let options = settings.store.postgres();
                let url = url.expose_secret();
                let server = PostgresStore::connect(url, options.clone()).await?;
                let schema = format!("relais_bench_{}", std::process::id());
                postgres::make_schema(&server, &schema).await?;
                let in_schema = options.schema(&schema);
                let store = PostgresStore::connect(url, in_schema).await?;
                Self::Postgres { schema, server, store }
            }
        };
        let made = async {
            scratch.store().migrate().await?;
            match &scratch {
                Self::Sqlite { folder, .. } => sqlite::make_tables(folder.clone()).await,
                Self::Postgres { store, .. } => postgres::make_tables(store).await,
            }
        };
        let made = made.await;
        if let Err(failure) = made {
            scratch.remove().await?;
            return Err(failure);
        }
        Ok(scratch)
    }

    pub(super) fn store(&self) -> Arc<dyn StoreDriver> {
        match self {
            Self::Sqlite { store, .. } => Arc::new(store.clone()),
            Self::Postgres { store, .. } => Arc::new(store.clone()),
        }
    }

    /// Returns the messages per second of the bare loop.
    pub(super) async fn raw(&self, name: Measurement, rows: u64) -> Result<f64, CommandError> {
        match self {
            Self::Sqlite { folder, .. } => sqlite::raw(folder.clone(), name, rows).await,
            Self::Postgres { store, .. } => postgres::raw(store, name, rows).await,
        }
    }

    pub(super) async fn remove(self) -> Done {
        match self {
            Self::Sqlite { folder, store } => {
                drop(store);
                fs::remove_dir_all(&folder).map_err(|error| cannot("remove", &folder, &error))
            }
            Self::Postgres { schema, server, store } => {
                store.pool().close();
                postgres::drop_schema(&server, &schema).await
            }
        }
    }
}

/// Creates a directory on the same disk.
fn beside(database: &Path) -> Result<PathBuf, CommandError> {
    let parent = database.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let folder = folder.join(format!("relais-bench-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| cannot("create", &folder, &error))?;
    Ok(folder)
}

fn cannot(what: &str, folder: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot {what} {}: {error}", folder.display()))
}
