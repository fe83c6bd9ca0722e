//! Processes: look, and act as a person.

use axum::{extract::State, http::StatusCode};
use relais::process::ActError;
use relais_core::process::{Action, LogEntry, Process, ProcessFilter, ProcessRef, ProcessStatus};
use serde::Deserialize;
use uuid::Uuid;

use super::{Answer, run};
use crate::{
    Admin,
    input::{Asked, Body, Limit, Named, Page, Who},
    problem::Problem,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    status: Option<String>,
    r#type: Option<String>,
    key: Option<String>,
    since_seconds: Option<i64>,
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
            process_type: self.r#type,
            business_key: self.key,
            since_seconds: self.since_seconds,
            before: self.before,
            limit: self.limit.get()?,
        })
    }
}

/// Newest first.
pub(super) async fn list(
    State(admin): State<Admin>,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Page<Process>> {
    let filter = wanted.filter()?;
    run(async move {
        let limit = filter.limit;
        let processes = admin.operator.list(filter).await?;
        Ok(Page::of(processes, limit, |process| process.process_id.to_string()))
    })
    .await
}

pub(super) async fn show(State(admin): State<Admin>, Named(id): Named<String>) -> Answer<Process> {
    run(async move { find(&admin, &id).await }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    before: Option<i64>,
    #[serde(default)]
    limit: Limit,
}

/// Newest first.
pub(super) async fn log(
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
pub(super) async fn act(
    State(admin): State<Admin>,
    Named((id, action)): Named<(String, String)>,
    Body(who): Body<Who>,
) -> Answer<Process> {
    let action = parse_action(&action)?;
    who.check()?;
    run(async move {
        let process = find(&admin, &id).await?;
        let acted = admin.operator.act(process.process_id, action, &who.actor, &who.reason).await;
        acted.map_err(refused)
    })
    .await
}

fn parse_action(word: &str) -> Result<Action, Problem> {
    Ok(match word {
        "pause" => Action::Pause,
        "resume" => Action::Resume,
        "retry" => Action::RetryStep,
        "skip" => Action::SkipStep,
        "compensate" => Action::Compensate,
        "cancel" => Action::Cancel,
        _ => {
            return Err(Problem::not_found(format_args!(
                "`{word}` is nothing that can be done to a process; there are pause, resume, retry, \
                 skip, compensate and cancel"
            )));
        }
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
        ActError::Busy => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", error),
    }
}
