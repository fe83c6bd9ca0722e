//! cure: wrap the function: `relais::postgres::sqlx_handler(pool, function)`
use relais::{App, Received};
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

async fn on_payment(_: &mut PgConnection, payment: Received<Payment>) -> anyhow::Result<()> {
    println!("{}", payment.payload.cents);
    Ok(())
}

fn run(app: App) -> App {
    app.handle("PaymentReceived", on_payment)
}

fn main() {}
