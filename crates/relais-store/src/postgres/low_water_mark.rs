//! The low-water mark of a scope: the id from which a fetch starts its walk along the index.
//!
//! Without it every fetch walks over the entries of all rows settled since the oldest snapshot in
//! the database; a report that runs for an hour would make the relay slower and slower.
//!
//! Invariant: no row of the scope's lanes with an id up to the mark is fresh (open, without a time
//! to wait for), unless its key is parked behind a dead letter, and none can become so unnoticed. Never a
//! bare cursor: a lower id may commit later. A million rows behind a parked key cost nothing but the
//! look below.
//!
//! Why it holds. An INSERT locks the table (`RowExclusiveLock`) *before* it draws its id and keeps
//! the lock until its transaction ends, and PostgreSQL makes a commit visible before it releases the
//! transaction's locks. So:
//!
//! 1. Let `highest` be an id some fetch has returned, or the highest fresh row of a scope with parked
//!    keys, whose rows no fetch returns: all ids up to it have been drawn.
//! 2. Ask for the holders of that lock *afterwards*. A transaction that drew an id up to `highest`
//!    is among them, or has ended.
//! 3. Once each of those holders has ended, all ids up to `highest` are decided, and every
//!    later snapshot shows what became of them. A transaction that rolls back to a savepoint may
//!    lose the lock earlier; the ids it drew until then are decided too.
//! 4. Take, in a snapshot later than that, the lowest fresh row above the old mark whose key is not
//!    parked, whether it may go out now or is held. The mark may move right below it, at most to
//!    `highest`.
//! 5. A row that is not fresh becomes so again only when an operator decides so, or when a bulk job sets
//!    it free; a key is freed only when an operator decides so, also by a discard that changes no row.
//!    That transaction locks the table likewise, then draws a number (an id of the audit, a number of
//!    the jobs), and then commits. Each fetch reads how many such numbers have been drawn
//!    *after* it has read its rows: if it has moved, its rows do not count, and it starts from zero.
//!    If it has not, no such commit came before the fetch's snapshot. And a decision that was seen by
//!    its number before its commit is still among the holders of 2., so the mark, now at zero, does
//!    not pass its rows.
//!
//! A prepared transaction (two-phase commit) changes its name while it holds the lock, so nothing is
//! decided while there is one. What is outside these rules (rows changed by hand, ids given by hand
//! or drawn ahead, a failover that lost commits) is found because the walk starts at zero again
//! after an error, on a new connection, when the lanes change, and every [`LOOK_BELOW_EVERY`].
//!
//! The clock is used for pacing only; nothing above depends on it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use relais_core::lane::{OwnedLane, Scope};
use tokio_postgres::Row;

use super::row::{Micros, Read};

/// The shortest interval between two reads of the holders of the lock.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// The interval at which a fetch reads below the mark.
const LOOK_BELOW_EVERY: Duration = Duration::from_secs(30);
/// Most scopes with a mark; more do without.
const SCOPES_MAX: usize = 1_024;

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
    /// Ask also for the lock's holders and then for the lowest fresh row; this is the highest id that a
    /// fetch has returned.
    pub(super) ask: Option<i64>,
    generation: u64,
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
    /// The lowest fresh row above [`Plan::from`] whose key is not parked, seen after the writers.
    pub(super) lowest: Option<i64>,
}

impl MarkAnswer {
    pub(super) fn of(highest: &Row, writers: &[Row], lowest: Option<&Row>) -> Self {
        Self {
            parked: highest.get(0),
            highest: highest.get(1),
            writers: writers.iter().map(|row| row.get(0)).collect(),
            lowest: lowest.map(|row| row.get(0)),
        }
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) struct FetchFindings {
    pub(super) rows: Vec<SeenRow>,
    /// Decisions of operators and of bulk jobs so far, read after the rows.
    pub(super) decisions: i64,
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
    /// True if it came by the fresh index.
    pub(super) fresh: bool,
}

impl SeenRow {
    pub(super) fn of(row: &Row) -> Read<Self> {
        let time: Option<Micros> = row.try_get("next_attempt_at")?;
        Ok(Self { id: row.try_get("id")?, fresh: time.is_none() })
    }
}

impl Marks {
    pub(super) fn begin(&self, scope: &str, lanes: &[OwnedLane]) -> Plan {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() >= SCOPES_MAX && !marks.contains_key(scope) {
            return Plan { from: 0, ask: None, generation: 0 };
        }
        let now = Instant::now();
        let mark = marks.entry(scope.to_owned()).or_insert_with(|| Mark::new(now));
        mark.begin(lanes, now)
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
    lanes: Vec<(i16, i64)>,
    /// Raised with every reset: a fetch that began before it changes nothing.
    generation: u64,
    at: i64,
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
    fn new(now: Instant) -> Self {
        Self {
            lanes: Vec::new(),
            generation: 0,
            at: 0,
            decisions: None,
            highest: 0,
            note: None,
            busy: false,
            parked: true,
            asked: None,
            looked_below: now,
        }
    }

    fn begin(&mut self, lanes: &[OwnedLane], now: Instant) -> Plan {
        let lanes: Vec<_> = lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect();
        if lanes != self.lanes {
            self.lanes = lanes;
            self.reset();
        }
        let look_below = now.duration_since(self.looked_below) >= LOOK_BELOW_EVERY;
        if look_below {
            self.looked_below = now;
        }
        let rested = self.asked.is_none_or(|asked| now.duration_since(asked) >= ASK_EVERY);
        let ask = (self.busy || self.parked) && rested && !look_below;
        if ask {
            self.asked = Some(now);
        }
        Plan {
            from: if look_below { 0 } else { self.at },
            ask: ask.then_some(self.highest),
            generation: self.generation,
        }
    }

    fn end(&mut self, plan: Plan, found: FetchFindings) -> FetchVerdict {
        let decided = self.decisions.is_some_and(|before| before != found.decisions);
        if decided {
            self.reset();
        }
        self.decisions = Some(found.decisions);
        if plan.generation != self.generation {
            return if plan.from > 0 { FetchVerdict::Again } else { FetchVerdict::Sound };
        }
        if found.rows.iter().any(|row| row.fresh && row.id <= self.at) {
            // Something outside the rules put it there; the answer does not know of it.
            self.reset();
        } else if let (Some(highest), Some(answer)) = (plan.ask, found.answer) {
            self.advance(highest, answer);
        }
        if let Some(highest) = found.rows.iter().map(|row| row.id).max() {
            self.highest = self.highest.max(highest);
            self.busy = true;
        }
        FetchVerdict::Sound
    }

    /// `highest` was known before the writers were asked for.
    fn advance(&mut self, highest: i64, answer: MarkAnswer) {
        self.parked = answer.parked;
        if answer.writers.iter().any(|writer| is_prepared(writer)) {
            return;
        }
        let highest = answer.highest.map_or(highest, |parked| highest.max(parked));
        let below_lowest = answer.lowest.map_or(i64::MAX, |id| id - 1);
        if answer.writers.is_empty() {
            self.at = self.at.max(highest.min(below_lowest));
            self.note = None;
            self.busy = false;
            return;
        }
        if let Some(note) = &mut self.note {
            note.writers.retain(|writer| answer.writers.contains(writer));
            if !note.writers.is_empty() {
                return;
            }
            self.at = self.at.max(note.upto.min(below_lowest));
            self.busy = note.upto < highest;
        }
        let more = self.busy || highest > self.at;
        self.note = more.then_some(Note { upto: highest, writers: answer.writers });
    }

    fn reset(&mut self) {
        self.generation += 1;
        self.at = 0;
        self.highest = 0;
        self.note = None;
        self.busy = false;
        self.parked = true;
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

    /// A mark and a clock that moves far enough between fetches to ask each time.
    struct Check {
        mark: Mark,
        now: Instant,
    }

    impl Check {
        fn new() -> Self {
            let now = Instant::now();
            Self { mark: Mark::new(now), now }
        }

        fn fetch(&mut self, ids: &[i64], writers: &[&str], lowest: Option<i64>) -> Plan {
            self.now += ASK_EVERY;
            let plan = self.mark.begin(&LANES, self.now);
            let seen: Vec<_> = ids.iter().map(|&id| SeenRow { id, fresh: true }).collect();
            let writers = writers.iter().map(|&w| w.to_owned()).collect();
            let answer =
                plan.ask.map(|_| MarkAnswer { parked: false, highest: None, writers, lowest });
            self.mark.end(plan, FetchFindings { rows: seen, decisions: 7, answer });
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
            let plan = check.mark.begin(&LANES, check.now);
            assert!(plan.ask.is_some(), "while keys are parked, it asks");
            let writers = writers.iter().map(|&w| w.to_owned()).collect();
            let answer = Some(MarkAnswer { parked: true, highest, writers, lowest });
            check.mark.end(plan, FetchFindings { rows: Vec::new(), decisions: 7, answer });
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
        assert_eq!(check.mark.begin(&taken_again, check.now).from, 0, "another epoch");
    }

    #[test]
    fn an_answer_from_before_a_reset_changes_nothing() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.now += ASK_EVERY;
        let plan = check.mark.begin(&LANES, check.now);
        check.mark.reset();
        let answer = Some(MarkAnswer {
            parked: false,
            highest: None,
            writers: HashSet::new(),
            lowest: None,
        });
        check.mark.end(plan, FetchFindings { rows: Vec::new(), decisions: 7, answer });
        assert_eq!(check.mark.at, 0);
    }

    #[test]
    fn a_decision_of_an_operator_makes_the_fetch_start_from_zero() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.fetch(&[], &[], None);
        let plan = check.mark.begin(&LANES, check.now);
        assert_eq!(plan.from, 5);
        let rows = vec![SeenRow { id: 6, fresh: true }];
        let verdict = check.mark.end(plan, FetchFindings { rows, decisions: 8, answer: None });
        assert_eq!(verdict, FetchVerdict::Again);
        assert_eq!(check.mark.begin(&LANES, check.now).from, 0);
    }

    #[test]
    fn now_and_then_it_looks_below() {
        let mut check = Check::new();
        check.fetch(&[5], &[], None);
        check.fetch(&[], &[], None);
        check.now += LOOK_BELOW_EVERY;
        assert_eq!(check.mark.begin(&LANES, check.now).from, 0);
        assert_eq!(check.mark.begin(&LANES, check.now).from, 5);
    }
}
