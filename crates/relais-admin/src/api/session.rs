//! The session of the caller.

use axum::Json;
use relais_core::time::Timestamp;
use serde::Serialize;

use crate::{
    Role,
    access::{AdminCaller, CallerIdentity},
};

#[derive(Serialize)]
pub(crate) struct SessionResponse {
    /// The name of the token; absent without tokens.
    name: Option<String>,
    role: Role,
    /// The value that unsafe requests must repeat in the header `x-csrf-token`; absent without a session.
    csrf: Option<String>,
    /// True without tokens: every caller on this machine has the role admin and names the actor.
    loopback: bool,
    expires: Option<Timestamp>,
}

pub(crate) async fn show(caller: AdminCaller) -> Json<SessionResponse> {
    let session = caller.identity.session();
    let name = match &caller.identity {
        CallerIdentity::Local => None,
        CallerIdentity::Shared { name, .. } | CallerIdentity::Named { name, .. } => {
            Some(name.clone())
        }
    };
    Json(SessionResponse {
        loopback: name.is_none(),
        role: caller.role,
        csrf: session.map(|session| session.csrf.clone()),
        expires: session.map(|session| {
            Timestamp(i64::try_from(session.expires).unwrap_or(i64::MAX).saturating_mul(1_000_000))
        }),
        name,
    })
}
