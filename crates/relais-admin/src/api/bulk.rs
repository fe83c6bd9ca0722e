//! Bulk decisions about dead letters, selected by the filters of their list.
//!
//! Invariant: a request is bounded in rows and in time. The response reports whether rows are left, and the
//! same request continues with them.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use axum::extract::State;
use relais::dead_letters::{DecisionSummary, Pace};
use relais_core::{dead_letter::Resolution, query::Filter};
use serde::{Deserialize, Serialize};

use super::{Answer, run};
use crate::{
    Admin,
    access::AdminCaller,
    input::{ActorAndReason, FilterText, JsonBody, JsonObject, Since, WholeNumber},
    problem::ApiProblem,
};

/// Rows that one request changes by default.
const ROWS: u32 = 1_000;
/// Most rows that one request changes.
pub(super) const ROWS_MAX: u32 = 10_000;
/// Largest rate, in decisions per second.
const RATE_MAX: u32 = 10_000;
/// Time limit of one request.
pub(super) const TIME_MAX: Duration = Duration::from_secs(12);

/// The selection, bounds and rate of a bulk decision, with actor and reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkRequest {
    /// At least one field, unless `all` is set.
    #[serde(default)]
    filter: JsonObject<DeadLetterFilter>,
    /// Selects all of them; must be explicit.
    #[serde(default)]
    all: bool,
    /// Only counts the matching ones.
    #[serde(default)]
    dry_run: bool,
    max: Option<WholeNumber>,
    /// Decisions per second.
    rate: Option<WholeNumber>,
    actor: Option<String>,
    reason: Option<String>,
}

/// The filters of the list.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DeadLetterFilter {
    r#type: Option<FilterText>,
    key: Option<FilterText>,
    destination: Option<FilterText>,
    source: Option<FilterText>,
    code: Option<FilterText>,
    since_seconds: Option<WholeNumber>,
}

/// The result of a bulk decision.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum BulkResult {
    Counted {
        matching: usize,
    },
    Decided {
        #[serde(flatten)]
        summary: DecisionSummary,
        /// True if the same request would find more.
        more: bool,
    },
}

/// Retries them, oldest message first.
pub(crate) async fn replay(
    State(admin): State<Admin>,
    caller: AdminCaller,
    JsonBody(many): JsonBody<BulkRequest>,
) -> Answer<BulkResult> {
    decide(admin, &caller, many, Resolution::Retried).await
}

/// Discards them; delivery of their keys continues.
pub(crate) async fn discard(
    State(admin): State<Admin>,
    caller: AdminCaller,
    JsonBody(many): JsonBody<BulkRequest>,
) -> Answer<BulkResult> {
    decide(admin, &caller, many, Resolution::Discarded).await
}

async fn decide(
    admin: Admin,
    caller: &AdminCaller,
    many: BulkRequest,
    resolution: Resolution,
) -> Answer<BulkResult> {
    let filter = many.filter.0.filter()?;
    chosen(filter == Filter::default(), many.all)?;
    let most = bounded("max", many.max.map_or(ROWS, |max| max.0), ROWS_MAX)?;
    let pace = match many.rate {
        None => Pace::AtOnce,
        Some(WholeNumber(rate)) => {
            Pace::Rate(bounded("rate", rate, RATE_MAX)?, Duration::from_secs(1))
        }
    };
    if many.dry_run {
        return run(async move {
            Ok(BulkResult::Counted { matching: admin.dead_letters.pick(&filter).await?.len() })
        })
        .await;
    }
    let by =
        ActorAndReason { actor: many.actor, reason: many.reason.unwrap_or_default() }.by(caller)?;
    run(async move {
        let mut picked = admin.dead_letters.pick(&filter).await?;
        let all = picked.len();
        picked.truncate(most as usize);
        let began = Instant::now();
        let each = |_| match began.elapsed() < TIME_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let summary = admin.dead_letters.decide_all(&picked, resolution, pace, &by, each).await?;
        let decided = summary.done + summary.unchanged + summary.refused;
        Ok(BulkResult::Decided { summary, more: decided < all as u64 })
    })
    .await
}

/// Refuses a bulk decision without a selection, because a forgotten filter looks the same.
pub(super) fn chosen(filter_is_empty: bool, all: bool) -> Result<(), ApiProblem> {
    let detail = match (filter_is_empty, all) {
        (true, false) => "set at least one field of `filter`, or `\"all\": true`",
        (false, true) => "`all` and a `filter` contradict each other; omit one of them",
        _ => return Ok(()),
    };
    Err(ApiProblem::unprocessable("NO_FILTER", detail))
}

/// Checks that a number is from 1 to `max`.
pub(super) fn bounded(name: &str, number: u32, max: u32) -> Result<u32, ApiProblem> {
    if (1..=max).contains(&number) {
        return Ok(number);
    }
    Err(ApiProblem::unprocessable("INVALID", format_args!("`{name}` must be from 1 to {max}")))
}

impl DeadLetterFilter {
    fn filter(self) -> Result<Filter, ApiProblem> {
        Ok(Filter {
            event_type: self.r#type.map(String::from),
            key: self.key.map(String::from),
            destination: self.destination.map(String::from),
            source: self.source.map(String::from),
            code: self.code.map(String::from),
            since_seconds: Since::of(self.since_seconds).get()?,
            ..Filter::default()
        })
    }
}
