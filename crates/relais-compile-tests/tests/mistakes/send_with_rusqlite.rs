//! cure: with rusqlite use the methods that end in `_blocking`
use relais::Outbox;

#[derive(relais::Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPaid { order_id: String }

async fn pay(tx: &mut rusqlite::Connection) -> anyhow::Result<()> {
    Outbox::to("orders").send(tx, &OrderPaid { order_id: "o-1".into() }).await?;
    Ok(())
}

fn main() {}
