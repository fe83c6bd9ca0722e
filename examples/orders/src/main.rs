//! An order service that publishes events, and a shipping service that handles them.
//!
//! `cargo run -p orders` places orders and prints their events. With a Kafka broker the events go
//! through it to the second service, while everything that can go wrong does:
//!
//! ```text
//! cargo xtask server        # starts one, says where
//! KAFKA_BROKERS=127.0.0.1:9092 cargo run -p orders --features kafka
//! ```
//!
//! It works in a temporary directory and ends by itself.

mod database;
mod orders;
#[cfg(feature = "kafka")]
mod shipping;
#[cfg(feature = "kafka")]
mod through_kafka;

use std::sync::Arc;

use relais::log::LogPublisher;

use orders::OrderService;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let service = OrderService::open(&dir.path().join("orders.db")).await?;
    for (customer, total_cents) in [("ann", 1_999), ("bob", 4_200), ("ann", 350)] {
        let id = service.place(customer, total_cents).await?;
        eprintln!("order {id} of {customer} placed");
    }
    let refused = service.place("eve", -1).await.expect_err("a negative total is refused");
    eprintln!("order of eve refused: {refused}");

    #[cfg(feature = "kafka")]
    if let Some(brokers) = brokers() {
        through_kafka::run(&service, dir.path(), &brokers).await?;
        service.close().await;
        return Ok(());
    }
    let published = service.publish(Arc::new(LogPublisher::stdout())).await?;
    eprintln!("{published} events published, none for the refused order");
    eprintln!("the shipping service did not run: {HOW}");
    service.close().await;
    Ok(())
}

const HOW: &str = "use `--features kafka` and set KAFKA_BROKERS=host:port; `cargo xtask server` \
                   starts a broker and says where";

/// Variables with the address of Kafka; `cargo xtask server` prints the second.
#[cfg(feature = "kafka")]
fn brokers() -> Option<String> {
    ["KAFKA_BROKERS", "RELAIS_TEST_KAFKA"].into_iter().find_map(|name| std::env::var(name).ok())
}
