//! cure: expected `async fn(&mut SqliteConnection, Received<M>) -> impl IntoOutcome`
use relais::Received;
use sqlx::SqliteConnection;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

fn on_payment(_: &mut SqliteConnection, payment: Received<Payment>) -> anyhow::Result<()> {
    println!("{}", payment.payload.cents);
    Ok(())
}

fn handler(pool: sqlx::SqlitePool) {
    relais::sqlite::sqlx_handler(pool, on_payment);
}

fn main() {}
