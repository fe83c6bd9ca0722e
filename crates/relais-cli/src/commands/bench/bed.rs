//! The scratch database, made beside the one of the settings, so that it has the same disk and server.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use relais::{
    postgres::PostgresStore,
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_core::store::Store;
use secrecy::ExposeSecret;

use super::{Name, postgres, sqlite};
use crate::{
    failure::{Done, Failure},
    settings::{Settings, StoreUrl},
};

pub(super) enum Bed {
    Sqlite { folder: PathBuf, store: SqliteStore },
    Postgres { schema: String, server: PostgresStore, store: PostgresStore },
}

impl Bed {
    pub(super) async fn make(settings: &Settings) -> Result<Self, Failure> {
        let unsafe_durability = settings.store.unsafe_durability;
        let bed = match &settings.store.url {
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
            bed.store().migrate().await?;
            match &bed {
                Self::Sqlite { folder, .. } => sqlite::make_tables(folder.clone()).await,
                Self::Postgres { store, .. } => postgres::make_tables(store).await,
            }
        };
        let made = made.await;
        if let Err(failure) = made {
            bed.remove().await?;
            return Err(failure);
        }
        Ok(bed)
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite { store, .. } => Arc::new(store.clone()),
            Self::Postgres { store, .. } => Arc::new(store.clone()),
        }
    }

    /// Messages a second of the bare loop.
    pub(super) async fn raw(&self, name: Name, rows: u64) -> Result<f64, Failure> {
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

/// A folder of its own on the same disk.
fn beside(database: &Path) -> Result<PathBuf, Failure> {
    let parent = database.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let folder = folder.join(format!("relais-bench-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| cannot("make", &folder, &error))?;
    Ok(folder)
}

fn cannot(what: &str, folder: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot {what} {}: {error}", folder.display()))
}
