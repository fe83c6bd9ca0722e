//! cure: key
#[derive(relais::Message, serde::Serialize)]
#[message(aggregate = "Order")]
struct OrderPaid { order_id: String }

fn main() {}
