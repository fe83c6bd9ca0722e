//! cure: expected `async fn(&tokio_postgres::Transaction<'_>, Received<M>) -> impl IntoOutcome`
use relais::Received;
use tokio_postgres::Transaction;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

fn on_payment(_: &Transaction<'_>, payment: Received<Payment>) -> anyhow::Result<()> {
    println!("{}", payment.payload.cents);
    Ok(())
}

fn handler(pool: deadpool_postgres::Pool) {
    relais::postgres::handler::<Payment, _>(pool, on_payment);
}

fn main() {}
