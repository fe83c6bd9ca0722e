//! Processes: look, and act as a person.

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
    process::{Action, LogEntry, Process, ProcessFilter, ProcessRef, ProcessStatus},
    query::PAGE_MAX,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Answer, perform, run};
use crate::{
    Admin,
    access::Caller,
    input::{Asked, Body, Limit, Named, Page, Since, Text, Who},
    problem::Problem,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    status: Option<String>,
    r#type: Option<Text>,
    key: Option<Text>,
    #[serde(default)]
    since_seconds: Since,
    before: Option<Uuid>,
    #[serde(default)]
    limit: Limit,
}

impl Wanted {
    fn filter(self) -> Result<ProcessFilter, Problem> {
        let status = self.status.map(|text| {
            ProcessStatus::parse(&text.to_uppercase()).ok_or_else(|| {
                let all = ProcessStatus::ALL.map(ProcessStatus::as_str).join(", ");
                Problem::bad_request(format_args!("`status` must be one of {all}"))
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

/// One process of a list.
#[derive(Serialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    process: Process,
    /// Whether it waits for a decision of an operator.
    needs_operator: bool,
}

impl Line {
    fn new(process: Process) -> Self {
        Self { needs_operator: process.needs_operator(), process }
    }
}

/// Newest first.
pub(crate) async fn list(
    State(admin): State<Admin>,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Page<Line>> {
    let filter = wanted.filter()?;
    run(async move {
        let limit = filter.limit;
        let processes = admin.operator.list(filter).await?;
        let lines: Vec<Line> = processes.into_iter().map(Line::new).collect();
        Ok(Page::of(lines, limit, |line| line.process.process_id.to_string()))
    })
    .await
}

/// One with what became of its steps, and what can be done with it now.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    process: Line,
    steps: Vec<StepLine>,
    actions: Vec<Action>,
}

pub(crate) async fn show(State(admin): State<Admin>, Named(id): Named<String>) -> Answer<Shown> {
    run(async move {
        let process = find(&admin, &id).await?;
        let mut log = admin.operator.log(process.process_id, None, PAGE_MAX).await?;
        log.reverse();
        let steps = steps(admin.operator.definition(&process).ok(), &log);
        let actions = admin.operator.actions(&process);
        Ok(Shown { process: Line::new(process), steps, actions })
    })
    .await
}

/// A picture of its definition, in the language of mermaid.
pub(crate) async fn diagram(
    State(admin): State<Admin>,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    perform(async move {
        let process = find(&admin, &id).await?;
        let definition = admin.operator.definition(&process);
        let definition = definition.map_err(|p| Problem::of(StatusCode::CONFLICT, &p))?;
        Ok(definition.diagram().into_response())
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

/// Newest first.
pub(crate) async fn log(
    State(admin): State<Admin>,
    Named(id): Named<String>,
    Asked(part): Asked<Part>,
) -> Answer<Page<LogEntry>> {
    let limit = part.limit.get()?;
    run(async move {
        let process = find(&admin, &id).await?;
        let entries = admin.operator.log(process.process_id, part.before, limit).await?;
        Ok(Page::of(entries, limit, |entry| entry.seq.to_string()))
    })
    .await
}

/// Does it, and gives the process as it is then.
pub(crate) async fn act(
    State(admin): State<Admin>,
    caller: Caller,
    Named((id, action)): Named<(String, String)>,
    Body(who): Body<Who>,
) -> Answer<Line> {
    let action = parse_action(&action)?;
    let by = who.by(&caller)?;
    run(async move {
        let process = find(&admin, &id).await?;
        let acted = admin.operator.act(process.process_id, action, &by.actor, &by.reason).await;
        acted.map(Line::new).map_err(refused)
    })
    .await
}

fn parse_action(word: &str) -> Result<Action, Problem> {
    Action::parse(word).ok_or_else(|| {
        let all = Action::ALL.map(Action::as_str).join(", ");
        Problem::not_found(format_args!(
            "`{word}` is nothing that can be done to a process; there are {all}"
        ))
    })
}

async fn find(admin: &Admin, id: &str) -> Result<Process, Problem> {
    let wanted: ProcessRef = crate::process_ref(id).map_err(Problem::bad_request)?;
    let found = admin.operator.find(wanted).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("no process is `{id}`")))
}

fn refused(error: ActError) -> Problem {
    match error {
        ActError::NotFound(_) => Problem::not_found(error),
        ActError::Refused(problem) => Problem::of(StatusCode::CONFLICT, &problem),
        ActError::Store(error) => error.into(),
        _ => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", error),
    }
}
