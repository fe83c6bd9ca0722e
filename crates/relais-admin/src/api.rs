//! The handlers of `/api/v1`. `docs/http-api.md` describes every route, [`routes`](crate::routes) lists them.
//!
//! Invariant: rows change only through the engine's [`Operator`](relais::process::Operator),
//! [`DeadLetters`](relais::dead_letters::DeadLetters) and [`repair`](relais::repair), which record actor and reason. Each change runs
//! in its own task, so that a client that disconnects does not interrupt it.

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
mod row_query;
pub(crate) mod serde_errors;
pub(crate) mod session;

use std::time::Duration;

use axum::{
    Json,
    http::{StatusCode, Uri},
};

use relais_core::{
    id_prefix::{IdKind, IdPrefix},
    inspect::{ListedRow, RowPage},
    query::Filter,
    store::StoreFuture,
};

use crate::{Admin, input::ListPage, problem::ApiProblem, routes::PREFIX};

/// The result of a handler.
pub(crate) type Answer<T> = Result<Json<T>, ApiProblem>;

/// Time limit of a call.
const CALL_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn nothing_here(uri: Uri) -> ApiProblem {
    no_call(&format!("{PREFIX}{}", uri.path()))
}

pub(crate) async fn wrong_method(uri: Uri) -> ApiProblem {
    not_for_this_method(&format!("{PREFIX}{}", uri.path()))
}

/// Answers 404 outside the API, where the path has no prefix.
pub(crate) async fn nothing_there(uri: Uri) -> ApiProblem {
    no_call(uri.path())
}

pub(crate) async fn wrong_method_there(uri: Uri) -> ApiProblem {
    not_for_this_method(uri.path())
}

fn no_call(path: &str) -> ApiProblem {
    ApiProblem::not_found(format_args!("no route `{path}` exists; see /api/openapi.json"))
}

fn not_for_this_method(path: &str) -> ApiProblem {
    let detail = format!("`{path}` does not accept this method; read with GET, act with POST");
    ApiProblem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail)
}

/// Runs a call in its own task and answers 503 if it takes too long.
async fn run<T: Send + 'static>(
    call: impl Future<Output = Result<T, ApiProblem>> + Send + 'static,
) -> Answer<T> {
    perform(call).await.map(Json)
}

/// Runs a call as [`run`] does, for a response that is not JSON.
async fn perform<T: Send + 'static>(
    call: impl Future<Output = Result<T, ApiProblem>> + Send + 'static,
) -> Result<T, ApiProblem> {
    match tokio::time::timeout(CALL_MAX, tokio::spawn(call)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ended)) => Err(ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "PANIC", ended)),
        Err(_) => {
            let detail = format!(
                "no result within {CALL_MAX:?}; the call may still take effect: check before you repeat it"
            );
            Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "TIMEOUT", detail))
        }
    }
}

/// Returns the only id that begins with this text, or `None`; 409 if there are several.
async fn by_prefix(admin: &Admin, kind: IdKind, text: &str) -> Result<Option<String>, ApiProblem> {
    let Some(prefix) = IdPrefix::parse(kind, text) else { return Ok(None) };
    let found = admin.store.ids_with(prefix.clone()).await?;
    prefix.only(found).map_err(|error| ApiProblem::conflict("AMBIGUOUS_ID", error))
}

/// Reads a page of a long list; `id` returns the cursor of a row.
async fn page<'a, T>(
    filter: Filter,
    read: impl FnOnce(Filter) -> StoreFuture<'a, RowPage<T>>,
    id: impl Fn(&T) -> String,
) -> Result<ListPage<ListedRow<T>>, ApiProblem> {
    let limit = filter.limit;
    let RowPage { rows, next } = read(filter).await?;
    Ok(ListPage::of(rows, limit, |listed| id(&listed.row)).or_next(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_is_answered_and_still_completes() {
        let (done, wait) = tokio::sync::oneshot::channel::<()>();
        let (finished, end) = tokio::sync::oneshot::channel::<()>();
        let slow = run(async move {
            let _ = wait.await;
            let _ = finished.send(());
            Ok(())
        });
        assert!(slow.await.is_err());
        done.send(()).unwrap();
        end.await.expect("the work continued after the answer");
    }
}
