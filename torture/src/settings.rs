//! The `relais.toml` of an arena.

use std::net::SocketAddr;

use crate::faults::LEASE;

pub(crate) fn text(store: &str, sink: SocketAddr) -> String {
    let lease = LEASE.as_secs();
    format!(
        r#"[store]
url = "{store}"
migrate = false

[lanes]
lease = "{lease}s"

[admin]
listen = "127.0.0.1:0"

[[source]]
name = "hook"
kind = "http"
listen = "127.0.0.1:0"
source_system = "shop"
message_id = "header:message-id"
event_type = "payload:/type"
aggregate_id = "payload:/key"

[[route]]
on = "Heard"
destination = "sink"

[[destination]]
name = "sink"
kind = "http"
url = "http://{sink}/sink"
allow_private = true

[destination.retry]
attempts = 1000
first = "20ms"
max = "500ms"

[destination.limits]
concurrency = 32
timeout = "2s"

[destination.breaker]
open_for = "300ms"
"#
    )
}
