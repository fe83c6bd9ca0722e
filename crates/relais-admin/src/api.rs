//! `/api/v1`: what people and programs look at, and what they may do about it. `docs/http-api.md`
//! describes every call, [`routes`](crate::routes) lists them.
//!
//! Invariant: what changes a row goes through the engine's own [`Operator`](relais::process::Operator),
//! [`Desk`](relais::desk::Desk) and [`repair`](relais::repair), which record who and why; nothing is
//! decided here. It runs in a task of its own, so that a client that goes away does not cut it short.

pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod configuration;
pub(crate) mod controls;
pub(crate) mod dead_letters;
pub(crate) mod destinations;
pub(crate) mod explain;
pub(crate) mod inbox;
pub(crate) mod live;
pub(crate) mod outbox;
pub(crate) mod overview;
pub(crate) mod parked_keys;
pub(crate) mod payload;
pub(crate) mod processes;
pub(crate) mod serde_errors;
pub(crate) mod session;

use std::time::Duration;

use axum::{
    Json,
    http::{StatusCode, Uri},
};

use relais_core::{
    browse::{Listed, Reach, look_back},
    query::Filter,
    store::StoreFuture,
};

use crate::{input::Page, problem::Problem, routes::PREFIX};

/// What a call gives back.
pub(crate) type Answer<T> = Result<Json<T>, Problem>;

/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn nothing_here(uri: Uri) -> Problem {
    no_call(&format!("{PREFIX}{}", uri.path()))
}

pub(crate) async fn wrong_method(uri: Uri) -> Problem {
    not_for_this_method(&format!("{PREFIX}{}", uri.path()))
}

/// The same outside the API, where paths are whole.
pub(crate) async fn nothing_there(uri: Uri) -> Problem {
    no_call(uri.path())
}

pub(crate) async fn wrong_method_there(uri: Uri) -> Problem {
    not_for_this_method(uri.path())
}

fn no_call(path: &str) -> Problem {
    Problem::not_found(format_args!("`{path}` is no call of this API; see /api/openapi.json"))
}

fn not_for_this_method(path: &str) -> Problem {
    let detail =
        format!("`{path}` is there, but not for this method: look with GET, act with POST");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail)
}

/// Runs a call in a task of its own, and says so if it takes too long.
async fn run<T: Send + 'static>(
    call: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Answer<T> {
    perform(call).await.map(Json)
}

/// The same for an answer that is not JSON.
async fn perform<T: Send + 'static>(
    call: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::time::timeout(CALL_MAX, tokio::spawn(call)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ended)) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "PANIC", ended)),
        Err(_) => {
            let detail = format!(
                "no answer within {CALL_MAX:?}; it may still happen: look before you repeat it"
            );
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "TIMEOUT", detail))
        }
    }
}

/// A page of rows that may be many; `id` is what the next one starts after.
async fn page<'a, T>(
    filter: Filter,
    reach: impl FnOnce(Filter) -> StoreFuture<'a, Reach>,
    browse: impl FnOnce(Filter) -> StoreFuture<'a, Vec<Listed<T>>>,
    id: impl Fn(&T) -> String,
) -> Result<Page<Listed<T>>, Problem> {
    let limit = filter.limit;
    let (rows, next) = look_back(filter, reach, browse).await?;
    Ok(Page::of(rows, limit, |listed| id(&listed.row)).or_next(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_is_answered_without_being_cut_short() {
        let (done, wait) = tokio::sync::oneshot::channel::<()>();
        let (told, end) = tokio::sync::oneshot::channel::<()>();
        let slow = run(async move {
            let _ = wait.await;
            let _ = told.send(());
            Ok(())
        });
        assert!(slow.await.is_err());
        done.send(()).unwrap();
        end.await.expect("the work went on after the answer");
    }
}
