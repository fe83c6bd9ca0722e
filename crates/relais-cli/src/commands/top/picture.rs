//! What is drawn: lines of coloured pieces, cut to the size of the terminal. Pure.
//!
//! Invariant: text from messages or targets is escaped before it gets here, see [`safe`].

use std::collections::BTreeMap;

use super::{
    look::{Look, Place, Waiting},
    rates::{History, sparkline},
};
use crate::{
    commands::status::guards::{self, Guards},
    output::{Lines, Tone, age, escape},
};

/// Characters of a curve.
const CURVE: usize = 24;
/// Characters of a destination's name.
const NAME: usize = 28;

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
}

const HELP: [&str; 6] = [
    "received     rows that came into the inbox, each second",
    "processed    inbox rows whose handler, route or process is committed",
    "delivered    outbox rows a target has acknowledged",
    "oldest       how long the oldest row that is not done has waited",
    "breaker      open: the target is left alone for a while, and nobody's attempts are used",
    "keys         q or Esc ends, p pauses, up and down choose a destination, ? closes this",
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
    lines
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
    let moving = |name: &str, what: &str, curve: Vec<f64>, rate: Option<f64>| {
        let curve = sparkline(&curve, CURVE);
        plain(format!(" {name:13}{what:10}{curve} {:>9}   ", per_second(rate)))
    };
    let still = |name: &str| plain(format!(" {name:13}{:10}{:CURVE$} {:>9}   ", "", "", ""));
    let inbox = |names: &[&str]| Look::rows(&look.inbox, names);
    let outbox = |names: &[&str]| Look::rows(&look.outbox, names);
    let open = inbox(&["RECEIVED", "RETRY"]);
    let oldest = look.inbox_oldest.map(|at| format!(", oldest {}", age(at, look.now)));
    let pending: u64 = look.backlogs.iter().map(|backlog| backlog.pending).sum();
    vec![
        vec![
            moving("sources", "received", history.curve(|r| r.received), rates.map(|r| r.received)),
            plain(safe(&place.sources.join(", "))),
        ],
        vec![
            moving(
                "inbox",
                "processed",
                history.curve(|r| r.processed),
                rates.map(|r| r.processed),
            ),
            plain(format!("{open} open{}", oldest.unwrap_or_default())),
            bad(inbox(&["FAILED"]), "failed"),
            bad(inbox(&["SERDE_ERROR"]), "unreadable"),
        ],
        processes(look, still("processes")),
        vec![
            moving(
                "outbox",
                "delivered",
                history.curve(|r| r.dispatched),
                rates.map(|r| r.dispatched),
            ),
            plain(format!("{pending} pending")),
            bad(outbox(&["FAILED"]), "failed"),
        ],
        vec![
            still("people"),
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
    let head = format!(
        "   {:NAME$}{:>9}{:>8}{:>10}  {:10}{}",
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
                " {chosen} {:NAME$}{:>9}{:>8}{:>10}  ",
                shortened(&safe(row.name)),
                row.waiting.map_or(0, |waiting| waiting.pending),
                oldest.map_or_else(|| "-".to_owned(), |at| age(at, look.now)),
                per_second(rate),
            )),
            (format!("{breaker:10}"), tone),
            (why(row), Tone::Waiting),
        ]);
    }
    if let Some(row) = rows.get(choice.destination) {
        lines.push(vec![plain(format!("   {}", detail(row)))]);
    }
    lines
}

fn shortened(name: &str) -> String {
    const KEPT: usize = NAME - 2;
    if name.chars().count() <= KEPT {
        return name.to_owned();
    }
    name.chars().take(KEPT).chain(['…']).collect()
}

fn why(row: &Row<'_>) -> String {
    if !row.defined {
        return "waits: no [[destination]] names it".to_owned();
    }
    let reason = row.guards.and_then(|guards| guards.reason.as_ref());
    reason.map_or_else(String::new, |reason| safe(&format!("{}: {}", reason.code, reason.message)))
}

/// More of the one that is chosen.
fn detail(row: &Row<'_>) -> String {
    let (_, calls) = guards::show(row.guards);
    let counted = row.guards.and_then(|guards| guards.dispatched);
    let counted = counted.map_or_else(
        || "nobody answers at [admin]: no rates, no breakers".to_owned(),
        |count| format!("{count} delivered since that relais started, api calls {calls}"),
    );
    format!("{}: rate limit {}; {counted}", safe(row.name), row.limit.unwrap_or("none"))
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
