//! Reads responses within limits, and classifies errors into a [`SalesforceFailure`].

use std::time::{Duration, SystemTime};

use relais_core::delivery::Delivery;
use reqwest::{
    Response,
    header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER},
};
use serde::Deserialize;

use super::classify::{Class, Judge, SalesforceFailure, same_code};
use crate::http::classify;

/// Time limit of a call that transfers no data.
pub(super) const CALL_TIME: Duration = Duration::from_secs(30);

/// Maximum number of characters shown of a page that is not a response of the API.
const EXCERPT_CHARS: usize = 200;

/// Converts the classification of the HTTP connector for a call without a response.
pub(super) fn no_answer(delivery: Delivery) -> SalesforceFailure {
    let (class, problem, after) = match delivery {
        Delivery::Outage { problem, after } => (Class::Down, problem, after),
        Delivery::Reject { problem } => (Class::Settings, problem, None),
        Delivery::Retry { problem, after }
        | Delivery::Busy { problem, after }
        | Delivery::Misconfigured { problem, after } => (Class::Unknown, problem, after),
        // Neither `Accepted` nor `Held` is a failure.
        _ => unreachable!("the HTTP connector returned a delivery that is not a failure"),
    };
    SalesforceFailure { class, problem, after, status: None }
}

/// An error response.
#[derive(Debug)]
pub(super) struct ErrorResponse<'a> {
    /// The call, e.g. `PATCH https://acme.my.salesforce.com`.
    pub(super) call: &'a str,
    pub(super) status: u16,
    pub(super) after: Option<Duration>,
    pub(super) is_html: bool,
    pub(super) body: &'a [u8],
}

impl ErrorResponse<'_> {
    pub(super) fn failure(&self, judge: &Judge) -> SalesforceFailure {
        let Self { call, status, .. } = *self;
        let error = api_error(self.body);
        let (class, pause) = match (&error, status) {
            _ if self.is_html || looks_like_html(self.body) => (Class::Down, None),
            (_, 401) => (Class::Auth, None),
            // Pages of the proxy in front of the org.
            (_, 406 | 420 | 429 | 502..=504) => (Class::Down, None),
            (Some((code, message)), _) => at_the_call(judge, status, code, message),
            (None, 408 | 425 | 500..) => (Class::Unknown, None),
            (None, 400 | 413) => (Class::Permanent, None),
            // A redirect or a firewall: no row is at fault.
            (None, _) => (Class::Settings, None),
        };
        let (code, message) = error.unwrap_or_else(|| (format!("HTTP_{status}"), self.excerpt()));
        let mut failure =
            SalesforceFailure::new(class, &code, &format!("{call} answered {status}: {message}"));
        failure.after = self.after.or(pause).or(failure.after);
        failure.status = Some(status);
        failure
    }

    fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(self.body);
        text.trim().chars().take(EXCERPT_CHARS).collect()
    }
}

/// Classifies a code of the whole call. A row can be at fault only if the request could not be
/// parsed.
fn at_the_call(judge: &Judge, status: u16, code: &str, message: &str) -> (Class, Option<Duration>) {
    let of_the_settings = ["NOT_FOUND", "INVALID_FIELD", "INVALID_TYPE", "INVALID_JOB"];
    let is_setting = of_the_settings.iter().any(|known| same_code(known, code));
    match judge.class(code, message) {
        (Class::Permanent, _) if is_setting || status != 400 => (Class::Settings, None),
        (Class::Transient, _) if is_setting => (Class::Settings, None),
        decided => decided,
    }
}

/// Returns the first error of `[{"errorCode", "message"}]`.
fn api_error(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct ApiError {
        #[serde(rename = "errorCode")]
        code: String,
        #[serde(default)]
        message: String,
    }
    let errors: Vec<ApiError> = serde_json::from_slice(body).ok()?;
    errors.into_iter().next().map(|error| (error.code, error.message))
}

/// Returns the whole body, if it is not longer than `max`.
pub(super) async fn read(
    response: &mut Response,
    max: usize,
    call: &str,
) -> Result<Vec<u8>, SalesforceFailure> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > max => {
                let message = format!("{call}: the response is longer than {max} bytes");
                return Err(SalesforceFailure::new(Class::Unknown, "ANSWER_TOO_LONG", &message));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => return Err(no_answer(classify::failed(&error, call))),
        }
    }
}

/// Parses JSON. An HTML page instead means that the org is unavailable.
pub(super) fn json<'a, T: Deserialize<'a>>(
    body: &'a [u8],
    call: &str,
) -> Result<T, SalesforceFailure> {
    serde_json::from_slice(body).map_err(|error| {
        if looks_like_html(body) {
            html(call)
        } else {
            let message = format!("{call}: cannot read the response: {error}");
            SalesforceFailure::new(Class::Unknown, "ANSWER_UNREADABLE", &message)
        }
    })
}

/// An HTML page with a success status.
pub(super) fn html(call: &str) -> SalesforceFailure {
    let message =
        format!("{call}: received a web page instead of a response; is the org in maintenance?");
    SalesforceFailure {
        status: Some(200),
        ..SalesforceFailure::new(Class::Down, "HTML_PAGE", &message)
    }
}

pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    classify::retry_after(value, SystemTime::now())
}

pub(super) fn says_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"))
}

/// Neither JSON nor CSV of Salesforce starts with `<`.
pub(super) fn looks_like_html(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().starts_with(b"<")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, body: &str) -> SalesforceFailure {
        let judge = Judge { external_id: "ExternalId__c".into(), superseded: None };
        let body = body.as_bytes();
        ErrorResponse { call: "GET https://x", status, after: None, is_html: false, body }
            .failure(&judge)
    }

    fn coded(status: u16, code: &str, message: &str) -> Class {
        let body = serde_json::json!([{ "errorCode": code, "message": message }]);
        failure(status, &body.to_string()).class
    }

    #[test]
    fn errors_are_classified_by_code_then_by_status() {
        use Class::{Auth, Down, Permanent, Quota, Settings, Transient, Unknown};
        assert_eq!(coded(401, "INVALID_SESSION_ID", "Session expired or invalid"), Auth);
        assert_eq!(coded(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded."), Quota);
        assert_eq!(coded(400, "EXCEEDEDQUOTA", ""), Quota);
        assert_eq!(coded(503, "SERVER_UNAVAILABLE", ""), Down);
        assert_eq!(coded(500, "UNKNOWN_EXCEPTION", ""), Transient);
        assert_eq!(coded(400, "JSON_PARSER_ERROR", ""), Permanent);
        assert_eq!(coded(400, "INVALID_FIELD", "No such column 'X'"), Settings);
        assert_eq!(coded(400, "INVALIDENTITY", ""), Settings);
        assert_eq!(coded(404, "NOT_FOUND", ""), Settings);
        assert_eq!(coded(400, "INVALIDJOB", ""), Settings);
        assert_eq!(coded(403, "INSUFFICIENT_ACCESS_OR_READONLY", ""), Settings);
        for (status, class) in [
            (401, Auth),
            (406, Down),
            (420, Down),
            (429, Down),
            (500, Unknown),
            (502, Down),
            (503, Down),
            (504, Down),
            (400, Permanent),
            (413, Permanent),
            (302, Settings),
            (403, Settings),
            (405, Settings),
        ] {
            assert_eq!(failure(status, "").class, class, "{status}");
        }
    }

    #[test]
    fn a_web_page_is_an_outage_whatever_its_status() {
        for status in [200, 400, 401, 403, 404, 500, 503] {
            let page = failure(status, " <!DOCTYPE html><html>Down for maintenance</html>");
            assert_eq!(page.class, Class::Down, "{status}");
        }
        assert_eq!(json::<Vec<u8>>(b"<html>", "GET x").unwrap_err().class, Class::Down);
        assert_eq!(json::<Vec<u8>>(b"{", "GET x").unwrap_err().class, Class::Unknown);
    }

    #[test]
    fn a_requested_pause_has_priority() {
        let judge = Judge { external_id: "X".into(), superseded: None };
        let asked = Some(Duration::from_secs(7));
        let refusal =
            ErrorResponse { call: "GET x", status: 429, after: asked, is_html: false, body: b"" };
        assert_eq!(refusal.failure(&judge).after, asked);
        assert_eq!(failure(429, "").after, None);
    }
}
