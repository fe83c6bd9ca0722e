//! Rows of the outbox: look, download, retry.

use axum::{extract::State, response::Response};
use relais_core::{
    dead_letter::Origin,
    desk::Attempt,
    outbox::{OutboxRow, OutboxStatus},
    query::Filter,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Answer, dead_letters,
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
    status: Option<String>,
    r#type: Option<Text>,
    key: Option<Text>,
    destination: Option<Text>,
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
            status: known("status", self.status, &OutboxStatus::ALL.map(OutboxStatus::as_str))?,
            event_type: self.r#type.map(String::from),
            key: self.key.map(String::from),
            destination: self.destination.map(String::from),
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
        let reach = admin.store.reach_outbox(filter.clone()).await?;
        let (limit, filter) = (filter.limit, Filter { down_to: reach.down_to, ..filter });
        let rows = admin.store.browse_outbox(filter).await?;
        let page = Page::of(rows, limit, |listed| listed.row.id.to_string());
        Ok(page.or_next(reach.next).map(|row| line(&row)))
    })
    .await
}

/// A row with what there is to know of it; a large payload is cut.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    row: OutboxRow,
    payload_bytes: usize,
    payload_truncated: bool,
    /// What was tried and failed, oldest first.
    history: Vec<Attempt>,
}

pub(crate) async fn show(State(admin): State<Admin>, Named(id): Named<String>) -> Answer<Shown> {
    run(async move {
        let mut row = find(&admin, &id).await?;
        let history = admin.store.attempts(Origin::Outbox, row.id).await?;
        let payload_bytes = cut(&mut row.payload, SHOWN_MAX);
        let payload_truncated = payload_bytes > row.payload.len();
        Ok(Shown { payload_truncated, payload_bytes, history, row })
    })
    .await
}

pub(crate) async fn payload(
    State(admin): State<Admin>,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    perform(async move {
        let _room = admin.room().await;
        let row = find(&admin, &id).await?;
        Ok(attachment(&format!("outbox-{}.json", row.id), Content::Text(row.payload)))
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
        let (origin, status) = (Origin::Outbox, row.status.as_str());
        dead_letters::retry_row(&admin, (origin, row.id), &row.msg_key, status, &by).await
    })
    .await
}

async fn find(admin: &Admin, id: &str) -> Result<OutboxRow, Problem> {
    let found = admin.store.find_outbox(id.to_owned()).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("no outbox row has the id `{id}`")))
}
