//! Outbox rows: list, show, download, retry and fail.

use axum::{extract::State, response::Response};
use relais_core::{
    dead_letter::Origin,
    id_prefix::IdKind,
    inspect::{InspectExt, PayloadPart},
    outbox::{OutboxRow, OutboxStatus},
};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Answer, by_prefix, dead_letters, page,
    payload::{DownloadContent, RowDetail, SHOWN_MAX, attachment, cut, line},
    perform,
    row_query::row_query,
    run,
};
use crate::{
    Admin,
    access::AdminCaller,
    input::{ActorAndReason, JsonBody, ListPage, PathParams, QueryParams},
    problem::ApiProblem,
};

row_query!(OutboxQuery, i64, [key, destination, code]);

/// Lists outbox rows, newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    QueryParams(wanted): QueryParams<OutboxQuery>,
) -> Answer<ListPage<Value>> {
    let filter = wanted.filter(&OutboxStatus::ALL.map(OutboxStatus::as_str))?;
    run(async move {
        let store = &admin.store;
        let read = |filter| store.outbox_page(filter, PayloadPart::BoundedPreview);
        Ok(page(filter, read, |row| row.id.to_string()).await?.map(|row| line(&row)))
    })
    .await
}

pub(crate) async fn show(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Answer<RowDetail<OutboxRow>> {
    run(async move {
        let mut row = find(&admin, &id).await?;
        let history = admin.store.trail(row.message_id.to_string()).await?;
        let history = history.attempts_of(Origin::Outbox, row.id);
        let payload_bytes = cut(&mut row.payload, SHOWN_MAX);
        let payload_truncated = payload_bytes > row.payload.len();
        Ok(RowDetail { payload_truncated, payload_bytes, history, row })
    })
    .await
}

pub(crate) async fn payload(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Result<Response, ApiProblem> {
    perform(async move {
        let _room = admin.room().await;
        let row = find(&admin, &id).await?;
        Ok(attachment(&format!("outbox-{}.json", row.id), DownloadContent::Text(row.payload)))
    })
    .await
}

/// Retries a failed row: calls [`DeadLetters::replay`](relais::dead_letters::DeadLetters::replay) for its dead letter.
/// Sends a pending row now: calls [`DeadLetters::send_now`](relais::dead_letters::DeadLetters::send_now).
pub(crate) async fn retry(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<String>,
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        let row = find(&admin, &id).await?;
        if row.status == OutboxStatus::Pending {
            return dead_letters::said(row.id, admin.dead_letters.send_now(&row, &by).await?);
        }
        let (origin, status) = (Origin::Outbox, row.status.as_str());
        dead_letters::retry_row(&admin, (origin, row.id), &row.msg_key, status, &by).await
    })
    .await
}

/// Turns a pending row into a dead letter: calls [`DeadLetters::fail`](relais::dead_letters::DeadLetters::fail).
pub(crate) async fn fail(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<String>,
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        let row = find(&admin, &id).await?;
        dead_letters::said(row.id, admin.dead_letters.fail(&row, &by).await?)
    })
    .await
}

async fn find(admin: &Admin, id: &str) -> Result<OutboxRow, ApiProblem> {
    let mut found = match Uuid::try_parse(id) {
        Ok(_) => admin.store.trail(id.to_owned()).await?.sent,
        Err(_) => admin.store.find_outbox(id.to_owned()).await?.into_iter().collect(),
    };
    if found.is_empty()
        && let Some(message) = by_prefix(admin, IdKind::OutboxMessage, id).await?
    {
        found = admin.store.trail(message).await?.sent;
    }
    match found.len() {
        0 => Err(ApiProblem::not_found(format_args!("no outbox row has the id `{id}`"))),
        1 => Ok(found.remove(0)),
        _ => {
            let rows = found.iter().map(|row| format!("{} to {}", row.id, row.destination));
            let rows = rows.collect::<Vec<_>>().join(", ");
            let detail =
                format!("{} rows have the message id `{id}`: {rows}; use the row id", found.len());
            Err(ApiProblem::conflict("AMBIGUOUS_ID", detail))
        }
    }
}
