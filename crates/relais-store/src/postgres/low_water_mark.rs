//! The low-water mark of a scope: the id from which a fetch starts its walk along the index.
//!
//! Without it every fetch walks over the entries of all rows settled since the oldest snapshot in
//! the database; a report that runs for an hour would make the relay slower and slower.
//!
//! Invariant: no row of the scope's lanes with an id up to the mark is fresh, and none can become so unnoticed. In
//! the outbox a row is fresh if it is pending and not in `relais_waiting`; in the inbox if it is open, without a time
//! to wait for, and its key is not parked. Never a bare cursor: a lower id may commit later.
//!
//! Why it holds. An INSERT locks the table (`RowExclusiveLock`) *before* it draws its id and keeps
//! the lock until its transaction ends, and PostgreSQL makes a commit visible before it releases the
//! transaction's locks. So:
//!
//! 1. Let `highest` be an id some fetch has returned, or the highest fresh row of an inbox with parked
//!    keys, whose rows no fetch returns: all ids up to it have been drawn.
//! 2. Ask for the holders of that lock *afterwards*. A transaction that drew an id up to `highest`
//!    is among them, or has ended.
//! 3. Once each of those holders has ended, all ids up to `highest` are *decided*, and every
//!    later snapshot shows what became of them. A transaction that rolls back to a savepoint may
//!    lose the lock earlier; the ids it drew until then are decided too.
//! 4. Take, in a snapshot later than that, the lowest fresh row above the old mark, whether it may go out now or
//!    is held. The mark may move right below it, at most to the decided id.
//! 5. An outbox row that is not fresh never becomes so again: it becomes due in `relais_waiting` instead.
//!    An inbox row becomes fresh again only when an operator decides so; a key is freed only when an operator
//!    decides so, also by a discard that changes no row. That transaction locks the table likewise, then draws a
//!    number (an id of the audit), and then commits. Each fetch reads how many such numbers have been drawn
//!    *after* it has read its rows: if it has moved, its rows do not count, and it starts from zero.
//!    If it has not, no such commit came before the fetch's snapshot. And a decision that was seen by
//!    its number before its commit is still among the holders of 2., so the mark, now at zero, does
//!    not pass its rows.
//!
//! The outbox has a *position* for each destination in the database: a mark that holds for all lanes, because 4. was
//! done for all lanes. There the walk starts where it otherwise starts at zero. It moves once a second.
//!
//! A worker that keeps all rows it is given need not walk over them again. So the walk may start *ahead* of
//! the mark: behind a decided id up to which a later snapshot has returned every fresh row, or passed it.
//!
//! A prepared transaction (two-phase commit) changes its name while it holds the lock, so nothing is
//! decided while there is one. What is outside these rules (rows changed by hand, ids given by hand
//! or drawn ahead) is found in the inbox because the walk starts at zero again after an error, on a new connection,
//! when the lanes change, and every [`LOOK_BELOW_EVERY`]; in the outbox by a sweep beside clean-up.
//!
//! The clock is used for pacing only; nothing above depends on it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use relais_core::{
    lane::{LANES, OwnedLane, Scope},
    store::KeptRows,
};
use tokio_postgres::Row;

use super::row::{Micros, Read};

/// The shortest interval between two reads of the holders of the lock.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// The shortest interval between two moves of the position of a destination.
const POSITION_EVERY: Duration = Duration::from_secs(1);
/// The interval at which a fetch reads below the mark.
const LOOK_BELOW_EVERY: Duration = Duration::from_secs(30);
/// Most scopes with a mark; more do without.
const SCOPES_MAX: usize = 1_024;

/// Most rows that were fetched from `relais_waiting` and whose settlement is not known, for each scope.
const WAITING_MAX: usize = 10_000;

/// The number of times that one fetch starts over because operators put rows back.
pub(super) const FETCHES_MAX: usize = 3;

/// The marks of all scopes of a store.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<HashMap<String, Mark>>, Mutex<Option<Instant>>);

/// The start of one fetch, and the questions it asks beside its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Fresh rows with a higher id.
    pub(super) from: i64,
    /// Ask also for the lock's holders; this is the highest id that a fetch has returned.
    pub(super) ask: Option<i64>,
    /// Ask then for the lowest fresh row above this id, the mark.
    pub(super) lowest: Option<i64>,
    /// Ask then for the lowest fresh row of all lanes above this id, the position.
    pub(super) position: Option<i64>,
    /// The worker keeps the rows.
    is_kept: bool,
    generation: u64,
}

impl Plan {
    /// Returns the plan of the next part of a walk, behind a row.
    pub(super) fn behind(self, row: i64) -> Self {
        Self { from: row, ask: None, ..self }
    }
}

/// The start of the walk of a scope without a mark.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WalkStart {
    /// The position of the destination; `None` for an inbox.
    pub(super) position: Option<i64>,
    pub(super) kept: KeptRows,
}

/// The answers to the questions of a [`Plan`].
#[derive(Debug)]
pub(super) struct MarkAnswer {
    /// Keys of the scope are parked.
    pub(super) parked: bool,
    /// Then the highest fresh row above [`Plan::from`], seen before the writers.
    pub(super) highest: Option<i64>,
    /// Transactions that hold the lock.
    pub(super) writers: HashSet<String>,
    /// The lowest fresh row above [`Plan::lowest`], seen after the writers.
    pub(super) lowest: Option<i64>,
    /// The lowest fresh row of all lanes above [`Plan::position`], seen after the writers.
    pub(super) lowest_of_all: Option<i64>,
}

impl MarkAnswer {
    pub(super) fn of(highest: &Row, writers: &[Row], lowest: Option<&Row>) -> Self {
        Self {
            parked: highest.get(0),
            highest: highest.get(1),
            writers: writers.iter().map(|row| row.get(0)).collect(),
            lowest: lowest.map(|row| row.get(0)),
            lowest_of_all: None,
        }
    }

    /// Of a destination; `lowest` has the lowest fresh rows of these lanes and of all.
    pub(super) fn of_outbox(writers: &[Row], lowest: Option<&Row>) -> Self {
        Self {
            parked: false,
            highest: None,
            writers: writers.iter().map(|row| row.get(0)).collect(),
            lowest: lowest.and_then(|row| row.get(0)),
            lowest_of_all: lowest.and_then(|row| row.get(1)),
        }
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) struct FetchFindings {
    pub(super) rows: Vec<SeenRow>,
    /// Decisions of operators so far, read after the rows; 0 in the outbox.
    pub(super) decisions: i64,
    /// The position of the destination; `None` for an inbox.
    pub(super) position: Option<i64>,
    /// The id up to which every fresh row was returned or passed; `None` if that is not known.
    pub(super) complete_to: Option<i64>,
    pub(super) answer: Option<MarkAnswer>,
}

/// The decision whether the rows of a fetch may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchVerdict {
    Sound,
    /// Rows were put back, perhaps below the mark: fetch again.
    Again,
}

/// One returned row, as far as the mark is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenRow {
    pub(super) id: i64,
    /// True if it was found by the walk.
    pub(super) fresh: bool,
}

impl SeenRow {
    /// Of the inbox.
    pub(super) fn of(row: &Row) -> Read<Self> {
        let time: Option<Micros> = row.try_get("next_attempt_at")?;
        Ok(Self { id: row.try_get("id")?, fresh: time.is_none() })
    }
}

impl Marks {
    pub(super) fn begin(&self, scope: &str, lanes: &[OwnedLane], start: WalkStart) -> Plan {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = start.position.unwrap_or(0);
        if marks.len() >= SCOPES_MAX && !marks.contains_key(scope) {
            return Plan {
                from,
                ask: None,
                lowest: None,
                position: None,
                is_kept: false,
                generation: 0,
            };
        }
        let now = Instant::now();
        let new = || Mark::new(now, start.position);
        let mark = marks.entry(scope.to_owned()).or_insert_with(new);
        mark.begin(lanes, now, start.kept)
    }

    /// Returns the position of a destination as last read; `None` if it has no mark.
    pub(super) fn position(&self, scope: &str) -> Option<i64> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get(scope).map(|mark| mark.base)
    }

    /// Returns the id to which the position of the destination may move now.
    pub(super) fn next_position(&self, scope: &str) -> Option<i64> {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get_mut(scope)?.next_position.take()
    }

    /// Remembers rows that were fetched from `relais_waiting`.
    pub(super) fn note_waiting(&self, scope: &str, rows: impl Iterator<Item = i64>) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mark) = marks.get_mut(scope) else { return };
        mark.waiting.extend(rows);
        if mark.waiting.len() > WAITING_MAX {
            mark.waiting.clear();
            mark.any_waits = true;
        }
    }

    /// Returns whether rows that are settled now may be in `relais_waiting`, and forgets them.
    pub(super) fn take_waiting(&self, scope: &str, rows: &[i64]) -> bool {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mark) = marks.get_mut(scope) else { return true };
        let known = mark.waiting.len();
        if known > 0 {
            rows.iter().for_each(|id| {
                mark.waiting.remove(id);
            });
        }
        mark.any_waits || mark.waiting.len() < known
    }

    pub(super) fn end(&self, scope: &str, plan: Plan, found: FetchFindings) -> FetchVerdict {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get_mut(scope).map_or(FetchVerdict::Sound, |mark| mark.end(plan, found))
    }

    /// Returns the id behind which the next fetch of the scope starts.
    pub(super) fn at(&self, scope: &str) -> i64 {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get(scope).map_or(0, |mark| mark.at)
    }

    /// Returns where a search for work starts, for each destination. Now and then it starts below the
    /// marks, as fetches do: a destination that is not woken does not fetch.
    pub(super) fn for_search(&self, destinations: &[String]) -> Vec<i64> {
        let mut searched = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if searched.is_none_or(|at| at.elapsed() >= LOOK_BELOW_EVERY) {
            *searched = Some(Instant::now());
            return vec![0; destinations.len()];
        }
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = |name: &String| {
            let scope = Scope::Outbox(name.clone()).to_string();
            marks.get(&scope).map_or(0, |mark| mark.at)
        };
        destinations.iter().map(mark).collect()
    }

    /// After a new connection nothing is known of the server behind it.
    pub(super) fn forget_all(&self) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.values_mut().for_each(Mark::reset);
    }

    /// After an error nothing is known.
    pub(super) fn forget(&self, scope: &str) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mark) = marks.get_mut(scope) {
            mark.reset();
        }
    }
}

#[derive(Debug)]
struct Mark {
    /// The scope is a destination, which has a position.
    has_position: bool,
    /// The position as last read; 0 for an inbox.
    base: i64,
    /// The id to which the position may move, and when it was last asked for.
    next_position: Option<i64>,
    moved_position: Option<Instant>,
    lanes: Vec<(i16, i64)>,
    /// Raised with every reset: a fetch that began before it changes nothing.
    generation: u64,
    at: i64,
    /// The id up to which every fresh row was returned or passed.
    ahead: i64,
    /// The id up to which all are decided.
    decided: i64,
    /// The last fetch was complete only up to a limit.
    full: bool,
    /// Rows of `relais_waiting` that were returned and not settled yet; with `any_waits` there are others.
    waiting: HashSet<i64>,
    any_waits: bool,
    /// Decisions of operators, when last read.
    decisions: Option<i64>,
    /// The highest id returned so far.
    highest: i64,
    /// The id up to which all will be decided, once these transactions have ended.
    note: Option<Note>,
    /// Rows came since the mark last moved as far as it could.
    busy: bool,
    /// Keys may be parked: rows behind them come without being returned.
    parked: bool,
    asked: Option<Instant>,
    looked_below: Instant,
}

#[derive(Debug)]
struct Note {
    upto: i64,
    writers: HashSet<String>,
}

impl Mark {
    fn new(now: Instant, position: Option<i64>) -> Self {
        let base = position.unwrap_or(0);
        Self {
            has_position: position.is_some(),
            base,
            next_position: None,
            moved_position: None,
            lanes: Vec::new(),
            generation: 0,
            at: base,
            ahead: 0,
            decided: 0,
            full: false,
            waiting: HashSet::new(),
            any_waits: false,
            decisions: None,
            highest: 0,
            note: None,
            busy: false,
            parked: true,
            asked: None,
            looked_below: now,
        }
    }

    fn begin(&mut self, lanes: &[OwnedLane], now: Instant, kept: KeptRows) -> Plan {
        let lanes: Vec<_> = lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect();
        if lanes != self.lanes {
            self.lanes = lanes;
            self.reset();
        }
        if kept == KeptRows::FromNow {
            self.ahead = 0;
        }
        let at = if kept == KeptRows::All { self.at.max(self.ahead) } else { self.at };
        let look_below = now.duration_since(self.looked_below) >= LOOK_BELOW_EVERY;
        if look_below {
            self.looked_below = now;
        }
        let has_rested =
            |at: Option<Instant>, pause| at.is_none_or(|at| now.duration_since(at) >= pause);
        let moves_position = self.has_position
            && (self.busy || self.at > self.base)
            && has_rested(self.moved_position, POSITION_EVERY);
        let ask_lowest = (self.busy || self.parked || moves_position)
            && has_rested(self.asked, ASK_EVERY)
            && !look_below;
        if ask_lowest {
            self.asked = Some(now);
        }
        let moves_position = moves_position && ask_lowest;
        if moves_position {
            self.moved_position = Some(now);
        }
        // With each full batch, so that the next one starts behind it.
        let ask = ask_lowest || self.has_position && self.full && !look_below;
        Plan {
            from: if look_below { self.base } else { at },
            ask: ask.then_some(self.highest),
            lowest: ask_lowest.then_some(self.at),
            position: moves_position.then_some(self.base),
            is_kept: kept != KeptRows::None,
            generation: self.generation,
        }
    }

    fn end(&mut self, plan: Plan, found: FetchFindings) -> FetchVerdict {
        let decided = self.decisions.is_some_and(|before| before != found.decisions);
        let position = found.position.unwrap_or(0);
        let lowered = position < self.base;
        if decided || lowered {
            self.base = position;
            self.reset();
        }
        self.decisions = Some(found.decisions);
        (self.base, self.at) = (position, self.at.max(position));
        if plan.generation != self.generation {
            return if plan.from > position { FetchVerdict::Again } else { FetchVerdict::Sound };
        }
        if found.rows.iter().any(|row| row.fresh && row.id <= self.at) {
            // Something outside the rules put it there; the answer does not know of it.
            self.reset();
        } else if let (Some(highest), Some(answer)) = (plan.ask, found.answer) {
            self.advance(highest, answer, plan);
            if let Some(complete) = found.complete_to.filter(|_| plan.is_kept) {
                self.ahead = self.ahead.max(complete.min(self.decided));
            }
        }
        self.full = found.complete_to.is_some_and(|id| id < i64::MAX);
        if let Some(highest) = found.rows.iter().map(|row| row.id).max() {
            self.highest = self.highest.max(highest);
            self.busy = true;
        }
        FetchVerdict::Sound
    }

    /// `highest` was known before the writers were asked for.
    fn advance(&mut self, highest: i64, answer: MarkAnswer, plan: Plan) {
        self.parked = answer.parked;
        if answer.writers.iter().any(|writer| is_prepared(writer)) {
            return;
        }
        let highest = answer.highest.map_or(highest, |parked| highest.max(parked));
        if answer.writers.is_empty() {
            self.note = None;
            self.decided = self.decided.max(highest);
        } else if let Some(note) = &mut self.note {
            note.writers.retain(|writer| answer.writers.contains(writer));
            if note.writers.is_empty() {
                self.decided = self.decided.max(note.upto);
                self.note = None;
            }
        }
        if self.note.is_none() && highest > self.decided {
            self.note = Some(Note { upto: highest, writers: answer.writers });
        }
        if plan.lowest.is_none() {
            return;
        }
        let below = |lowest: Option<i64>| lowest.map_or(i64::MAX, |id| id - 1);
        self.at = self.at.max(self.decided.min(below(answer.lowest)));
        self.busy = self.decided < highest;
        if plan.position.is_some() {
            let has_all = self.lanes.len() == usize::from(LANES);
            let lowest = if has_all { answer.lowest } else { answer.lowest_of_all };
            let next = self.decided.min(below(lowest));
            self.next_position = (next > self.base).then_some(next);
        }
    }

    fn reset(&mut self) {
        self.generation += 1;
        self.at = self.base;
        self.ahead = 0;
        self.decided = 0;
        self.full = false;
        self.highest = 0;
        self.note = None;
        self.busy = false;
        self.parked = true;
        self.next_position = None;
    }
}

/// `pg_locks` names a prepared transaction `-1/xid`.
fn is_prepared(writer: &str) -> bool {
    writer.starts_with("-1/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANES: [OwnedLane; 1] = [OwnedLane { lane: 3, epoch: 1, unclean: false }];

    fn findings(rows: Vec<SeenRow>, decisions: i64, answer: Option<MarkAnswer>) -> FetchFindings {
        FetchFindings { rows, decisions, position: None, complete_to: None, answer }
    }

    /// A mark and a clock that moves far enough between fetches to ask each time.
    struct Check {
        mark: Mark,
        now: Instant,
    }

    impl Check {
        fn new() -> Self {
            let now = Instant::now();
            Self { mark: Mark::new(now, None), now }
        }

        fn fetch(&mut self, ids: &[i64], writers: &[&str], lowest: Option<i64>) -> Plan {
            self.now += ASK_EVERY;
            let plan = self.mark.begin(&LANES, self.now, KeptRows::None);
            let seen: Vec<_> = ids.iter().map(|&id| SeenRow { id, fresh: true }).collect();
            let writers = writers.iter().map(|&w| w.to_owned()).collect();
            let answer = plan.ask.map(|_| MarkAnswer {
                parked: false,
                highest: None,
                writers,
                lowest,
                lowest_of_all: None,
            });
            self.mark.end(plan, findings(seen, 7, answer));
            plan
        }
    }

    #[test]
    fn without_writers_it_moves_right_below_the_lowest_fresh_row() {
        let mut check = Check::new();
        assert_eq!(check.fetch(&[4, 5, 9], &[], None).ask, Some(0), "perhaps keys are parked");
        assert_eq!(check.fetch(&[9], &[], Some(9)).ask, Some(9));
        assert_eq!(check.mark.at, 8);
        check.fetch(&[], &[], None);
        assert_eq!(check.mark.at, 9);
        assert_eq!(check.fetch(&[], &[], None).ask, None, "idle: no question");
    }

    #[test]
    fn it_waits_for_every_writer_that_may_have_drawn_a_lower_id() {
        let mut check = Check::new();
        check.fetch(&[5, 6], &[], None);
        check.fetch(&[], &["3/1", "4/1"], None);
        check.fetch(&[7], &["4/1", "5/1"], None);
        assert_eq!(check.mark.at, 0);
        check.fetch(&[], &["5/1"], None);
        assert_eq!(check.mark.at, 6, "up to what was known when the writers were noted");
        check.fetch(&[], &["6/1"], None);
        assert_eq!(check.mark.at, 7);
    }

    #[test]
    fn it_passes_rows_of_parked_keys_that_no_fetch_returns() {
        let mut check = Check::new();
        let mut ask = |highest, writers: &[&str], lowest| {
            check.now += ASK_EVERY;
            let plan = check.mark.begin(&LANES, check.now, KeptRows::None);
            assert!(plan.ask.is_some(), "while keys are parked, it asks");
            let writers = writers.iter().map(|&w| w.to_owned()).collect();
            let answer =
                Some(MarkAnswer { parked: true, highest, writers, lowest, lowest_of_all: None });
            check.mark.end(plan, findings(Vec::new(), 7, answer));
            check.mark.at
        };
        assert_eq!(ask(Some(50), &[], None), 50);
        assert_eq!(ask(None, &[], None), 50);
        assert_eq!(ask(Some(80), &["3/1"], None), 50);
        assert_eq!(ask(Some(90), &[], Some(71)), 70, "right below the first that is not parked");
    }

    #[test]
    fn a_prepared_transaction_stops_it() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.fetch(&[], &["3/1"], None);
        check.fetch(&[], &["-1/780"], None);
        assert_eq!(check.mark.at, 0);
    }

    #[test]
    fn other_lanes_errors_and_rows_below_start_it_again() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.fetch(&[], &[], None);
        assert_eq!(check.mark.at, 5);
        check.fetch(&[3], &[], None);
        assert_eq!(check.mark.at, 0, "a row below");
        check.fetch(&[5], &[], None);
        check.fetch(&[], &[], None);
        let taken_again = [OwnedLane { epoch: 2, ..LANES[0] }];
        assert_eq!(
            check.mark.begin(&taken_again, check.now, KeptRows::None).from,
            0,
            "another epoch"
        );
    }

    #[test]
    fn an_answer_from_before_a_reset_changes_nothing() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.now += ASK_EVERY;
        let plan = check.mark.begin(&LANES, check.now, KeptRows::None);
        check.mark.reset();
        let answer = Some(MarkAnswer {
            parked: false,
            highest: None,
            writers: HashSet::new(),
            lowest: None,
            lowest_of_all: None,
        });
        check.mark.end(plan, findings(Vec::new(), 7, answer));
        assert_eq!(check.mark.at, 0);
    }

    #[test]
    fn a_decision_of_an_operator_makes_the_fetch_start_from_zero() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.fetch(&[], &[], None);
        let plan = check.mark.begin(&LANES, check.now, KeptRows::None);
        assert_eq!(plan.from, 5);
        let rows = vec![SeenRow { id: 6, fresh: true }];
        let verdict = check.mark.end(plan, findings(rows, 8, None));
        assert_eq!(verdict, FetchVerdict::Again);
        assert_eq!(check.mark.begin(&LANES, check.now, KeptRows::None).from, 0);
    }

    #[test]
    fn now_and_then_it_looks_below() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.fetch(&[], &[], None);
        check.now += LOOK_BELOW_EVERY;
        assert_eq!(check.mark.begin(&LANES, check.now, KeptRows::None).from, 0);
        assert_eq!(check.mark.begin(&LANES, check.now, KeptRows::None).from, 5);
    }
}
