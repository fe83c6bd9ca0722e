//! cure: begin a transaction on the pool, connection or client and pass it
use relais::Outbox;

#[derive(relais::Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPaid { order_id: String }

async fn pay(client: &mut tokio_postgres::Client) -> anyhow::Result<()> {
    Outbox::to("orders").send(client, &OrderPaid { order_id: "o-1".into() }).await?;
    Ok(())
}

fn main() {}
