//! Traces: one from the message that came in to the last one it caused, over processes and hours.
//!
//! A row carries its trace in the header `traceparent` (W3C). Where it has none, trace and span ids are
//! computed from the message id, so whoever works on the row next finds the same ones; nothing is written
//! for it. The engine makes finished spans and hands them to a [`SpanSink`]; without one nothing of this
//! runs.
//!
//! Invariant: a span holds names and ids, never a payload, a header's value or a key in clear.

use std::{fmt, sync::Arc, time::SystemTime};

use relais_core::{
    delivery::{Delivery, Problem},
    inbox::{Accepted, InboxRow, NewInbox},
    message::Headers,
    outbox::OutboxRow,
};
use sha2::{Digest, Sha256};

const TRACEPARENT: &str = "traceparent";

/// Takes finished spans. Called by workers: must not wait and must not fail.
pub trait SpanSink: Send + Sync {
    fn record(&self, span: Span);
}

/// What a span is to the message it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Took it in, or worked on it.
    Consumer,
    /// Gave it to a target.
    Producer,
}

/// Something that was done to one message.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub kind: SpanKind,
    /// Operation and what it was done to: few different ones.
    pub name: String,
    pub start: SystemTime,
    pub end: SystemTime,
    /// Named as OpenTelemetry's conventions for messaging have it, or beginning with `relais.`.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// The code of what went wrong.
    pub error: Option<String>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
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

/// Where in which trace something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    sampled: bool,
}

impl Context {
    /// Reads `00-<trace>-<span>-<flags>`; anything else is no context.
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

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, sampled } = self;
        let (trace_id, span_id) = (to_hex(trace_id), to_hex(span_id));
        write!(f, "00-{trace_id}-{span_id}-{:02x}", u8::from(*sampled))
    }
}

/// Makes spans of what workers do.
pub(crate) struct Tracer {
    sink: Arc<dyn SpanSink>,
    /// The share of new traces that are recorded; others decide for the traces they begin.
    sample: f64,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// A span that has begun, unless its trace is not recorded.
#[derive(Clone, Debug)]
pub(crate) struct Open(Option<Box<Span>>);

impl Tracer {
    pub(crate) fn new(sink: Arc<dyn SpanSink>, sample: f64) -> Self {
        Self { sink, sample: sample.clamp(0.0, 1.0) }
    }

    /// A batch was taken in: one span for each message that is new.
    pub(crate) fn accepted(
        &self,
        source: &str,
        messages: &[Incoming],
        accepted: &[Accepted],
        start: SystemTime,
    ) {
        let end = SystemTime::now();
        for (message, answer) in messages.iter().zip(accepted) {
            if *answer != Accepted::Stored {
                continue;
            }
            let Incoming { parent, ids, attributes } = message;
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

    /// Work on an inbox row begins. What follows from it carries what `pass_on` writes.
    pub(crate) fn handling(&self, row: &InboxRow) -> Handling {
        let ids = Ids::of(&row.source_system, &row.message_id);
        let at = Context::of(&row.headers).unwrap_or_else(|| self.root(&ids));
        let context = Context { span_id: new_span_id(), ..at };
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
        Handling { context, open: Open(span) }
    }

    /// An outbox row goes to its target; the row's `traceparent` becomes this span's.
    pub(crate) fn publishing(&self, row: &mut OutboxRow) -> Open {
        let parent = Context::of(&row.headers);
        let at = parent.unwrap_or_else(|| self.root(&Ids::of_outbox(row)));
        let context = Context { span_id: new_span_id(), ..at };
        row.headers.set(TRACEPARENT, &context.to_string());
        if !context.sampled {
            return Open(None);
        }
        Open(Some(Box::new(Span {
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

    /// A row's part in a bulk job has ended; the target has not seen its `traceparent`.
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

    pub(crate) fn published(&self, open: Open, delivery: &Delivery) {
        match delivery {
            Delivery::Accepted => self.end(open, None),
            // It was not sent: there is nothing to show.
            Delivery::Held => {}
            failed => self.end(open, failed.problem().map(|(problem, _)| problem)),
        }
    }

    pub(crate) fn end(&self, Open(span): Open, problem: Option<&Problem>) {
        let Some(mut span) = span else { return };
        span.end = SystemTime::now();
        if let Some(problem) = problem {
            span.attributes.push(("error.type", problem.code.as_str().into()));
            span.error = Some(problem.code.clone());
        }
        self.sink.record(*span);
    }

    /// A trace that begins here.
    fn root(&self, ids: &Ids) -> Context {
        // The low 56 bits of an id are as good as random, here and at everybody else's.
        let bits = u64::from_be_bytes(ids.trace[8..].try_into().expect("eight bytes")) << 8 >> 8;
        let sampled = (bits as f64) < self.sample * (1_u64 << 56) as f64;
        Context { trace_id: ids.trace, span_id: ids.accept, sampled }
    }
}

/// The span of an inbox row under way.
#[derive(Clone, Debug)]
pub(crate) struct Handling {
    context: Context,
    pub(crate) open: Open,
}

impl Handling {
    /// What carries these headers was caused by this.
    pub(crate) fn pass_on(&self, headers: &mut Headers) {
        headers.set(TRACEPARENT, &self.context.to_string());
    }
}

/// What a span needs to know of a message that was received, before the store takes it.
pub(crate) struct Incoming {
    parent: Option<Context>,
    ids: Ids,
    attributes: Vec<(&'static str, Attribute)>,
}

impl Incoming {
    /// `at` tells whether partition and offset say where it stood.
    pub(crate) fn new(message: &NewInbox, at: Stood) -> Self {
        let mut attributes = vec![
            ("messaging.system", "relais".into()),
            ("messaging.operation.name", "accept".into()),
            ("messaging.destination.name", message.topic.as_str().into()),
            ("messaging.message.id", message.message_id.as_str().into()),
            ("relais.key_hash", key_hash(&message.msg_key)),
        ];
        if at == Stood::InPartition {
            let partition = Attribute::Text(message.partition_num.to_string());
            attributes.push(("messaging.destination.partition.id", partition));
            attributes.push(("messaging.kafka.offset", message.offset_num.into()));
        }
        let event_type = message.event_type.as_deref();
        attributes.extend(event_type.map(|name| ("relais.event_type", name.into())));
        let ids = Ids::of(&message.source_system, &message.message_id);
        Self { parent: Context::of(&message.headers), ids, attributes }
    }
}

/// Where a message stood before it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stood {
    InPartition,
    Nowhere,
}

/// A bulk job, for the spans of its rows.
pub(crate) struct JobSpan {
    pub(crate) id: String,
    pub(crate) remote_id: Option<String>,
    pub(crate) start: SystemTime,
    pub(crate) rows: usize,
}

/// Ids that everybody computes alike for one message.
struct Ids {
    trace: [u8; 16],
    accept: [u8; 8],
}

impl Ids {
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

    /// A message nobody here received: its own id is its trace's.
    fn of_outbox(row: &OutboxRow) -> Self {
        Self { trace: row.message_id.into_bytes(), accept: new_span_id() }
    }
}

fn new_span_id() -> [u8; 8] {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    // Past the version and the variant of a UUID, so that all of it is random.
    let mut id: [u8; 8] = bytes[8..].try_into().expect("eight bytes");
    id[0] ^= bytes[0];
    id
}

/// Tells rows of one key apart from others without saying which key it is.
fn key_hash(key: &str) -> Attribute {
    Attribute::Text(to_hex(&Sha256::digest(key)[..8]))
}

fn count(messages: usize) -> Attribute {
    Attribute::Number(i64::try_from(messages).unwrap_or(i64::MAX))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower-case digits only, as the standard has it.
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
