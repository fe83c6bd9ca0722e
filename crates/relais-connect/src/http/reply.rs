//! Responses to senders: always JSON, always with the next step.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use relais_core::{delivery::Problem, inbox::AcceptOutcome};
use serde_json::json;

/// The pause requested from a sender after a refusal that is not its fault.
const RETRY_AFTER_SECONDS: u16 = 1;

pub(super) type Reply = Response<Full<Bytes>>;

/// Returns `202`: the message is durable. `problem` explains why it could not be decoded.
pub(super) fn accepted(
    accepted: AcceptOutcome,
    message_id: &str,
    problem: Option<&Problem>,
) -> Reply {
    let mut body = json!({ "status": accepted, "message_id": message_id });
    if let Some(problem) = problem {
        body["decoded"] = json!(false);
        body["error"] = json!(problem.code);
        body["message"] = json!(problem.message);
    }
    json_reply(StatusCode::ACCEPTED, &body)
}

/// The reason why a request is refused.
#[derive(Debug)]
pub(super) struct RequestRefusal {
    status: StatusCode,
    code: String,
    message: String,
}

impl RequestRefusal {
    fn new(status: StatusCode, code: &str, message: &str) -> Self {
        Self { status, code: code.to_owned(), message: message.to_owned() }
    }

    pub(super) fn bad_request(code: &str, message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(super) fn unauthorized(message: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)
    }

    pub(super) fn not_found(name: &str) -> Self {
        let message = format!("no source at this path; send to `/{name}`");
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", &message)
    }

    pub(super) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "use POST")
    }

    pub(super) fn timeout() -> Self {
        let message = "the body did not arrive in time; send it again";
        Self::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", message)
    }

    pub(super) fn too_large(body_max: usize) -> Self {
        let message = format!("the body is larger than {body_max} bytes; send a smaller body");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", &message)
    }

    pub(super) fn unsupported(message: &str) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message)
    }

    /// A temporary refusal: the same request may succeed later.
    pub(super) fn unavailable(code: &str, message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    pub(super) fn into_reply(self) -> Reply {
        let body = json!({ "error": self.code, "message": self.message });
        let mut reply = json_reply(self.status, &body);
        let headers = reply.headers_mut();
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        reply
    }
}

/// Closes the connection after this response, because the rest of the request body is not read.
pub(super) fn last(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

fn json_reply(status: StatusCode, body: &serde_json::Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body.to_string())));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}
