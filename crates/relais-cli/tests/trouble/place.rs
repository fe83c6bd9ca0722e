//! The program on one of the stores, and what its tables say.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    support::{Running, Site, postgres::PostgresSchema},
    target::PATIENCE,
};

/// The database.
pub(crate) enum Database {
    Sqlite,
    Postgres(PostgresSchema),
}

/// Runs a scenario on SQLite, and on PostgreSQL if there is one.
pub(crate) fn on_both(scenario: impl Fn(Database)) {
    scenario(Database::Sqlite);
    if let Some(schema) = PostgresSchema::new() {
        scenario(Database::Postgres(schema));
    }
}

pub(crate) struct Place<'a> {
    site: Site,
    database: &'a Database,
    /// Messages sent so far.
    sent: Cell<u64>,
}

impl<'a> Place<'a> {
    /// A place with a short lease, for tests that kill the program.
    pub(crate) fn new(database: &'a Database, destinations: &str) -> Self {
        Self::with(database, &format!("[lanes]\nlease = \"2s\"\n{destinations}"))
    }

    // Not every test needs it.
    #[allow(dead_code)]
    pub(crate) fn with_default_lease(database: &'a Database, destinations: &str) -> Self {
        Self::with(database, destinations)
    }

    fn with(database: &'a Database, settings: &str) -> Self {
        let url = match database {
            Database::Sqlite => "sqlite:relais.db",
            Database::Postgres(schema) => &schema.url,
        };
        let site = Site::with(&format!(
            "[store]\nurl = \"{url}\"\n[admin]\nlisten = \"127.0.0.1:{}\"\n{settings}",
            free_port()
        ));
        let said = site.relais(&["migrate"]);
        assert_eq!(said.code, 0, "{said:?}");
        Self { site, database, sent: Cell::new(0) }
    }

    pub(crate) fn run(&self) -> Running {
        self.site.run()
    }

    /// Starts the program like [`Self::run`], and stores its process id before it has any work.
    // Not every test needs it.
    #[allow(dead_code)]
    pub(crate) fn run_noting(&self, pid: &AtomicU32) -> Running {
        let command = self.site.command(&["run", "--log", "json"]);
        Running::start_noting(command, "\"message\":\"running\"", |id| pid.store(id, SeqCst))
    }

    /// Sends one message for each of the keys. Its payload has `n`, the number of messages sent before.
    pub(crate) fn send(&self, destination: &str, keys: &[String]) {
        let values: Vec<String> = keys
            .iter()
            .map(|key| {
                let n = self.sent.replace(self.sent.get() + 1);
                let payload = format!("{{\"n\": {n}}}");
                format!("('Order', '{key}', 'OrderPlaced', '{destination}', '{payload}')")
            })
            .collect();
        let columns = "(aggregate_type, aggregate_id, event_type, destination, payload)";
        let values = values.join(", ");
        match self.database {
            Database::Sqlite => {
                let database = rusqlite::Connection::open(self.site.path("relais.db")).unwrap();
                database.busy_timeout(PATIENCE).unwrap();
                let insert = format!("INSERT INTO relais_outbox {columns} VALUES {values}");
                database.execute_batch(&insert).unwrap();
            }
            Database::Postgres(schema) => {
                let table = format!("{}.relais_outbox", schema.name);
                schema.execute(&format!("INSERT INTO {table} {columns} VALUES {values}"));
            }
        }
    }

    /// Returns the number of outbox rows with this status.
    pub(crate) fn count(&self, status: &str) -> u64 {
        let found = self.site.json(&["status"]);
        let counts = found["outbox"].as_array().expect("counts").iter();
        let mut of_status = counts.filter(|count| count["name"] == status);
        of_status.next().and_then(|count| count["rows"].as_u64()).unwrap_or(0)
    }

    pub(crate) fn until(&self, status: &str, rows: u64) {
        self.until_within(PATIENCE, status, rows);
    }

    pub(crate) fn until_within(&self, patience: Duration, status: &str, rows: u64) {
        let start = Instant::now();
        loop {
            let found = self.count(status);
            if found == rows {
                return;
            }
            assert!(start.elapsed() < patience, "{found} rows are {status}, not {rows}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    // Not every test needs it.
    #[allow(dead_code)]
    pub(crate) fn parked_keys(&self) -> usize {
        self.texts("SELECT count(*) FROM relais_parked_key")[0].parse().unwrap()
    }

    /// Returns the first column of each row, as text.
    // Not every test reads rows.
    #[allow(dead_code)]
    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        match self.database {
            Database::Sqlite => {
                let database = rusqlite::Connection::open(self.site.path("relais.db")).unwrap();
                database.busy_timeout(PATIENCE).unwrap();
                let mut statement = database.prepare(sql).unwrap();
                let rows = statement.query_map([], |row| row.get_ref(0).map(text_of)).unwrap();
                rows.map(Result::unwrap).collect()
            }
            Database::Postgres(schema) => schema.texts(sql),
        }
    }

    /// Waits until the guards of a destination are so.
    pub(crate) fn until_guard(&self, destination: &str, is_so: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let found = self.site.json(&["status"]);
            let all = found["destinations"].as_array().expect("destinations").iter();
            let mut named = all.filter(|found| found["destination"] == destination);
            let guards = named.next().map(|found| found["guards"].clone()).unwrap_or_default();
            if is_so(&guards) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{destination}: {guards}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Keys and attempts of the dead letters.
    pub(crate) fn dead_letters(&self) -> Vec<(String, u64)> {
        let found = self.site.json(&["dead-letter", "list"]);
        let rows = found.as_array().cloned().unwrap_or_default();
        let one = |row: &Value| {
            let key = row["msg_key"].as_str().expect("a key").to_owned();
            (key, row["attempts"].as_u64().expect("attempts"))
        };
        rows.iter().map(one).collect()
    }

    /// The most attempts of any row.
    pub(crate) fn attempts_max(&self) -> u64 {
        let found = self.site.json(&["outbox", "list", "--limit", "500"]);
        let rows = found.as_array().expect("rows").iter();
        rows.map(|row| row["attempts"].as_u64().expect("attempts")).max().expect("a row")
    }
}

#[allow(dead_code)]
fn text_of(value: rusqlite::types::ValueRef<'_>) -> String {
    match value {
        rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        rusqlite::types::ValueRef::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
