//! HTTP: listeners, requests as they come in, answers as they go out.

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod server;
mod tls;
