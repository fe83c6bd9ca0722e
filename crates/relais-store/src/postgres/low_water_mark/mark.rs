//! The mark of one scope, as pure bookkeeping.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use relais_core::{
    lane::{LANES, OwnedLane},
    store::KeptRows,
};

use super::{FetchFindings, FetchVerdict, MarkAnswer, Plan};

/// The shortest interval between two reads of the holders of the lock.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// The shortest interval between two moves of the position of a destination.
const POSITION_EVERY: Duration = Duration::from_secs(1);
/// The interval at which a fetch reads below the mark.
pub(super) const LOOK_BELOW_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Mark {
    /// The scope is a destination, which has a position.
    has_position: bool,
    /// The position as last read; 0 for an inbox.
    pub(super) base: i64,
    /// The id to which the position may move, and when it was last asked for.
    pub(super) next_position: Option<i64>,
    moved_position: Option<Instant>,
    lanes: Vec<(i16, i64)>,
    /// Raised with every reset: a fetch that began before it changes nothing.
    generation: u64,
    pub(super) at: i64,
    /// The id up to which every fresh row was returned or passed.
    ahead: i64,
    /// Raised when the worker gives rows back: a fetch that began before that no longer moves `ahead`.
    kept_since: u64,
    /// The id up to which all are decided.
    decided: i64,
    /// The last fetch was complete only up to a limit.
    full: bool,
    /// Rows of `relais_waiting` that were returned and not settled yet; with `any_waits` there are others.
    pub(super) waiting: HashSet<i64>,
    pub(super) any_waits: bool,
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
    pub(super) fn new(now: Instant, position: Option<i64>) -> Self {
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
            kept_since: 0,
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

    pub(super) fn begin(&mut self, lanes: &[OwnedLane], now: Instant, kept: KeptRows) -> Plan {
        let lanes: Vec<_> = lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect();
        if lanes != self.lanes {
            self.lanes = lanes;
            self.reset();
        }
        if kept == KeptRows::FromNow {
            self.ahead = 0;
            self.kept_since += 1;
        }
        let at = if kept == KeptRows::All { self.at.max(self.ahead) } else { self.at };
        // What is below the position of a destination is found by the sweep.
        let look_below =
            !self.has_position && now.duration_since(self.looked_below) >= LOOK_BELOW_EVERY;
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
            kept_since: self.kept_since,
            generation: self.generation,
        }
    }

    pub(super) fn end(&mut self, plan: Plan, found: FetchFindings) -> FetchVerdict {
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
            let is_kept = plan.is_kept && plan.kept_since == self.kept_since;
            if let Some(complete) = found.complete_to.filter(|_| is_kept) {
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

    pub(super) fn reset(&mut self) {
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
    use super::super::SeenRow;
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

    /// A destination whose position is 10.
    struct OutboxCheck {
        mark: Mark,
        now: Instant,
        position: i64,
    }

    impl OutboxCheck {
        fn new() -> Self {
            let now = Instant::now();
            Self { mark: Mark::new(now, Some(10)), now, position: 10 }
        }

        /// Fetches rows up to a cut, without writers; returns where the walk started.
        fn fetch(&mut self, ids: &[i64], kept: KeptRows, lowest: Option<i64>) -> i64 {
            self.fetch_beside(ids, kept, lowest, &[])
        }

        fn fetch_beside(
            &mut self,
            ids: &[i64],
            kept: KeptRows,
            lowest: Option<i64>,
            writers: &[&str],
        ) -> i64 {
            self.now += ASK_EVERY;
            let plan = self.mark.begin(&LANES, self.now, kept);
            let rows = ids.iter().map(|&id| SeenRow { id, fresh: true }).collect();
            let writers = writers.iter().map(|&w| w.to_owned()).collect();
            let answer = plan.ask.map(|_| MarkAnswer {
                parked: false,
                highest: None,
                writers,
                lowest,
                lowest_of_all: lowest,
            });
            let complete_to = ids.last().copied();
            let position = Some(self.position);
            self.mark
                .end(plan, FetchFindings { rows, decisions: 0, position, complete_to, answer });
            plan.from
        }
    }

    #[test]
    fn a_destination_starts_at_its_position_and_moves_it_below_the_lowest_fresh_row() {
        let mut check = OutboxCheck::new();
        assert_eq!(check.fetch(&[11, 12], KeptRows::None, Some(11)), 10);
        check.now += POSITION_EVERY;
        check.fetch(&[12], KeptRows::None, Some(12));
        assert_eq!((check.mark.at, check.mark.next_position), (11, Some(11)));
        check.mark.reset();
        assert_eq!(check.fetch(&[12], KeptRows::None, Some(12)), 10, "not at zero");
    }

    #[test]
    fn a_position_that_was_set_back_starts_the_walk_there() {
        let mut check = OutboxCheck::new();
        check.fetch(&[11], KeptRows::None, Some(11));
        check.position = 4;
        check.fetch(&[11], KeptRows::None, Some(11));
        assert_eq!(check.fetch(&[5], KeptRows::None, Some(5)), 4);
    }

    #[test]
    fn a_worker_that_keeps_its_rows_continues_behind_them_once_they_are_decided() {
        let mut check = OutboxCheck::new();
        check.fetch(&[11, 12], KeptRows::FromNow, Some(11));
        check.fetch_beside(&[13, 14], KeptRows::All, Some(11), &["3/1"]);
        assert_eq!(check.fetch(&[15, 16], KeptRows::All, Some(11)), 10, "a writer was open");
        assert_eq!(check.fetch(&[17], KeptRows::All, Some(11)), 14);
        assert_eq!(check.fetch(&[11], KeptRows::FromNow, Some(11)), 10, "it gave rows back");
    }

    #[test]
    fn the_late_answer_of_an_abandoned_fetch_does_not_move_the_next_walk() {
        let mut check = OutboxCheck::new();
        check.fetch(&[11, 12], KeptRows::FromNow, Some(11));
        let abandoned = check.mark.begin(&LANES, check.now + ASK_EVERY, KeptRows::All);
        check.fetch(&[11], KeptRows::FromNow, Some(11));
        let rows = [12, 13].map(|id| SeenRow { id, fresh: true }).to_vec();
        let answer = Some(MarkAnswer {
            parked: false,
            highest: None,
            writers: HashSet::new(),
            lowest: Some(11),
            lowest_of_all: Some(11),
        });
        let (position, complete_to) = (Some(10), Some(13));
        let found = FetchFindings { rows, decisions: 0, position, complete_to, answer };
        check.mark.end(abandoned, found);
        assert!(check.fetch(&[12], KeptRows::All, Some(11)) <= 11);
    }
}
