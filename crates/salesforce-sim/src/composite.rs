//! Composite: up to 25 calls in one, which may refer to each other.

pub(crate) mod graph;
mod reference;
mod sub;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::{data::parse_some, http::call::HttpCall, org::OrgState, reply::ApiReply};
use sub::{SubResponse, Subrequest};

const CALLS_MAX: usize = 25;
/// Maximum number of queries and collections among them.
const LARGE_CALLS_MAX: usize = 5;

pub(crate) const ROLLED_BACK: &str =
    "The transaction was rolled back since another operation in the same transaction failed.";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CompositeBody {
    #[serde(default)]
    all_or_none: bool,
    composite_request: Vec<Subrequest>,
}

pub(crate) fn composite(org: &mut OrgState, call: &HttpCall, body: &[u8]) -> ApiReply {
    if call.method != hyper::Method::POST {
        return ApiReply::method_not_allowed("POST");
    }
    let body = match parse_some(body).and_then(checked) {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let unknown = org.faults.faults().collections.unknown_field;
    let (mut transaction, ledger) = org.begin();
    let mut answers = sub::run_all(&mut transaction, &body.composite_request, unknown);
    if body.all_or_none && answers.iter().any(|answer| !answer.is_success()) {
        drop(transaction);
        answers = halted(answers);
    } else {
        transaction.commit(ledger);
    }
    let answers: Vec<Json> = answers.iter().map(SubResponse::to_json).collect();
    ApiReply::json(200, json!({"compositeResponse": answers}))
}

fn checked(json: Json) -> Result<CompositeBody, ApiReply> {
    let body: CompositeBody =
        serde_json::from_value(json).map_err(|error| ApiReply::bad_json(&error.to_string()))?;
    check(&body.composite_request)?;
    Ok(body)
}

/// Marks the calls that were rolled back because of others; failed calls keep their reason.
fn halted(answers: Vec<SubResponse>) -> Vec<SubResponse> {
    let one = |answer: SubResponse| {
        if answer.is_success() {
            SubResponse::halted(answer.reference, ROLLED_BACK)
        } else {
            answer
        }
    };
    answers.into_iter().map(one).collect()
}

fn check(calls: &[Subrequest]) -> Result<(), ApiReply> {
    let invalid = |message: String| Err(ApiReply::error(400, "INVALID_INPUT", &message));
    if calls.len() > CALLS_MAX {
        return invalid(format!(
            "Limit exceeded: a composite request has at most {CALLS_MAX} operations"
        ));
    }
    let large = calls.iter().filter(|call| {
        ["/query", "/composite/sobjects"].iter().any(|part| call.url.contains(part))
    });
    if large.count() > LARGE_CALLS_MAX {
        return invalid(format!(
            "Limit exceeded: at most {LARGE_CALLS_MAX} operations are queries or collections"
        ));
    }
    reference::check_ids(calls.iter().map(|call| call.reference_id.as_str()))
        .or_else(|message| invalid(message.to_owned()))
}
