//! cure: expected function signature `fn(&Rates, &mut PgConnection, relais::Received<Payment>) -> _`
use relais::Received;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

struct Rates;

async fn on_payment(_: &mut PgConnection, _: &Rates, payment: Received<Payment>) -> anyhow::Result<()> {
    println!("{}", payment.payload.cents);
    Ok(())
}

fn handler(pool: sqlx::PgPool) {
    relais::postgres::sqlx_handler_with::<Payment, Rates, _>(pool, Rates, on_payment);
}

fn main() {}
