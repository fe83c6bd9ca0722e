//! Rows whose bytes nobody could read: look at them, read them again after a fix, or give them up.

use std::{ops::ControlFlow, time::Instant};

use axum::{extract::State, http::StatusCode};
use base64::{Engine, engine::general_purpose::STANDARD};
use relais::{
    desk::By,
    repair::{
        self, Decoder, Fix, Identity, Mode, RepairOutcome, RepairPlan, RepairReport, SerdeErrors,
    },
};
use relais_core::{
    browse::Listed,
    inbox::{InboxRow, InboxStatus},
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
    payload::RAW_SHOWN_MAX,
    run,
};
use crate::{
    Admin, Role,
    access::{Caller, not_allowed},
    input::{Asked, Body, Limit, Named, Object, Page, Since, Text, Who, Whole},
    problem::Problem,
};

/// Rows one request repairs unless it says otherwise.
const ROWS: u32 = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    source: Option<Text>,
    code: Option<Text>,
    key: Option<Text>,
    #[serde(default)]
    since_seconds: Since,
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

/// What is known of such a row.
#[derive(Serialize)]
pub(crate) struct Line {
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

impl Line {
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

/// Newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Page<Line>> {
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
        let (reach, browse) = (|f| store.reach_inbox(f), |f| store.browse_inbox(f));
        let page = page(filter, reach, browse, |row| row.id.to_string()).await?;
        Ok(page.map(|Listed { row, payload_bytes }| Line::of(row, payload_bytes)))
    })
    .await
}

/// The bytes, as far as they are shown.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    line: Line,
    status: InboxStatus,
    headers: Headers,
    base64: String,
    /// The same as text; what is no UTF-8 is replaced.
    text: String,
    truncated: bool,
    /// Decoders that would read them.
    readable_by: Vec<&'static str>,
}

pub(crate) async fn show(State(admin): State<Admin>, Named(id): Named<i64>) -> Answer<Shown> {
    run(async move {
        let row = find(&admin, id).await?;
        let bytes = original(&row).map_err(|p| Problem::of(StatusCode::CONFLICT, &p))?;
        let shown = &bytes[..bytes.len().min(RAW_SHOWN_MAX)];
        let readable_by = relais_core::repair::readable_by(&bytes);
        Ok(Shown {
            base64: STANDARD.encode(shown),
            text: String::from_utf8_lossy(shown).into_owned(),
            truncated: bytes.len() > shown.len(),
            readable_by: readable_by.into_iter().map(Decoder::as_str).collect(),
            status: row.status,
            headers: row.headers.clone(),
            line: Line::of(row, bytes.len() as u64),
        })
    })
    .await
}

/// What was fixed, and who wants the row read again why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repair {
    /// JSON a person wrote in place of the bytes.
    payload: Option<String>,
    /// Read the bytes with this one, whatever the source declares.
    decoder: Option<String>,
    /// Keep the id of the row, whatever its source promises.
    #[serde(default)]
    keep_id: bool,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
    actor: Option<String>,
    reason: String,
}

pub(crate) async fn repair(
    State(admin): State<Admin>,
    caller: Caller,
    Named(id): Named<i64>,
    Body(wanted): Body<Repair>,
) -> Answer<RepairReport> {
    let by = Who { actor: wanted.actor, reason: wanted.reason }.by(&caller)?;
    let fix = match (wanted.payload, wanted.decoder) {
        (Some(_), Some(_)) => {
            let detail = "give a `payload` or a `decoder`, not both";
            return Err(Problem::unprocessable("INVALID", detail));
        }
        (Some(payload), None) if caller.role >= Role::Admin => {
            Fix::Payload(payload.trim().as_bytes().to_vec())
        }
        (Some(_), None) => return Err(not_allowed(&caller, Role::Admin)),
        (None, decoder) => declared_or(decoder)?,
    };
    let plan = plan(fix, wanted.keep_id, wanted.dry_run, by);
    run(async move {
        let row = find(&admin, id).await?;
        let report = repair::row(admin.store.as_ref(), &admin.declared, &row, &plan).await?;
        told(report)
    })
    .await
}

/// Which rows, what was fixed, and who wants them read again why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepairMany {
    #[serde(default)]
    filter: Object<Matching>,
    /// All of them; said, not left out.
    #[serde(default)]
    all: bool,
    decoder: Option<String>,
    #[serde(default)]
    keep_id: bool,
    #[serde(default)]
    dry_run: bool,
    max: Option<Whole>,
    actor: Option<String>,
    reason: String,
}

/// What the list takes too.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Matching {
    source: Option<Text>,
    code: Option<Text>,
    key: Option<Text>,
    since_seconds: Option<Whole>,
}

/// What became of them, or would.
#[derive(Serialize)]
pub(crate) struct Told {
    matching: u64,
    #[serde(flatten)]
    summary: repair::RepairSummary,
    /// Whether there are rows that were not looked at.
    more: bool,
}

/// Oldest first.
pub(crate) async fn repair_many(
    State(admin): State<Admin>,
    caller: Caller,
    Body(wanted): Body<RepairMany>,
) -> Answer<Told> {
    let by = Who { actor: wanted.actor, reason: wanted.reason }.by(&caller)?;
    let plan = plan(declared_or(wanted.decoder)?, wanted.keep_id, wanted.dry_run, by);
    let most = bounded("max", wanted.max.map_or(ROWS, |max| max.0), ROWS_MAX)?;
    let Matching { source, code, key, since_seconds } = wanted.filter.0;
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
        Ok(Told { matching, summary, more: stopped || matching >= most.into() })
    })
    .await
}

/// Closes a row nobody can repair.
pub(crate) async fn discard(
    State(admin): State<Admin>,
    caller: Caller,
    Named(id): Named<i64>,
    Body(who): Body<Who>,
) -> Answer<Value> {
    let by = who.by(&caller)?;
    run(async move {
        find(&admin, id).await?;
        dead_letters::said(id, admin.desk.discard_unreadable(id, &by).await?)
    })
    .await
}

fn plan(fix: Fix, keep_id: bool, dry_run: bool, By { actor, reason }: By) -> RepairPlan {
    RepairPlan {
        fix,
        identity: if keep_id { Identity::Own } else { Identity::Promised },
        mode: if dry_run { Mode::Try } else { Mode::Write },
        actor,
        reason,
    }
}

fn declared_or(decoder: Option<String>) -> Result<Fix, Problem> {
    let Some(name) = decoder else { return Ok(Fix::Declared) };
    let found = Decoder::ALL.into_iter().find(|decoder| decoder.as_str() == name);
    found.map(Fix::Decoder).ok_or_else(|| {
        let names = Decoder::ALL.map(Decoder::as_str).join(", ");
        Problem::unprocessable("INVALID", format_args!("`decoder` must be one of {names}"))
    })
}

fn told(report: RepairReport) -> Result<RepairReport, Problem> {
    match &report.outcome {
        RepairOutcome::Repaired { .. } | RepairOutcome::Duplicate { .. } => Ok(report),
        RepairOutcome::Conflict { message_id, with } => Err(Problem::conflict(
            "CONFLICT",
            format_args!(
                "message id {message_id} is that of row {with} already, with other content; compare \
                 them, and repair this one with `keep_id` if it is a message of its own"
            ),
        )),
        RepairOutcome::Unreadable { problem, readable_by } => {
            let hint = match readable_by.as_slice() {
                [] => String::new(),
                names => format!("; it could be read by {}", names.join(", ")),
            };
            let detail = format!("it still cannot be read: {}{hint}", problem.message);
            Err(Problem::unprocessable(&problem.code, detail))
        }
        RepairOutcome::Refused { status } => {
            let now = status.map_or("gone", InboxStatus::as_str);
            Err(Problem::conflict(
                "NO_SERDE_ERROR",
                format_args!("it is {now} now; somebody may have been faster. Nothing was changed"),
            ))
        }
    }
}

async fn find(admin: &Admin, id: i64) -> Result<InboxRow, Problem> {
    let found = admin.store.find_inbox(id.to_string()).await?.filter(|row| row.id == id);
    found.ok_or_else(|| Problem::not_found(format_args!("no inbox row has the id {id}")))
}
