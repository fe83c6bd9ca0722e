//! Your own publisher: delivers messages to a system that relais does not know.
//!
//! `cargo run -p relais --features sqlite --example own_publisher`

use std::sync::{Arc, Mutex, PoisonError};

use relais::{App, Delivery, Message, Outbox, OutboxRow, Publisher, async_trait};
use relais_testkit::{Database, scratch};

#[derive(Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPlaced {
    order_id: String,
    cents: i64,
}

/// Stands for the client of another system.
#[derive(Default)]
struct Pager(Mutex<Vec<String>>);

#[async_trait]
impl Publisher for Pager {
    /// A publisher returns no error: it classifies the result for each message.
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let send = |row: &OutboxRow| match row.payload.len() {
            0..=80 => {
                let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                sent.push(format!("{} {}", row.event_type, row.payload));
                Delivery::Accepted // the target has it
            }
            // A dead letter. `retry` tries it again; `outage` pauses the whole destination.
            _ => Delivery::reject("TOO_LONG", "longer than a page"),
        };
        messages.iter().map(send).collect()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = scratch::sqlite().await; // a service opens a `SqliteStore`
    let order = |order_id| OrderPlaced { order_id, cents: 1_999 };
    for order_id in ["o-1".to_owned(), "o-2".repeat(40)] {
        // Most services send in a transaction of their own: see the other examples.
        db.enqueue(vec![Outbox::to("pager").message(&order(order_id))?]).await?;
    }

    let pager = Arc::new(Pager::default());
    let running = App::new(db.store()).destination("pager", pager.clone()).start();
    running.stop_when_idle().await?;

    let sent = pager.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let dead = db.overview().await?.dead_letters_open;
    println!("sent: {sent:?}, dead letters: {dead}");
    anyhow::ensure!(sent.len() == 1 && dead == 1, "one is sent, one is refused");
    Ok(())
}
