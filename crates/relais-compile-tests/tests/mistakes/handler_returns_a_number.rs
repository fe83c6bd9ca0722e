//! cure: its output an `Outcome`, `()` or a `Result` of these
use relais::Received;
use tokio_postgres::Transaction;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

async fn on_payment(_: &Transaction<'_>, payment: Received<Payment>) -> i64 {
    payment.payload.cents
}

fn handler(pool: deadpool_postgres::Pool) {
    relais::postgres::handler(pool, on_payment);
}

fn main() {}
