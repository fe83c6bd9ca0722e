//! A place of its own in a real PostgreSQL.

/// A schema in the database that the environment names; it is dropped afterwards.
pub(crate) struct PostgresSchema {
    base: String,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl PostgresSchema {
    pub(crate) fn new() -> Option<Self> {
        let Ok(base) = std::env::var("RELAIS_TEST_POSTGRES") else {
            assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_POSTGRES");
            eprintln!("NOT TESTED: the program on PostgreSQL; set RELAIS_TEST_POSTGRES");
            return None;
        };
        let name = format!("relais_cli_{}", uuid::Uuid::new_v4().simple());
        let join = if base.contains('?') { '&' } else { '?' };
        let url = format!("{base}{join}options=-c%20search_path%3D{name}");
        let schema = Self { base, name, url };
        schema.execute(&format!("CREATE SCHEMA {}", schema.name));
        Some(schema)
    }

    pub(crate) fn execute(&self, sql: &str) {
        self.try_execute(sql).unwrap();
    }

    /// Returns the first column of each row, as text.
    // Not every test reads rows.
    #[allow(dead_code)]
    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        self.try_texts(sql).unwrap_or_else(|error| panic!("{error:?}\n in: {sql}"))
    }

    #[allow(dead_code)]
    pub(crate) fn try_texts(&self, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let messages = runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            client.simple_query(sql).await
        })?;
        let rows = messages.into_iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some(row.get(0).unwrap_or("NULL").to_owned())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Runs statements on a connection that stays open until the answer is dropped.
    #[allow(dead_code)]
    pub(crate) fn open(&self, sql: &str) -> (tokio_postgres::Client, tokio::runtime::Runtime) {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
            client
        });
        (client, runtime)
    }

    pub(crate) fn try_execute(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.base, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(sql).await
        })
    }
}

impl Drop for PostgresSchema {
    /// The last statement of a program that was killed may still run and stand in the way: what cannot
    /// be removed goes with the server.
    fn drop(&mut self) {
        let sql = format!("SET lock_timeout = '10s'; DROP SCHEMA {} CASCADE", self.name);
        if let Err(error) = self.try_execute(&sql) {
            eprintln!("schema {} is left behind: {error}", self.name);
        }
    }
}
