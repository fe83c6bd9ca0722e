//! Rows of the outbox: look, download, retry, fail.

use axum::{extract::State, response::Response};
use relais_core::{
    dead_letter::Origin,
    outbox::{OutboxRow, OutboxStatus},
    query::Filter,
};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

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
        let store = &admin.store;
        let (reach, browse) = (|f| store.reach_outbox(f), |f| store.browse_outbox(f));
        Ok(page(filter, reach, browse, |row| row.id.to_string()).await?.map(|row| line(&row)))
    })
    .await
}

pub(crate) async fn show(
    State(admin): State<Admin>,
    Named(id): Named<String>,
) -> Answer<Shown<OutboxRow>> {
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

/// Makes a dead letter of a pending row: what [`Desk::fail`](relais::desk::Desk::fail) does.
pub(crate) async fn fail(
    State(admin): State<Admin>,
    caller: Caller,
    Named(id): Named<String>,
    Body(who): Body<Who>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        let row = find(&admin, &id).await?;
        dead_letters::said(row.id, admin.desk.fail(&row, &by).await?)
    })
    .await
}

async fn find(admin: &Admin, id: &str) -> Result<OutboxRow, Problem> {
    let mut found = match Uuid::try_parse(id) {
        Ok(message_id) => admin.store.sent_as(message_id).await?,
        Err(_) => admin.store.find_outbox(id.to_owned()).await?.into_iter().collect(),
    };
    match found.len() {
        0 => Err(Problem::not_found(format_args!("no outbox row has the id `{id}`"))),
        1 => Ok(found.remove(0)),
        _ => {
            let rows = found.iter().map(|row| format!("{} to {}", row.id, row.destination));
            let rows = rows.collect::<Vec<_>>().join(", ");
            let detail =
                format!("{} rows have the message id `{id}`: {rows}; use the row id", found.len());
            Err(Problem::conflict("AMBIGUOUS_ID", detail))
        }
    }
}
