//! The end of a bulk job: reads its three result files into one delivery per row.
//!
//! Invariant: a file that is cut off or has fewer rows than the job counted is read again; after
//! the last try its rows count. Files are streamed, with one record in memory.

use std::time::Duration;

use relais_core::{
    bulk::{CallProblem, Remote},
    delivery::{Delivery, Problem},
};

use super::{
    classify::{Class, SalesforceFailure},
    client::{ApiCall, SalesforceClient},
    job_info::JobInfo,
    response,
    results::{Matcher, ResultError, ResultFile, ResultReader},
};
use crate::http::classify;

/// Number of tries to read an incomplete file.
const TRIES: u32 = 3;
/// The pause before the next try.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns the job at `path`, or `None` if the org does not know it.
pub(super) async fn job(
    client: &SalesforceClient,
    path: &str,
) -> Result<Option<JobInfo>, SalesforceFailure> {
    match client.ask(ApiCall::get(path)).await {
        Ok(job) => Ok(Some(job)),
        Err(failure) if failure.status == Some(404) && failure.class != Class::Down => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns one delivery per row.
pub(super) async fn results(
    client: &SalesforceClient,
    path: &str,
    external_id: &str,
    ids: &[String],
) -> Result<Vec<Delivery>, CallProblem> {
    let Some(job) = job(client, path).await.map_err(SalesforceFailure::call_problem)? else {
        // Deleted, or older than a week: the results can no longer be read.
        let lost =
            Delivery::retry("RESULTS_GONE", "the job and its results no longer exist in the org");
        return Ok(vec![lost; ids.len()]);
    };
    match job.remote(&client.judge).map_err(SalesforceFailure::call_problem)? {
        Remote::Complete | Remote::Failed(_) | Remote::Aborted => {}
        Remote::Open | Remote::Running | Remote::Gone => {
            let why = format!("the job has no results yet; it is {}", job.state);
            return Err(CallProblem::OtherState(Problem::new("JOB_NOT_DONE", &why)));
        }
    }
    let unprocessed = job.unprocessed(&client.judge);
    let mut matcher = Matcher::new(ids, &client.judge);
    for file in ResultFile::ALL {
        let expected = match file {
            ResultFile::Successful => job.succeeded(),
            ResultFile::Failed => job.number_records_failed.unwrap_or(0),
            ResultFile::Unprocessed => 0,
        };
        let path = format!("{path}/{}", file.path());
        let mut note = |key: &str, error: &str| matcher.note(file, key, error, &unprocessed);
        read_whole(client, &path, external_id, expected, &mut note).await?;
    }
    Ok(matcher.finish(&job.unmentioned(&client.judge)))
}

/// Reads a file until it is complete. Recording a row repeatedly is harmless.
async fn read_whole(
    client: &SalesforceClient,
    path: &str,
    external_id: &str,
    expected: u64,
    note: &mut (dyn FnMut(&str, &str) + Send),
) -> Result<(), CallProblem> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match read(client, path, external_id, note).await {
            // Fewer than the job counted: cut off between two records, or never written.
            Ok(count) if count < expected && left > 0 => {}
            Ok(_) => return Ok(()),
            Err(failure) if failure.class == Class::Unknown && left > 0 => {}
            // The job exists, so its files will.
            Err(SalesforceFailure { status: Some(404), problem, .. }) => {
                return Err(CallProblem::Outage { problem, after: None });
            }
            Err(failure) => return Err(failure.call_problem()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads a file once. Returns the number of its records.
async fn read(
    client: &SalesforceClient,
    path: &str,
    external_id: &str,
    note: &mut (dyn FnMut(&str, &str) + Send),
) -> Result<u64, SalesforceFailure> {
    let (mut response, name) = client.open(ApiCall::get_file(path)).await?;
    if response::says_html(response.headers()) {
        return Err(response::html(&name));
    }
    let broken = |broken: ResultError| match broken {
        ResultError::Html => response::html(&name),
        ResultError::Csv(why) => {
            let file = path.rsplit('/').next().unwrap_or_default();
            let why = format!("cannot read the file {file}: {why}");
            SalesforceFailure::new(Class::Unknown, "RESULT_UNREADABLE", &why)
        }
    };
    let mut reader = ResultReader::new(external_id);
    loop {
        let piece = response.chunk().await;
        let piece = piece.map_err(|error| response::no_answer(classify::failed(&error, &name)))?;
        let Some(piece) = piece else { break };
        reader.feed(&piece, note).map_err(broken)?;
    }
    reader.finish(note).map_err(broken)
}
