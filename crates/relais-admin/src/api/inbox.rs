//! Rows of the inbox: look, download, retry.

use axum::{extract::State, response::Response};
use relais_core::{
    dead_letter::Origin,
    inbox::{InboxRow, InboxStatus},
    query::Filter,
    repair::original,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Answer, dead_letters, page,
    payload::{Content, SHOWN_MAX, Shown, attachment, cut, line},
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
    status: Option<String>,
    r#type: Option<Text>,
    key: Option<Text>,
    source: Option<Text>,
    code: Option<Text>,
    #[serde(default)]
    since_seconds: Since,
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

impl Wanted {
    fn filter(self) -> Result<Filter, Problem> {
        Ok(Filter {
            status: known("status", self.status, &InboxStatus::ALL.map(InboxStatus::as_str))?,
            event_type: self.r#type.map(String::from),
            key: self.key.map(String::from),
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
        let (reach, browse) = (|f| store.reach_inbox(f), |f| store.browse_inbox(f));
        Ok(page(filter, reach, browse, |row| row.id.to_string()).await?.map(|row| line(&row)))
    })
    .await
}

pub(crate) async fn show(
    State(admin): State<Admin>,
    Named(id): Named<String>,
) -> Answer<Shown<InboxRow>> {
    run(async move {
        let mut row = find(&admin, &id).await?;
        let history = admin.store.attempts(Origin::Inbox, row.id).await?;
        let payload_bytes = match &mut row.payload {
            Some(payload) => cut(payload, SHOWN_MAX),
            None => original(&row).map_or(0, |bytes| bytes.len()),
        };
        // The bytes are shown by /serde-errors/{id}, and downloaded whole.
        row.raw_payload_base64 = None;
        let shown = row.payload.as_ref().map_or(0, String::len);
        Ok(Shown { payload_truncated: payload_bytes > shown, payload_bytes, history, row })
    })
    .await
}

/// The whole payload; of a row that could not be read, its bytes.
pub(crate) async fn payload(
    State(admin): State<Admin>,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    perform(async move {
        let _room = admin.room().await;
        let row = find(&admin, &id).await?;
        let name = format!("inbox-{}", row.id);
        Ok(match row.payload {
            Some(payload) => attachment(&format!("{name}.json"), Content::Text(payload)),
            None => {
                let bytes = original(&row)
                    .map_err(|problem| Problem::conflict(&problem.code, problem.message))?;
                attachment(&format!("{name}.bin"), Content::Bytes(bytes))
            }
        })
    })
    .await
}

/// Tries a failed row again: what [`Desk::replay`](relais::desk::Desk::replay) does to its dead letter.
pub(crate) async fn retry(
    State(admin): State<Admin>,
    caller: Caller,
    Named(id): Named<String>,
    Body(who): Body<Who>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        let row = find(&admin, &id).await?;
        let (origin, status) = (Origin::Inbox, row.status.as_str());
        dead_letters::retry_row(&admin, (origin, row.id), &row.msg_key, status, &by).await
    })
    .await
}

async fn find(admin: &Admin, id: &str) -> Result<InboxRow, Problem> {
    let found = admin.store.find_inbox(id.to_owned()).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("no inbox row has the id `{id}`")))
}
