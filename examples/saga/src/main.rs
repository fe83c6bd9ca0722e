//! Orders that need stock, a payment and a shipment, in three services that refuse, are busy, answer late
//! and answer twice; and relais dies in the middle.
//!
//! `cargo run -p saga` runs in a temporary directory and ends by itself, well only if every order either
//! has all three or nothing of them.

mod order;
mod services;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use relais::{
    App, Mapping, Pick,
    http::{HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceError, HttpSourceSettings},
    process::{Action, Operator, Process, ProcessFilter, ProcessRef, ProcessStatus},
    sqlite::{SqliteOptions, SqliteStore},
};

use order::OrderPlaced;
use services::Services;

/// Orders placed.
const ORDERS: usize = 60;
const CENTS: i64 = 1_999;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    run(dir.path()).await
}

async fn run(dir: &Path) -> anyhow::Result<()> {
    let store = SqliteStore::open(&dir.join("orders.db"), SqliteOptions::default()).await?;
    store.migrate().await?;

    let source = listen("127.0.0.1:0".parse()?).await?;
    let address = source.local_addr();
    let services = Services::new(format!("http://{address}/orders"));
    let commands = services.listen().await?;
    let running = app(store.clone(), source, &commands)?.start();

    let operator = Operator::new(Arc::new(store.clone()), vec![order::definition()?]);
    place(address, 0..ORDERS / 2).await?;
    let held = hold(&operator, "order-1").await?;
    // Nothing is finished: this is a crash.
    drop(running);
    println!("{} orders placed, then relais died; it starts again", ORDERS / 2);

    let source = listen(address).await?;
    let running = app(store.clone(), source, &commands)?.start();
    place(address, ORDERS / 2..ORDERS).await?;
    if held {
        let order = find(&operator, "order-1").await?;
        operator.act(order.process_id, Action::Resume, "ann", "looked at it").await?;
    }
    let orders = ended(&operator).await?;
    running.stop().await;
    report(&operator, &orders, &services).await
}

/// Receives orders and replies.
async fn listen(address: SocketAddr) -> anyhow::Result<HttpSource> {
    let mapping = Mapping::json("shop").event_type(Pick::header("event-type"));
    let settings = HttpSourceSettings::new("orders", address, mapping);
    loop {
        match HttpSource::bind(settings.clone()).await {
            // The one that died may take a moment to let go of it.
            Err(HttpSourceError::Listen { .. }) if address.port() != 0 => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            bound => return Ok(bound?),
        }
    }
}

fn app(store: SqliteStore, source: HttpSource, commands: &str) -> anyhow::Result<App> {
    let mut app = App::new(Arc::new(store))
        .source("orders", Box::new(source))
        .process(order::definition()?)
        .lease(Duration::from_secs(1));
    for service in ["stock", "payments", "shipping"] {
        let mut settings = HttpPublisherSettings::new(&format!("{commands}/{service}"));
        settings.allow_private = true;
        let publisher = HttpPublisher::new(settings)?;
        app = app.destination(service, Arc::new(publisher));
    }
    Ok(app)
}

async fn place(address: SocketAddr, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let client = reqwest::Client::new();
    for number in numbers {
        let order = OrderPlaced { order_id: format!("order-{number}"), cents: CENTS };
        let request = client.post(format!("http://{address}/orders"));
        let request = request
            .header("message-id", &order.order_id)
            .header("event-type", "OrderPlaced")
            .header("content-type", "application/json");
        let answer = request.body(serde_json::to_string(&order)?).send().await?;
        anyhow::ensure!(answer.status().is_success(), "order {number}: {}", answer.status());
    }
    Ok(())
}

/// An operator acts on one order; it may be too late for that.
async fn hold(operator: &Operator, order: &str) -> anyhow::Result<bool> {
    let order = find(operator, order).await?;
    let paused = operator.act(order.process_id, Action::Pause, "ann", "a call from the customer");
    Ok(paused.await.is_ok())
}

async fn find(operator: &Operator, order: &str) -> anyhow::Result<Process> {
    let key = ProcessRef::Key { process_type: "Order".into(), business_key: order.into() };
    loop {
        if let Some(process) = operator.find(key.clone()).await? {
            return Ok(process);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until every order has come to its end.
async fn ended(operator: &Operator) -> anyhow::Result<Vec<Process>> {
    loop {
        let filter = ProcessFilter { limit: ORDERS, ..ProcessFilter::default() };
        let orders = operator.list(filter).await?;
        if orders.len() == ORDERS && orders.iter().all(|order| order.status.is_final()) {
            return Ok(orders);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Shows one order, and proves all of them.
async fn report(
    operator: &Operator,
    orders: &[Process],
    services: &Services,
) -> anyhow::Result<()> {
    let undone = find(operator, "order-4").await?;
    println!("\norder-4, whose address does not exist:");
    for line in operator.log(undone.process_id, None, 100).await?.iter().rev() {
        let event = serde_json::to_value(&line.entry.event)?;
        let step = event["step"].as_str().unwrap_or_default();
        println!("  {:>2} {} {step}", line.seq, line.entry.event.name());
    }
    let count = |status| orders.iter().filter(|order| order.status == status).count();
    let succeeded = count(ProcessStatus::Succeeded);
    println!(
        "\n{succeeded} orders succeeded, {} were undone, {} failed with nothing to undo",
        count(ProcessStatus::Compensated),
        count(ProcessStatus::Failed)
    );
    let ledger = services.ledger();
    println!(
        "{} commands came twice and had one effect; {} effects were undone",
        ledger.repeated, ledger.undone
    );

    anyhow::ensure!(ledger.shipped.len() == succeeded, "{} parcels", ledger.shipped.len());
    anyhow::ensure!(ledger.reserved == ledger.shipped, "stock is reserved for nothing");
    let paid = ledger.payments.values().sum::<i64>();
    anyhow::ensure!(paid == CENTS * i64::try_from(succeeded)?, "{paid} cents were taken");
    anyhow::ensure!(ledger.payments.keys().all(|order| ledger.shipped.contains(order)));
    println!("every order that succeeded has stock, payment and parcel; no other has any of them");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tokio::test(flavor = "multi_thread")]
    async fn every_order_has_all_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        super::run(dir.path()).await.unwrap();
    }
}
