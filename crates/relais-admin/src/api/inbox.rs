//! Inbox rows: list, show, download and retry.

use axum::{extract::State, response::Response};
use relais_core::{
    dead_letter::Origin,
    id_prefix::IdKind,
    inbox::{InboxRow, InboxStatus},
    inspect::{InspectExt, PayloadPart},
    repair::original,
};
use serde_json::Value;

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

row_query!(InboxQuery, i64, [key, source, code]);

/// Lists inbox rows, newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    QueryParams(wanted): QueryParams<InboxQuery>,
) -> Answer<ListPage<Value>> {
    let filter = wanted.filter(&InboxStatus::ALL.map(InboxStatus::as_str))?;
    run(async move {
        let store = &admin.store;
        let read = |filter| store.inbox_page(filter, PayloadPart::BoundedPreview);
        Ok(page(filter, read, |row| row.id.to_string()).await?.map(|row| line(&row)))
    })
    .await
}

pub(crate) async fn show(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Answer<RowDetail<InboxRow>> {
    run(async move {
        let mut row = find(&admin, &id).await?;
        let history = admin.store.trail(row.message_id.clone()).await?;
        let history = history.attempts_of(Origin::Inbox, row.id);
        let payload_bytes = match &mut row.payload {
            Some(payload) => cut(payload, SHOWN_MAX),
            None => original(&row).map_or(0, |bytes| bytes.len()),
        };
        // The bytes are shown by /serde-errors/{id}, and downloaded whole.
        row.raw_payload_base64 = None;
        let shown = row.payload.as_ref().map_or(0, String::len);
        Ok(RowDetail { payload_truncated: payload_bytes > shown, payload_bytes, history, row })
    })
    .await
}

/// Returns the whole payload; for an undecodable row, its bytes.
pub(crate) async fn payload(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Result<Response, ApiProblem> {
    perform(async move {
        let _room = admin.room().await;
        let row = find(&admin, &id).await?;
        let name = format!("inbox-{}", row.id);
        Ok(match row.payload {
            Some(payload) => attachment(&format!("{name}.json"), DownloadContent::Text(payload)),
            None => {
                let bytes = original(&row)
                    .map_err(|problem| ApiProblem::conflict(&problem.code, problem.message))?;
                attachment(&format!("{name}.bin"), DownloadContent::Bytes(bytes))
            }
        })
    })
    .await
}

/// Retries a failed row: calls [`DeadLetters::replay`](relais::dead_letters::DeadLetters::replay) for its dead letter.
pub(crate) async fn retry(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<String>,
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        let row = find(&admin, &id).await?;
        let (origin, status) = (Origin::Inbox, row.status.as_str());
        dead_letters::retry_row(&admin, (origin, row.id), &row.msg_key, status, &by).await
    })
    .await
}

async fn find(admin: &Admin, id: &str) -> Result<InboxRow, ApiProblem> {
    let mut found = admin.store.find_inbox(id.to_owned()).await?;
    if found.is_none()
        && let Some(message) = by_prefix(admin, IdKind::InboxMessage, id).await?
    {
        found = admin.store.find_inbox(message).await?;
    }
    found.ok_or_else(|| ApiProblem::not_found(format_args!("no inbox row has the id `{id}`")))
}
