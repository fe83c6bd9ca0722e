//! Properties that hold for any bytes: each function is a fuzz target and panics if something does not
//! hold. `fuzz/run.rs` tries them in the tests, `fuzz/Cargo.toml` with an engine that follows coverage.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};

use self::{parts::Parts, record::Record};
use crate::{
    breaker::{Breaker, BreakerPolicy, BreakerState, FailedCall, OpenCause},
    decode::Decoder,
    extract::{MissingId, Pick, Value},
    inbox::{Content, InboxRow, NewInbox},
    json,
    limits::RateLimit,
    message::{Category, HEADER_VALUE, HeaderValue, HeaderValues, Headers},
    repair::{self, Identity},
    retry::RetryPolicy,
    route::Route,
    text,
    time::Timestamp,
};

#[path = "../../../fuzz/parts.rs"]
mod parts;
#[path = "../../../fuzz/record.rs"]
mod record;
#[cfg(test)]
#[path = "../../../fuzz/run.rs"]
mod run;

/// A received message becomes a row that every database takes, and from which its bytes come back.
pub fn record(input: &[u8]) {
    let Record { mapping, incoming, header: (name, header), value } = Record::of(input);
    let row = match mapping.read(incoming.clone()) {
        Ok(row) => row,
        Err(MissingId(_)) => {
            assert!(incoming.position.is_none(), "a position is always an id");
            return;
        }
    };
    assert_eq!(mapping.read(incoming.clone()).as_ref(), Ok(&row), "the same twice is one row");
    assert_fits(&row);
    let kept = row.headers.0.iter().find(|(kept, _)| {
        **kept == name || kept.strip_prefix("x-").is_some_and(|kept| kept == name)
    });
    if let Some((_, HeaderValues::Many(values))) = kept {
        assert_eq!((bytes_of(&values[0]).as_slice(), &values[1]), (header, &HeaderValue::Null));
    } else {
        assert!(row.headers.0.keys().any(|own| *own == name), "only we replace a header: {name:?}");
    }
    let stored = Headers::from_json(&row.headers.to_json());
    assert_eq!(stored, row.headers);
    match &incoming.value {
        Value::Bytes(_) => assert_restored(mapping.decoder, &row, value),
        absent => {
            let said = row.headers.get(HEADER_VALUE);
            assert_eq!(said, Some(if *absent == Value::Empty { "empty" } else { "tombstone" }));
        }
    }
}

/// Texts are such that PostgreSQL takes them, and ids such that they are in an index.
fn assert_fits(row: &NewInbox) {
    let texts = [&row.key_str, &row.aggregate_id, &row.event_type];
    for text in texts.into_iter().flatten().chain([&row.message_id, &row.msg_key]) {
        assert!(!text.contains('\0') && text.chars().count() <= text::KEY_MAX, "{text:?}");
    }
    assert!(!row.headers.to_json().contains('\0'));
    assert!(!row.message_id.is_empty() && row.message_id.chars().count() <= text::MESSAGE_ID_MAX);
    if let Content::Undecodable { problem, .. } = &row.content {
        assert!(!problem.message.contains('\0') && !problem.code.is_empty());
    }
}

fn bytes_of(value: &HeaderValue) -> Vec<u8> {
    match value {
        HeaderValue::Text(text) => text.as_bytes().to_vec(),
        HeaderValue::Bytes { base64 } => STANDARD.decode(base64).expect("our own Base64"),
        HeaderValue::Null => Vec::new(),
    }
}

/// The bytes that came can be made from the row again with its decoder.
fn assert_restored(decoder: Decoder, row: &NewInbox, bytes: &[u8]) {
    let payload = match &row.content {
        Content::Json(json) => json,
        Content::Undecodable { bytes: kept, .. } => {
            assert_eq!(kept, bytes);
            assert!(decoder.decode(bytes).is_err());
            let stored = InboxRow::received(1, row.clone());
            assert_eq!(repair::original(&stored).as_deref(), Ok(bytes));
            assert!(!repair::readable_by(bytes).is_empty());
            return;
        }
    };
    assert_eq!(json::check(payload.as_bytes()), Ok(payload.as_str()));
    let text = || json::text(payload).expect("a JSON string").into_bytes();
    let restored = match decoder {
        Decoder::Json => payload.clone().into_bytes(),
        Decoder::JsonLatin1 => {
            payload.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin-1")).collect()
        }
        Decoder::ConfluentJson => {
            let schema = row.headers.get(crate::message::HEADER_SCHEMA_ID).expect("a number");
            let schema: u32 = schema.parse().expect("a number");
            [&[0], &schema.to_be_bytes()[..], payload.as_bytes()].concat()
        }
        Decoder::ConfluentAvro => unreachable!("it is decoded with a registry only"),
        Decoder::Text => text(),
        Decoder::Bytes => {
            let base64 = json::pointer(payload, "/base64").and_then(json::text).expect("a field");
            STANDARD.decode(base64).expect("our own Base64")
        }
    };
    assert_eq!(restored, bytes);
}

/// A row with any Base64 and any headers, as another program may write it, is read or refused with a reason.
pub fn envelope(input: &[u8]) {
    let mut parts = Parts::new(input);
    let (raw, headers) = (parts.text(), parts.text());
    let Record { mapping, incoming, .. } = Record::of(parts.rest());
    let Ok(row) = mapping.read(incoming) else { return };
    let row = InboxRow {
        raw_payload_base64: Some(raw.clone()),
        headers: Headers::from_json(&headers),
        ..InboxRow::received(1, row)
    };
    assert_eq!(Headers::from_json(&row.headers.to_json()), row.headers);
    match repair::original(&row) {
        Err(problem) => assert_eq!(problem.code, "NOT_BASE64"),
        Ok(bytes) => {
            assert_eq!(STANDARD.encode(&bytes), raw, "one text for the same bytes");
            for identity in [Identity::Promised, Identity::Own] {
                if let Ok(decoded) = mapping.decoder.decode(&bytes) {
                    let new = repair::reread(&mapping, &row, decoded, identity);
                    assert!(json::check(new.payload.as_bytes()).is_ok());
                    assert!(!new.message_id.is_empty() && !new.message_id.contains('\0'));
                    assert!(!new.msg_key.contains('\0'));
                }
            }
        }
    }
}

/// Pointers find what another reader finds, and what a template makes is JSON.
pub fn template(input: &[u8]) {
    let mut parts = Parts::new(input);
    let (each, version, template, pick) = (parts.text(), parts.text(), parts.text(), parts.text());
    let Ok(event) = json::check(parts.rest()) else { return };
    json::keeps_numbers(event);
    if let Ok(whole) = serde_json::from_str::<serde_json::Value>(event) {
        for pointer in [&each, &version] {
            let found = json::pointer(event, pointer)
                .map(|found| serde_json::from_str::<serde_json::Value>(found).expect("JSON"));
            assert_eq!(found.as_ref(), whole.pointer(pointer), "{pointer:?} in {event}");
        }
    }
    if let Ok(pick) = pick.parse::<Pick>() {
        assert!(!pick.absent().is_empty());
    }
    let Record { mapping, incoming, .. } = Record::of(&[2, 0xC3]);
    let row = InboxRow::received(1, mapping.read(incoming).expect("it has a position"));
    let row = InboxRow { payload: Some(event.to_owned()), ..row };
    for each in [None, Some(each)] {
        let route = Route {
            on: "E".into(),
            destination: "d".into(),
            each,
            event_type: None,
            aggregate_type: None,
            version: Some(version.clone()).filter(|pointer| !pointer.is_empty()),
            payload: Some(template.clone()).filter(|template| !template.is_empty()),
            event_version: Some(version.clone()),
            headers: vec![event.to_owned()],
            category: Category::Reply,
        };
        let made = route.apply(&row);
        assert_eq!(made, route.apply(&row), "the same event makes the same messages");
        for message in made.into_iter().flatten() {
            assert!(json::check(message.payload.as_bytes()).is_ok(), "{}", message.payload);
            assert!(!message.msg_key.contains('\0') && !message.aggregate_id.contains('\0'));
        }
    }
}

/// Pauses, rates and breakers keep their bounds with any numbers.
pub fn arithmetic(input: &[u8]) {
    let mut parts = Parts::new(input);
    let mut number = || (0..8).fold(0_u64, |all, _| all << 8 | u64::from(parts.byte()));
    let numbers: [u64; 8] = std::array::from_fn(|_| number());
    let [attempts, first, factor, max, random, asked, now, calls] = numbers;
    let asked = (asked & 1 == 0).then(|| Duration::from_millis(asked));
    let policy = RetryPolicy {
        attempts_max: u32::try_from(attempts % 50).expect("small"),
        first: Duration::from_millis(first),
        factor: f64::from_bits(factor),
        max: Duration::from_millis(max),
        jitter: now & 1 == 0,
    };
    let attempts = u32::try_from(attempts >> 32).expect("32 bits");
    let random = f64::from_bits(random);
    pauses_keep_their_bounds(&policy, attempts, asked, random);
    // Hours at times of centuries: nanoseconds have an end.
    let times = [now, max, calls].map(|now| now >> 1);
    rates_keep_their_bounds(u32::try_from(calls >> 40).expect("24 bits"), first >> 16, times);
    breakers_keep_their_bounds(&policy, now, asked, parts.rest());
    let (then, now) = (Timestamp(now.cast_signed()), Timestamp(first.cast_signed()));
    assert!(then.seconds_until(now) == 0 || now.seconds_until(then) == 0);
    assert!(!then.to_string().is_empty() && !Timestamp::from_millis(now.0).to_string().is_empty());
}

fn pauses_keep_their_bounds(
    policy: &RetryPolicy,
    attempts: u32,
    asked: Option<Duration>,
    random: f64,
) {
    // Seconds are computed with 53 bits.
    let about = |duration: Duration| duration.as_secs_f64() * 1e-9 + 1e-6;
    let (pause, least) = (policy.pause(attempts, asked, random), asked.unwrap_or_default());
    let most = policy.max.max(least).as_secs_f64() * 1.25;
    assert!(
        pause.as_secs_f64() <= most + about(pause),
        "{policy:?} {attempts} {asked:?}: {pause:?}"
    );
    assert!(
        pause.as_secs_f64() + about(pause) >= least.as_secs_f64(),
        "{policy:?} {asked:?}: {pause:?}"
    );
    assert!(policy.exhausted(u32::MAX) && !policy.exhausted(0));
    let horizon = policy.max.saturating_mul(policy.attempts_max).as_secs_f64() * 1.25;
    assert!(policy.horizon().as_secs_f64() <= horizon + about(policy.horizon()), "{policy:?}");
}

fn rates_keep_their_bounds(calls: u32, period_ns: u64, times: [u64; 3]) {
    let period = Duration::from_nanos(period_ns);
    let mut rate = RateLimit::new(calls, period);
    for now in times {
        let (mut taken, most) = (0, u64::from(calls.max(1)).min(1_000));
        while taken <= most {
            let Err(wait) = rate.take(now) else {
                taken += 1;
                continue;
            };
            assert!(!wait.is_zero());
            break;
        }
        let even = period_ns.max(1).is_multiple_of(u64::from(calls.max(1)));
        assert!(taken <= most || calls > 1_000 || !even, "{calls} per {period:?}: {taken} at once");
    }
}

fn breakers_keep_their_bounds(
    policy: &RetryPolicy,
    mut now: u64,
    asked: Option<Duration>,
    steps: &[u8],
) {
    let open_for = policy.max;
    let window = usize::try_from(policy.attempts_max).expect("small");
    let rate = u8::try_from(policy.attempts_max).expect("small").saturating_mul(5);
    let mut breaker = Breaker::new(BreakerPolicy { window, failure_rate: rate, open_for });
    for step in steps {
        let key = u64::from(step >> 5);
        let call = FailedCall { key, was_failing: step & 16 > 0, misconfigured: key == 3, asked };
        match step % 7 {
            0 => breaker.accepted(key, now),
            1 => breaker.failed(call, now),
            2 => breaker.rest(OpenCause::Asked, asked, now),
            3 => breaker.unreachable(now),
            4 => drop(breaker.rejected(key, "CODE", now)),
            5 => now = now.saturating_add(u64::from(*step) << 24),
            _ => {
                let wait = u64::try_from(breaker.wait(now).as_nanos()).unwrap_or(u64::MAX);
                now = now.saturating_add(wait);
            }
        }
        assert!(breaker.wait(now) <= open_for.max(asked.unwrap_or_default()));
        if breaker.wait(now).is_zero() {
            assert_ne!(breaker.state(now), BreakerState::Open, "nothing opens it again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run::run;

    #[test]
    fn any_record_becomes_a_row_that_gives_its_bytes_back() {
        run("record", 20_000, super::record);
    }

    #[test]
    fn any_stored_envelope_is_read_or_refused_with_a_reason() {
        run("envelope", 20_000, super::envelope);
    }

    #[test]
    fn any_pointer_and_template_gives_json_or_a_reason() {
        run("template", 20_000, super::template);
    }

    #[test]
    fn any_numbers_leave_pauses_rates_and_breakers_in_their_bounds() {
        run("arithmetic", 20_000, super::arithmetic);
    }
}
