//! The locks that a settlement takes in an adopted table.

use relais_core::outbox::OutboxFate;
use relais_store::adopt::{AdoptDestination, AdoptPreset, Adoption};
use tokio_postgres::types::ToSql;

use crate::{
    bed::{Bed, DESTINATION},
    support::postgres::Role,
};

/// A wait for the rows of a batch is short, so that one may pass unseen.
const ROUNDS: i32 = 20;

fn adoption() -> Adoption {
    let to = AdoptDestination::Name(DESTINATION.to_owned());
    let mut adoption = Adoption::new("app_outbox", AdoptPreset::Custom, to);
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    adoption.columns = pairs(&[("id", "id"), ("payload", "body"), ("status", "state")]);
    adoption.states = pairs(&[("new", "open"), ("sent", "gone"), ("failed", "bad")]);
    adoption
}

/// While a settlement waits for the row with the lowest key, it has locked none of the others, although their copies
/// come first. So two settlements, or a settlement and an application that keeps to the order, cannot wait for each
/// other.
#[tokio::test]
async fn a_settlement_locks_rows_of_the_application_in_the_order_of_their_keys() {
    let Some(bed) = Bed::new().await else { return };
    let table = "CREATE TABLE app_outbox (id bigint PRIMARY KEY, body text NOT NULL, \
                 state varchar(10) NOT NULL DEFAULT 'open')";
    bed.raw.batch_execute(table).await.unwrap();
    let runtime = bed.schema.role(Role::Runtime);
    let grant = format!("GRANT SELECT, UPDATE ON app_outbox TO \"{runtime}\"");
    bed.raw.batch_execute(&grant).await.unwrap();
    let owner = bed.schema.store_as(Role::Super).await;
    owner.install_adoptions(vec![adoption()]).await.unwrap();
    bed.store.adopt(vec![adoption()]).await.unwrap();
    let lanes = bed.lanes().await;
    let holder = bed.schema.client().await;
    let holder_id: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let free = "SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM app_outbox FOR UPDATE SKIP LOCKED) AS f \
                WHERE EXISTS (SELECT FROM pg_stat_activity AS a WHERE $1 = ANY (pg_blocking_pids(a.pid)))";
    let blocker: [&(dyn ToSql + Sync); 1] = [&holder_id];
    for round in 0..ROUNDS {
        let insert = "INSERT INTO app_outbox (id, body) VALUES (3, '[3]'), (2, '[2]'), (1, '[1]')";
        bed.raw.batch_execute(&format!("DELETE FROM app_outbox; {insert}")).await.unwrap();
        let rows = bed.fetch(&lanes).await;
        let bodies: Vec<&str> = rows.iter().map(|row| row.payload.as_str()).collect();
        assert_eq!(bodies, ["[3]", "[2]", "[1]"]);
        let held = "BEGIN; SELECT FROM app_outbox WHERE id = 1 FOR UPDATE";
        holder.batch_execute(held).await.unwrap();
        let mut settled = Box::pin(bed.settle(&rows, &lanes, &OutboxFate::Dispatched));
        let mut seen = false;
        loop {
            tokio::select! {
                outcome = &mut settled => { assert_eq!(outcome.settled, 3); break; }
                found = bed.raw.query_one(free, &blocker) => {
                    let free: Option<Vec<i64>> = found.unwrap().get(0);
                    seen |= free.is_some_and(|free| free == [2, 3]);
                }
            }
        }
        holder.batch_execute("ROLLBACK").await.unwrap();
        drop(settled);
        if seen {
            println!("seen in round {round}");
            return;
        }
        // Rows whose results wait would be requested again by the next INSERT.
        bed.raw
            .batch_execute("DELETE FROM relais_adopted_change; DELETE FROM relais_outbox")
            .await
            .unwrap();
    }
    panic!("the others were locked while it waited for the first key");
}
