//! Who is logged in, and as what.

use axum::Json;
use relais_core::time::Timestamp;
use serde::Serialize;

use crate::{
    Role,
    access::{Caller, Identity},
};

#[derive(Serialize)]
pub(crate) struct Shown {
    /// None without tokens.
    name: Option<String>,
    role: Role,
    /// What unsafe requests must repeat in the header `x-csrf-token`; none without a session.
    csrf: Option<String>,
    /// There are no tokens: whoever is at this machine may do everything, and says who they are.
    loopback: bool,
    expires: Option<Timestamp>,
}

pub(crate) async fn show(caller: Caller) -> Json<Shown> {
    let session = caller.identity.session();
    let name = match &caller.identity {
        Identity::Anybody => None,
        Identity::Shared { name, .. } | Identity::Named { name, .. } => Some(name.clone()),
    };
    Json(Shown {
        loopback: name.is_none(),
        role: caller.role,
        csrf: session.map(|session| session.csrf.clone()),
        expires: session.map(|session| {
            Timestamp(i64::try_from(session.expires).unwrap_or(i64::MAX).saturating_mul(1_000_000))
        }),
        name,
    })
}
