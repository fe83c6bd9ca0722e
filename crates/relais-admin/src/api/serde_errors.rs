//! Undecodable rows: list, show, reprocess and discard.

use std::{ops::ControlFlow, time::Instant};

use axum::{extract::State, http::StatusCode};
use base64::{Engine, engine::general_purpose::STANDARD};
use relais::{
    dead_letters::DecisionAuthor,
    repair::{
        self, Decoder, Fix, Identity, Mode, RepairOutcome, RepairPlan, RepairReport, SerdeErrors,
    },
};
use relais_core::{
    inbox::{InboxRow, InboxStatus},
    inspect::{InspectExt, ListedRow, PayloadPart},
    message::Headers,
    query::Filter,
    repair::original,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Answer,
    bulk::{ROWS_MAX, TIME_MAX, bounded, chosen},
    dead_letters, page,
    payload::{RAW_SHOWN_MAX, RequestPayload},
    run,
};
use crate::{
    Admin, Role,
    access::{AdminCaller, not_allowed},
    input::{
        ActorAndReason, FilterText, JsonBody, JsonObject, Limit, ListPage, PathParams, QueryParams,
        Since, WholeNumber,
    },
    problem::ApiProblem,
};

/// Rows that one request reprocesses by default.
const ROWS: u32 = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UndecodableQuery {
    source: Option<FilterText>,
    code: Option<FilterText>,
    key: Option<FilterText>,
    #[serde(default)]
    since_seconds: Since,
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

/// An undecodable row of the list.
#[derive(Serialize)]
pub(crate) struct UndecodableItem {
    id: i64,
    source: String,
    topic: String,
    partition: i32,
    offset: i64,
    key: String,
    message_id: String,
    code: Option<String>,
    message: Option<String>,
    stage: Option<String>,
    bytes: u64,
    received_at: Timestamp,
}

impl UndecodableItem {
    fn of(row: InboxRow, bytes: u64) -> Self {
        Self {
            id: row.id,
            source: row.source_system,
            topic: row.topic,
            partition: row.partition_num,
            offset: row.offset_num,
            key: row.msg_key,
            message_id: row.message_id,
            code: row.error_code,
            message: row.error_message,
            stage: row.error_stage,
            bytes,
            received_at: row.received_at,
        }
    }
}

/// Lists undecodable rows, newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    QueryParams(wanted): QueryParams<UndecodableQuery>,
) -> Answer<ListPage<UndecodableItem>> {
    let filter = Filter {
        status: Some(InboxStatus::SerdeError.as_str().to_owned()),
        source: wanted.source.map(String::from),
        code: wanted.code.map(String::from),
        key: wanted.key.map(String::from),
        since_seconds: wanted.since_seconds.get()?,
        before: wanted.before.map(|id| id.to_string()),
        limit: wanted.limit.get()?,
        ..Filter::default()
    };
    run(async move {
        let store = &admin.store;
        let read = |filter| store.inbox_page(filter, PayloadPart::BoundedPreview);
        let page = page(filter, read, |row| row.id.to_string()).await?;
        Ok(page.map(|ListedRow { row, payload_bytes }| UndecodableItem::of(row, payload_bytes)))
    })
    .await
}

/// An undecodable row with its bytes, truncated to a limit.
#[derive(Serialize)]
pub(crate) struct UndecodableDetail {
    #[serde(flatten)]
    line: UndecodableItem,
    status: InboxStatus,
    headers: Headers,
    base64: String,
    /// The same as text; invalid UTF-8 is replaced.
    text: String,
    truncated: bool,
    /// Decoders that accept the bytes.
    readable_by: Vec<&'static str>,
}

pub(crate) async fn show(
    State(admin): State<Admin>,
    PathParams(id): PathParams<i64>,
) -> Answer<UndecodableDetail> {
    run(async move {
        let row = find(&admin, id).await?;
        let bytes = original(&row).map_err(|p| ApiProblem::of(StatusCode::CONFLICT, &p))?;
        let shown = &bytes[..bytes.len().min(RAW_SHOWN_MAX)];
        let readable_by = relais_core::repair::readable_by(&bytes);
        Ok(UndecodableDetail {
            base64: STANDARD.encode(shown),
            text: String::from_utf8_lossy(shown).into_owned(),
            truncated: bytes.len() > shown.len(),
            readable_by: readable_by.into_iter().map(Decoder::as_str).collect(),
            status: row.status,
            headers: row.headers.clone(),
            line: UndecodableItem::of(row, bytes.len() as u64),
        })
    })
    .await
}

/// The way to reprocess one row, with actor and reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReprocessRequest {
    /// A corrected payload (JSON) that replaces the bytes.
    payload: Option<RequestPayload>,
    /// The decoder to use instead of the one of the source.
    decoder: Option<String>,
    /// Keeps the message id of the row.
    #[serde(default)]
    keep_id: bool,
    /// Only returns the expected result.
    #[serde(default)]
    dry_run: bool,
    actor: Option<String>,
    reason: String,
}

pub(crate) async fn repair(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<i64>,
    JsonBody(wanted): JsonBody<ReprocessRequest>,
) -> Answer<RepairReport> {
    let by = ActorAndReason { actor: wanted.actor, reason: wanted.reason }.by(&caller)?;
    let fix = match (wanted.payload, wanted.decoder) {
        (Some(_), Some(_)) => {
            let detail = "pass a `payload` or a `decoder`, not both";
            return Err(ApiProblem::unprocessable("INVALID", detail));
        }
        (Some(payload), None) if caller.role >= Role::Admin => {
            Fix::Payload(payload.text().trim().as_bytes().to_vec())
        }
        (Some(_), None) => return Err(not_allowed(&caller, Role::Admin)),
        (None, decoder) => declared_or(decoder)?,
    };
    let plan = plan(fix, wanted.keep_id, wanted.dry_run, by);
    run(async move {
        let row = find(&admin, id).await?;
        let report = repair::row(admin.store.as_ref(), &admin.declared, &row, &plan).await?;
        result(report)
    })
    .await
}

/// The selection of rows and the way to reprocess them, with actor and reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReprocessManyRequest {
    #[serde(default)]
    filter: JsonObject<UndecodableFilter>,
    /// Selects all of them; must be explicit.
    #[serde(default)]
    all: bool,
    decoder: Option<String>,
    #[serde(default)]
    keep_id: bool,
    #[serde(default)]
    dry_run: bool,
    max: Option<WholeNumber>,
    actor: Option<String>,
    reason: String,
}

/// The filters of the list.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UndecodableFilter {
    source: Option<FilterText>,
    code: Option<FilterText>,
    key: Option<FilterText>,
    since_seconds: Option<WholeNumber>,
}

/// The result of reprocessing several rows.
#[derive(Serialize)]
pub(crate) struct ReprocessSummary {
    matching: u64,
    #[serde(flatten)]
    summary: repair::RepairSummary,
    /// True if rows are left.
    more: bool,
}

/// Reprocesses the rows that match, oldest first.
pub(crate) async fn repair_many(
    State(admin): State<Admin>,
    caller: AdminCaller,
    JsonBody(wanted): JsonBody<ReprocessManyRequest>,
) -> Answer<ReprocessSummary> {
    let by = ActorAndReason { actor: wanted.actor, reason: wanted.reason }.by(&caller)?;
    let plan = plan(declared_or(wanted.decoder)?, wanted.keep_id, wanted.dry_run, by);
    let most = bounded("max", wanted.max.map_or(ROWS, |max| max.0), ROWS_MAX)?;
    let UndecodableFilter { source, code, key, since_seconds } = wanted.filter.0;
    let none = source.is_none() && code.is_none() && key.is_none() && since_seconds.is_none();
    chosen(none, wanted.all)?;
    let rows = SerdeErrors {
        source_system: source.map(String::from),
        error_code: code.map(String::from),
        key: key.map(String::from),
        since_seconds: Since::of(since_seconds).get()?,
        ..SerdeErrors::default()
    };
    run(async move {
        let (began, mut stopped) = (Instant::now(), false);
        let each = |_| {
            stopped = began.elapsed() >= TIME_MAX;
            if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let (store, declared) = (admin.store.as_ref(), &admin.declared);
        let summary = repair::all(store, declared, rows, &plan, most as usize, each).await?;
        let matching = summary.rows();
        Ok(ReprocessSummary { matching, summary, more: stopped || matching >= most.into() })
    })
    .await
}

/// Discards an undecodable row.
pub(crate) async fn discard(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(id): PathParams<i64>,
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        find(&admin, id).await?;
        dead_letters::said(id, admin.dead_letters.discard_undecodable(id, &by).await?)
    })
    .await
}

fn plan(
    fix: Fix,
    keep_id: bool,
    dry_run: bool,
    DecisionAuthor { actor, reason }: DecisionAuthor,
) -> RepairPlan {
    RepairPlan {
        fix,
        identity: if keep_id { Identity::Own } else { Identity::Promised },
        mode: if dry_run { Mode::Try } else { Mode::Write },
        actor,
        reason,
    }
}

fn declared_or(decoder: Option<String>) -> Result<Fix, ApiProblem> {
    let Some(name) = decoder else { return Ok(Fix::Declared) };
    let found = Decoder::ALL.into_iter().find(|decoder| decoder.as_str() == name);
    found.map(Fix::Decoder).ok_or_else(|| {
        let names = Decoder::ALL.map(Decoder::as_str).join(", ");
        ApiProblem::unprocessable("INVALID", format_args!("`decoder` must be one of {names}"))
    })
}

fn result(report: RepairReport) -> Result<RepairReport, ApiProblem> {
    match &report.outcome {
        RepairOutcome::Repaired { .. } | RepairOutcome::Duplicate { .. } => Ok(report),
        RepairOutcome::Conflict { message_id, with } => Err(ApiProblem::conflict(
            "CONFLICT",
            format_args!(
                "row {with} has the message id {message_id} with other content; compare them, and \
                 reprocess this one with `keep_id` if it is a different message"
            ),
        )),
        RepairOutcome::Unreadable { problem, readable_by } => {
            let hint = match readable_by.as_slice() {
                [] => String::new(),
                names => format!("; decoders that accept it: {}", names.join(", ")),
            };
            let detail = format!("still undecodable: {}{hint}", problem.message);
            Err(ApiProblem::unprocessable(&problem.code, detail))
        }
        RepairOutcome::Refused { status } => {
            let now = status.map_or("deleted", InboxStatus::as_str);
            Err(ApiProblem::conflict(
                "NO_SERDE_ERROR",
                format_args!(
                    "the row is not undecodable any more: it is {now}; nothing was changed"
                ),
            ))
        }
    }
}

async fn find(admin: &Admin, id: i64) -> Result<InboxRow, ApiProblem> {
    let found = admin.store.find_inbox(id.to_string()).await?.filter(|row| row.id == id);
    found.ok_or_else(|| ApiProblem::not_found(format_args!("no inbox row has the id {id}")))
}
