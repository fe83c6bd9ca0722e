//! The `relais.toml` of a run.

use std::net::SocketAddr;

use crate::faults::LEASE;

/// `hook` is the path of the source.
pub(crate) fn text(store: &str, sink: SocketAddr, hook: &str) -> String {
    let lease = LEASE.as_secs();
    format!(
        r#"[store]
url = "{store}"
migrate = false

[lanes]
lease = "{lease}s"

# Finished rows are removed during the run; ids of received messages are kept for longer than senders
# repeat them. Retention must be longer than all retries of a message, so these are short.
[retention]
dispatched = "12s"
processed = "60s"

[inbox.retry]
attempts = 400
first = "10ms"
max = "20ms"

[admin]
listen = "127.0.0.1:0"

[[source]]
name = "{hook}"
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
attempts = 400
first = "10ms"
max = "20ms"

[destination.limits]
concurrency = 32
timeout = "2s"

[destination.breaker]
open_for = "300ms"
"#
    )
}
