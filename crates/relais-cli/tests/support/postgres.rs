//! A place of its own in a real PostgreSQL.

/// A schema of its own in the database the environment names; gone afterwards.
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.base, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
        });
    }
}

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        self.execute(&format!("DROP SCHEMA {} CASCADE", self.name));
    }
}
