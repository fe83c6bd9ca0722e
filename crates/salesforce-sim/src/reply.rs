//! A response before it is encoded.

use std::fmt;

use bytes::Bytes;
use serde_json::{Value as Json, json};

use crate::row_error::RowError;

/// Status, additional headers, and body.
#[derive(Debug)]
pub(crate) struct ApiReply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) content: ReplyContent,
}

pub(crate) enum ReplyContent {
    Empty,
    Json(Json),
    Text {
        kind: &'static str,
        text: String,
    },
    /// Produced in chunks while it is sent.
    Stream {
        kind: &'static str,
        pieces: Pieces,
    },
}

pub(crate) type Pieces = Box<dyn Iterator<Item = Bytes> + Send>;

pub(crate) const CSV: &str = "text/csv; charset=UTF-8";
pub(crate) const HTML: &str = "text/html; charset=UTF-8";
pub(crate) const XML: &str = "text/xml; charset=UTF-8";

impl ApiReply {
    pub(crate) fn json(status: u16, json: Json) -> Self {
        Self { status, headers: Vec::new(), content: ReplyContent::Json(json) }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), content: ReplyContent::Empty }
    }

    pub(crate) fn text(status: u16, kind: &'static str, text: impl Into<String>) -> Self {
        let content = ReplyContent::Text { kind, text: text.into() };
        Self { status, headers: Vec::new(), content }
    }

    pub(crate) fn stream(kind: &'static str, pieces: Pieces) -> Self {
        Self { status: 200, headers: Vec::new(), content: ReplyContent::Stream { kind, pieces } }
    }

    /// Returns the array with one error that all of REST responds with.
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        Self::json(status, json!([{"errorCode": code, "message": message}]))
    }

    pub(crate) fn refused(error: &RowError) -> Self {
        Self::json(error.status(), error.in_rest())
    }

    pub(crate) fn not_found() -> Self {
        Self::error(404, "NOT_FOUND", "The requested resource does not exist")
    }

    pub(crate) fn method_not_allowed(allowed: &str) -> Self {
        let message = format!("HTTP Method not allowed. Allowed are {allowed}");
        Self::error(405, "METHOD_NOT_ALLOWED", &message)
    }

    pub(crate) fn bad_json(why: &str) -> Self {
        Self::error(400, "JSON_PARSER_ERROR", why)
    }

    pub(crate) fn with(mut self, header: &'static str, value: String) -> Self {
        self.headers.push((header, value));
        self
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status < 300
    }
}

impl From<RowError> for ApiReply {
    fn from(error: RowError) -> Self {
        Self::refused(&error)
    }
}

impl fmt::Debug for ReplyContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Json(json) => write!(f, "{json}"),
            Self::Text { text, .. } => f.write_str(text),
            Self::Stream { kind, .. } => write!(f, "Stream({kind})"),
        }
    }
}
