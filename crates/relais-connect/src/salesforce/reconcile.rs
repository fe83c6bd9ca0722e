//! The end of a bulk job: its three result files, read into an answer for each row.
//!
//! Invariant: no file is trusted that breaks off or has fewer rows than the job counted, unless it
//! stays that way. Files are read as they come; only one record of them is in memory.

use std::time::Duration;

use relais_core::{
    bulk::{CallProblem, Remote},
    delivery::{Delivery, Problem},
};

use super::{
    answer,
    classify::{Class, Failure},
    client::{Call, Client},
    job::JobInfo,
    results::{Broken, File, Matcher, ResultReader},
};
use crate::http::classify;

/// How often a file is asked for that is not whole.
const TRIES: u32 = 3;
/// The pause before it is asked for again.
const PAUSE: Duration = Duration::from_millis(500);

/// The job at `path`, or `None` if the org does not know it.
pub(super) async fn job(client: &Client, path: &str) -> Result<Option<JobInfo>, Failure> {
    match client.ask(Call::get(path)).await {
        Ok(job) => Ok(Some(job)),
        Err(failure) if failure.status == Some(404) && failure.class != Class::Down => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// One answer for each row.
pub(super) async fn results(
    client: &Client,
    path: &str,
    external_id: &str,
    ids: &[String],
) -> Result<Vec<Delivery>, CallProblem> {
    let Some(job) = job(client, path).await.map_err(Failure::call_problem)? else {
        // Deleted, or older than a week: what became of the rows cannot be learned any more.
        let lost = Delivery::retry("RESULTS_GONE", "the job and its results are gone from the org");
        return Ok(vec![lost; ids.len()]);
    };
    match job.remote(&client.judge).map_err(Failure::call_problem)? {
        Remote::Complete | Remote::Failed(_) | Remote::Aborted => {}
        Remote::Open | Remote::Running | Remote::Gone => {
            let why = format!("the job has no results yet, it is {}", job.state);
            return Err(CallProblem::OtherState(Problem::new("JOB_NOT_DONE", &why)));
        }
    }
    let unprocessed = job.unprocessed(&client.judge);
    let mut matcher = Matcher::new(ids, &client.judge);
    for file in File::ALL {
        let expected = match file {
            File::Successful => job.succeeded(),
            File::Failed => job.number_records_failed.unwrap_or(0),
            File::Unprocessed => 0,
        };
        let path = format!("{path}/{}", file.path());
        let mut note = |key: &str, error: &str| matcher.note(file, key, error, &unprocessed);
        read_whole(client, &path, external_id, expected, &mut note).await?;
    }
    Ok(matcher.finish(&job.unmentioned(&client.judge)))
}

/// Reads a file until it is whole. Records are noted as often as they are read, which is harmless.
async fn read_whole(
    client: &Client,
    path: &str,
    external_id: &str,
    expected: u64,
    note: &mut (dyn FnMut(&str, &str) + Send),
) -> Result<(), CallProblem> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match read(client, path, external_id, note).await {
            // Fewer than the job counted: cut off between two records, or never written down.
            Ok(count) if count < expected && left > 0 => {}
            Ok(_) => return Ok(()),
            Err(failure) if failure.class == Class::Unknown && left > 0 => {}
            // The job is there, so its files will be.
            Err(Failure { status: Some(404), problem, .. }) => {
                return Err(CallProblem::Outage { problem, after: None });
            }
            Err(failure) => return Err(failure.call_problem()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads a file once: how many records it has.
async fn read(
    client: &Client,
    path: &str,
    external_id: &str,
    note: &mut (dyn FnMut(&str, &str) + Send),
) -> Result<u64, Failure> {
    let (mut response, name) = client.open(Call::get_file(path)).await?;
    if answer::says_html(response.headers()) {
        return Err(answer::html(&name));
    }
    let broken = |broken: Broken| match broken {
        Broken::Html => answer::html(&name),
        Broken::Csv(why) => {
            let file = path.rsplit('/').next().unwrap_or_default();
            let why = format!("the file {file} cannot be read: {why}");
            Failure::new(Class::Unknown, "RESULT_UNREADABLE", &why)
        }
    };
    let mut reader = ResultReader::new(external_id);
    loop {
        let piece = response.chunk().await;
        let piece = piece.map_err(|error| answer::no_answer(classify::failed(&error, &name)))?;
        let Some(piece) = piece else { break };
        reader.feed(&piece, note).map_err(broken)?;
    }
    reader.finish(note).map_err(broken)
}
