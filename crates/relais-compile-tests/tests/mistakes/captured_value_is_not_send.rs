//! cure: use no `Rc` or `RefCell`
use std::rc::Rc;

use relais::Received;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

fn handler(pool: sqlx::PgPool) {
    let name = Rc::new("billing".to_owned());
    relais::postgres::sqlx_handler(pool, async move |_: &mut PgConnection, m: Received<Payment>| {
        println!("{name} {}", m.payload.cents);
    });
}

fn main() {}
