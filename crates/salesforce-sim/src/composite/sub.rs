//! The calls within a composite or a graph.

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::reference::{Answers, resolved, resolved_json};
use crate::{
    collections,
    data::version::Version,
    faults::UnknownField,
    http::call::{pairs, segments, value_of},
    reply::{ApiReply, ReplyContent},
    rows::{self, RowCall},
    soql,
    store::transaction::OrgTransaction,
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subrequest {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) reference_id: String,
    pub(super) body: Option<Json>,
}

/// The response of one call.
#[derive(Debug)]
pub(super) struct SubResponse {
    pub(super) reference: String,
    status: u16,
    headers: Map<String, Json>,
    body: Json,
}

impl SubResponse {
    pub(super) fn is_success(&self) -> bool {
        self.status < 300
    }

    pub(super) fn halted(reference: String, why: &str) -> Self {
        let body = json!([{"errorCode": "PROCESSING_HALTED", "message": why}]);
        Self { reference, status: 400, headers: Map::new(), body }
    }

    fn of(reference: &str, reply: ApiReply) -> Self {
        let location = reply.headers.iter().filter(|(name, _)| *name == "location");
        let headers = location.map(|(_, value)| ("Location".to_owned(), value.as_str().into()));
        let headers = headers.collect();
        let body = match reply.content {
            ReplyContent::Json(json) => json,
            _ => Json::Null,
        };
        Self { reference: reference.to_owned(), status: reply.status, headers, body }
    }

    pub(super) fn to_json(&self) -> Json {
        json!({
            "body": self.body,
            "httpHeaders": self.headers,
            "httpStatusCode": self.status,
            "referenceId": self.reference,
        })
    }
}

/// Executes the calls in order. A call that refers to a failed one is not executed.
pub(super) fn run_all(
    transaction: &mut OrgTransaction<'_>,
    calls: &[Subrequest],
    unknown: UnknownField,
) -> Vec<SubResponse> {
    let mut known = Answers::new();
    let mut answers = Vec::new();
    for call in calls {
        let answer = match prepared(call, &known) {
            Err(why) => SubResponse::halted(call.reference_id.clone(), &why),
            Ok((url, body)) => {
                let reply = run(transaction, &call.method, &url, body, unknown);
                SubResponse::of(&call.reference_id, reply)
            }
        };
        if answer.is_success() {
            known.insert(call.reference_id.clone(), answer.body.clone());
        }
        answers.push(answer);
    }
    answers
}

fn prepared(call: &Subrequest, known: &Answers) -> Result<(String, Option<Json>), String> {
    let body = call.body.as_ref().map(|body| resolved_json(body, known)).transpose()?;
    Ok((resolved(&call.url, known)?, body))
}

fn run(
    transaction: &mut OrgTransaction<'_>,
    method: &str,
    url: &str,
    body: Option<Json>,
    unknown: UnknownField,
) -> ApiReply {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let (parts, query) = (segments(path), pairs(query));
    let Ok(method) = method.parse::<Method>() else { return ApiReply::not_found() };
    let (Some(version), true) = (
        parts.get(2).and_then(|version| Version::parse(version)),
        path.starts_with("/services/data/"),
    ) else {
        return ApiReply::not_found();
    };
    let rest: Vec<&str> = parts[3..].iter().map(String::as_str).collect();
    match rest.as_slice() {
        ["sobjects", ..] => {
            let call = RowCall {
                version,
                method: &method,
                segments: &parts[4..],
                query: &query,
                body: body.as_ref(),
            };
            rows::call(transaction, &call)
        }
        ["composite", "sobjects", rest @ ..] => {
            let method = &method;
            let request =
                collections::CollectionCall { version, method, rest, query: &query, body, unknown };
            collections::run(transaction, &request)
        }
        ["query" | "queryAll"] if method == Method::GET => {
            let text = value_of(&query, "q").unwrap_or_default();
            soql::whole(transaction.tables, text, version)
        }
        _ => ApiReply::not_found(),
    }
}
