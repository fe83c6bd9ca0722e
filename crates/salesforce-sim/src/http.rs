//! HTTP: listeners, requests and responses.

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod server;
mod tls;
