//! Messages and processes that need a person: look, mend, replay, discard.

use axum::{extract::State, http::StatusCode, response::Response};
use relais::desk::{self, Basis, By, Insist, Rewrite};
use relais_core::{dead_letter::Origin, json, query::Filter, repair::Mode, time::Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, value::RawValue};
use uuid::Uuid;

use super::{
    Answer, page,
    payload::{Content, SHOWN_MAX, attachment, cut, line},
    perform, run,
};
use crate::{
    Admin,
    access::Caller,
    input::{Asked, Body, Limit, Named, Page, Since, Text, Who, known},
    problem::Problem,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// `open` (as without it), `resolved` or `all`.
    status: Option<String>,
    r#type: Option<Text>,
    key: Option<Text>,
    destination: Option<Text>,
    source: Option<Text>,
    code: Option<Text>,
    #[serde(default)]
    since_seconds: Since,
    before: Option<Uuid>,
    #[serde(default)]
    limit: Limit,
}

impl Wanted {
    fn filter(self) -> Result<Filter, Problem> {
        let status = known("status", self.status, &["open", "resolved", "all"])?;
        let status = status.unwrap_or_else(|| "open".to_owned());
        Ok(Filter {
            status: Some(status).filter(|status| status != "all"),
            event_type: self.r#type.map(String::from),
            key: self.key.map(String::from),
            destination: self.destination.map(String::from),
            source: self.source.map(String::from),
            code: self.code.map(String::from),
            since_seconds: self.since_seconds.get()?,
            before: self.before.map(|id| id.to_string()),
            limit: self.limit.get()?,
            ..Filter::default()
        })
    }
}

/// Newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Page<Value>> {
    let filter = wanted.filter()?;
    run(async move {
        let store = &admin.store;
        let (reach, browse) = (|f| store.reach_dead_letters(f), |f| store.browse_dead_letters(f));
        Ok(page(filter, reach, browse, |row| row.id.to_string()).await?.map(|row| line(&row)))
    })
    .await
}

/// One with what there is to know of it; a large payload is cut.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    shown: desk::Shown,
    payload_bytes: usize,
    payload_truncated: bool,
}

pub(crate) async fn show(State(admin): State<Admin>, Named(id): Named<Uuid>) -> Answer<Shown> {
    run(async move {
        let mut shown = admin.desk.show(id).await?.ok_or_else(|| not_found(id))?;
        let payload_bytes =
            shown.letter.payload.as_mut().map_or(0, |payload| cut(payload, SHOWN_MAX));
        let payload_truncated = payload_bytes > SHOWN_MAX;
        if let Some(original) = &mut shown.letter.original_payload {
            cut(original, SHOWN_MAX);
        }
        Ok(Shown { shown, payload_bytes, payload_truncated })
    })
    .await
}

pub(crate) async fn payload(
    State(admin): State<Admin>,
    Named(id): Named<Uuid>,
) -> Result<Response, Problem> {
    perform(async move {
        let _room = admin.room().await;
        let letter = admin.store.find_dead_letter(id).await?.ok_or_else(|| not_found(id))?;
        let payload = letter.payload.unwrap_or_default();
        Ok(attachment(&format!("dead-letter-{id}.json"), Content::Text(payload)))
    })
    .await
}

/// Another payload, and who gives it why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
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
    actor: Option<String>,
    reason: String,
}

/// Tells `null` from nothing.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<Timestamp>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// Gives it and its row another payload; it stays a dead letter until it is replayed.
pub(crate) async fn edit(
    State(admin): State<Admin>,
    caller: Caller,
    Named(id): Named<Uuid>,
    Body(edit): Body<Edit>,
) -> Answer<Value> {
    let by = Who { actor: edit.actor, reason: edit.reason }.by(&caller)?;
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
pub(crate) async fn replay(
    State(admin): State<Admin>,
    caller: Caller,
    Named(id): Named<Uuid>,
    Body(who): Body<Who>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move { said(id, admin.desk.replay(id, &by).await?) }).await
}

/// Leaves it failed and lets its key go on.
pub(crate) async fn discard(
    State(admin): State<Admin>,
    caller: Caller,
    Named(id): Named<Uuid>,
    Body(who): Body<Who>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move { said(id, admin.desk.discard(id, &by).await?) }).await
}

/// Replays the dead letter of a row of the inbox or the outbox.
pub(crate) async fn retry_row(
    admin: &Admin,
    (origin, row): (Origin, i64),
    key: &str,
    status: &str,
    by: &By,
) -> Result<Value, Problem> {
    let letter = admin.desk.letter_of(origin, row, key).await?;
    let letter = letter.ok_or_else(|| {
        Problem::conflict(
            "NOT_FAILED",
            format_args!(
                "{} row {row} is {status} and has no open dead letter; only a failed row can be \
                 retried, and somebody may have been faster",
                origin.as_str()
            ),
        )
    })?;
    said(letter.id, admin.desk.replay(letter.id, by).await?)
}

pub(super) fn said(id: impl std::fmt::Display, answer: desk::Answer) -> Result<Value, Problem> {
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

fn not_found(id: impl std::fmt::Display) -> Problem {
    Problem::not_found(format_args!("no dead letter has the id {id}"))
}
