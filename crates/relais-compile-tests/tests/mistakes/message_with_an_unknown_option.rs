//! cure: destination
#[derive(relais::Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id", topic = "orders")]
struct OrderPaid { order_id: String }

fn main() {}
