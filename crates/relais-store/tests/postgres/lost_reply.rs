//! The commit happened and its answer never came: a caller that asks again must find its own work, not do it
//! a second time.
//!
//! A deferred trigger holds each commit until the test lets it go, so the answer to exactly the commit is
//! lost, whatever the network does.

use std::{sync::Arc, time::Duration};

use relais_core::{
    delivery::Problem,
    handler::{HandleOutcome, Handler},
    inbox::{AcceptOutcome, SourcePosition},
    outbox::{OutboxFate, OutboxSettlement},
    store::{Store, StoreError},
};
use relais_store::postgres::{PostgresOptions, PostgresStore, handler};
use relais_testkit::{
    build,
    proxy::{Fault, FaultProxy},
};

use crate::bed::{Bed, book, fence, message, outbox};

/// The lock a commit waits for; each test has a schema, and so a number, of its own.
struct Gate {
    bed: Bed,
    proxy: FaultProxy,
    /// A node whose every byte goes through the proxy.
    far: PostgresStore,
}

impl Gate {
    /// Commits that touch `table` wait at the gate.
    async fn before_commits_of(table: &str) -> Option<Self> {
        let bed = Bed::new().await?;
        let hold = format!(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 PERFORM pg_advisory_xact_lock_shared('{table}'::regclass::oid::bigint);
                 RETURN NULL;
             END $$;
             CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON {table}
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();"
        );
        bed.raw.batch_execute(&hold).await.unwrap();
        let url = bed.schema.url();
        let host = host(&url);
        let place = if host.contains(':') { host.to_owned() } else { format!("{host}:5432") };
        let server = tokio::net::lookup_host(place).await.unwrap().next().unwrap();
        let proxy = FaultProxy::to(server).await.unwrap();
        let options = PostgresOptions::default().connections_max(4);
        let far = PostgresStore::connect(&through(&bed, &proxy), options).await.unwrap();
        Some(Self { bed, proxy, far })
    }

    /// Runs `work` until it commits, and loses the answer to the commit.
    async fn lose_answer<T: Send + 'static>(
        &self,
        table: &str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let number = format!("'{table}'::regclass::oid::bigint");
        let raw = &self.bed.raw;
        raw.batch_execute(&format!("SELECT pg_advisory_lock({number})")).await.unwrap();
        let work = tokio::spawn(work);
        let waiting = format!(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
             AND objid = '{table}'::regclass::oid"
        );
        while raw.query(&waiting, &[]).await.unwrap().is_empty() {
            assert!(!work.is_finished(), "it must come to its commit");
            tokio::task::yield_now().await;
        }
        let before = self.proxy.traffic().dropped;
        self.proxy.set(Fault::DropReplies);
        raw.batch_execute(&format!("SELECT pg_advisory_unlock({number})")).await.unwrap();
        let answer = work.await.unwrap();
        assert!(self.proxy.traffic().dropped > before, "the answer was lost on the way");
        self.proxy.set(Fault::None);
        answer
    }
}

/// The URL of the bed's schema, by way of the proxy.
fn through(bed: &Bed, proxy: &FaultProxy) -> String {
    let url = bed.schema.url();
    url.replacen(host(&url), &proxy.address().to_string(), 1)
}

/// `host:port` of a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    rest.split(['/', '?']).next().unwrap().rsplit('@').next().unwrap()
}

fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
}

#[tokio::test]
async fn a_batch_that_was_stored_without_an_answer_is_a_duplicate_when_it_comes_again() {
    let Some(gate) = Gate::before_commits_of("relais_inbox").await else { return };
    let batch = vec![build::arrival("m-1"), build::arrival("m-2")];
    let position = SourcePosition { source: "members".into(), partition: "0".into(), position: 2 };
    let (far, again) = (gate.far.clone(), (batch.clone(), vec![position.clone()]));
    let lost = gate.lose_answer("relais_inbox", async move { far.accept(again.0, again.1).await });
    assert_unavailable(lost.await);
    assert_eq!(gate.bed.count("relais_inbox").await, 2, "it was committed all the same");
    let answers = gate.far.accept(batch, vec![position]).await.unwrap();
    assert_eq!(answers, [AcceptOutcome::Duplicate, AcceptOutcome::Duplicate]);
    assert_eq!(gate.bed.count("relais_inbox").await, 2);
    assert_eq!(gate.far.positions("members".into()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_message_that_was_sent_without_an_answer_is_one_row_when_it_is_sent_again() {
    let Some(gate) = Gate::before_commits_of("relais_outbox").await else { return };
    let sent = message("k");
    let (far, first) = (gate.far.clone(), sent.clone());
    let lost = gate.lose_answer("relais_outbox", async move { far.enqueue(vec![first]).await });
    assert_unavailable(lost.await);
    let again = gate.far.enqueue(vec![sent]).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(gate.bed.count("relais_outbox").await, 1);
}

#[tokio::test]
async fn an_attempt_that_was_counted_without_an_answer_is_not_counted_twice() {
    let Some(gate) = Gate::before_commits_of("relais_outbox").await else { return };
    let lanes = gate.bed.lanes().await;
    gate.bed.send("k").await;
    let row = gate.bed.fetch(&lanes).await.remove(0);
    let epoch = lanes.iter().find(|lane| lane.lane == row.lane).unwrap().epoch;
    let later = OutboxFate::Retry {
        attempts: 1,
        pause: Duration::from_secs(60),
        problem: Problem::new("LATER", "not now"),
    };
    for (attempts, fate) in [(1, later), (2, OutboxFate::Dispatched)] {
        let settlement = OutboxSettlement { id: row.id, lane: row.lane, epoch, fate };
        let (far, rows) = (gate.far.clone(), vec![settlement.clone()]);
        let lost = gate.lose_answer("relais_outbox", async move {
            far.settle_outbox(fence(outbox(), "w1"), rows).await
        });
        assert_unavailable(lost.await);
        gate.far.settle_outbox(fence(outbox(), "w1"), vec![settlement]).await.unwrap();
        assert_eq!(gate.bed.count(&format!("relais_outbox WHERE attempts = {attempts}")).await, 1);
    }
    assert_eq!(gate.bed.count("relais_outbox WHERE status = 'DISPATCHED'").await, 1);
}

/// The effect is there, once, and the row knows.
async fn check_handler(gate: &Gate, handler: Arc<dyn Handler>) {
    let work = gate.bed.work(r#"{"id":"o-1"}"#).await;
    let (first, lost) = (Arc::clone(&handler), work.clone());
    let handled = gate.lose_answer("orders", async move { first.handle(lost).await }).await;
    assert!(matches!(handled, HandleOutcome::SessionLost(_)), "{handled:?}");
    assert_eq!(gate.bed.count("orders").await, 1, "it was committed all the same");
    // Without its primary key only the mark on the row shows it.
    gate.bed.raw.batch_execute("DELETE FROM orders").await.unwrap();
    let handled = handler.handle(work).await;
    assert!(matches!(handled, HandleOutcome::Refused), "{handled:?}");
    assert_eq!(gate.bed.count("orders").await, 0, "nothing happened twice");
    assert_eq!(gate.bed.count("relais_inbox WHERE status = 'PROCESSED'").await, 1);
}

#[tokio::test]
async fn a_handler_whose_commit_was_not_answered_has_one_effect() {
    let Some(gate) = Gate::before_commits_of("orders").await else { return };
    check_handler(&gate, handler(gate.far.pool(), book)).await;
}

#[cfg(feature = "sqlx-postgres")]
mod with_sqlx {
    use relais_core::handler::Received;
    use relais_store::postgres::sqlx_handler;
    use sqlx::{PgConnection, postgres::PgPoolOptions};

    use super::{Gate, check_handler, through};

    async fn book(
        tx: &mut PgConnection,
        order: Received<serde_json::Value>,
    ) -> Result<(), sqlx::Error> {
        let id = order.payload["id"].as_str().unwrap_or_default();
        sqlx::query("INSERT INTO orders VALUES ($1)").bind(id).execute(tx).await.map(drop)
    }

    #[tokio::test]
    async fn a_sqlx_handler_whose_commit_was_not_answered_has_one_effect() {
        let Some(gate) = Gate::before_commits_of("orders").await else { return };
        let url = through(&gate.bed, &gate.proxy);
        let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        check_handler(&gate, sqlx_handler(pool, book)).await;
    }
}

/// The answer to what asks for the list of migrations is lost: that says nothing about the table.
#[tokio::test]
async fn a_connection_lost_while_the_schema_is_read_blames_no_table() {
    let Some(gate) = Gate::before_commits_of("relais_inbox").await else { return };
    let raw = gate.bed.schema.client_as(crate::support::postgres::Role::Super).await;
    raw.batch_execute("BEGIN; LOCK TABLE relais_schema IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let far = gate.far.clone();
    let check = tokio::spawn(async move { far.check().await });
    let waiting =
        "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'relais_schema'::regclass";
    while raw.query(waiting, &[]).await.unwrap().is_empty() {
        assert!(!check.is_finished(), "it must ask for the list");
        tokio::task::yield_now().await;
    }
    gate.proxy.set(Fault::Cut);
    let lost = check.await.unwrap();
    raw.batch_execute("ROLLBACK").await.unwrap();
    let Err(StoreError::Unavailable(text)) = lost else { panic!("{lost:?}") };
    assert!(!text.contains("drop"), "{text}");
}
