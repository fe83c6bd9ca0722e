//! Ten minutes of trouble in virtual time: evidence, breaker, concurrency and backoff as a relay uses them.
//!
//! Only the clock, the target and the queues of keys are simulated. Nothing sleeps.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use relais_core::{
    breaker::BreakerState,
    delivery::{Delivery, Problem},
    fault::Outlook,
    message::Category,
    outbox::{OutboxFate, settle},
};

use super::{DOUBTFUL_SHARE, LimitsState};
use crate::DestinationSettings;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const TROUBLE: u64 = 10 * MINUTE;
/// The time for what the trouble left behind.
const AFTERWARDS: u64 = 10 * MINUTE;
/// The duration of a call, and the step of the clock.
const CALL: u64 = 50 * MS;
const STEP: u64 = 10 * MS;
const KEYS: u64 = 200;
/// Each key gets a message this often.
const MESSAGE_EVERY: u64 = 2 * SECOND;

/// The first message of a key, and the number of those that wait.
#[derive(Clone, Default)]
struct SimulatedKey {
    waiting: u64,
    attempts: u32,
    due: u64,
    in_flight: bool,
    /// Its message waits for the breaker only.
    is_held: bool,
}

struct Simulation {
    limits: LimitsState,
    settings: DestinationSettings,
    keys: Vec<SimulatedKey>,
    /// Calls in flight in order of their end, with their key and their begin.
    calls: VecDeque<(u64, u64, u64)>,
    random: fastrand::Rng,
    now: u64,
    /// Calls and deliveries by minute and key.
    called: BTreeMap<(u64, u64), u64>,
    delivered: BTreeMap<(u64, u64), u64>,
    /// The number of calls that may run at once, at the end of each minute.
    concurrency: Vec<usize>,
    dead: u64,
}

impl Simulation {
    fn new() -> Self {
        let mut settings = DestinationSettings::default();
        // Few: each failure that is counted wrongly shows.
        settings.retry.attempts_max = 5;
        Self {
            limits: LimitsState::new(&settings),
            settings,
            keys: vec![SimulatedKey::default(); usize::try_from(KEYS).unwrap()],
            calls: VecDeque::new(),
            random: fastrand::Rng::with_seed(13),
            now: 0,
            called: BTreeMap::new(),
            delivered: BTreeMap::new(),
            concurrency: Vec::new(),
            dead: 0,
        }
    }

    /// Runs ten minutes with this target, and then until nothing waits.
    fn run(&mut self, target: impl Fn(u64, &mut fastrand::Rng) -> Delivery) {
        while self.now < TROUBLE + AFTERWARDS {
            let is_trouble = self.now < TROUBLE;
            if is_trouble {
                self.arrive();
            }
            while self.calls.front().is_some_and(|(end, ..)| *end <= self.now) {
                let (_, began, key) = self.calls.pop_front().unwrap();
                let answer =
                    if is_trouble { target(key, &mut self.random) } else { Delivery::Accepted };
                self.finish(key, began, answer);
            }
            self.launch();
            self.now += STEP;
            if self.now.is_multiple_of(MINUTE) {
                self.concurrency.push(self.limits.concurrency.get());
            }
        }
    }

    fn arrive(&mut self) {
        let every = MESSAGE_EVERY / KEYS;
        let due = (self.now / every)..((self.now + STEP) / every);
        for message in due {
            self.keys[usize::try_from(message % KEYS).unwrap()].waiting += 1;
        }
    }

    /// Starts calls as a relay does: keys that fail get a share of the slots.
    fn launch(&mut self) {
        let first = self.random.u64(..KEYS);
        for key in (first..KEYS).chain(0..first) {
            let state = self.limits.breaker.state(self.now);
            let max = match state {
                BreakerState::Open => return,
                BreakerState::HalfOpen => 1,
                BreakerState::Closed => self.limits.concurrency.get(),
            };
            if self.calls.len() >= max {
                return;
            }
            let waits = &self.keys[usize::try_from(key).unwrap()];
            let due = if waits.is_held { 0 } else { waits.due };
            if waits.waiting == 0 || waits.in_flight || due > self.now {
                continue;
            }
            let bad = |key: u64| self.limits.evidence.outlook(key) == Outlook::Bad;
            let doubtful = self.calls.iter().filter(|(.., key)| bad(*key)).count();
            let doubtful_max = (self.limits.concurrency.get() / DOUBTFUL_SHARE).max(1);
            if bad(key) && doubtful >= doubtful_max {
                continue;
            }
            self.keys[usize::try_from(key).unwrap()].in_flight = true;
            self.calls.push_back((self.now + CALL, self.now, key));
            *self.called.entry((self.now / MINUTE, key)).or_default() += 1;
        }
    }

    fn finish(&mut self, key: u64, began: u64, answer: Delivery) {
        let asked = answer.problem().and_then(|(_, after)| after);
        let answers = std::slice::from_ref(&answer);
        let assessed = self.limits.learn((&[key], &[Category::Event]), answers, began, self.now);
        let waits = &mut self.keys[usize::try_from(key).unwrap()];
        let (policy, random) = (&self.settings.retry, self.random.f64());
        let judgement = assessed.judgements[0];
        let on_dead = self.settings.on_dead_letter;
        let fate = settle(policy, on_dead, waits.attempts, answer, judgement, random);
        waits.in_flight = false;
        waits.is_held = false;
        let later = |pause: Duration| self.now + u64::try_from(pause.as_nanos()).unwrap();
        match fate {
            OutboxFate::Dispatched => {
                (waits.waiting, waits.attempts) = (waits.waiting - 1, 0);
                *self.delivered.entry((self.now / MINUTE, key)).or_default() += 1;
            }
            OutboxFate::Dead { .. } => self.dead += 1,
            OutboxFate::Retry { attempts, pause, .. } => {
                (waits.attempts, waits.due) = (attempts, later(pause));
            }
            OutboxFate::Wait { pause, .. } => {
                waits.due = later(pause);
                waits.is_held =
                    asked.is_none() && self.limits.breaker.state(self.now) == BreakerState::Open;
            }
            OutboxFate::Untouched => {}
        }
    }

    /// Returns a sum over some minutes and keys.
    fn sum(
        figures: &BTreeMap<(u64, u64), u64>,
        minutes: std::ops::Range<u64>,
        of: impl Fn(u64) -> bool,
    ) -> u64 {
        let chosen =
            figures.iter().filter(|((minute, key), _)| minutes.contains(minute) && of(*key));
        chosen.map(|(_, figure)| figure).sum()
    }

    fn waiting(&self) -> u64 {
        self.keys.iter().map(|key| key.waiting).sum()
    }
}

fn busy(after: Option<Duration>) -> Delivery {
    Delivery::Busy { problem: Problem::new("HTTP_429", "too many requests"), after }
}

/// Messages of ten minutes for one key.
const MESSAGES: u64 = TROUBLE / MESSAGE_EVERY;

#[test]
fn two_shards_of_ten_that_answer_503_for_ten_minutes_cost_few_calls_and_the_others_nothing() {
    let mut run = Simulation::new();
    let is_down = |key: u64| key % 10 < 2;
    run.run(|key, _| match is_down(key) {
        true => Delivery::Busy { problem: Problem::new("HTTP_503", "down"), after: None },
        false => Delivery::Accepted,
    });
    assert_eq!((run.dead, run.waiting()), (0, 0));
    let arrive_in_a_minute = (KEYS - KEYS / 5) * MINUTE / MESSAGE_EVERY;
    for minute in 0..10 {
        let delivered = Simulation::sum(&run.delivered, minute..minute + 1, |key| !is_down(key));
        // At most the messages of one second are later than their minute.
        let late = arrive_in_a_minute.abs_diff(delivered);
        assert!(late <= arrive_in_a_minute / 60, "{delivered} in minute {minute}");
    }
    let calls = Simulation::sum(&run.called, 0..10, is_down);
    // The pauses double up to 30 s: 9 calls until then, and 20 calls more.
    assert!(calls <= KEYS / 5 * 30, "{calls} calls of the shards that are down");
    assert!(calls >= KEYS / 5 * 10, "{calls} calls of the shards that are down");
}

fn half_of_the_calls_are_throttled(after: Option<Duration>) {
    let mut run = Simulation::new();
    run.run(|_, random| if random.bool() { busy(after) } else { Delivery::Accepted });
    let calls = Simulation::sum(&run.called, 0..10, |_| true);
    let delivered = Simulation::sum(&run.delivered, 0..10, |_| true);
    println!("{after:?}: {calls} calls, {delivered} delivered, {:?} at once", run.concurrency);
    assert_eq!((run.dead, run.waiting()), (0, 0), "all is delivered afterwards");
    // Half of the calls fail; no message is sent more often than that.
    assert!(calls * 10 <= delivered * 25, "{calls} calls for {delivered} messages");
    assert!(delivered > 0 && delivered <= KEYS * MESSAGES, "{delivered} delivered");
    let configured = DestinationSettings::default().concurrency;
    let throttled = &run.concurrency[..10];
    assert!(throttled.iter().all(|now| *now <= configured / 2), "{throttled:?} at once");
    assert_eq!(run.concurrency[11], configured, "{:?} at once", run.concurrency);
}

#[test]
fn ten_minutes_of_429_to_half_of_the_calls_make_no_dead_letter_and_no_storm() {
    half_of_the_calls_are_throttled(None);
}

#[test]
fn ten_minutes_of_429_with_a_pause_to_half_of_the_calls_make_no_dead_letter_and_no_storm() {
    half_of_the_calls_are_throttled(Some(Duration::from_secs(5)));
}
