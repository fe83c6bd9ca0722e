//! Keys parked behind a dead letter: list, release and discard.

use axum::extract::State;
use relais::dead_letters::{DeadLetters, DecisionAuthor, DecisionSummary, KeyLetters};
use relais_core::{dead_letter::Origin, query::ParkedKey};
use serde::Deserialize;

use super::{Answer, run};
use crate::{
    Admin,
    access::AdminCaller,
    input::{ActorAndReason, FilterText, JsonBody, Limit, ListPage, QueryParams},
    problem::ApiProblem,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParkedKeyQuery {
    #[serde(default)]
    limit: Limit,
}

/// Lists parked keys, longest parked first. There is no next page: further keys appear as the first ones are
/// decided.
pub(crate) async fn list(
    State(admin): State<Admin>,
    QueryParams(wanted): QueryParams<ParkedKeyQuery>,
) -> Answer<ListPage<ParkedKey>> {
    let limit = wanted.limit.get()?;
    run(async move {
        let keys = admin.dead_letters.parked_keys(limit).await?;
        Ok(ListPage::of(keys, usize::MAX, |_| String::new()))
    })
    .await
}

/// A parked key, with actor and reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyDecision {
    /// `inbox` or `outbox`.
    origin: String,
    /// The destination of an outbox key.
    destination: Option<FilterText>,
    key: FilterText,
    actor: Option<String>,
    reason: String,
}

/// Retries all dead letters of the key in order; then delivery continues.
pub(crate) async fn release(
    State(admin): State<Admin>,
    caller: AdminCaller,
    JsonBody(decision): JsonBody<KeyDecision>,
) -> Answer<DecisionSummary> {
    run(async move {
        let (key, by) = held(&admin.dead_letters, decision, &caller).await?;
        Ok(admin.dead_letters.release_key(&key, &by).await?)
    })
    .await
}

/// Discards all dead letters of the key; then delivery continues.
pub(crate) async fn skip(
    State(admin): State<Admin>,
    caller: AdminCaller,
    JsonBody(decision): JsonBody<KeyDecision>,
) -> Answer<DecisionSummary> {
    run(async move {
        let (key, by) = held(&admin.dead_letters, decision, &caller).await?;
        Ok(admin.dead_letters.skip_key(&key, &by).await?)
    })
    .await
}

async fn held(
    dead_letters: &DeadLetters,
    decision: KeyDecision,
    caller: &AdminCaller,
) -> Result<(KeyLetters, DecisionAuthor), ApiProblem> {
    let KeyDecision { origin, destination, key: FilterText(key), actor, reason } = decision;
    let destination = destination.map(String::from);
    let by = ActorAndReason { actor, reason }.by(caller)?;
    let Some(origin @ (Origin::Inbox | Origin::Outbox)) = Origin::parse(&origin) else {
        return Err(ApiProblem::unprocessable("INVALID", "`origin` must be `inbox` or `outbox`"));
    };
    let found = dead_letters.of_key(&key).await?.into_iter();
    let found = found.filter(|held| held.origin == origin && held.destination == destination);
    found.map(|held| (held, by.clone())).next().ok_or_else(|| {
        ApiProblem::not_found(format_args!(
            "the key `{key}` is not parked there; GET /api/v1/parked-keys lists the parked keys"
        ))
    })
}
