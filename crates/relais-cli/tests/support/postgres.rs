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

    fn try_execute(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
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
