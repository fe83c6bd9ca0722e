//! What is drawn: lines of coloured pieces that fit the width of the terminal. Pure.
//!
//! Invariant: text from messages or targets is escaped before it gets here, see [`safe`].

use std::collections::BTreeMap;

use super::{
    look::{Look, Place, Waiting},
    rates::{History, sparkline},
};
use crate::{
    commands::status::guards::{self, Guards},
    output::{Lines, Tone, age, elide, escape},
};

/// The default width of a terminal.
pub(super) const WIDTH: usize = 80;
/// Characters of a curve, at most and at least.
const CURVE_MAX: usize = 24;
const CURVE_MIN: usize = 8;
/// What stands beside the curve in its line.
const BESIDE_CURVE: usize = 64;
/// Characters of a destination's name, at most and at least.
const NAME_MAX: usize = 28;
const NAME_MIN: usize = 12;
/// What stands beside the name in its line, with a short reason.
const BESIDE_NAME: usize = 60;

/// A piece of a line.
pub(super) type Piece = (String, Tone);
pub(super) type Line = Vec<Piece>;

/// What a person has chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// The number of a destination, from 0.
    pub(super) destination: usize,
    pub(super) paused: bool,
    pub(super) help: bool,
}

/// All there is to draw.
pub(super) struct Scene<'a> {
    pub(super) place: &'a Place,
    pub(super) look: &'a Look,
    pub(super) history: &'a History,
    pub(super) choice: &'a Choice,
    /// Why the last look did not work.
    pub(super) trouble: Option<&'a str>,
    /// Columns of the terminal.
    pub(super) width: usize,
}

impl Scene<'_> {
    fn curve(&self) -> usize {
        self.width.saturating_sub(BESIDE_CURVE).clamp(CURVE_MIN, CURVE_MAX)
    }

    fn name(&self) -> usize {
        self.width.saturating_sub(BESIDE_NAME).clamp(NAME_MIN, NAME_MAX)
    }
}

const HELP: [&str; 8] = [
    "received   rows that came into the inbox, per second",
    "handled    inbox rows whose handler, route or process is committed",
    "delivered  outbox rows that a destination has accepted",
    "attention  what waits for an operator",
    "oldest     how long the oldest row that is not done has waited",
    "breaker    open: the destination is unavailable; its messages wait, and no",
    "           attempts are used",
    "keys       q or Esc ends, p pauses, up and down choose, ? closes this",
];

/// The whole picture, as long as it gets.
pub(super) fn picture(scene: &Scene<'_>) -> Vec<Line> {
    let mut lines = vec![title(scene), Line::new()];
    if scene.choice.help {
        lines.extend(HELP.iter().map(|line| vec![plain(format!(" {line}"))]));
        return lines;
    }
    lines.extend(flow(scene));
    let paused = scene.look.paused.iter();
    lines.extend(paused.map(|line| vec![(format!(" paused       {line}"), Tone::Waiting)]));
    lines.push(Line::new());
    lines.extend(destinations(scene));
    lines.push(Line::new());
    lines.extend(workers(scene.look));
    lines.into_iter().map(|line| fit(line, scene.width)).collect()
}

/// The line, or as much of it as there is room for and an ellipsis.
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

/// A text in as many lines as it needs, broken between words.
fn wrapped(text: &str, indent: &str, width: usize) -> Vec<Line> {
    let room = width.saturating_sub(indent.chars().count()).max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| vec![plain(format!("{indent}{line}"))]).collect()
}

fn plain(text: impl Into<String>) -> Piece {
    (text.into(), Tone::Plain)
}

/// Fit for a terminal, on one line.
pub(super) fn safe(text: &str) -> String {
    escape(text, Lines::Escape)
}

fn title(scene: &Scene<'_>) -> Line {
    let mut line =
        vec![plain(format!("relais top   {}   {}", safe(&scene.place.store), scene.look.now))];
    if scene.choice.paused {
        line.push(("   paused: p goes on".to_owned(), Tone::Waiting));
    }
    if let Some(trouble) = scene.trouble {
        line.push((format!("   {}", safe(trouble)), Tone::Bad));
    }
    line
}

fn flow(scene: &Scene<'_>) -> Vec<Line> {
    let Scene { look, history, place, .. } = scene;
    let rates = history.now();
    let width = scene.curve();
    let moving = |name: &str, curve: Vec<f64>, rate: Option<f64>| {
        let curve = sparkline(&curve, width);
        plain(format!(" {name:10}{curve} {:>7}  ", per_second(rate)))
    };
    let still = |name: &str| plain(format!(" {name:10}{:width$} {:>7}  ", "", ""));
    let inbox = |names: &[&str]| Look::rows(&look.inbox, names);
    let outbox = |names: &[&str]| Look::rows(&look.outbox, names);
    let open = inbox(&["RECEIVED", "RETRY"]);
    let oldest = look.inbox_oldest.map(|at| format!(", oldest {}", age(at, look.now)));
    let pending: u64 = look.backlogs.iter().map(|backlog| backlog.pending).sum();
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
        processes(look, still("processes")),
        vec![
            moving("delivered", history.curve(|r| r.dispatched), rates.map(|r| r.dispatched)),
            plain(format!("{pending} pending")),
            bad(outbox(&["FAILED"]), "failed"),
        ],
        vec![
            still("attention"),
            plain("dead letters "),
            (
                look.dead_letters_open.to_string(),
                if look.dead_letters_open > 0 { Tone::Bad } else { Tone::Good },
            ),
            plain(format!(", parked keys {}", look.parked_keys)),
        ],
    ]
}

/// Nothing if there are none.
fn bad(count: u64, what: &str) -> Piece {
    if count == 0 { plain("") } else { (format!(", {count} {what}"), Tone::Bad) }
}

fn processes(look: &Look, start: Piece) -> Line {
    let some: Vec<String> = look
        .processes
        .iter()
        .filter(|count| count.rows > 0)
        .map(|count| format!("{} {}", count.rows, count.name.to_lowercase()))
        .collect();
    let some = if some.is_empty() { "none".to_owned() } else { some.join(", ") };
    vec![
        start,
        plain(format!("{some}; {} timers due", look.timers_due)),
        bad(look.processes_need_operator, "need an operator"),
    ]
}

fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.1}/s"),
        Some(rate) => format!("{rate:.0}/s"),
    }
}

/// One destination, as it is shown.
struct Row<'a> {
    name: &'a str,
    limit: Option<&'a str>,
    waiting: Option<&'a Waiting>,
    guards: Option<&'a Guards>,
    defined: bool,
}

/// Those of the settings in their order, then those that only rows name.
fn rows<'a>(place: &'a Place, look: &'a Look) -> Vec<Row<'a>> {
    let mut waiting: BTreeMap<&str, &Waiting> =
        look.backlogs.iter().map(|waiting| (waiting.destination.as_str(), waiting)).collect();
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (name, limit) in &place.destinations {
        rows.push(Row {
            name,
            limit: limit.as_deref(),
            waiting: waiting.remove(name.as_str()),
            guards: look.destinations.get(name),
            defined: true,
        });
    }
    rows.extend(waiting.into_iter().map(|(name, waiting)| Row {
        name,
        limit: None,
        waiting: Some(waiting),
        guards: None,
        defined: false,
    }));
    rows
}

/// How many destinations there are to choose from.
pub(super) fn choices(place: &Place, look: &Look) -> usize {
    rows(place, look).len()
}

fn destinations(scene: &Scene<'_>) -> Vec<Line> {
    let Scene { place, look, history, choice, .. } = scene;
    let rows = rows(place, look);
    if rows.is_empty() {
        return vec![vec![plain(" no destination is defined and nothing waits for one")]];
    }
    let width = scene.name();
    let head = format!(
        "   {:width$}{:>8}{:>7}{:>8}  {:10}{}",
        "DESTINATION", "PENDING", "OLDEST", "RATE", "BREAKER", "WHY"
    );
    let mut lines = vec![vec![plain(head)]];
    for (number, row) in rows.iter().enumerate() {
        let chosen = if number == choice.destination { ">" } else { " " };
        let oldest = row.waiting.and_then(|waiting| waiting.oldest);
        let rate = history.now().and_then(|rates| rates.destinations.get(row.name).copied());
        let ((breaker, tone), _) = guards::show(row.guards);
        lines.push(vec![
            plain(format!(
                " {chosen} {:width$}{:>8}{:>7}{:>8}  ",
                elide(&safe(row.name), width),
                row.waiting.map_or(0, |waiting| waiting.pending),
                oldest.map_or_else(|| "-".to_owned(), |at| age(at, look.now)),
                per_second(rate),
            )),
            (format!("{breaker:10}"), tone),
            (why(row), Tone::Waiting),
        ]);
    }
    if let Some(row) = rows.get(choice.destination) {
        lines.extend(wrapped(&detail(look, row), "   ", scene.width));
    }
    lines
}

fn why(row: &Row<'_>) -> String {
    if !row.defined {
        return "waits: no [[destination]] names it".to_owned();
    }
    let reason = row.guards.and_then(|guards| guards.reason.as_ref());
    reason.map_or_else(String::new, |reason| safe(&format!("{}: {}", reason.code, reason.message)))
}

/// More of the one that is chosen.
fn detail(look: &Look, row: &Row<'_>) -> String {
    let (_, calls) = guards::show(row.guards);
    let counted = row.guards.and_then(|guards| guards.dispatched);
    let counted = match (counted, &look.guards_unknown) {
        (Some(count), _) => {
            format!("{count} delivered since that relais started, API calls {calls}")
        }
        (None, Some(why)) => format!("rates and breakers are not known: {}", safe(why)),
        (None, None) => "no relais that runs here serves it".to_owned(),
    };
    let rest = row.guards.and_then(Guards::rest).map(|rest| format!("; {}", safe(&rest)));
    let (name, limit) = (safe(row.name), row.limit.unwrap_or("none"));
    format!("{name}: rate limit {limit}; {counted}{}", rest.unwrap_or_default())
}

fn workers(look: &Look) -> Vec<Line> {
    let mut alive: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for worker in look.workers.iter().filter(|worker| worker.alive) {
        let (scopes, lanes) = alive.entry(&worker.worker).or_default();
        *scopes += 1;
        *lanes += worker.lanes;
    }
    if alive.is_empty() {
        return vec![vec![(
            " no worker is at work; `relais run` starts one".to_owned(),
            Tone::Bad,
        )]];
    }
    let line = |(name, (scopes, lanes)): (&str, (usize, u64))| {
        let plural = if scopes == 1 { "" } else { "s" };
        vec![plain(format!(" worker {}: {lanes} lanes in {scopes} scope{plural}", safe(name)))]
    };
    alive.into_iter().map(line).collect()
}
