//! Every line of the table of `judge`, and what must hold whatever happens.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A short call of another key that succeeded.
fn good(ago: Duration) -> News {
    News::Good { began: ago, ended: ago }
}

fn facts() -> Facts {
    Facts {
        others: Some(good(Duration::ZERO)),
        previous_attempt: Duration::ZERO,
        failing_keys: 1,
        called_keys: 1,
        succeeded_keys: 1,
        alone_for: Duration::ZERO,
        failing_for: Duration::ZERO,
        failures: 1,
    }
}

#[test]
fn every_line_of_the_table_decides() {
    use FailureKind::{Busy, Unclear, Unreachable};
    let minute = Duration::from_secs(60);
    let long_ago = good(minute * 2);
    let table = [
        ("unreachable", Unreachable, facts(), Fault::Target),
        ("others succeed", Unclear, facts(), Fault::Message),
        ("others succeed", Busy, facts(), Fault::Message),
        ("others fail", Unclear, Facts { others: Some(News::Bad), ..facts() }, Fault::Target),
        (
            "old news",
            Unclear,
            Facts { others: Some(long_ago), failing_for: minute * 9, ..facts() },
            Fault::Target,
        ),
        (
            "before it began to fail",
            Unclear,
            Facts { others: Some(good(minute / 2)), failing_for: minute / 3, ..facts() },
            Fault::Target,
        ),
        (
            "after it began to fail",
            Busy,
            Facts { others: Some(good(minute / 2)), failing_for: minute, ..facts() },
            Fault::Message,
        ),
        (
            "since the previous attempt",
            Busy,
            Facts { others: Some(long_ago), previous_attempt: minute * 3, ..facts() },
            Fault::Message,
        ),
        (
            "three of four",
            Unclear,
            Facts { failing_keys: 3, called_keys: 4, ..facts() },
            Fault::Target,
        ),
        ("2 of 4", Unclear, Facts { failing_keys: 2, called_keys: 4, ..facts() }, Fault::Message),
        (
            "19 of 200",
            Busy,
            Facts { failing_keys: 19, called_keys: 200, ..facts() },
            Fault::Message,
        ),
        ("20 of 200", Busy, Facts { failing_keys: 20, called_keys: 200, ..facts() }, Fault::Target),
        (
            "alone",
            Unclear,
            Facts { others: None, alone_for: ALONE_AFTER, ..facts() },
            Fault::Message,
        ),
        (
            "alone and busy",
            Busy,
            Facts { others: None, alone_for: ALONE_AFTER, ..facts() },
            Fault::Target,
        ),
        (
            "overdue",
            Busy,
            Facts { failing_for: OVERDUE_AFTER, failing_keys: 9, ..facts() },
            Fault::Overdue,
        ),
    ];
    for (what, failure, facts, fault) in table {
        assert_eq!(judge(failure, &facts), fault, "{what}");
    }
}

#[test]
fn a_day_of_outage_makes_nothing_overdue() {
    let others = Some(News::Bad);
    let facts = Facts { failing_for: OVERDUE_AFTER, others, ..facts() };
    assert_eq!(judge(FailureKind::Busy, &facts), Fault::Target);
}

/// One destination in a test: keys by number, a clock in seconds.
struct Scene {
    evidence: Evidence,
    now_ns: u64,
}

impl Scene {
    fn new() -> Self {
        Self { evidence: Evidence::new(0), now_ns: 0 }
    }

    fn accepts(&mut self, keys: std::ops::Range<u64>) {
        keys.for_each(|key| self.evidence.succeeded(key, self.now_ns, self.now_ns));
    }

    fn fails(&mut self, key: u64, failure: FailureKind) -> Fault {
        let facts = self.evidence.failed(key, FailureTimes::ended(self.now_ns, self.now_ns));
        judge(failure, &facts)
    }

    fn pass(&mut self, seconds: u64) {
        self.now_ns += seconds * SECOND;
    }
}

/// A target that is half deployed refuses some messages and fails with others.
#[test]
fn a_refused_message_is_no_evidence_that_the_target_works() {
    let mut scene = Scene::new();
    assert_eq!(scene.fails(0, FailureKind::Unclear), Fault::Target);
    for _ in 0..5 {
        scene.pass(1);
        scene.evidence.rejected(1, scene.now_ns);
        assert_eq!(scene.fails(0, FailureKind::Unclear), Fault::Target);
    }
    scene.accepts(2..3);
    assert_eq!(scene.fails(0, FailureKind::Unclear), Fault::Message);
}

#[test]
fn one_poison_key_beside_healthy_ones_counts_each_time_whatever_its_answer() {
    for failure in [FailureKind::Unclear, FailureKind::Busy] {
        let mut scene = Scene::new();
        assert_eq!(scene.fails(0, failure), Fault::Target, "nothing is known yet");
        scene.pass(1);
        scene.accepts(1..201);
        for _ in 0..5 {
            scene.pass(1);
            assert_eq!(scene.fails(0, failure), Fault::Message);
        }
    }
}

#[test]
fn in_an_outage_at_most_two_messages_lose_an_attempt() {
    let mut scene = Scene::new();
    scene.accepts(0..50);
    let mut counted = 0;
    for second in 0..120 {
        for key in 0..50 {
            let failure = if second % 2 == 0 { FailureKind::Unclear } else { FailureKind::Busy };
            counted += u32::from(scene.fails(key, failure) == Fault::Message);
        }
        scene.pass(1);
    }
    assert!(counted <= 2, "{counted}");
}

#[test]
fn a_success_before_an_outage_does_not_count_against_the_only_message_in_it() {
    let mut scene = Scene::new();
    scene.accepts(1..2);
    for _ in 0..20 {
        scene.pass(1);
        assert_eq!(scene.fails(0, FailureKind::Busy), Fault::Target);
    }
}

/// Such a call began before this key began to fail, and ended after that.
#[test]
fn slow_calls_are_evidence_from_three_keys_on() {
    let minute = Duration::from_secs(60);
    let slow = News::Good { began: minute * 2, ended: minute / 2 };
    let judged = |succeeded_keys| {
        let facts = Facts { others: Some(slow), succeeded_keys, failing_for: minute, ..facts() };
        judge(FailureKind::Busy, &facts)
    };
    assert_eq!([2, 3].map(judged), [Fault::Target, Fault::Message]);
}

/// Calls that the target accepted before an outage return while the only new message fails.
#[test]
fn two_slow_calls_that_succeed_in_an_outage_count_against_no_message() {
    let mut scene = Scene::new();
    let began_ns = scene.now_ns;
    scene.pass(1);
    for key in 1..3 {
        assert_eq!(scene.fails(0, FailureKind::Busy), Fault::Target);
        scene.pass(1);
        scene.evidence.succeeded(key, began_ns, scene.now_ns);
    }
    for _ in 0..20 {
        assert_eq!(scene.fails(0, FailureKind::Busy), Fault::Target);
        scene.pass(1);
    }
    scene.accepts(3..4);
    assert_eq!(scene.fails(0, FailureKind::Busy), Fault::Message);
}

/// A call that the target has accepted is cut by the beginning of an outage; the messages of the same burst were
/// delivered meanwhile, and no other comes.
#[test]
fn a_slow_call_that_an_outage_cuts_counts_at_most_twice() {
    let mut scene = Scene::new();
    let began_ns = scene.now_ns;
    scene.pass(1);
    scene.accepts(1..75);
    scene.pass(1);
    let mut times = FailureTimes::ended(began_ns, scene.now_ns);
    let mut counted = 0;
    for _ in 0..20 {
        let facts = scene.evidence.failed(0, times);
        counted += u32::from(judge(FailureKind::Unclear, &facts) == Fault::Message);
        scene.pass(1);
        times = FailureTimes::ended(scene.now_ns, scene.now_ns);
    }
    assert!(counted <= 2, "{counted}");
    scene.accepts(1..2);
    assert_eq!(scene.fails(0, FailureKind::Unclear), Fault::Message);
}

/// The others are delivered while the poison message gets no answer.
#[test]
fn a_poison_key_without_an_answer_counts_by_the_calls_beside_it() {
    let mut scene = Scene::new();
    let began_ns = scene.now_ns;
    scene.pass(1);
    scene.accepts(1..201);
    scene.pass(1);
    let mut times = FailureTimes::unanswered(began_ns, scene.now_ns);
    for _ in 0..5 {
        let facts = scene.evidence.failed(0, times);
        assert_eq!(judge(FailureKind::Unclear, &facts), Fault::Message);
        let began_ns = scene.now_ns;
        scene.pass(2);
        times = FailureTimes::unanswered(began_ns, scene.now_ns);
    }
}

/// The last message of many is the poison one: the calls of the others began before its own.
#[test]
fn a_poison_key_that_is_sent_last_counts_by_the_calls_that_return_after_it() {
    let mut scene = Scene::new();
    let began_ns = scene.now_ns;
    scene.pass(1);
    assert_eq!(scene.fails(0, FailureKind::Busy), Fault::Target);
    for key in 1..10 {
        scene.evidence.succeeded(key, began_ns, scene.now_ns);
    }
    for _ in 0..5 {
        scene.pass(1);
        assert_eq!(scene.fails(0, FailureKind::Busy), Fault::Message);
    }
}

#[test]
fn a_single_message_in_an_outage_counts_nothing_for_ten_minutes() {
    let mut scene = Scene::new();
    for _ in 0..20 {
        assert_eq!(scene.fails(0, FailureKind::Unclear), Fault::Target);
        scene.pass(30);
    }
    assert_eq!(scene.fails(0, FailureKind::Unclear), Fault::Message);
    assert_eq!(scene.fails(0, FailureKind::Busy), Fault::Target);
}

#[test]
fn two_shards_of_ten_that_fail_are_the_targets_fault() {
    let mut scene = Scene::new();
    let mut counted = 0;
    for _ in 0..60 {
        scene.accepts(20..100);
        for key in 0..20 {
            counted += u32::from(scene.fails(key, FailureKind::Busy) == Fault::Message);
        }
        scene.pass(10);
    }
    // Before the share is known, a few keys lose one attempt.
    assert!(counted < 12, "{counted}");
}

#[test]
fn a_key_that_recovers_starts_again() {
    let mut scene = Scene::new();
    scene.fails(0, FailureKind::Unclear);
    assert_eq!(scene.evidence.failed(0, FailureTimes::ended(0, 0)).failures, 2);
    scene.accepts(0..1);
    assert!(!scene.evidence.is_failing(0));
    assert_eq!(scene.evidence.failed(0, FailureTimes::ended(0, 0)).failures, 1);
}

proptest! {
    #[test]
    fn what_cannot_be_reached_never_counts(seconds in 0_u64..100_000, failing in 0_usize..50) {
        let failing_for = Duration::from_secs(seconds);
        let facts = Facts { failing_for, failing_keys: failing, called_keys: 50, ..facts() };
        prop_assert_eq!(judge(FailureKind::Unreachable, &facts), Fault::Target);
    }

    /// Without a success of another key, only a key that is alone for ten minutes is counted.
    #[test]
    fn nothing_counts_while_everything_fails(
        calls in prop::collection::vec((0_u64..9, 0_u64..120, any::<bool>()), 1..200)
    ) {
        let mut scene = Scene::new();
        for (key, pause, busy) in calls {
            let failure = if busy { FailureKind::Busy } else { FailureKind::Unclear };
            let facts = scene.evidence.failed(key, FailureTimes::ended(scene.now_ns, scene.now_ns));
            if judge(failure, &facts) != Fault::Target {
                prop_assert!(facts.alone_for >= ALONE_AFTER && !busy);
            }
            scene.pass(pause);
        }
    }

    /// However many keys there are, memory stays bounded and a failing key is not taken for a healthy one.
    #[test]
    fn memory_is_bounded(keys in prop::collection::vec((any::<u64>(), any::<bool>()), 1..20_000)) {
        let mut evidence = Evidence::new(0);
        for (at, (key, good)) in keys.into_iter().enumerate() {
            if good {
                evidence.succeeded(key, at as u64, at as u64);
                prop_assert!(!evidence.is_failing(key));
            } else {
                let facts = evidence.failed(key, FailureTimes::ended(at as u64, at as u64));
                prop_assert!(evidence.is_failing(key) && facts.failing_keys <= facts.called_keys);
            }
            prop_assert!(evidence.keys.len() <= KEYS_MAX);
        }
    }
}
