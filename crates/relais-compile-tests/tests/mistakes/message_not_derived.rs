//! cure: derive it: `#[derive(relais::Message, serde::Serialize)]`
use relais::Outbox;

#[derive(serde::Serialize)]
struct OrderPaid { order_id: String }

async fn pay(tx: &mut sqlx::PgConnection) -> anyhow::Result<()> {
    Outbox::to("orders").send(tx, &OrderPaid { order_id: "o-1".into() }).await?;
    Ok(())
}

fn main() {}
