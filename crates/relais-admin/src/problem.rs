//! Error responses as `application/problem+json` (RFC 9457): a status, a stable code for programs, and a text
//! with the next step.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use relais_core::{delivery, store::StoreError};
use serde::Serialize;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiProblem {
    status: StatusCode,
    code: String,
    detail: String,
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    /// Always `about:blank`: `code` identifies the problem.
    r#type: &'static str,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
}

impl ApiProblem {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl ToString) -> Self {
        Self { status, code: code.to_owned(), detail: detail.to_string() }
    }

    /// Returns 400: the request is malformed.
    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", detail)
    }

    pub(crate) fn not_found(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", detail)
    }

    /// Returns 409: the current state does not allow it.
    pub(crate) fn conflict(code: &str, detail: impl ToString) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// Returns 422: the values of the request are invalid.
    pub(crate) fn unprocessable(code: &str, detail: impl ToString) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    /// Converts a problem of the engine and keeps its code.
    pub(crate) fn of(status: StatusCode, problem: &delivery::Problem) -> Self {
        Self::new(status, &problem.code, &problem.message)
    }
}

impl ApiProblem {
    /// Returns the body of the response, for a stream that has already begun.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.body())
    }

    fn body(&self) -> ProblemBody<'_> {
        ProblemBody {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            code: &self.code,
            detail: &self.detail,
        }
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid(_) => Self::unprocessable("INVALID", error),
            StoreError::Setup(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "STORE_SETUP", error)
            }
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", error),
        }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
