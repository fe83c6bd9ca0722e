//! A few connections that read, each used by one thread at a time.
//!
//! Invariant: at most `max` are open; one whose work failed or panicked is closed, not used again.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use relais_core::store::StoreError;
use rusqlite::Connection;
use tokio::{sync::Semaphore, task};

use super::connect::{self, SqliteOptions};

#[derive(Clone, Debug)]
pub(super) struct Readers {
    path: PathBuf,
    options: SqliteOptions,
    idle: Arc<Mutex<Vec<Connection>>>,
    places: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: &Path, options: &SqliteOptions, max: usize) -> Self {
        Self {
            path: path.to_owned(),
            options: *options,
            idle: Arc::default(),
            places: Arc::new(Semaphore::new(max.max(1))),
        }
    }

    /// Runs `work` on a thread for blocking work; it sees everything committed before now.
    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| stopped())?;
        let readers = self.clone();
        let result = task::spawn_blocking(move || {
            let _place = place;
            let db = readers.take()?;
            let result = work(&db)?;
            readers.give_back(db);
            Ok(result)
        });
        result.await.map_err(|_| stopped())?
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(db) => Ok(db),
            None => connect::reader(&self.path, &self.options),
        }
    }

    fn give_back(&self, db: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
    }
}

fn stopped() -> StoreError {
    StoreError::unavailable("the reading thread stopped; the program is ending, or has a bug")
}
