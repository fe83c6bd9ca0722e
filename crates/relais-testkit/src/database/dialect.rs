//! SQL that is not portable.

/// The SQL of a database, where databases differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

impl Dialect {
    /// The database's now, as text that [`relais_core::time::Timestamp::parse`] reads.
    pub fn now(self) -> &'static str {
        match self {
            Self::Postgres => {
                "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
            }
            Self::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
        }
    }

    /// A time this many seconds before the database's now, for a time column.
    pub fn ago(self, seconds: u32) -> String {
        self.shifted('-', seconds)
    }

    /// A time this many seconds after the database's now, for a time column.
    pub fn ahead(self, seconds: u32) -> String {
        self.shifted('+', seconds)
    }

    fn shifted(self, sign: char, seconds: u32) -> String {
        match self {
            Self::Postgres => {
                format!("(clock_timestamp() {sign} interval '{seconds} seconds')")
            }
            Self::Sqlite => {
                format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '{sign}{seconds} seconds')")
            }
        }
    }

    /// Returns true if another transaction may write while one is open.
    pub fn writes_in_parallel(self) -> bool {
        matches!(self, Self::Postgres)
    }

    /// Gives the session a name that [`Self::waiting_behind`] finds; `None` with one writer only.
    pub fn name_session(self, name: &str) -> Option<String> {
        matches!(self, Self::Postgres).then(|| format!("SET application_name = {}", quote(name)))
    }

    /// Returns a statement that counts the sessions waiting for a lock of the one with this name.
    pub fn waiting_behind(self, name: &str) -> Option<String> {
        matches!(self, Self::Postgres).then(|| {
            format!(
                "SELECT count(*) FROM pg_stat_activity AS w JOIN pg_stat_activity AS h \
                 ON h.pid = ANY (pg_blocking_pids(w.pid)) WHERE h.application_name = {}",
                quote(name)
            )
        })
    }
}

/// Returns the text as an SQL literal.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
