//! Many dead letters at once, by the filters of their list.
//!
//! Invariant: a request is bounded in rows and in time. What is left then is said, and the same request
//! goes on with it.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use axum::extract::State;
use relais::desk::{Pace, Summary};
use relais_core::{dead_letter::Resolution, query::Filter};
use serde::{Deserialize, Serialize};

use super::{Answer, run};
use crate::{
    Admin,
    access::Caller,
    input::{Body, Object, Since, Text, Who, Whole},
    problem::Problem,
};

/// Rows one request changes, unless it says otherwise, and at most.
const ROWS: u32 = 1_000;
pub(super) const ROWS_MAX: u32 = 10_000;
/// Most decisions a second that can be asked for.
const RATE_MAX: u32 = 10_000;
/// So long one request goes on.
pub(super) const TIME_MAX: Duration = Duration::from_secs(12);

/// Which, how many, how fast; and who wants it why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Many {
    /// Some field of it, or `all`.
    #[serde(default)]
    filter: Object<Matching>,
    /// All of them; said, not left out.
    #[serde(default)]
    all: bool,
    /// Only count what matches.
    #[serde(default)]
    dry_run: bool,
    max: Option<Whole>,
    /// In a second.
    rate: Option<Whole>,
    actor: Option<String>,
    reason: Option<String>,
}

/// What the list takes too.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Matching {
    r#type: Option<Text>,
    key: Option<Text>,
    destination: Option<Text>,
    source: Option<Text>,
    code: Option<Text>,
    since_seconds: Option<Whole>,
}

/// What became of them.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Told {
    Counted {
        matching: usize,
    },
    Decided {
        #[serde(flatten)]
        summary: Summary,
        /// Whether the same request would find more.
        more: bool,
    },
}

/// Tries them again, the oldest message first.
pub(crate) async fn replay(
    State(admin): State<Admin>,
    caller: Caller,
    Body(many): Body<Many>,
) -> Answer<Told> {
    decide(admin, &caller, many, Resolution::Retried).await
}

/// Leaves them failed and lets their keys go on.
pub(crate) async fn discard(
    State(admin): State<Admin>,
    caller: Caller,
    Body(many): Body<Many>,
) -> Answer<Told> {
    decide(admin, &caller, many, Resolution::Discarded).await
}

async fn decide(admin: Admin, caller: &Caller, many: Many, resolution: Resolution) -> Answer<Told> {
    let filter = many.filter.0.filter()?;
    chosen(filter == Filter::default(), many.all)?;
    let most = bounded("max", many.max.map_or(ROWS, |max| max.0), ROWS_MAX)?;
    let pace = match many.rate {
        None => Pace::AtOnce,
        Some(Whole(rate)) => Pace::Rate(bounded("rate", rate, RATE_MAX)?, Duration::from_secs(1)),
    };
    if many.dry_run {
        return run(async move {
            Ok(Told::Counted { matching: admin.desk.pick(&filter).await?.len() })
        })
        .await;
    }
    let by = Who { actor: many.actor, reason: many.reason.unwrap_or_default() }.by(caller)?;
    run(async move {
        let mut picked = admin.desk.pick(&filter).await?;
        let all = picked.len();
        picked.truncate(most as usize);
        let began = Instant::now();
        let each = |_| match began.elapsed() < TIME_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let summary = admin.desk.decide_all(&picked, resolution, pace, &by, each).await?;
        let decided = summary.done + summary.unchanged + summary.refused;
        Ok(Told::Decided { summary, more: decided < all as u64 })
    })
    .await
}

/// Refuses an action on many that names none of them: a filter that was forgotten looks the same.
pub(super) fn chosen(filter_is_empty: bool, all: bool) -> Result<(), Problem> {
    let detail = match (filter_is_empty, all) {
        (true, false) => "name at least one field of `filter`, or say `\"all\": true`",
        (false, true) => "`all` and a `filter` contradict each other; leave one of them out",
        _ => return Ok(()),
    };
    Err(Problem::unprocessable("NO_FILTER", detail))
}

/// A number from 1 on.
pub(super) fn bounded(name: &str, number: u32, max: u32) -> Result<u32, Problem> {
    if (1..=max).contains(&number) {
        return Ok(number);
    }
    Err(Problem::unprocessable("INVALID", format_args!("`{name}` must be from 1 to {max}")))
}

impl Matching {
    fn filter(self) -> Result<Filter, Problem> {
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
