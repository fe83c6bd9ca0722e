//! What came back from a call, or did not: read within limits, and sorted into a [`Failure`].

use std::time::{Duration, SystemTime};

use relais_core::delivery::Delivery;
use reqwest::{
    Response,
    header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER},
};
use serde::Deserialize;

use super::classify::{Class, Failure, Judge, same_code};
use crate::http::classify;

/// The limit of a call that moves no data.
pub(super) const CALL_TIME: Duration = Duration::from_secs(30);

/// How much of a page that is no answer is shown.
const EXCERPT_CHARS: usize = 200;

/// No answer at all: as the HTTP connector sorts it.
pub(super) fn no_answer(delivery: Delivery) -> Failure {
    let (class, problem, after) = match delivery {
        Delivery::Outage { problem, after } => (Class::Down, problem, after),
        Delivery::Reject { problem } => (Class::Settings, problem, None),
        Delivery::Retry { problem, after }
        | Delivery::Busy { problem, after }
        | Delivery::Misconfigured { problem, after } => (Class::Unknown, problem, after),
        // Neither `Accepted` nor `Held` is a failure.
        _ => unreachable!("the HTTP connector returned a delivery that is not a failure"),
    };
    Failure { class, problem, after, status: None }
}

/// What is read of an answer that says no.
#[derive(Debug)]
pub(super) struct Refusal<'a> {
    /// E.g. `PATCH https://acme.my.salesforce.com`.
    pub(super) call: &'a str,
    pub(super) status: u16,
    pub(super) after: Option<Duration>,
    pub(super) is_html: bool,
    pub(super) body: &'a [u8],
}

impl Refusal<'_> {
    pub(super) fn failure(&self, judge: &Judge) -> Failure {
        let Self { call, status, .. } = *self;
        let told = told(self.body);
        let (class, pause) = match (&told, status) {
            _ if self.is_html || looks_like_html(self.body) => (Class::Down, None),
            (_, 401) => (Class::Auth, None),
            // Pages of the edge in front of the org.
            (_, 406 | 420 | 429 | 502..=504) => (Class::Down, None),
            (Some((code, message)), _) => at_the_call(judge, status, code, message),
            (None, 408 | 425 | 500..) => (Class::Unknown, None),
            (None, 400 | 413) => (Class::Permanent, None),
            // A redirect, a wall in between: no row is to blame.
            (None, _) => (Class::Settings, None),
        };
        let (code, message) = told.unwrap_or_else(|| (format!("HTTP_{status}"), self.excerpt()));
        let mut failure =
            Failure::new(class, &code, &format!("{call} answered {status}: {message}"));
        failure.after = self.after.or(pause).or(failure.after);
        failure.status = Some(status);
        failure
    }

    fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(self.body);
        text.trim().chars().take(EXCERPT_CHARS).collect()
    }
}

/// A code that stands for the whole call. Only a call that cannot be read may have a row to blame.
fn at_the_call(judge: &Judge, status: u16, code: &str, message: &str) -> (Class, Option<Duration>) {
    let of_the_settings = ["NOT_FOUND", "INVALID_FIELD", "INVALID_TYPE", "INVALID_JOB"];
    let is_setting = of_the_settings.iter().any(|known| same_code(known, code));
    match judge.class(code, message) {
        (Class::Permanent, _) if is_setting || status != 400 => (Class::Settings, None),
        (Class::Transient, _) if is_setting => (Class::Settings, None),
        decided => decided,
    }
}

/// The first error: `[{"errorCode", "message"}]`.
fn told(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Told {
        #[serde(rename = "errorCode")]
        code: String,
        #[serde(default)]
        message: String,
    }
    let errors: Vec<Told> = serde_json::from_slice(body).ok()?;
    errors.into_iter().next().map(|told| (told.code, told.message))
}

/// All of the body, if it is not longer than `max`.
pub(super) async fn read(
    response: &mut Response,
    max: usize,
    call: &str,
) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > max => {
                let message = format!("{call}: the answer is longer than {max} bytes");
                return Err(Failure::new(Class::Unknown, "ANSWER_TOO_LONG", &message));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => return Err(no_answer(classify::failed(&error, call))),
        }
    }
}

/// JSON where JSON is expected; a page of HTML is the sign of an org that is away.
pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a [u8], call: &str) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        if looks_like_html(body) {
            html(call)
        } else {
            let message = format!("{call}: the answer cannot be read: {error}");
            Failure::new(Class::Unknown, "ANSWER_UNREADABLE", &message)
        }
    })
}

/// A page with the status of success.
pub(super) fn html(call: &str) -> Failure {
    let message = format!("{call}: a web page instead of an answer; is the org in maintenance?");
    Failure { status: Some(200), ..Failure::new(Class::Down, "HTML_PAGE", &message) }
}

pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    classify::retry_after(value, SystemTime::now())
}

pub(super) fn says_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"))
}

/// Neither JSON nor our CSV starts with `<`.
pub(super) fn looks_like_html(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().starts_with(b"<")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, body: &str) -> Failure {
        let judge = Judge { external_id: "ExternalId__c".into(), superseded: None };
        let body = body.as_bytes();
        Refusal { call: "GET https://x", status, after: None, is_html: false, body }.failure(&judge)
    }

    fn coded(status: u16, code: &str, message: &str) -> Class {
        let body = serde_json::json!([{ "errorCode": code, "message": message }]);
        failure(status, &body.to_string()).class
    }

    #[test]
    fn answers_are_sorted_by_code_then_by_status() {
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
    fn a_pause_that_is_asked_for_goes_before_ours() {
        let judge = Judge { external_id: "X".into(), superseded: None };
        let asked = Some(Duration::from_secs(7));
        let refusal =
            Refusal { call: "GET x", status: 429, after: asked, is_html: false, body: b"" };
        assert_eq!(refusal.failure(&judge).after, asked);
        assert_eq!(failure(429, "").after, None);
    }
}
