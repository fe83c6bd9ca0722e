//! Ids of traces, sampling, and what a span does not contain.

use std::sync::Mutex;

use super::*;

#[derive(Default)]
struct SpanLog(Mutex<Vec<Span>>);

impl SpanSink for SpanLog {
    fn record(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

fn with(traceparent: &str) -> Headers {
    let mut headers = Headers::default();
    headers.set(TRACEPARENT, traceparent);
    headers
}

const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_traceparent_is_read_and_written_alike() {
    let context = TraceContext::of(&with(GOOD)).unwrap();
    assert!(context.sampled);
    assert_eq!(context.to_string(), GOOD);
    let of_the_future = format!("cc{}-what-comes", &GOOD[2..]);
    assert_eq!(TraceContext::of(&with(&of_the_future)), Some(context));
}

#[test]
fn an_invalid_traceparent_begins_a_new_trace() {
    let zero_trace = GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
    let zero_span = GOOD.replace("b7ad6b7169203331", &"0".repeat(16));
    let bad = ["", "00-abc", "00--", &GOOD.to_uppercase(), &format!("ff{}", &GOOD[2..])];
    for text in bad.into_iter().chain([zero_trace.as_str(), zero_span.as_str(), "é0-é-é-é"]) {
        assert_eq!(TraceContext::of(&with(text)), None, "{text}");
    }
    assert_eq!(TraceContext::of(&with(&format!("{GOOD}-more"))), None, "version 00 has four parts");
}

#[test]
fn every_worker_computes_the_same_ids_for_a_message_and_different_ones_for_others() {
    let ids = |source, id| (TraceIds::of(source, id).trace, TraceIds::of(source, id).accept);
    assert_eq!(ids("crm", "1"), ids("crm", "1"));
    assert_ne!(ids("crm", "1"), ids("crm", "2"));
    assert_ne!(ids("cr", "m1"), ids("crm", "1"));
}

#[test]
fn about_the_configured_share_of_new_traces_is_recorded() {
    let share = |sample: f64| {
        let tracer = Tracer::new(Arc::<SpanLog>::default(), sample);
        let sampled = |n: &u32| tracer.root(&TraceIds::of("crm", &n.to_string())).sampled;
        (0..4_000).filter(sampled).count()
    };
    assert_eq!((share(0.0), share(1.0)), (0, 4_000));
    let tenth = share(0.1);
    assert!((250..600).contains(&tenth), "{tenth} of 4000");
}

#[test]
fn an_end_with_a_problem_names_its_code_and_not_its_text() {
    let kept = Arc::<SpanLog>::default();
    let tracer = Tracer::new(kept.clone(), 1.0);
    let span = Span {
        trace_id: [1; 16],
        span_id: [2; 8],
        parent: None,
        kind: SpanKind::Producer,
        name: "publish d".into(),
        start: SystemTime::now(),
        end: SystemTime::UNIX_EPOCH,
        attributes: Vec::new(),
        error: None,
    };
    let problem = Problem::new("500", "the token abc is wrong");
    tracer.end(OpenSpan(Some(Box::new(span))), Some(&problem));
    tracer.end(OpenSpan(None), Some(&problem));
    let spans = kept.0.lock().unwrap();
    assert_eq!(spans.len(), 1);
    assert!(spans[0].end >= spans[0].start);
    assert_eq!(spans[0].error.as_deref(), Some("500"));
    assert!(!format!("{:?}", spans[0]).contains("abc"));
}

#[path = "../../../../fuzz/run.rs"]
mod fuzz_run;

#[test]
fn any_traceparent_is_parsed_by_the_standard_or_not_at_all() {
    fuzz_run::run("traceparent", 5_000, |input| {
        let text = String::from_utf8_lossy(input);
        let found = TraceContext::of(&with(&text));
        // Fixed positions, instead of parts between dashes.
        let hex = |range: std::ops::Range<usize>| {
            text.get(range).filter(|part| part.bytes().all(|c| b"0123456789abcdef".contains(&c)))
        };
        let dashes = [2, 35, 52].iter().all(|at| text.as_bytes().get(*at) == Some(&b'-'));
        let parts = (hex(0..2), hex(3..35), hex(36..52), hex(53..55));
        let ends =
            text.len() == 55 || (text.as_bytes().get(55) == Some(&b'-') && !text.starts_with("00"));
        let expected = match parts {
            (Some(version), Some(trace), Some(span), Some(flags)) if dashes && ends => {
                let zero = |part: &str| part.bytes().all(|digit| digit == b'0');
                let sampled = flags.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']);
                let said = format!("00-{trace}-{span}-0{}", u8::from(sampled));
                (version != "ff" && !zero(trace) && !zero(span)).then_some(said)
            }
            _ => None,
        };
        assert_eq!(found.map(|found| found.to_string()), expected, "{text:?}");
    });
}
