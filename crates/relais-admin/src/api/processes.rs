//! Processes: list, show and act on them.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use relais::process::{
    ActError,
    timeline::{StepLine, steps},
};
use relais_core::{
    id_prefix::{IdKind, IdPrefix},
    process::{Action, LogEntry, Process, ProcessFilter, ProcessRef, ProcessStatus},
    query::PAGE_MAX,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Answer, by_prefix, perform, run};
use crate::{
    Admin,
    access::AdminCaller,
    input::{
        ActorAndReason, FilterText, JsonBody, Limit, ListPage, PathParams, QueryParams, Since,
    },
    problem::ApiProblem,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessQuery {
    status: Option<String>,
    r#type: Option<FilterText>,
    key: Option<FilterText>,
    #[serde(default)]
    since_seconds: Since,
    before: Option<Uuid>,
    #[serde(default)]
    limit: Limit,
}

impl ProcessQuery {
    fn filter(self) -> Result<ProcessFilter, ApiProblem> {
        let status = self.status.map(|text| {
            ProcessStatus::parse(&text.to_uppercase()).ok_or_else(|| {
                let all = ProcessStatus::ALL.map(ProcessStatus::as_str).join(", ");
                ApiProblem::bad_request(format_args!("`status` must be one of {all}"))
            })
        });
        Ok(ProcessFilter {
            status: status.transpose()?,
            process_type: self.r#type.map(String::from),
            business_key: self.key.map(String::from),
            since_seconds: self.since_seconds.get()?,
            before: self.before,
            limit: self.limit.get()?,
        })
    }
}

/// A process of a list.
#[derive(Serialize)]
pub(crate) struct ProcessItem {
    #[serde(flatten)]
    process: Process,
    /// True while it waits for a decision of an operator.
    needs_operator: bool,
}

impl ProcessItem {
    fn new(process: Process) -> Self {
        Self { needs_operator: process.needs_operator(), process }
    }
}

/// Lists processes, newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    QueryParams(wanted): QueryParams<ProcessQuery>,
) -> Answer<ListPage<ProcessItem>> {
    let filter = wanted.filter()?;
    run(async move {
        let limit = filter.limit;
        let processes = admin.operator.list(filter).await?;
        let lines: Vec<ProcessItem> = processes.into_iter().map(ProcessItem::new).collect();
        Ok(ListPage::of(lines, limit, |line| line.process.process_id.to_string()))
    })
    .await
}

/// A process with its steps and the actions that are possible now.
#[derive(Serialize)]
pub(crate) struct ProcessDetail {
    #[serde(flatten)]
    process: ProcessItem,
    steps: Vec<StepLine>,
    actions: Vec<Action>,
}

pub(crate) async fn show(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Answer<ProcessDetail> {
    run(async move {
        let process = find(&admin, &id).await?;
        let mut log = admin.operator.log(process.process_id, None, PAGE_MAX).await?;
        log.reverse();
        let steps = steps(admin.operator.definition(&process).ok(), &log);
        let actions = admin.operator.actions(&process);
        Ok(ProcessDetail { process: ProcessItem::new(process), steps, actions })
    })
    .await
}

/// Returns the definition as a Mermaid diagram.
pub(crate) async fn diagram(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Result<Response, ApiProblem> {
    perform(async move {
        let process = find(&admin, &id).await?;
        let definition = admin.operator.definition(&process);
        let definition = definition.map_err(|p| ApiProblem::of(StatusCode::CONFLICT, &p))?;
        Ok(definition.diagram().into_response())
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogQuery {
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

/// Lists log entries, newest first.
pub(crate) async fn log(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
    QueryParams(part): QueryParams<LogQuery>,
) -> Answer<ListPage<LogEntry>> {
    let limit = part.limit.get()?;
    run(async move {
        let process = find(&admin, &id).await?;
        let entries = admin.operator.log(process.process_id, part.before, limit).await?;
        Ok(ListPage::of(entries, limit, |entry| entry.seq.to_string()))
    })
    .await
}

/// Performs an action and returns the changed process.
pub(crate) async fn act(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams((id, action)): PathParams<(String, String)>,
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<ProcessItem> {
    let action = parse_action(&action)?;
    let by = who.by(&caller)?;
    run(async move {
        let process = find(&admin, &id).await?;
        let acted = admin.operator.act(process.process_id, action, &by.actor, &by.reason).await;
        acted.map(ProcessItem::new).map_err(refused)
    })
    .await
}

fn parse_action(word: &str) -> Result<Action, ApiProblem> {
    Action::parse(word).ok_or_else(|| {
        let all = Action::ALL.map(Action::as_str).join(", ");
        ApiProblem::not_found(format_args!(
            "`{word}` is not an action on a process; use one of {all}"
        ))
    })
}

async fn find(admin: &Admin, id: &str) -> Result<Process, ApiProblem> {
    let wanted = match id.parse::<ProcessRef>() {
        Ok(exact) => Some(exact),
        Err(problem) => {
            IdPrefix::parse(IdKind::Process, id).ok_or_else(|| ApiProblem::bad_request(problem))?;
            let found = by_prefix(admin, IdKind::Process, id).await?;
            found.and_then(|id| id.parse().ok())
        }
    };
    let found = match wanted {
        Some(wanted) => admin.operator.find(wanted).await?,
        None => None,
    };
    found.ok_or_else(|| ApiProblem::not_found(format_args!("no process has the id or key `{id}`")))
}

fn refused(error: ActError) -> ApiProblem {
    match error {
        ActError::NotFound(_) => ApiProblem::not_found(error),
        ActError::Refused(problem) => ApiProblem::of(StatusCode::CONFLICT, &problem),
        ActError::Store(error) => error.into(),
        _ => ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", error),
    }
}
