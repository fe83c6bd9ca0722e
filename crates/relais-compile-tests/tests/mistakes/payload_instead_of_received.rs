//! cure: expected function signature `fn(&mut PgConnection, relais::Received<_>) -> _`
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

async fn on_payment(_: &mut PgConnection, payment: Payment) -> anyhow::Result<()> {
    println!("{}", payment.cents);
    Ok(())
}

fn handler(pool: sqlx::PgPool) {
    relais::postgres::sqlx_handler(pool, on_payment);
}

fn main() {}
