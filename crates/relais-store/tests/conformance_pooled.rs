//! The store for PostgreSQL keeps the whole contract of the seam behind PgBouncer in transaction mode, too.

#![cfg(feature = "postgres")]
// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Each test program uses its own part of these.
#[allow(dead_code)]
#[path = "connections/cluster.rs"]
mod cluster;
mod support;

use relais_store_tests::fixture::Fixture;

use cluster::Bouncer;
use support::postgres::{PostgresFixture, PostgresSchema, Role};

/// An empty database behind a PgBouncer with three sessions, for both nodes.
async fn open() -> Option<Box<dyn Fixture>> {
    let schema = PostgresSchema::create().await?;
    let bouncer = Bouncer::start_at(&schema.pooler_target(Role::Runtime), "").await?;
    // A pooler takes no options of a connection, so the role has the schema.
    let sql =
        format!("ALTER ROLE {} SET search_path = {}", schema.role(Role::Runtime), schema.name());
    schema.client().await.batch_execute(&sql).await.expect("a role");
    let url = bouncer.url("tx");
    Some(Box::new(PostgresFixture::open(schema, &url, Box::new(bouncer)).await))
}

relais_store_tests::store_conformance!(crate::open);
