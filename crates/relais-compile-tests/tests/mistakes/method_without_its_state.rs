//! cure: a method, or a function whose first argument is a state, goes to `sqlx_handler_with`
use relais::Received;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

struct Billing;

impl Billing {
    async fn on_payment(&self, _: &mut PgConnection, payment: Received<Payment>) -> anyhow::Result<()> {
        println!("{}", payment.payload.cents);
        Ok(())
    }
}

fn handler(pool: sqlx::PgPool) {
    relais::postgres::sqlx_handler(pool, Billing::on_payment);
}

fn main() {}
