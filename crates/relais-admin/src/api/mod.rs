//! `/api/v1`: what people and programs look at, and what they may do about it. `docs/http-api.md`
//! describes every call.
//!
//! Invariant: what changes a row goes through the engine's own [`Operator`](relais::process::Operator) and
//! [`Desk`](relais::desk::Desk), which record who and why; nothing is decided here. It runs in a task of
//! its own, so that a client that goes away does not cut it short.

mod audit;
mod dead_letters;
mod destinations;
mod explain;
mod parked_keys;
mod processes;

use std::time::Duration;

use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    http::{StatusCode, Uri},
    routing::{get, post},
};

use crate::{Admin, problem::Problem};

/// What a call gives back.
type Answer<T> = Result<Json<T>, Problem>;

/// Largest body of a decision, and of one that carries a payload.
const BODY_MAX: usize = 64 << 10;
const EDIT_BODY_MAX: usize = 16 << 20;
/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(20);

/// The calls, as a table.
pub(crate) fn router() -> Router<Admin> {
    let edit = post(dead_letters::edit).layer(DefaultBodyLimit::max(EDIT_BODY_MAX));
    Router::new()
        .route("/destinations", get(destinations::list))
        .route("/processes", get(processes::list))
        .route("/processes/{id}", get(processes::show))
        .route("/processes/{id}/log", get(processes::log))
        .route("/processes/{id}/{action}", post(processes::act))
        .route("/dead-letters", get(dead_letters::list))
        .route("/dead-letters/{id}", get(dead_letters::show))
        .route("/dead-letters/{id}/edit", edit)
        .route("/dead-letters/{id}/replay", post(dead_letters::replay))
        .route("/dead-letters/{id}/discard", post(dead_letters::discard))
        .route("/parked-keys", get(parked_keys::list))
        .route("/parked-keys/release", post(parked_keys::release))
        .route("/parked-keys/skip", post(parked_keys::skip))
        .route("/explain/{*id}", get(explain::explain))
        .route("/audit", get(audit::list))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_MAX))
}

async fn nothing_here(uri: Uri) -> Problem {
    let path = uri.path();
    Problem::not_found(format_args!("`{path}` is no call of this API; see docs/http-api.md"))
}

async fn wrong_method(uri: Uri) -> Problem {
    let detail =
        format!("`{}` is there, but not for this method: look with GET, act with POST", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail)
}

/// Runs a call in a task of its own, and says so if it takes too long.
async fn run<T: Send + 'static>(
    call: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Answer<T> {
    match tokio::time::timeout(CALL_MAX, tokio::spawn(call)).await {
        Ok(Ok(answer)) => answer.map(Json),
        Ok(Err(ended)) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "PANIC", ended)),
        Err(_) => {
            let detail = format!(
                "no answer within {CALL_MAX:?}; it may still happen: look before you repeat it"
            );
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "TIMEOUT", detail))
        }
    }
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
