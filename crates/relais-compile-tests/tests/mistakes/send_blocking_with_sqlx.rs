//! cure: with sqlx and tokio-postgres use the methods without `_blocking`
use relais::Outbox;

#[derive(relais::Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPaid { order_id: String }

fn pay(tx: &sqlx::SqliteConnection) -> anyhow::Result<()> {
    Outbox::to("orders").send_blocking(tx, &OrderPaid { order_id: "o-1".into() })?;
    Ok(())
}

fn main() {}
