//! Renders lines of coloured pieces that fit the width of the terminal. Pure.
//!
//! Invariant: text from messages or targets is escaped before it gets here, see [`safe`].

use std::collections::BTreeMap;

use super::{
    rates::{RateHistory, sparkline},
    state::{DestinationBacklog, TopConfig, TopState},
};
use crate::{
    commands::status::{
        UNDEFINED, failing_text,
        guards::{self, DestinationGuards},
    },
    output::{LineBreaks, Tone, age, elide, escape, wrap},
};

/// The default width of a terminal.
pub(super) const WIDTH: usize = 80;
/// Most characters of a curve.
const CURVE_MAX: usize = 24;
/// Fewest characters of a curve.
const CURVE_MIN: usize = 8;
/// Width of the rest of a line with a curve.
const BESIDE_CURVE: usize = 64;
/// Most characters of a destination's name.
const NAME_MAX: usize = 28;
/// Fewest characters of a destination's name.
const NAME_MIN: usize = 12;
/// Width of the rest of a line with a name, with a short reason.
const BESIDE_NAME: usize = 60;

/// The indent of details below the line of a destination.
const DETAIL_INDENT: &str = "     ";

/// A piece of a line.
pub(super) type Piece = (String, Tone);
pub(super) type Line = Vec<Piece>;

/// The choices of the operator.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// The destination that is shown with its details.
    pub(super) destination: SelectedRow,
    pub(super) paused: bool,
    pub(super) help: bool,
}

impl Choice {
    /// Moves the selection.
    pub(super) fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        if let SelectedRow::At(at) = self.destination {
            self.destination = SelectedRow::At(to(at));
        }
    }
}

/// The selection of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectedRow {
    /// The one with this index.
    At(usize),
    /// Every one that is in trouble, for a picture without a keyboard.
    InTrouble,
}

impl Default for SelectedRow {
    fn default() -> Self {
        Self::At(0)
    }
}

/// The input of the picture.
pub(super) struct TopView<'a> {
    pub(super) place: &'a TopConfig,
    pub(super) state: &'a TopState,
    pub(super) history: &'a RateHistory,
    pub(super) choice: &'a Choice,
    /// The error of the last read.
    pub(super) trouble: Option<&'a str>,
    /// Columns of the terminal.
    pub(super) width: usize,
}

impl TopView<'_> {
    fn curve(&self) -> usize {
        self.width.saturating_sub(BESIDE_CURVE).clamp(CURVE_MIN, CURVE_MAX)
    }

    fn name(&self) -> usize {
        self.width.saturating_sub(BESIDE_NAME).clamp(NAME_MIN, NAME_MAX)
    }
}

const HELP: [&str; 9] = [
    "received   rows that came into the inbox, per second",
    "handled    inbox rows whose handler, route or process is committed",
    "delivered  outbox rows that a destination has accepted",
    "attention  items that need an operator",
    "oldest     age of the oldest open row",
    "breaker    open: the destination is unavailable; its messages wait, and no",
    "           attempts are used",
    "reason     may be cut; the selected destination shows all of it",
    "keys       q or Esc quits, p pauses, up and down select, ? closes this help",
];

/// Renders all lines.
pub(super) fn picture(scene: &TopView<'_>) -> Vec<Line> {
    let mut lines = vec![title(scene), Line::new()];
    if scene.choice.help {
        lines.extend(HELP.iter().map(|line| vec![plain(format!(" {line}"))]));
        return lines;
    }
    lines.extend(flow(scene));
    let paused = scene.state.paused.iter();
    lines.extend(paused.map(|line| vec![(format!(" paused       {line}"), Tone::Waiting)]));
    let limited = scene.state.limited.iter();
    lines.extend(limited.map(|line| vec![(format!(" limited      {line}"), Tone::Waiting)]));
    lines.push(Line::new());
    lines.extend(destinations(scene));
    lines.push(Line::new());
    lines.extend(workers(scene.state));
    lines.into_iter().map(|line| fit(line, scene.width)).collect()
}

/// Returns the line, cut to the width with an ellipsis.
fn fit(line: Line, width: usize) -> Line {
    let mut left = width;
    let mut kept = Line::with_capacity(line.len());
    for (text, tone) in line {
        let text = elide(&text, left);
        left -= text.chars().count();
        kept.push((text, tone));
        if left == 0 {
            break;
        }
    }
    kept
}

/// Breaks a text into lines that fit, between words where possible.
fn wrapped(text: &str, indent: &str, width: usize) -> Vec<Line> {
    let room = width.saturating_sub(indent.chars().count()).max(1);
    wrap(text, room).lines().map(|line| vec![plain(format!("{indent}{line}"))]).collect()
}

fn plain(text: impl Into<String>) -> Piece {
    (text.into(), Tone::Plain)
}

/// Escapes a text for one line of a terminal.
pub(super) fn safe(text: &str) -> String {
    escape(text, LineBreaks::Escape)
}

fn title(scene: &TopView<'_>) -> Line {
    let mut line =
        vec![plain(format!("relais top   {}   {}", safe(&scene.place.store), scene.state.now))];
    if scene.choice.paused {
        line.push(("   paused: p continues".to_owned(), Tone::Waiting));
    }
    if let Some(trouble) = scene.trouble {
        line.push((format!("   {}", safe(trouble)), Tone::Bad));
    }
    line
}

fn flow(scene: &TopView<'_>) -> Vec<Line> {
    let TopView { state, history, place, .. } = scene;
    let rates = history.now();
    let width = scene.curve();
    let moving = |name: &str, curve: Vec<f64>, rate: Option<f64>| {
        let curve = sparkline(&curve, width);
        plain(format!(" {name:10}{curve} {:>7}  ", per_second(rate)))
    };
    let still = |name: &str| plain(format!(" {name:10}{:width$} {:>7}  ", "", ""));
    let inbox = |names: &[&str]| TopState::rows(&state.inbox, names);
    let outbox = |names: &[&str]| TopState::rows(&state.outbox, names);
    let open = inbox(&["RECEIVED", "RETRY"]);
    let oldest = state.inbox_oldest.map(|at| format!(", oldest {}", age(at, state.now)));
    let pending: u64 = state.backlogs.iter().map(|backlog| backlog.pending).sum();
    vec![
        vec![
            moving("received", history.curve(|r| r.received), rates.map(|r| r.received)),
            plain(safe(&place.sources.join(", "))),
        ],
        vec![
            moving("handled", history.curve(|r| r.processed), rates.map(|r| r.processed)),
            plain(format!("{open} open{}", oldest.unwrap_or_default())),
            bad(inbox(&["FAILED"]), "failed"),
            bad(inbox(&["SERDE_ERROR"]), "undecodable"),
        ],
        processes(state, still("processes")),
        vec![
            moving("delivered", history.curve(|r| r.dispatched), rates.map(|r| r.dispatched)),
            plain(format!("{pending} pending")),
            bad(outbox(&["FAILED"]), "failed"),
        ],
        vec![
            still("attention"),
            plain("dead letters "),
            (
                state.dead_letters_open.to_string(),
                if state.dead_letters_open > 0 { Tone::Bad } else { Tone::Good },
            ),
            plain(format!(", parked keys {}", state.parked_keys)),
        ],
    ]
}

/// Returns an empty piece for zero.
fn bad(count: u64, what: &str) -> Piece {
    if count == 0 { plain("") } else { (format!(", {count} {what}"), Tone::Bad) }
}

fn processes(state: &TopState, start: Piece) -> Line {
    let some: Vec<String> = state
        .processes
        .iter()
        .filter(|count| count.rows > 0)
        .map(|count| format!("{} {}", count.rows, count.name.to_lowercase()))
        .collect();
    let some = if some.is_empty() { "none".to_owned() } else { some.join(", ") };
    // First, so that a narrow terminal cuts the counts instead.
    let waiting = match state.processes_need_operator {
        0 => String::new(),
        1 => "1 needs an operator; ".to_owned(),
        several => format!("{several} need an operator; "),
    };
    vec![start, (waiting, Tone::Bad), plain(format!("{some}; {} timers due", state.timers_due))]
}

fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.1}/s"),
        Some(rate) => format!("{rate:.0}/s"),
    }
}

/// The line of a destination.
struct DestinationLine<'a> {
    name: &'a str,
    limit: Option<&'a str>,
    waiting: Option<&'a DestinationBacklog>,
    guards: Option<&'a DestinationGuards>,
    defined: bool,
}

/// Returns the configured destinations in their order, then those that only rows name.
fn rows<'a>(place: &'a TopConfig, state: &'a TopState) -> Vec<DestinationLine<'a>> {
    let mut waiting: BTreeMap<&str, &DestinationBacklog> =
        state.backlogs.iter().map(|waiting| (waiting.destination.as_str(), waiting)).collect();
    let mut rows: Vec<DestinationLine<'_>> = Vec::new();
    for (name, limit) in &place.destinations {
        rows.push(DestinationLine {
            name,
            limit: limit.as_deref(),
            waiting: waiting.remove(name.as_str()),
            guards: state.destinations.get(name),
            defined: true,
        });
    }
    rows.extend(waiting.into_iter().map(|(name, waiting)| DestinationLine {
        name,
        limit: None,
        waiting: Some(waiting),
        guards: None,
        defined: false,
    }));
    rows
}

/// Returns the number of destinations that can be selected.
pub(super) fn choices(place: &TopConfig, state: &TopState) -> usize {
    rows(place, state).len()
}

fn destinations(scene: &TopView<'_>) -> Vec<Line> {
    let TopView { place, state, history, choice, .. } = scene;
    let rows = rows(place, state);
    if rows.is_empty() {
        return vec![vec![plain(" no destination is configured")]];
    }
    let width = scene.name();
    let head = format!(
        "   {:width$}{:>8}{:>7}{:>8}  {:10}{}",
        "DESTINATION", "PENDING", "OLDEST", "MSG/S", "BREAKER", "REASON"
    );
    let mut lines = vec![vec![plain(head)]];
    for (number, row) in rows.iter().enumerate() {
        let is_chosen = choice.destination == SelectedRow::At(number);
        let chosen = if is_chosen { ">" } else { " " };
        let oldest = row.waiting.and_then(|waiting| waiting.oldest);
        let rate = history.now().and_then(|rates| rates.destinations.get(row.name).copied());
        let ((breaker, tone), _) = guards::show(row.guards);
        lines.push(vec![
            plain(format!(
                " {chosen} {:width$}{:>8}{:>7}{:>8}  ",
                elide(&safe(row.name), width),
                row.waiting.map_or(0, |waiting| waiting.pending),
                oldest.map_or_else(|| "-".to_owned(), |at| age(at, state.now)),
                per_second(rate),
            )),
            (format!("{breaker:10}"), tone),
            (why(row), Tone::Waiting),
        ]);
        let details = match is_chosen {
            true => vec![detail(state, row)],
            false if choice.destination == SelectedRow::InTrouble => troubles(state, row),
            false => Vec::new(),
        };
        lines.extend(details.iter().flat_map(|text| wrapped(text, DETAIL_INDENT, scene.width)));
    }
    lines
}

/// Returns the trouble of a destination in a few words; the line may cut it.
fn why(row: &DestinationLine<'_>) -> String {
    if !row.defined {
        return UNDEFINED.to_owned();
    }
    let reason = row.guards.and_then(|guards| guards.reason.as_ref());
    let failing = row.waiting.map_or(0, |waiting| waiting.failing_keys);
    match (reason, failing) {
        (Some(reason), _) => safe(&format!("{}: {}", reason.code, reason.message)),
        (None, 0) => String::new(),
        (None, 1) => "1 key fails".to_owned(),
        (None, keys) => format!("{keys} keys fail"),
    }
}

/// Returns the whole texts about the trouble of a destination.
fn troubles(state: &TopState, row: &DestinationLine<'_>) -> Vec<String> {
    let undefined = (!row.defined).then(|| UNDEFINED.to_owned());
    let open = row.guards.and_then(|guards| guards.suspension().or_else(|| guards.contact()));
    let failing = row.waiting.and_then(|waiting| {
        failing_text(waiting.failing_keys, waiting.failing.as_ref(), state.now)
    });
    [undefined, open, failing].into_iter().flatten().map(|text| safe(&text)).collect()
}

/// Returns the details of the selected destination.
fn detail(state: &TopState, row: &DestinationLine<'_>) -> String {
    let (_, calls) = guards::show(row.guards);
    let counted = row.guards.and_then(|guards| guards.dispatched);
    let counted = match (counted, &state.guards_unknown) {
        (Some(count), _) => {
            format!("{count} delivered since the start of that process, API calls {calls}")
        }
        (None, Some(why)) => format!("rates and breakers are unknown: {}", safe(why)),
        (None, None) => "the running relais does not serve it".to_owned(),
    };
    let troubles: String =
        troubles(state, row).into_iter().map(|trouble| format!("; {trouble}")).collect();
    let in_force = row.guards.and_then(|guards| guards.rate.as_deref()).or(row.limit);
    let (name, limit) = (safe(row.name), in_force.unwrap_or("none"));
    format!("{name}: rate limit {limit}; {counted}{troubles}")
}

fn workers(state: &TopState) -> Vec<Line> {
    let mut alive: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for worker in state.workers.iter().filter(|worker| worker.alive) {
        let (scopes, lanes) = alive.entry(&worker.worker).or_default();
        *scopes += 1;
        *lanes += worker.lanes;
    }
    if alive.is_empty() {
        return vec![vec![(
            " no worker is running; `relais run` starts one".to_owned(),
            Tone::Bad,
        )]];
    }
    let line = |(name, (scopes, lanes)): (&str, (usize, u64))| {
        let plural = if scopes == 1 { "" } else { "s" };
        vec![plain(format!(" worker {}: {lanes} lanes in {scopes} scope{plural}", safe(name)))]
    };
    alive.into_iter().map(line).collect()
}
