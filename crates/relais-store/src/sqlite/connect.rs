//! Opens connections to the file with the settings that the promises rest on.
//!
//! Invariant: a setting counts only when it was read back; SQLite ignores what it cannot do.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use relais_core::store::StoreError;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{check, error, lane};

/// Prepared statements a connection keeps; more than there are files in `sql/`.
const STATEMENTS_MAX: usize = 128;
/// Pages in the write-ahead log before a commit moves them into the database.
const CHECKPOINT_PAGES: i64 = 1_000;
/// The size to which the log file shrinks after a checkpoint.
const LOG_BYTES_MAX: i64 = 64 * 1024 * 1024;
/// The pause before a new file is switched to the log again.
const SWITCH_PAUSE: Duration = Duration::from_millis(5);
/// Page cache of the connection that writes and of one that reads, in KiB. Pages of large rows fill a cache
/// and stay there, and there are many readers; the system's own cache serves them too.
const WRITER_CACHE_KIB: i64 = 8 * 1024;
const READER_CACHE_KIB: i64 = 2 * 1024;

/// Options of a [`SqliteStore`](super::SqliteStore).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Commits may be lost (not torn) in a power cut: `synchronous = NORMAL`. Faster, and no longer
    /// what relais promises.
    pub unsafe_durability: bool,
    /// The longest wait for another writer of the file.
    pub busy_timeout: Duration,
    /// Most connections that read at the same time.
    pub readers: usize,
    /// Most pages the file may have; the database is full beyond it.
    pub pages_max: Option<u32>,
}

relais_core::setters!(SqliteOptions {
    /// Allows commits to be lost (not torn) in a power cut: `synchronous = NORMAL`. For tests.
    unsafe_durability: = bool,
    /// Sets how long to wait for another writer of the file.
    busy_timeout: = Duration,
    /// Sets the number of connections that read at the same time.
    readers: = usize,
    /// Limits the pages of the file; the database is full beyond it.
    pages_max: ? u32,
});

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            unsafe_durability: false,
            busy_timeout: Duration::from_secs(5),
            readers: 4,
            pages_max: None,
        }
    }
}

/// The one connection that writes. Makes the file if it is missing.
pub(super) fn writer(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    make_private(path);
    let db = open(path, flags, options).map_err(|e| error::opening(path, &e))?;
    set_up_writer(&db, options).map_err(|e| error::opening(path, &e))?;
    check::settings(&ConnectionSettings::read(&db)?, options.unsafe_durability)?;
    Ok(db)
}

/// Makes a missing file so that only its owner reads it: it holds payloads. SQLite gives its log the same
/// mode. What fails here, fails again with a better text when SQLite opens the file.
fn make_private(path: &Path) {
    // SQLite makes no file for this name, and the store refuses it below.
    if path == Path::new(":memory:") {
        return;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(path));
}

/// A connection that only reads.
pub(super) fn reader(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    // Not SQLITE_OPEN_READ_ONLY: the first reader of a write-ahead log may have to recover it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags, options).map_err(|e| error::opening(path, &e))?;
    db.pragma_update(None, "query_only", true).map_err(|e| error::store(&e))?;
    Ok(db)
}

fn open(path: &Path, flags: OpenFlags, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(options.busy_timeout)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    lane::register(&db)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(db)
}

fn set_up_writer(db: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    switch_to_wal(db, options)?;
    db.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    let synchronous = if options.unsafe_durability { "NORMAL" } else { "FULL" };
    db.pragma_update(None, "synchronous", synchronous)?;
    db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    db.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    if let Some(pages) = options.pages_max {
        db.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(())
}

/// Of two that switch a new file at the same time, SQLite reports busy to one at once.
fn switch_to_wal(db: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    let started = Instant::now();
    loop {
        match db.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && started.elapsed() < options.busy_timeout =>
            {
                std::thread::sleep(SWITCH_PAUSE);
            }
            other => return other,
        }
    }
}

/// The settings that SQLite reports, whatever was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionSettings {
    pub(super) library: i32,
    pub(super) journal_mode: String,
    pub(super) synchronous: i64,
    pub(super) foreign_keys: bool,
    pub(super) read_only: bool,
}

impl ConnectionSettings {
    pub(super) fn read(db: &Connection) -> Result<Self, StoreError> {
        Self::ask(db).map_err(|e| error::store(&e))
    }

    fn ask(db: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            library: rusqlite::version_number(),
            journal_mode: db.pragma_query_value(None, "journal_mode", |row| row.get(0))?,
            synchronous: db.pragma_query_value(None, "synchronous", |row| row.get(0))?,
            foreign_keys: db.pragma_query_value(None, "foreign_keys", |row| row.get(0))?,
            read_only: db.is_readonly("main")?,
        })
    }
}
