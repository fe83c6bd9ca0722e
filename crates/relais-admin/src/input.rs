//! What a request says: its query, its path, its JSON body; and how what is wrong with them is said.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::BytesRejection},
    http::{StatusCode, request::Parts},
    response::IntoResponse,
};
use relais::desk::By;
use relais_core::query::PAGE_MAX;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::error::Category;

use crate::problem::Problem;

/// Entries of a page unless the request says otherwise.
const PAGE: usize = 50;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest name of a person, and longest reason.
const ACTOR_MAX: usize = 200;
const REASON_MAX: usize = 2_000;

/// The query of a request.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(Problem::bad_request(rejection.body_text())),
        }
    }
}

/// The parts of the path that stand for something.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(rejection) => Err(Problem::bad_request(rejection.body_text())),
        }
    }
}

/// The JSON body of a request.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = tokio::time::timeout(BODY_TIME, Bytes::from_request(request, state)).await;
        let late =
            |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "the body came too slowly");
        let bytes = read.map_err(late)?.map_err(unreadable)?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| match error.classify() {
            Category::Data => Problem::unprocessable("INVALID", error),
            _ => Problem::bad_request(format_args!("the body is not JSON: {error}")),
        })
    }
}

fn unreadable(rejection: BytesRejection) -> Problem {
    let detail = rejection.body_text();
    if rejection.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", "the body is too large");
    }
    Problem::bad_request(detail)
}

/// How much of a list.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Limit(Option<usize>);

impl Limit {
    pub(crate) fn get(self) -> Result<usize, Problem> {
        let limit = self.0.unwrap_or(PAGE);
        if (1..=PAGE_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(Problem::bad_request(format_args!("`limit` must be from 1 to {PAGE_MAX}")))
    }
}

/// A part of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Page<T> {
    items: Vec<T>,
    /// What to give as `before` for the next page; absent if this one is the last.
    next: Option<String>,
}

impl<T> Page<T> {
    /// `id` is what the next page starts after.
    pub(crate) fn of(items: Vec<T>, limit: usize, id: impl Fn(&T) -> String) -> Self {
        let next = items.last().filter(|_| items.len() >= limit).map(id);
        Self { items, next }
    }
}

/// Who wants it and why, for the log and the audit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Who {
    pub(crate) actor: String,
    pub(crate) reason: String,
}

impl Who {
    /// For the desk.
    pub(crate) fn by(self) -> Result<By, Problem> {
        self.check()?;
        Ok(By { actor: self.actor, reason: self.reason })
    }

    pub(crate) fn check(&self) -> Result<(), Problem> {
        for (name, text, max) in
            [("actor", &self.actor, ACTOR_MAX), ("reason", &self.reason, REASON_MAX)]
        {
            let chars = text.chars().count();
            if text.trim().is_empty() || chars > max {
                return Err(Problem::unprocessable(
                    "INVALID",
                    format_args!("`{name}` must have 1 to {max} characters, and not be blank"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_names_no_next_one() {
        let page = |limit| Page::of(vec![3, 2, 1], limit, ToString::to_string).next;
        assert_eq!((page(3), page(4)), (Some("1".into()), None));
        assert_eq!(Page::of(Vec::<u8>::new(), 1, ToString::to_string).next, None);
    }

    #[test]
    fn pages_are_bounded() {
        assert_eq!(Limit(None).get().unwrap(), PAGE);
        assert_eq!(Limit(Some(PAGE_MAX)).get().unwrap(), PAGE_MAX);
        assert!(Limit(Some(0)).get().is_err() && Limit(Some(PAGE_MAX + 1)).get().is_err());
    }

    #[test]
    fn somebody_must_give_a_reason() {
        let who = |actor: &str, reason: &str| Who { actor: actor.into(), reason: reason.into() };
        assert!(who("ann", "late").check().is_ok());
        for wrong in [who("", "late"), who("ann", "  "), who("ann", &"x".repeat(REASON_MAX + 1))] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
