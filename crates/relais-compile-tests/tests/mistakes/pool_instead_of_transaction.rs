//! cure: begin a transaction on the pool, connection or client and pass it: `let mut tx = pool.begin().await?
use relais::Outbox;

#[derive(relais::Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPaid { order_id: String }

async fn pay(mut pool: sqlx::PgPool) -> anyhow::Result<()> {
    Outbox::to("orders").send(&mut pool, &OrderPaid { order_id: "o-1".into() }).await?;
    Ok(())
}

fn main() {}
