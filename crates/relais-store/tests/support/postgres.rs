//! A schema of its own on the server of `RELAIS_TEST_POSTGRES`, with roles of its own.

use std::{any::Any, env, sync::Arc};

use relais_core::{
    BoxFuture,
    store::{MigrationOutcome, StoreDriver, StoreError},
};
use relais_store::postgres::{PostgresOptions, PostgresStore, roles_sql};
use relais_store_tests::fixture::{Dialect, Fixture, FixtureNode, RawTransaction, TextRows};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// The environment variable with the server's URL.
pub const URL_VARIABLE: &str = "RELAIS_TEST_POSTGRES";

/// All that `roles.sql` makes.
const ROLES: [Role; 6] =
    [Role::Owner, Role::Runtime, Role::Producer, Role::Consumer, Role::Publisher, Role::Reader];

/// The server for tests. Without one, says so; in CI it must be there.
///
/// # Panics
/// In CI (variable `CI`) without a server.
pub fn server_url() -> Option<String> {
    if let Ok(url) = env::var(URL_VARIABLE) {
        return Some(url);
    }
    assert!(env::var_os("CI").is_none(), "in CI the PostgreSQL tests must run: set {URL_VARIABLE}");
    eprintln!("NOT TESTED: PostgreSQL; set {URL_VARIABLE} to the URL of a server");
    None
}

/// The role that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server's own superuser, who arranges what the tests need.
    Super,
    Owner,
    Runtime,
    Producer,
    Consumer,
    Publisher,
    Reader,
}

/// An empty schema with relais's roles, dropped with the value. The stores of all tests work as the
/// role `runtime`: a statement that needs more rights than `roles.sql` gives fails in them.
pub struct PostgresSchema {
    server: String,
    name: String,
    admin: Client,
}

impl PostgresSchema {
    /// Makes one; `None` without a server.
    pub async fn create() -> Option<Self> {
        let server = server_url()?;
        let name = format!("relais_{}", uuid::Uuid::now_v7().simple());
        let admin = connect(&server).await.expect("the test server answers");
        let schema = Self { server, name, admin };
        schema.grant().await;
        let password = schema.password();
        let password = password.map(|text| format!("PASSWORD '{text}'")).unwrap_or_default();
        let login = |role: &Role| format!("ALTER ROLE {} LOGIN {password};", schema.role(*role));
        let logins: String = ROLES.iter().map(login).collect();
        // What the superuser makes here stands for the user's own tables.
        let theirs = format!(
            "ALTER DEFAULT PRIVILEGES IN SCHEMA {} GRANT ALL ON TABLES TO {};",
            schema.name,
            schema.role(Role::Runtime)
        );
        schema.admin.batch_execute(&(logins + &theirs)).await.expect("logins");
        Some(schema)
    }

    /// Runs the script that operators run before the first migration, and after each.
    pub async fn grant(&self) {
        let sql = roles_sql(&self.name, &self.name).expect("a sound name");
        self.admin.batch_execute(&sql).await.map_err(text).expect("roles");
    }

    /// Makes the tables as their owner, and grants the others what they need.
    pub async fn migrate(&self) -> Result<MigrationOutcome, StoreError> {
        let migrated = self.store_as(Role::Owner).await.migrate().await?;
        self.grant().await;
        Ok(migrated)
    }

    /// A URL whose connections see only this schema.
    pub fn url(&self) -> String {
        self.url_as(Role::Runtime)
    }

    pub fn url_as(&self, role: Role) -> String {
        let (start, user, place) = self.parts();
        let password = user.find(':').map(|at| &user[at..]).unwrap_or_default();
        let user = match role {
            Role::Super => user.to_owned(),
            _ => format!("{}{password}", self.role(role)),
        };
        let separator = if place.contains('?') { '&' } else { '?' };
        format!("{start}://{user}@{place}{separator}options=-c%20search_path%3D{}", self.name)
    }

    /// The server and a role as PgBouncer has them in its configuration.
    pub fn pooler_target(&self, role: Role) -> String {
        let place = self.parts().2.split('?').next().unwrap_or_default();
        let (server, database) = place.split_once('/').expect("a URL with a database");
        let (host, port) = server.rsplit_once(':').unwrap_or((server, "5432"));
        let password = self.password().map(|text| format!(" password={text}")).unwrap_or_default();
        format!("host={host} port={port} dbname={database} user={}{password}", self.role(role))
    }

    /// The roles have that of the superuser, if the server asks for one.
    fn password(&self) -> Option<&str> {
        self.parts().1.split_once(':').map(|(_, password)| password)
    }

    /// Protocol, user with password, and the rest of the server's URL.
    fn parts(&self) -> (&str, &str, &str) {
        let (start, end) = self.server.split_once("://").expect("a URL");
        let (user, place) = end.split_once('@').expect("a URL with a user");
        (start, user, place)
    }

    pub fn role(&self, role: Role) -> String {
        format!("{}_{}", self.name, format!("{role:?}").to_lowercase())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// One node's store.
    pub async fn store(&self) -> PostgresStore {
        self.store_as(Role::Runtime).await
    }

    pub async fn store_as(&self, role: Role) -> PostgresStore {
        let url = self.url_as(role);
        PostgresStore::connect(&url, PostgresOptions::default()).await.expect("connect")
    }

    /// A plain connection that may do everything.
    pub async fn client(&self) -> Client {
        self.client_as(Role::Super).await
    }

    pub async fn client_as(&self, role: Role) -> Client {
        connect(&self.url_as(role)).await.map_err(text).expect("connect")
    }
}

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let roles = ROLES.map(|role| self.role(role)).join(", ");
        // A thread with a runtime of its own: this may run inside a runtime, or while unwinding.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let sql = format!(
                    "SET lock_timeout = '10s'; DROP SCHEMA {name} CASCADE; \
                     DROP OWNED BY {roles}; DROP ROLE {roles}"
                );
                let dropped = async { connect(&server).await?.batch_execute(&sql).await };
                if let Err(error) = dropped.await {
                    eprintln!("schema {name} is left behind: {}", text(error));
                }
            });
        });
        // A panic there was printed there; nothing depends on it.
        drop(dropping.join());
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

pub struct PostgresFixture {
    store: PostgresStore,
    second: PostgresStore,
    raw: Client,
    _pooler: Box<dyn Any + Send + Sync>,
    schema: PostgresSchema,
}

/// Opens an empty database; `None` without a server.
pub async fn open() -> Option<Box<dyn Fixture>> {
    let schema = PostgresSchema::create().await?;
    let url = schema.url();
    Some(Box::new(PostgresFixture::open(schema, &url, Box::new(())).await))
}

impl PostgresFixture {
    /// Opens both nodes by a URL. `pooler` ends with the fixture.
    pub async fn open(
        schema: PostgresSchema,
        url: &str,
        pooler: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let node = async || {
            PostgresStore::connect(url, PostgresOptions::default()).await.expect("connect")
        };
        let (store, second) = (node().await, node().await);
        let raw = schema.client().await;
        Self { store, second, raw, schema, _pooler: pooler }
    }
}

impl Fixture for PostgresFixture {
    fn store(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.store.clone())
    }

    fn second(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.second.clone())
    }

    fn once(
        &self,
        node: FixtureNode,
        handler: String,
        message_id: String,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        let store = match node {
            FixtureNode::First => self.store.clone(),
            FixtureNode::Second => self.second.clone(),
        };
        Box::pin(async move { store.once(handler, message_id).await })
    }

    fn credentials(&self) -> Arc<dyn relais_core::credential::Credentials> {
        Arc::new(self.store.clone())
    }

    fn migrators(&self) -> BoxFuture<'_, [Arc<dyn StoreDriver>; 2]> {
        Box::pin(async move {
            let (one, two) =
                (self.schema.store_as(Role::Owner).await, self.schema.store_as(Role::Owner).await);
            [Arc::new(one) as Arc<dyn StoreDriver>, Arc::new(two)]
        })
    }

    fn migrate(&self) -> BoxFuture<'_, Result<MigrationOutcome, StoreError>> {
        Box::pin(self.schema.migrate())
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>> {
        Box::pin(execute(&self.raw, sql))
    }

    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, String>> {
        Box::pin(async move {
            let answers = self.raw.simple_query(sql).await.map_err(text)?;
            let rows = answers.iter().filter_map(|answer| match answer {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            });
            let columns = |row: &tokio_postgres::SimpleQueryRow| {
                (0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()
            };
            Ok(rows.map(columns).collect())
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn RawTransaction>, String>> {
        Box::pin(async move {
            let client = connect(&self.schema.url_as(Role::Super)).await.map_err(text)?;
            execute(&client, "BEGIN").await?;
            Ok(Box::new(Open(client)) as Box<dyn RawTransaction>)
        })
    }
}

struct Open(Client);

impl RawTransaction for Open {
    fn execute<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>> {
        Box::pin(execute(&self.0, sql))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { execute(&self.0, "COMMIT").await.map(drop) })
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { execute(&self.0, "ROLLBACK").await.map(drop) })
    }
}

async fn execute(client: &Client, sql: &str) -> Result<u64, String> {
    let answers = client.simple_query(sql).await.map_err(text)?;
    let touched = answers.iter().rev().find_map(|answer| match answer {
        SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
        _ => None,
    });
    Ok(touched.unwrap_or(0))
}

/// Returns the message of the server, not only the kind of error.
fn text(error: tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => answer.to_string(),
        None => error.to_string(),
    }
}
