//! `[inbox]`, `[retention]`, `[lanes]`, and the retries of every section that has them.

use std::time::Duration;

use relais_core::{
    inbox::INBOX_SEPARATOR,
    process::declared::DeclaredCall,
    query::Retention,
    retry::RetryPolicy,
    setting::{
        Decimal, Integer, NameList, NameText, OnOff, RetentionSpan, TimeSpan,
        quantity::show_duration,
    },
    settings,
    unknown::UNKNOWN_TYPE_WAIT,
};

use super::{Settings, findings::FilePlace, process::ProcessSettings, reader::Section};

settings! {
    /// `[….retry]`
    pub(super) struct RetryKeys(base: RetryPolicy) {
        /// attempts in all; after the last one the message becomes a dead letter, or the step fails
        attempts: Integer = base.attempts_max, 1..=1_000;
        /// the first pause
        first: TimeSpan = base.first;
        /// each pause is this many times the one before
        factor: Decimal = base.factor, 1.0..=100.0;
        /// the longest pause. A longer `retry-after` of the target is respected
        max: TimeSpan = base.max;
        /// lengthen each pause by a random part, up to a quarter
        jitter: OnOff = base.jitter;
    }

    /// `[inbox]`
    pub(super) struct InboxKeys {
        /// [a named inbox](operations.md#named-inboxes). Without it all programs share one inbox
        name: Option<NameText>;
        /// how long a message waits while no live worker knows its event type; then it becomes a dead letter (`UNKNOWN_EVENT_TYPE`) and parks its key
        unknown_type_wait: TimeSpan = UNKNOWN_TYPE_WAIT;
        /// event types that are [ignored](operations.md#ignored-event-types): accepted, counted and settled without an effect
        ignore: Option<NameList>;
    }

    /// `[retention]`
    pub(super) struct RetentionKeys(base: Retention) {
        /// `false`: nothing is removed, as with `"never"` for each kind of row
        enabled: OnOff = true;
        /// handled inbox rows. Also how long duplicates are recognised
        processed: RetentionSpan = seconds(base.processed_seconds);
        /// delivered outbox rows
        dispatched: RetentionSpan = seconds(base.dispatched_seconds);
        /// the marks of `once` in the library
        handled: RetentionSpan = seconds(base.handled_seconds);
        /// decided dead letters
        resolved: RetentionSpan = seconds(base.resolved_seconds);
        /// ended processes with their logs. A later reply finds no process and becomes a dead letter
        processes: RetentionSpan = seconds(base.processes_seconds);
        /// the last [version](#route) that routes have seen of an aggregate. An older event that arrives later is sent
        versions: RetentionSpan = seconds(base.versions_seconds);
    }

    /// `[lanes]`
    pub(super) struct LaneKeys {
        /// how long the lanes of a lost worker wait. A shorter lease would expire in a busy moment
        lease: TimeSpan = Duration::from_secs(10), Duration::from_secs(2)..=Duration::from_secs(3_600);
    }
}

/// Reads retries with the defaults of their place.
pub(super) fn retry(section: Section<'_>, default: RetryPolicy) -> RetryPolicy {
    let RetryKeys { attempts, first, factor, mut max, jitter } = section.read_with(&default);
    if !section.has("max") {
        max = max.max(first);
    }
    if max < first {
        let (max, first) = (show_duration(max), show_duration(first));
        section.error("max", format_args!("{max} is shorter than `first` ({first})"));
    }
    section.finish();
    RetryPolicy::new(attempts, first, max).factor(factor).jitter(jitter)
}

/// `[inbox]` after reading.
pub(super) struct InboxSettings {
    pub(super) name: String,
    pub(super) retry: RetryPolicy,
    pub(super) unknown_type_wait: Duration,
    pub(super) ignored: IgnoredTypes,
}

/// The event types that are ignored.
#[derive(Debug)]
pub(crate) struct IgnoredTypes {
    /// The place of the key.
    pub(super) place: FilePlace,
    pub(crate) event_types: Vec<String>,
}

/// Reads `[inbox]`.
pub(super) fn inbox(section: Section<'_>) -> InboxSettings {
    let retry = retry(section.child("retry"), RetryPolicy::patient());
    let InboxKeys { name, unknown_type_wait, ignore } = section.read_with(&());
    let name = name.unwrap_or_default();
    if name.contains(INBOX_SEPARATOR) {
        section.error("name", format_args!("must not contain `{INBOX_SEPARATOR}`"));
    }
    let event_types = ignore.unwrap_or_default();
    let ignored = IgnoredTypes { place: section.place_of("ignore"), event_types };
    section.finish();
    InboxSettings { name, retry, unknown_type_wait, ignored }
}

/// Reads `[retention]`. Rows must stay for longer than the retries of the other sections may take.
pub(super) fn retention(section: Section<'_>, settings: &Settings) -> Retention {
    let handlers = settings.handlers.iter().map(|handler| handler.retry.horizon());
    let inbox = handlers.fold(settings.inbox_retry.horizon(), Duration::max);
    let outbox = settings.destinations.iter().map(|d| d.retry.horizon()).max().unwrap_or_default();
    let processes = settings.processes.iter().map(horizon).max().unwrap_or_default();
    let keys: RetentionKeys = section.read_with(&Retention::default());
    let keep = |key: &str, kept: Duration, horizon: Duration| {
        if section.has(key) && kept <= horizon {
            let (kept, horizon) = (show_duration(kept), show_duration(horizon));
            let text = format_args!("{kept} is not longer than the retries may take ({horizon})");
            section.error(key, text);
        }
        i64::try_from(kept.as_secs()).unwrap_or(i64::MAX)
    };
    let retention = Retention::default()
        .processed_seconds(keep("processed", keys.processed, inbox))
        .dispatched_seconds(keep("dispatched", keys.dispatched, outbox))
        .handled_seconds(keep("handled", keys.handled, inbox))
        .resolved_seconds(keep("resolved", keys.resolved, Duration::ZERO))
        .processes_seconds(keep("processes", keys.processes, processes))
        .versions_seconds(keep("versions", keys.versions, inbox));
    section.finish();
    if keys.enabled { retention } else { Retention::never() }
}

/// Reads `[lanes]`.
pub(super) fn lease(section: Section<'_>) -> Duration {
    let LaneKeys { lease } = section.read_with(&());
    section.finish();
    lease
}

/// Returns the longest time that a step of a process may take: a reply to it may be as late.
fn horizon(process: &ProcessSettings) -> Duration {
    let step = |(_, call): (&str, &DeclaredCall)| {
        let waits = call.timeout.unwrap_or_default().saturating_mul(call.retry.attempts_max);
        waits.saturating_add(call.retry.horizon())
    };
    process.calls().map(step).max().unwrap_or_default()
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
