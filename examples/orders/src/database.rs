//! The database of one service. relais keeps its tables beside the service's own.

use std::{path::Path, time::Duration};

use relais::sqlite::{SqliteOptions, SqliteStore};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

/// Opens the file for the service itself and for relais.
pub(crate) async fn open(path: &Path) -> anyhow::Result<(SqlitePool, SqliteStore)> {
    let store = SqliteStore::open(path, SqliteOptions::default()).await?;
    store.migrate().await?;
    store.check().await?;
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(5));
    Ok((SqlitePool::connect_with(options).await?, store))
}
