//! A full page, read by a strict reader of the text format, against the table in `docs/metrics.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::{Command, Stdio},
};

use relais::observe::{DestinationSnapshot, Observer, ProcessTypeSnapshot, SourceSnapshot};
use relais_core::{
    control::{ControlKind, LimitChange, Pause},
    inspect::AdoptedProblems,
    query::Count,
};

use super::*;
use crate::health::DestinationInfo;

const EVIL: &str = "a\"b\\c\nd} 1";

/// With at least one sample of every metric.
fn snapshot() -> ObserverSnapshot {
    let mut snapshot = Observer::default().snapshot();
    snapshot.inbox.codes.insert(EVIL.into(), 3);
    let latency = || snapshot.inbox.handling.clone();
    let destination = DestinationSnapshot {
        dispatched: 7,
        retried: 2,
        failed: 1,
        outages: 0,
        refused: 0,
        lanes: 64,
        breaker: Some(BreakerState::Open),
        cause: None,
        reason: None,
        open_until: None,
        contacted: true,
        succeeded: true,
        paused: false,
        last_error: None,
        last_delivered_at: None,
        in_flight: 3,
        rate: None,
        concurrency: 10,
        jobs: 1,
        phase: None,
        codes: BTreeMap::from([("503".to_owned(), 2)]),
        dispatch: latency(),
        end_to_end: latency(),
        publish: latency(),
    };
    snapshot.destinations.insert("contacts".into(), destination);
    snapshot.sources.insert("members".into(), SourceSnapshot::default());
    snapshot.scopes.insert("outbox:contacts".into(), Default::default());
    snapshot.adopted = vec![AdoptedProblems { table: EVIL.into(), problems: vec!["x".into()] }];
    snapshot.processes.types.insert("order".into(), ProcessTypeSnapshot::default());
    snapshot
}

fn overview() -> Overview {
    let count = |name: &str| vec![Count { name: name.into(), rows: 1 }];
    let unknown = (0..100).map(|n| Backlog {
        destination: format!("unknown-{n}"),
        pending: n,
        oldest: Some(Timestamp(0)),
        parked: n,
        failing_keys: n,
        failing: None,
    });
    let known = Backlog { destination: "contacts".into(), ..Backlog::default() };
    let evil =
        Backlog { destination: EVIL.into(), pending: 1_000, parked: 7, ..Backlog::default() };
    Overview {
        now: Timestamp(5_000_000),
        schema_version: 1,
        inbox: count("RECEIVED"),
        inbox_oldest: None,
        inbox_parked: 3,
        outbox: count("PENDING"),
        backlogs: unknown.chain([known, evil]).collect(),
        dead_letters_open: 0,
        parked_keys: 0,
        processes: count("RUNNING"),
        processes_need_operator: 2,
        timers_due: 0,
        unserved_inboxes: Vec::new(),
        unknown_types: (0..100).map(|n| Count { name: format!("Type{n}"), rows: 2 }).collect(),
        workers: Vec::new(),
    }
}

/// A control that pauses something.
fn paused(kind: ControlKind, name: &str) -> Control {
    Control {
        kind,
        name: name.into(),
        pause: Some(Pause { at: Timestamp(0), by: "ann".into(), reason: "r".into() }),
        limits: LimitChange::default(),
        limits_changed: 0,
        breaker_resets: 0,
    }
}

fn page() -> String {
    page_with(&[paused(ControlKind::Destination, "contacts")])
}

fn page_with(controls: &[Control]) -> String {
    let target = |name: &str, kind: &str, object: Option<&str>| DestinationInfo {
        name: name.into(),
        kind: kind.into(),
        object: object.map(str::to_owned),
    };
    let facts = ServerFacts {
        version: "0.1.0".into(),
        store: "sqlite 3.51.3".into(),
        destinations: vec![
            target("contacts", "salesforce", Some("Contact")),
            target("log", "log", None),
        ],
    };
    let state = SourceState { missed: 7, lag: Some(12), ..SourceState::default() };
    render_page(&MetricsInput {
        overview: Some(&overview()),
        rows_age: Some(Duration::from_millis(2_700)),
        controls,
        process_types: &BTreeSet::from(["order".to_owned()]),
        snapshot: &snapshot(),
        facts: &facts,
        sources: &[("members", state)],
        usage: &[("contacts", CallsUsed { used: 8, limit: 100 })],
    })
}

/// Type and label names, by metric.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

/// Parses a page strictly by the definition of the format; panics on any deviation.
fn parse(page: &str) -> Metrics {
    let mut metrics = Metrics::new();
    let mut open: Option<(String, String)> = None;
    let mut series = BTreeSet::new();
    assert!(page.ends_with('\n'), "the last line must end");
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a help text");
            assert!(!text.is_empty());
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
            let (typed, kind) = kind.and_then(|line| line.split_once(' ')).expect("a type");
            assert_eq!(typed, name, "help and type of one metric");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            let new = metrics.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
            assert_eq!(new, None, "{name} has two heads");
            open = Some((name.to_owned(), kind.to_owned()));
            continue;
        }
        let (id, labels, value) = sample(line);
        let (name, kind) = open.as_ref().expect("a head before the first sample");
        let suffix = id.strip_prefix(name.as_str()).expect("a sample under its own head");
        let suffixes: &[&str] =
            if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{line}");
        let number: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(number.is_finite() && number >= 0.0, "{line}");
        assert!(series.insert((id, labels.clone())), "twice: {line}");
        let names = labels.iter().map(|(name, _)| name.clone()).filter(|name| name != "le");
        metrics.get_mut(name).expect("just opened").1.extend(names);
    }
    metrics
}

/// Name, labels and value of a sample.
fn sample(line: &str) -> (String, Vec<(String, String)>, String) {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').expect("a value");
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{label}");
            let mut text = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().expect("a closing quote") {
                    (at, '"') => break at + 1,
                    (_, '\\') => match chars.next().expect("something escaped").1 {
                        'n' => text.push('\n'),
                        c @ ('"' | '\\') => text.push(c),
                        c => panic!("\\{c} is no escape"),
                    },
                    (_, c) => text.push(c),
                }
            };
            labels.push((label.to_owned(), text));
            rest = &after[end..];
            match rest.split_at(1) {
                (",", after) => rest = after,
                ("}", after) => {
                    rest = after;
                    break;
                }
                _ => panic!("after a label: {rest}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("one space before the value");
    (name.to_owned(), labels, value.to_owned())
}

/// The table: name, type, labels.
fn documented() -> Metrics {
    let docs = include_str!("../../../../docs/metrics.md");
    let mut metrics = Metrics::new();
    let rows = docs.lines().filter(|line| line.starts_with("| `"));
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning, action] = cells[..] else { panic!("five cells: {row}") };
        assert!(!meaning.is_empty() && !action.is_empty(), "{row}");
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        metrics.insert(name.trim_matches('`').to_owned(), (kind.to_owned(), labels));
    }
    metrics
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    assert_eq!(parse(&page()), documented());
}

#[test]
fn without_the_store_the_counters_of_the_process_are_served() {
    let page = render_page(&MetricsInput {
        overview: None,
        rows_age: None,
        controls: &[],
        process_types: &BTreeSet::new(),
        snapshot: &snapshot(),
        facts: &ServerFacts::default(),
        sources: &[],
        usage: &[],
    });
    parse(&page);
    assert!(page.contains("relais_store_up 0\n"));
    assert!(page.contains("relais_received_total{source=\"members\",result=\"stored\"} 0\n"));
}

#[test]
fn the_age_of_counted_rows_is_on_the_page() {
    assert!(page().contains("\nrelais_rows_age_seconds 2\n"));
}

#[test]
fn unknown_destinations_do_not_add_series_without_bound() {
    let page = page();
    let lines = page.lines().filter(|line| line.starts_with("relais_outbox_pending{"));
    assert_eq!(lines.count(), 1 + UNKNOWN_MAX + 1);
    assert!(page.contains("relais_outbox_pending{destination=\"other\"} "));
    assert!(page.contains("relais_outbox_pending{destination=\"unknown-99\"} 99\n"));
    assert!(!page.contains("unknown-3\""));
}

#[test]
fn histograms_count_up_to_infinity() {
    let page = page();
    assert!(
        page.contains("relais_dispatch_seconds_bucket{destination=\"contacts\",le=\"0.001\"} 0")
    );
    assert!(
        page.contains("relais_dispatch_seconds_bucket{destination=\"contacts\",le=\"+Inf\"} 0")
    );
}

/// Checks the page with promtool, whose path is in `RELAIS_TEST_PROMTOOL`.
#[test]
fn promtool_finds_nothing() {
    let Ok(promtool) = std::env::var("RELAIS_TEST_PROMTOOL") else {
        assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_PROMTOOL");
        eprintln!("NOT TESTED: the page with promtool; set RELAIS_TEST_PROMTOOL");
        return;
    };
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    check.stdin.take().expect("piped").write_all(page().as_bytes()).expect("it reads");
    let done = check.wait_with_output().expect("it ends");
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn what_is_paused_has_the_value_one_and_what_runs_zero() {
    let all = [
        (
            ControlKind::Destination,
            "contacts",
            "relais_destination_paused{destination=\"contacts\"}",
        ),
        (ControlKind::Source, "members", "relais_source_paused{source=\"members\"}"),
        (ControlKind::ProcessType, "order", "relais_process_type_paused{type=\"order\"}"),
    ];
    for (kind, name, _) in all {
        let page = page_with(&[paused(kind, name)]);
        for (other, _, metric) in all {
            let line = format!("\n{metric} {}\n", u8::from(other == kind));
            assert!(page.contains(&line), "{line}: {page}");
        }
    }
}
