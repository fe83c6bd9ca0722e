//! Messages and processes that need a person: look, mend, replay, discard.

use axum::{extract::State, http::StatusCode};
use relais::desk::{self, Basis, Insist, Rewrite, Shown};
use relais_core::{dead_letter::DeadLetter, json, query::Filter, repair::Mode, time::Timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};
use uuid::Uuid;

use super::{Answer, run};
use crate::{
    Admin,
    input::{Asked, Body, Limit, Named, Page, Who},
    problem::Problem,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// `open` (as without it), `resolved` or `all`.
    status: Option<String>,
    r#type: Option<String>,
    key: Option<String>,
    destination: Option<String>,
    since_seconds: Option<i64>,
    before: Option<Uuid>,
    #[serde(default)]
    limit: Limit,
}

impl Wanted {
    fn filter(self) -> Result<Filter, Problem> {
        let status = match self.status.as_deref().unwrap_or("open") {
            "all" => None,
            known @ ("open" | "resolved") => Some(known.to_owned()),
            _ => return Err(Problem::bad_request("`status` must be `open`, `resolved` or `all`")),
        };
        Ok(Filter {
            status,
            event_type: self.r#type,
            key: self.key,
            destination: self.destination,
            since_seconds: self.since_seconds,
            before: self.before.map(|id| id.to_string()),
            limit: self.limit.get()?,
        })
    }
}

/// Newest first.
pub(super) async fn list(
    State(admin): State<Admin>,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Page<DeadLetter>> {
    let filter = wanted.filter()?;
    run(async move {
        let limit = filter.limit;
        let letters = admin.desk.list(filter).await?;
        Ok(Page::of(letters, limit, |letter| letter.id.to_string()))
    })
    .await
}

pub(super) async fn show(State(admin): State<Admin>, Named(id): Named<Uuid>) -> Answer<Shown> {
    run(async move { admin.desk.show(id).await?.ok_or_else(|| not_found(id)) }).await
}

/// Another payload, and who gives it why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// Taken byte for byte.
    payload: Box<RawValue>,
    /// `edited_at` as it was when somebody looked: refuses to write over what another person wrote.
    #[serde(default, deserialize_with = "present")]
    edited_at: Option<Option<Timestamp>>,
    /// Take it even if the rehearsal does not.
    #[serde(default)]
    force: bool,
    /// Only rehearse it.
    #[serde(default)]
    dry_run: bool,
    actor: String,
    reason: String,
}

/// Tells `null` from nothing.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<Timestamp>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// Gives it and its row another payload; it stays a dead letter until it is replayed.
pub(super) async fn edit(
    State(admin): State<Admin>,
    Named(id): Named<Uuid>,
    Body(edit): Body<Edit>,
) -> Answer<Value> {
    let by = Who { actor: edit.actor, reason: edit.reason }.by()?;
    let payload = edit.payload.get();
    json::check(payload.as_bytes()).map_err(|error| Problem::unprocessable(error.code(), error))?;
    let payload = payload.to_owned();
    let insist = if edit.force { Insist::Forced } else { Insist::Rehearsed };
    let mode = if edit.dry_run { Mode::Try } else { Mode::Write };
    run(async move {
        let basis = basis(&admin, id, edit.edited_at).await?;
        let rewrite = Rewrite { payload, basis, insist, mode };
        said(id, admin.desk.edit(id, rewrite, &by).await?)
    })
    .await
}

/// A time is shown in milliseconds and kept in microseconds: the one that was shown is the one that is
/// kept, if it would be shown so.
async fn basis(admin: &Admin, id: Uuid, seen: Option<Option<Timestamp>>) -> Result<Basis, Problem> {
    let Some(seen) = seen else { return Ok(Basis::AsItIs) };
    let letter = admin.store.find_dead_letter(id).await?;
    let kept = letter.and_then(|letter| letter.edited_at);
    let same = kept.map(|at| at.to_string()) == seen.map(|at| at.to_string());
    Ok(Basis::Seen(if same { kept } else { seen }))
}

/// Tries it again: first in its key, attempts from zero.
pub(super) async fn replay(
    State(admin): State<Admin>,
    Named(id): Named<Uuid>,
    Body(who): Body<Who>,
) -> Answer<Value> {
    let by = who.by()?;
    run(async move { said(id, admin.desk.replay(id, &by).await?) }).await
}

/// Leaves it failed and lets its key go on.
pub(super) async fn discard(
    State(admin): State<Admin>,
    Named(id): Named<Uuid>,
    Body(who): Body<Who>,
) -> Answer<Value> {
    let by = who.by()?;
    run(async move { said(id, admin.desk.discard(id, &by).await?) }).await
}

fn said(id: Uuid, answer: desk::Answer) -> Result<Value, Problem> {
    match answer {
        desk::Answer::Done => Ok(serde_json::json!({ "result": "done" })),
        desk::Answer::NotFound => Err(not_found(id)),
        desk::Answer::ResolvedBefore { resolution, by, at } => Err(Problem::conflict(
            "RESOLVED_BEFORE",
            format_args!("`{by}` was faster: it is {resolution} since {at}; nothing was changed"),
        )),
        desk::Answer::EditedMeanwhile { by, at } => Err(Problem::conflict(
            "EDITED_MEANWHILE",
            format_args!("`{by}` gave it another payload at {at}; look at that, then edit again"),
        )),
        desk::Answer::WouldFail { problem } => {
            Err(Problem::of(StatusCode::UNPROCESSABLE_ENTITY, &problem))
        }
        desk::Answer::Refused { problem } => Err(Problem::of(StatusCode::CONFLICT, &problem)),
    }
}

fn not_found(id: Uuid) -> Problem {
    Problem::not_found(format_args!("no dead letter has the id {id}"))
}
