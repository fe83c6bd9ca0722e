//! Traces: one trace from the received message to the last message it caused, over processes and hours.
//!
//! A row carries its trace in the header `traceparent` (W3C). Without one, trace and span ids are computed
//! from the message id, so every worker computes the same ones and nothing is written. The engine passes
//! finished spans to a [`SpanSink`]; without a sink, no spans are made.
//!
//! Invariant: a span holds names and ids, never a payload, a header value or a key in clear text.

use std::{fmt, sync::Arc, time::SystemTime};

use relais_core::{
    delivery::{Delivery, Problem},
    inbox::{AcceptOutcome, InboxRow, NewInbox},
    message::Headers,
    outbox::OutboxRow,
};
use sha2::{Digest, Sha256};

use crate::random;

const TRACEPARENT: &str = "traceparent";

/// Receives finished spans. Workers call it: it must not wait and must not fail.
pub trait SpanSink: Send + Sync {
    /// Takes a finished span. Must not block.
    fn record(&self, span: Span);
}

/// The relation of a span to its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Accepted or handled it.
    Consumer,
    /// Sent it to a target.
    Producer,
}

/// One operation on one message.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The id of the trace.
    pub trace_id: [u8; 16],
    /// The id of the span.
    pub span_id: [u8; 8],
    /// The id of the parent span.
    pub parent: Option<[u8; 8]>,
    /// The kind.
    pub kind: SpanKind,
    /// The operation and its object: few different names.
    pub name: String,
    /// The start.
    pub start: SystemTime,
    /// The end.
    pub end: SystemTime,
    /// Named by OpenTelemetry's conventions for messaging, or beginning with `relais.`.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// The problem code of a failure.
    pub error: Option<String>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// A position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    sampled: bool,
}

impl TraceContext {
    /// Parses `00-<trace>-<span>-<flags>`; anything else is no context.
    fn of(headers: &Headers) -> Option<Self> {
        let text = headers.get(TRACEPARENT)?;
        let mut parts = text.split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let more = parts.next().is_some();
        if version.len() != 2 || version == "ff" || (version == "00" && more) {
            return None;
        }
        let _: [u8; 1] = from_hex(version)?;
        let [flags] = from_hex(flags)?;
        let (trace_id, span_id) = (from_hex(trace)?, from_hex(span)?);
        let valid = trace_id != [0; 16] && span_id != [0; 8];
        valid.then_some(Self { trace_id, span_id, sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, sampled } = self;
        let (trace_id, span_id) = (to_hex(trace_id), to_hex(span_id));
        write!(f, "00-{trace_id}-{span_id}-{:02x}", u8::from(*sampled))
    }
}

/// Creates the spans of the workers.
pub(crate) struct Tracer {
    sink: Arc<dyn SpanSink>,
    /// The share of new traces that are recorded; the sender decides for a trace that arrives.
    sample: f64,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// A span that has begun; empty if its trace is not recorded.
#[derive(Clone, Debug)]
pub(crate) struct OpenSpan(Option<Box<Span>>);

impl Tracer {
    pub(crate) fn new(sink: Arc<dyn SpanSink>, sample: f64) -> Self {
        Self { sink, sample: sample.clamp(0.0, 1.0) }
    }

    /// Records the spans of an accepted batch, one for each new message.
    pub(crate) fn accepted(
        &self,
        source: &str,
        messages: &[IncomingTrace],
        accepted: &[AcceptOutcome],
        start: SystemTime,
    ) {
        let end = SystemTime::now();
        for (message, answer) in messages.iter().zip(accepted) {
            if *answer != AcceptOutcome::Stored {
                continue;
            }
            let IncomingTrace { parent, ids, attributes } = message;
            let at = parent.unwrap_or_else(|| self.root(ids));
            if !at.sampled {
                continue;
            }
            let mut attributes = attributes.clone();
            attributes.extend([
                ("messaging.operation.type", "receive".into()),
                ("messaging.batch.message_count", count(messages.len())),
                ("relais.source", source.into()),
            ]);
            self.sink.record(Span {
                trace_id: at.trace_id,
                span_id: ids.accept,
                parent: parent.map(|parent| parent.span_id),
                kind: SpanKind::Consumer,
                name: format!("accept {source}"),
                start,
                end,
                attributes,
                error: None,
            });
        }
    }

    /// Begins the span of an inbox row. Messages that the row causes get its context by `pass_on`.
    pub(crate) fn handling(&self, row: &InboxRow) -> HandlingSpan {
        let ids = TraceIds::of(&row.source_system, &row.message_id);
        let at = TraceContext::of(&row.headers).unwrap_or_else(|| self.root(&ids));
        let context = TraceContext { span_id: new_span_id(), ..at };
        let span = context.sampled.then(|| {
            let event_type = row.event_type.as_deref().unwrap_or_default();
            Box::new(Span {
                trace_id: at.trace_id,
                span_id: context.span_id,
                parent: Some(ids.accept),
                kind: SpanKind::Consumer,
                name: format!("handle {event_type}"),
                start: SystemTime::now(),
                end: SystemTime::now(),
                attributes: vec![
                    ("messaging.system", "relais".into()),
                    ("messaging.operation.type", "process".into()),
                    ("messaging.operation.name", "handle".into()),
                    ("messaging.destination.name", row.topic.as_str().into()),
                    ("messaging.message.id", row.message_id.as_str().into()),
                    ("relais.event_type", event_type.into()),
                    ("relais.key_hash", key_hash(&row.msg_key)),
                    ("relais.inbox_id", row.id.into()),
                    ("relais.attempt", i64::from(row.attempts).saturating_add(1).into()),
                ],
                error: None,
            })
        });
        HandlingSpan { context, open: OpenSpan(span) }
    }

    /// Begins the span of a call with an outbox row; the row's `traceparent` becomes that of this span.
    pub(crate) fn publishing(&self, row: &mut OutboxRow) -> OpenSpan {
        let parent = TraceContext::of(&row.headers);
        let at = parent.unwrap_or_else(|| self.root(&TraceIds::of_outbox(row)));
        let context = TraceContext { span_id: new_span_id(), ..at };
        row.headers.set(TRACEPARENT, &context.to_string());
        if !context.sampled {
            return OpenSpan(None);
        }
        OpenSpan(Some(Box::new(Span {
            trace_id: context.trace_id,
            span_id: context.span_id,
            parent: parent.map(|parent| parent.span_id),
            kind: SpanKind::Producer,
            name: format!("publish {}", row.destination),
            start: SystemTime::now(),
            end: SystemTime::now(),
            attributes: vec![
                ("messaging.system", "relais".into()),
                ("messaging.operation.type", "send".into()),
                ("messaging.operation.name", "publish".into()),
                ("messaging.destination.name", row.destination.as_str().into()),
                ("messaging.message.id", Attribute::Text(row.message_id.to_string())),
                ("relais.event_type", row.event_type.as_str().into()),
                ("relais.key_hash", key_hash(&row.msg_key)),
                ("relais.outbox_id", row.id.into()),
                ("relais.attempt", i64::from(row.attempts).saturating_add(1).into()),
            ],
            error: None,
        })))
    }

    /// Records the span of a row in a bulk job; the target does not get its `traceparent`.
    pub(crate) fn in_job(&self, row: &OutboxRow, job: &JobSpan, answer: &Delivery) {
        let mut row = OutboxRow { payload: String::new(), ..row.clone() };
        let mut open = self.publishing(&mut row);
        if let Some(span) = open.0.as_mut() {
            span.start = job.start;
            span.attributes.push(("messaging.batch.message_count", count(job.rows)));
            span.attributes.push(("relais.bulk_job", Attribute::Text(job.id.clone())));
            let remote = job.remote_id.as_deref();
            span.attributes.extend(remote.map(|id| ("relais.bulk_job.remote_id", id.into())));
        }
        self.published(open, answer);
    }

    pub(crate) fn published(&self, open: OpenSpan, delivery: &Delivery) {
        match delivery {
            Delivery::Accepted => self.end(open, None),
            // It was not sent: there is no span.
            Delivery::Held => {}
            failed => self.end(open, failed.problem().map(|(problem, _)| problem)),
        }
    }

    pub(crate) fn end(&self, OpenSpan(span): OpenSpan, problem: Option<&Problem>) {
        let Some(mut span) = span else { return };
        span.end = SystemTime::now();
        if let Some(problem) = problem {
            span.attributes.push(("error.type", problem.code.as_str().into()));
            span.error = Some(problem.code.clone());
        }
        self.sink.record(*span);
    }

    /// Returns the context of a trace that begins here.
    fn root(&self, ids: &TraceIds) -> TraceContext {
        // The low 56 bits of a trace id are random by convention.
        let bits = u64::from_be_bytes(ids.trace[8..].try_into().expect("eight bytes")) << 8 >> 8;
        let sampled = (bits as f64) < self.sample * (1_u64 << 56) as f64;
        TraceContext { trace_id: ids.trace, span_id: ids.accept, sampled }
    }
}

/// The open span of an inbox row.
#[derive(Clone, Debug)]
pub(crate) struct HandlingSpan {
    context: TraceContext,
    pub(crate) open: OpenSpan,
}

impl HandlingSpan {
    /// Writes the context to the headers of a message that the row caused.
    pub(crate) fn pass_on(&self, headers: &mut Headers) {
        headers.set(TRACEPARENT, &self.context.to_string());
    }
}

/// The trace data of a received message, before it is stored.
pub(crate) struct IncomingTrace {
    parent: Option<TraceContext>,
    ids: TraceIds,
    attributes: Vec<(&'static str, Attribute)>,
}

impl IncomingTrace {
    /// Returns the trace data of a message; `at` is whether partition and offset are meaningful.
    pub(crate) fn new(message: &NewInbox, at: BrokerPosition) -> Self {
        let mut attributes = vec![
            ("messaging.system", "relais".into()),
            ("messaging.operation.name", "accept".into()),
            ("messaging.destination.name", message.topic.as_str().into()),
            ("messaging.message.id", message.message_id.as_str().into()),
            ("relais.key_hash", key_hash(&message.msg_key)),
        ];
        if at == BrokerPosition::InPartition {
            let partition = Attribute::Text(message.partition_num.to_string());
            attributes.push(("messaging.destination.partition.id", partition));
            attributes.push(("messaging.kafka.offset", message.offset_num.into()));
        }
        let event_type = message.event_type.as_deref();
        attributes.extend(event_type.map(|name| ("relais.event_type", name.into())));
        let ids = TraceIds::of(&message.source_system, &message.message_id);
        Self { parent: TraceContext::of(&message.headers), ids, attributes }
    }
}

/// The position of a message in a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerPosition {
    InPartition,
    Absent,
}

/// A bulk job, for the spans of its rows.
pub(crate) struct JobSpan {
    pub(crate) id: String,
    pub(crate) remote_id: Option<String>,
    pub(crate) start: SystemTime,
    pub(crate) rows: usize,
}

/// The ids that every worker computes for one message.
struct TraceIds {
    trace: [u8; 16],
    accept: [u8; 8],
}

impl TraceIds {
    fn of(source_system: &str, message_id: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(source_system);
        hash.update([0]);
        hash.update(message_id);
        let digest = hash.finalize();
        Self {
            trace: digest[..16].try_into().expect("sixteen bytes"),
            accept: digest[16..24].try_into().expect("eight bytes"),
        }
    }

    /// Returns the ids of a message that was not received here: its message id is the trace id.
    fn of_outbox(row: &OutboxRow) -> Self {
        Self { trace: row.message_id.into_bytes(), accept: new_span_id() }
    }
}

fn new_span_id() -> [u8; 8] {
    random::span_id()
}

/// Returns a hash of the key, so that rows of one key can be grouped without revealing it.
fn key_hash(key: &str) -> Attribute {
    Attribute::Text(to_hex(&Sha256::digest(key)[..8]))
}

fn count(messages: usize) -> Attribute {
    Attribute::Number(i64::try_from(messages).unwrap_or(i64::MAX))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses lower-case hexadecimal digits; the standard allows no others.
fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
