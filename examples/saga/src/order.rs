//! The process: stock is reserved, money is taken, the parcel goes out; and backwards if it does not.

use std::time::Duration;

use relais::{
    Message, RetryPolicy,
    process::{Definition, Meaning, command, define},
};
use serde::{Deserialize, Serialize};

/// The data of an order process.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    order_id: String,
    cents: i64,
    payment_id: Option<String>,
}

#[derive(Message, Serialize, Deserialize)]
#[message(name = "OrderPlaced", aggregate = "Order", key = "order_id")]
pub(crate) struct OrderPlaced {
    pub(crate) order_id: String,
    pub(crate) cents: i64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(name = "ReserveStock", aggregate = "Order", key = "order_id")]
struct ReserveStock {
    order_id: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(name = "ReleaseStock", aggregate = "Order", key = "order_id")]
struct ReleaseStock {
    order_id: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(name = "TakePayment", aggregate = "Order", key = "order_id")]
struct TakePayment {
    order_id: String,
    cents: i64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(name = "RefundPayment", aggregate = "Order", key = "order_id")]
struct RefundPayment {
    order_id: String,
    payment_id: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(name = "ShipParcel", aggregate = "Order", key = "order_id")]
struct ShipParcel {
    order_id: String,
}

#[derive(Deserialize)]
struct PaymentTaken {
    payment_id: String,
}

#[derive(Deserialize)]
struct Refused {
    reason: String,
}

/// A reply that says all with its name.
#[derive(Deserialize)]
struct Plain {}

/// Without an answer for so long a command is sent again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn definition() -> anyhow::Result<Definition> {
    let reserve =
        command("stock", |order: &Order| ReserveStock { order_id: order.order_id.clone() })
            .on_named("StockReserved", |_, _: Plain| ())
            .on_named("StockBusy", |_, _: Plain| Meaning::retryable("the warehouse is busy"))
            .timeout(PATIENCE);
    let release =
        command("stock", |order: &Order| ReleaseStock { order_id: order.order_id.clone() })
            .on_named("StockReleased", |_, _: Plain| ())
            .timeout(PATIENCE);
    let pay = command("payments", |order: &Order| TakePayment {
        order_id: order.order_id.clone(),
        cents: order.cents,
    })
    .on_named("PaymentTaken", |order, taken: PaymentTaken| {
        order.payment_id = Some(taken.payment_id)
    })
    .on_named("PaymentRefused", |_, refused: Refused| Meaning::failed(refused.reason))
    .timeout(PATIENCE);
    let refund = command("payments", |order: &Order| {
        let payment_id = order.payment_id.clone().ok_or("there is no payment to give back")?;
        Ok::<_, &str>(RefundPayment { order_id: order.order_id.clone(), payment_id })
    })
    .on_named("PaymentRefunded", |_, _: Plain| ())
    .timeout(PATIENCE);
    let ship = command("shipping", |order: &Order| ShipParcel { order_id: order.order_id.clone() })
        .on_named("ParcelShipped", |_, _: Plain| ())
        .on_named("ParcelRefused", |_, refused: Refused| Meaning::failed(refused.reason))
        .timeout(PATIENCE)
        .retry(RetryPolicy::default().attempts_max(3));

    let definition = define::<Order>("Order", 1)
        .starts_on(|placed: OrderPlaced| {
            let OrderPlaced { order_id, cents } = placed;
            (order_id.clone(), Order { order_id, cents, payment_id: None })
        })
        .reversible_step("stock", reserve, release)
        .reversible_step("payment", pay, refund)
        .step("shipment", ship)
        .build()?;
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_in_the_docs_is_that_of_the_definition() {
        let page = include_str!("../../../docs/saga.md");
        let diagram = definition().unwrap().diagram();
        let block = format!("```mermaid\n{diagram}```\n");
        assert!(page.contains(&block), "put this into docs/saga.md:\n{block}");
    }
}
