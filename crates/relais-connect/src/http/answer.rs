//! The JSON answer of a handler: its outcome, and the messages to send.
//!
//! Pure: the same answer to the same message gives the same messages, ids included. An answer that does not
//! follow the contract is an error that says what to change.

use std::{collections::BTreeMap, time::Duration};

use relais_core::{
    handler::Outcome,
    inbox::{InboxRow, original_source},
    json,
    message::{Category, Headers, NewMessage, is_reserved_header},
    remote_handler::RemoteReply,
    text,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::classify::harmless;

/// Maximum number of bytes of an answer.
pub(super) const ANSWER_MAX: usize = 1 << 20;
/// Maximum number of messages in an answer.
pub(super) const MESSAGES_MAX: usize = 1_000;
/// The longest text that names a type.
const NAME_MAX: usize = 200;
/// The longest pause or delay that an answer can ask for, in seconds.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// The handler that an answer is from, and the id of its call.
pub(super) struct AnswerContext<'a> {
    pub(super) row: &'a InboxRow,
    /// The same in every call about the message.
    pub(super) call_id: &'a str,
    /// The destinations that the answer may name.
    pub(super) destinations: &'a [String],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody<'a> {
    outcome: AnswerOutcome,
    #[serde(borrow, default)]
    messages: Vec<AnswerMessage<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    code: Option<String>,
    message: Option<String>,
    after_seconds: Option<f64>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum AnswerOutcome {
    Done,
    Retry,
    Fail,
    Park,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerMessage<'a> {
    destination: String,
    event_type: String,
    #[serde(borrow)]
    payload: &'a RawValue,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    key: Option<String>,
    event_version: Option<i32>,
    #[serde(default)]
    category: Category,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    delay_seconds: Option<f64>,
}

/// Returns what an answer means; the error says why it is not valid.
pub(super) fn parse(body: &[u8], context: &AnswerContext<'_>) -> Result<RemoteReply, String> {
    let body = json::check(body).map_err(|error| format!("is {error}"))?;
    if !body.trim_start().starts_with('{') {
        return Err("is not a JSON object".to_owned());
    }
    let answer: AnswerBody<'_> =
        serde_json::from_str(body).map_err(|error| format!("is not valid: {error}"))?;
    if answer.outcome != AnswerOutcome::Done && !answer.messages.is_empty() {
        return Err("has messages, but its outcome is not `done`".to_owned());
    }
    if answer.outcome != AnswerOutcome::Done && answer.data.is_some() {
        return Err("has `data`, but its outcome is not `done`".to_owned());
    }
    if answer.outcome != AnswerOutcome::Retry && answer.after_seconds.is_some() {
        return Err("has `after_seconds`, but its outcome is not `retry`".to_owned());
    }
    if answer.messages.len() > MESSAGES_MAX {
        let found = answer.messages.len();
        return Err(format!("has {found} messages, at most {MESSAGES_MAX} are allowed"));
    }
    let reason = |code: &str| {
        let text = answer.message.as_deref().unwrap_or("the service gave no reason");
        (answer.code.clone().unwrap_or_else(|| code.to_owned()), harmless(text))
    };
    Ok(RemoteReply::Refused(match answer.outcome {
        AnswerOutcome::Done => {
            let messages = answer.messages.iter().enumerate();
            let messages = messages.map(|(index, message)| {
                context
                    .message(index, message)
                    .map_err(|why| format!("has an invalid message (messages[{index}]): {why}"))
            });
            let messages = messages.collect::<Result<_, _>>()?;
            let data = answer.data.map(|data| data.get().to_owned());
            return Ok(RemoteReply::Done { messages, data });
        }
        AnswerOutcome::Retry => {
            let (code, text) = reason("HANDLER_RETRY");
            match answer.after_seconds {
                None => Outcome::retry(&code, &text),
                Some(after) => Outcome::retry_after(seconds("after_seconds", after)?, &code, &text),
            }
        }
        AnswerOutcome::Fail => {
            let (code, text) = reason("HANDLER_FAILED");
            Outcome::fail(&code, &text)
        }
        AnswerOutcome::Park => {
            let (code, text) = reason("HANDLER_PARKED");
            Outcome::park(&code, &text)
        }
    }))
}

impl AnswerContext<'_> {
    fn message(&self, index: usize, message: &AnswerMessage<'_>) -> Result<NewMessage, String> {
        let row = self.row;
        if !self.destinations.contains(&message.destination) {
            let listed = match self.destinations {
                [] => "none".to_owned(),
                names => format!("`{}`", names.join("`, `")),
            };
            let found: String = message.destination.chars().take(NAME_MAX).collect();
            return Err(format!(
                "destination `{}` is not listed in `destinations` of this handler ({listed})",
                found.escape_debug()
            ));
        }
        let event_type = name("event_type", &message.event_type)?;
        let source = original_source(&row.source_system);
        let aggregate_type = match &message.aggregate_type {
            Some(given) => name("aggregate_type", given)?,
            None => source.as_str(),
        };
        let own_id = row.aggregate_id.as_deref().unwrap_or(&row.msg_key);
        let aggregate_id = text::aggregate_id(message.aggregate_id.as_deref().unwrap_or(own_id))?;
        let key = message.key.as_deref().or(message.aggregate_id.as_deref());
        let id = text::stable_uuid(&[self.call_id, &index.to_string()]);
        let payload = message.payload.get().to_owned();
        let mut new = NewMessage::new(
            id,
            (aggregate_type, aggregate_id),
            event_type,
            &message.destination,
            payload,
        );
        new.msg_key = text::identity(key.unwrap_or(&row.msg_key), text::KEY_MAX);
        new.category = message.category;
        new.event_version = match message.event_version {
            Some(version) if version < 1 => return Err("event_version is less than 1".to_owned()),
            version => version.unwrap_or(1),
        };
        new.delay =
            message.delay_seconds.map(|delay| seconds("delay_seconds", delay)).transpose()?;
        new.headers = self.headers(message)?;
        Ok(new)
    }

    /// Returns the headers of the answer, and the trace of the message unless the answer has one.
    fn headers(&self, message: &AnswerMessage<'_>) -> Result<Headers, String> {
        let mut headers = Headers::default();
        for name in ["traceparent", "tracestate"] {
            if let Some(value) = self.row.headers.get(name) {
                headers.set(name, value);
            }
        }
        for (name, value) in &message.headers {
            if is_reserved_header(name) {
                return Err(format!("header `{}` is set by relais itself", name.escape_debug()));
            }
            headers.set(name, value);
        }
        Ok(headers)
    }
}

fn name<'a>(key: &str, value: &'a str) -> Result<&'a str, String> {
    match value.chars().count() {
        0 => Err(format!("{key} is empty")),
        count if count > NAME_MAX => {
            Err(format!("{key} has {count} characters, at most {NAME_MAX} are allowed"))
        }
        _ if value.contains('\0') => Err(format!("{key} contains U+0000")),
        _ => Ok(value),
    }
}

fn seconds(key: &str, value: f64) -> Result<Duration, String> {
    if (0.0..=SECONDS_MAX).contains(&value) {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err(format!("{key} is not a number of seconds from 0 to {SECONDS_MAX}"))
    }
}

#[cfg(test)]
mod tests;
