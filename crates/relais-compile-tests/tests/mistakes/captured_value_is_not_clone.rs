//! cure: captured values must be `Clone + Send + Sync`: wrap a shared value in `Arc`
use std::sync::Mutex;

use relais::Received;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

fn handler(pool: sqlx::PgPool) {
    let total = Mutex::new(0);
    relais::postgres::sqlx_handler(pool, async move |_: &mut PgConnection, m: Received<Payment>| {
        *total.lock().unwrap() += m.payload.cents;
    });
}

fn main() {}
