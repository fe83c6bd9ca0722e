//! Keys held back behind a dead letter: which, and letting them go on.

use axum::extract::State;
use relais::desk::{By, Desk, HeldKey, Summary};
use relais_core::{dead_letter::Origin, query::ParkedKey};
use serde::Deserialize;

use super::{Answer, run};
use crate::{
    Admin,
    access::Caller,
    input::{Asked, Body, Limit, Page, Text, Who},
    problem::Problem,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    limit: Limit,
}

/// Longest held first. There is no next page: those come into view as the first are decided.
pub(crate) async fn list(
    State(admin): State<Admin>,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Page<ParkedKey>> {
    let limit = wanted.limit.get()?;
    run(async move {
        let keys = admin.desk.parked_keys(limit).await?;
        Ok(Page::of(keys, usize::MAX, |_| String::new()))
    })
    .await
}

/// Which key, and who decides why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decision {
    /// `inbox` or `outbox`.
    origin: String,
    /// Of an outbox key.
    destination: Option<Text>,
    key: Text,
    actor: Option<String>,
    reason: String,
}

/// Replays everything dead of the key in order; then it goes on.
pub(crate) async fn release(
    State(admin): State<Admin>,
    caller: Caller,
    Body(decision): Body<Decision>,
) -> Answer<Summary> {
    run(async move {
        let (key, by) = held(&admin.desk, decision, &caller).await?;
        Ok(admin.desk.release_key(&key, &by).await?)
    })
    .await
}

/// Discards everything dead of the key; then it goes on.
pub(crate) async fn skip(
    State(admin): State<Admin>,
    caller: Caller,
    Body(decision): Body<Decision>,
) -> Answer<Summary> {
    run(async move {
        let (key, by) = held(&admin.desk, decision, &caller).await?;
        Ok(admin.desk.skip_key(&key, &by).await?)
    })
    .await
}

async fn held(desk: &Desk, decision: Decision, caller: &Caller) -> Result<(HeldKey, By), Problem> {
    let Decision { origin, destination, key: Text(key), actor, reason } = decision;
    let destination = destination.map(String::from);
    let by = Who { actor, reason }.by(caller)?;
    let Some(origin @ (Origin::Inbox | Origin::Outbox)) = Origin::parse(&origin) else {
        return Err(Problem::unprocessable("INVALID", "`origin` must be `inbox` or `outbox`"));
    };
    let found = desk.held(&key).await?.into_iter();
    let found = found.filter(|held| held.origin == origin && held.destination == destination);
    found.map(|held| (held, by.clone())).next().ok_or_else(|| {
        Problem::not_found(format_args!(
            "no dead letter holds the key `{key}` back there; GET /api/v1/parked-keys lists those that \
             are held"
        ))
    })
}
