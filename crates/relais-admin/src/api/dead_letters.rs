//! Dead letters: list, show, edit, retry and discard.

use axum::{extract::State, http::StatusCode, response::Response};
use relais::dead_letters::{self, Basis, DecisionAuthor, EditValidation, PayloadEdit};
use relais_core::{
    dead_letter::Origin,
    id_prefix::{IdKind, IdPrefix},
    inspect::{InspectExt, PayloadPart},
    repair::Mode,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Answer, by_prefix, page,
    payload::{DownloadContent, RequestPayload, SHOWN_MAX, attachment, cut, line},
    perform,
    row_query::row_query,
    run,
};
use crate::{
    Admin,
    access::AdminCaller,
    input::{ActorAndReason, JsonBody, ListPage, PathParams, QueryParams, present},
    problem::ApiProblem,
};

row_query!(DeadLetterQuery, Uuid, [key, destination, source, code]);

/// Lists dead letters, newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    QueryParams(wanted): QueryParams<DeadLetterQuery>,
) -> Answer<ListPage<Value>> {
    let mut filter = wanted.filter(&["open", "resolved", "all"])?;
    let status = filter.status.unwrap_or_else(|| "open".to_owned());
    filter.status = Some(status).filter(|status| status != "all");
    run(async move {
        let store = &admin.store;
        let read = |filter| store.dead_letter_page(filter, PayloadPart::BoundedPreview);
        Ok(page(filter, read, |row| row.id.to_string()).await?.map(|row| line(&row)))
    })
    .await
}

/// A dead letter with its details; a large payload is truncated.
#[derive(Serialize)]
pub(crate) struct DeadLetterView {
    #[serde(flatten)]
    shown: dead_letters::DeadLetterDetail,
    payload_bytes: usize,
    payload_truncated: bool,
}

pub(crate) async fn show(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Answer<DeadLetterView> {
    run(async move {
        let id = letter_id(&admin, &id).await?;
        let mut shown = admin.dead_letters.show(id).await?.ok_or_else(|| not_found(id))?;
        let payload_bytes =
            shown.letter.payload.as_mut().map_or(0, |payload| cut(payload, SHOWN_MAX));
        let payload_truncated = payload_bytes > SHOWN_MAX;
        if let Some(original) = &mut shown.letter.original_payload {
            cut(original, SHOWN_MAX);
        }
        Ok(DeadLetterView { shown, payload_bytes, payload_truncated })
    })
    .await
}

pub(crate) async fn payload(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Result<Response, ApiProblem> {
    perform(async move {
        let _room = admin.room().await;
        let id = letter_id(&admin, &id).await?;
        let letter = admin.store.find_dead_letter(id).await?.ok_or_else(|| not_found(id))?;
        let payload = letter.payload.unwrap_or_default();
        Ok(attachment(&format!("dead-letter-{id}.json"), DownloadContent::Text(payload)))
    })
    .await
}

/// A changed payload, with actor and reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditRequest {
    /// Saved byte for byte.
    payload: RequestPayload,
    /// The `edited_at` that the caller has read. A mismatch is refused, so that no edit overwrites another.
    #[serde(default, deserialize_with = "present")]
    edited_at: Option<Option<Timestamp>>,
    /// Saves it even if validation fails.
    #[serde(default)]
    force: bool,
    /// Only validates it.
    #[serde(default)]
    dry_run: bool,
    actor: Option<String>,
    reason: String,
}

/// Changes the payload of a dead letter and its row; it stays a dead letter until it is retried.
pub(crate) async fn edit(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<String>,
    JsonBody(edit): JsonBody<EditRequest>,
) -> Answer<Value> {
    let by = ActorAndReason { actor: edit.actor, reason: edit.reason }.by(&caller)?;
    let payload = edit.payload.text_or_string()?;
    let insist = if edit.force { EditValidation::Skipped } else { EditValidation::Required };
    let mode = if edit.dry_run { Mode::Try } else { Mode::Write };
    run(async move {
        let id = letter_id(&admin, &id).await?;
        let basis = basis(&admin, id, edit.edited_at).await?;
        let rewrite = PayloadEdit { payload, basis, insist, mode };
        said(id, admin.dead_letters.edit(id, rewrite, &by).await?)
    })
    .await
}

/// Compares the caller's `edited_at` with the stored one in milliseconds, the precision of the API, and returns
/// the stored one, in microseconds, if they are equal.
async fn basis(
    admin: &Admin,
    id: Uuid,
    seen: Option<Option<Timestamp>>,
) -> Result<Basis, ApiProblem> {
    let Some(seen) = seen else { return Ok(Basis::AsItIs) };
    let letter = admin.store.find_dead_letter(id).await?;
    let kept = letter.and_then(|letter| letter.edited_at);
    let same = kept.map(|at| at.to_string()) == seen.map(|at| at.to_string());
    Ok(Basis::Seen(if same { kept } else { seen }))
}

/// Retries a dead letter ahead of other messages of its key and resets its attempt count.
pub(crate) async fn replay(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<String>,
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        let id = letter_id(&admin, &id).await?;
        said(id, admin.dead_letters.retry(id, &by).await?)
    })
    .await
}

/// Discards a dead letter; delivery of its key continues.
pub(crate) async fn discard(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<String>,
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        let id = letter_id(&admin, &id).await?;
        said(id, admin.dead_letters.discard(id, &by).await?)
    })
    .await
}

/// Retries the dead letter of a row of the inbox or the outbox.
pub(crate) async fn retry_row(
    admin: &Admin,
    (origin, row): (Origin, i64),
    key: &str,
    status: &str,
    by: &DecisionAuthor,
) -> Result<Value, ApiProblem> {
    let letter = admin.dead_letters.letter_of(origin, row, key).await?;
    let letter = letter.ok_or_else(|| {
        ApiProblem::conflict(
            "NOT_FAILED",
            format_args!(
                "cannot retry {} row {row}: it is {status} and has no open dead letter; only a failed row \
                 can be retried",
                origin.as_str()
            ),
        )
    })?;
    said(letter.id, admin.dead_letters.retry(letter.id, by).await?)
}

pub(super) fn said(
    id: impl std::fmt::Display,
    answer: dead_letters::DecisionOutcome,
) -> Result<Value, ApiProblem> {
    match answer {
        dead_letters::DecisionOutcome::Done => Ok(serde_json::json!({ "result": "done" })),
        dead_letters::DecisionOutcome::NotFound => Err(not_found(id)),
        dead_letters::DecisionOutcome::ResolvedBefore { resolution, by, at } => {
            Err(ApiProblem::conflict(
                "RESOLVED_BEFORE",
                format_args!("already {resolution} by `{by}` at {at}; nothing was changed"),
            ))
        }
        dead_letters::DecisionOutcome::EditedMeanwhile { by, at } => Err(ApiProblem::conflict(
            "EDITED_MEANWHILE",
            format_args!("`{by}` changed the payload at {at}; read it, then edit again"),
        )),
        dead_letters::DecisionOutcome::WouldFail { problem } => {
            Err(ApiProblem::of(StatusCode::UNPROCESSABLE_ENTITY, &problem))
        }
        dead_letters::DecisionOutcome::Refused { problem } => {
            Err(ApiProblem::of(StatusCode::CONFLICT, &problem))
        }
    }
}

/// Returns the id of the path, of which the first digits are enough.
async fn letter_id(admin: &Admin, id: &str) -> Result<Uuid, ApiProblem> {
    let prefix = IdPrefix::parse(IdKind::DeadLetter, id).ok_or_else(|| {
        ApiProblem::bad_request(format_args!("`{id}` is not the id of a dead letter"))
    })?;
    if let Some(id) = prefix.whole() {
        return Ok(id);
    }
    let found = by_prefix(admin, IdKind::DeadLetter, id).await?;
    found.and_then(|id| Uuid::try_parse(&id).ok()).ok_or_else(|| not_found(id))
}

fn not_found(id: impl std::fmt::Display) -> ApiProblem {
    ApiProblem::not_found(format_args!("no dead letter has the id {id}"))
}
