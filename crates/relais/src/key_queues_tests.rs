//! Order, batches and limits of the key queues.

use super::*;

#[derive(Clone, Debug)]
struct Small(i64, &'static str);

impl QueueRow for Small {
    fn id(&self) -> i64 {
        self.0
    }
    fn lane(&self) -> i16 {
        1
    }
    fn key(&self) -> &str {
        self.1
    }
    fn lost_workers(&self) -> u32 {
        0
    }
    fn bytes(&self) -> usize {
        1
    }
}

fn entry(id: i64, key: &'static str) -> RowInFlight<Small> {
    let lane = OwnedLane { lane: 1, epoch: 1, unclean: false };
    RowInFlight { row: Small(id, key), lane, treatment: Treatment::Send }
}

fn queues(rows: &[(i64, &'static str)]) -> KeyQueues<Small> {
    let mut queues = KeyQueues::new();
    for (id, key) in rows {
        queues.offer(entry(*id, key));
    }
    queues
}

fn ids(entries: &[RowInFlight<Small>]) -> Vec<i64> {
    entries.iter().map(|j| j.row.0).collect()
}

#[test]
fn one_row_of_a_key_is_in_flight_and_other_keys_beside_it() {
    let mut queues = queues(&[(1, "a"), (2, "a"), (3, "b")]);
    let first = queues.take(Batching::Single);
    assert_eq!(ids(&first), [1]);
    assert_eq!(ids(&queues.take(Batching::Single)), [3]);
    assert!(queues.take(Batching::Single).is_empty());
    queues.complete(&first, &HashSet::new());
    assert_eq!(ids(&queues.take(Batching::Single)), [2]);
    assert!(queues.holds(1), "held until settled");
    queues.release([1]);
    assert!(!queues.holds(1));
}

#[test]
fn the_queued_rows_of_a_failed_key_are_dropped() {
    let mut queues = queues(&[(1, "a"), (2, "a"), (3, "b")]);
    let first = queues.take(Batching::Single);
    queues.complete(&first, &HashSet::from(["a".to_owned()]));
    assert_eq!(ids(&queues.take(Batching::Distinct { max: 9 })), [3]);
    assert!(!queues.holds(2));
    assert_eq!(queues.queued(), 0);
}

#[test]
fn batches_have_distinct_keys_unless_the_publisher_keeps_order() {
    let rows = [(1, "a"), (2, "a"), (3, "b")];
    assert_eq!(ids(&queues(&rows).take(Batching::Distinct { max: 9 })), [1, 3]);
    assert_eq!(ids(&queues(&rows).take(Batching::InOrder { max: 9 })), [1, 2, 3]);
    assert_eq!(ids(&queues(&rows).take(Batching::InOrder { max: 1 })), [1]);
}

fn suspect(id: i64, key: &'static str) -> RowInFlight<Small> {
    RowInFlight { treatment: Treatment::SendAlone, ..entry(id, key) }
}

#[test]
fn a_suspect_is_sent_alone_and_one_at_a_time() {
    let mut queues = KeyQueues::new();
    queues.offer(suspect(1, "a"));
    queues.offer(suspect(2, "b"));
    queues.offer(entry(3, "c"));
    let first = queues.take(Batching::InOrder { max: 9 });
    assert_eq!(ids(&first), [1]);
    assert_eq!(ids(&queues.take(Batching::InOrder { max: 9 })), [3]);
    assert!(queues.take(Batching::InOrder { max: 9 }).is_empty());
    queues.complete(&first, &HashSet::new());
    assert!(queues.take(Batching::InOrder { max: 9 }).is_empty(), "the first is not settled");
    queues.release([1]);
    assert_eq!(ids(&queues.take(Batching::InOrder { max: 9 })), [2]);
}

#[test]
fn rows_that_are_not_sent_come_one_by_one_and_noted_ones_with_others() {
    let mut queues = KeyQueues::new();
    queues.offer(RowInFlight { treatment: Treatment::NoteAndSend, ..entry(1, "a") });
    queues.offer(entry(2, "b"));
    queues.offer(RowInFlight { treatment: Treatment::Hold, ..entry(3, "c") });
    queues.offer(RowInFlight { treatment: Treatment::Bury, ..entry(4, "d") });
    queues.offer(entry(5, "e"));
    let all = Batching::Distinct { max: 9 };
    assert_eq!(ids(&queues.take(all)), [1, 2, 5]);
    assert_eq!((ids(&queues.take(all)), ids(&queues.take(all))), (vec![3], vec![4]));
}

#[test]
fn a_key_of_the_lowest_rank_is_put_first() {
    let rows = [(1, "bad"), (2, "unknown"), (3, "good"), (4, "fine")];
    let rank = |key: &str| match key {
        "good" | "fine" => 0,
        "unknown" => 1,
        _ => 2,
    };
    for (random, first) in [(0.0, 3), (0.4, 3), (0.6, 4), (1.0, 4)] {
        let mut queues = queues(&rows);
        queues.put_first(rank, random);
        assert_eq!(ids(&queues.take(Batching::Single)), [first]);
        assert_eq!(queues.queued(), 3);
    }
    KeyQueues::<Small>::new().put_first(rank, 0.5);
}

#[test]
fn a_call_that_failed_as_a_whole_is_halved_until_its_messages_are_sent_alone() {
    let all = Batching::Distinct { max: 9 };
    let rows = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
    let mut sizes = Vec::new();
    let mut queues = queues(&rows);
    for _ in 0..3 {
        let batch = queues.take(all);
        sizes.push(batch.len());
        queues.halve(batch.iter());
        queues.complete(&batch, &HashSet::new());
        queues.drop_queued();
        queues.release(1..=4);
        rows.iter().for_each(|(id, key)| queues.offer(entry(*id, key)));
    }
    assert_eq!(sizes, [4, 2, 1]);
    queues.restore("a");
    queues.offer(entry(5, "e"));
    assert_eq!(
        ids(&queues.take(all)),
        [1, 3],
        "the third is sent with one other, the second alone"
    );
    assert_eq!((ids(&queues.take(all)), ids(&queues.take(all))), (vec![2], vec![4, 5]));
}

#[test]
fn rows_of_a_lost_lane_are_dropped() {
    let mut queues = queues(&[(1, "a"), (2, "a")]);
    queues.keep_only(&HashMap::from([(1, 2)]));
    assert!(queues.take(Batching::Single).is_empty());
    assert_eq!((queues.ids().len(), queues.queued()), (0, 0));
}

#[test]
fn a_row_offered_twice_is_taken_once() {
    let mut queues = queues(&[(1, "a"), (1, "a")]);
    assert_eq!(ids(&queues.take(Batching::InOrder { max: 9 })), [1]);
    queues.offer(entry(1, "a"));
    assert_eq!(queues.queued(), 0);
}

/// Returns queues with rows of one key, from this id on.
fn offer_many(queues: &mut KeyQueues<Small>, key: &'static str, from: i64, count: usize) {
    for id in from..from + i64::try_from(count).unwrap() {
        queues.offer(entry(id, key));
    }
}

#[test]
fn a_key_with_many_rows_is_full() {
    let mut queues = KeyQueues::new();
    offer_many(&mut queues, "a", 0, PER_KEY_MAX);
    assert_eq!(queues.full_keys(), ["a"]);
    queues.fit(Batching::InOrder { max: 1_000 });
    assert!(queues.full_keys().is_empty(), "one call carries more rows of it");
}

#[test]
fn long_keys_in_flight_leave_half_of_the_queue_to_others() {
    let all = Batching::InOrder { max: 1_000 };
    let mut queues = queues(&[(1, "a"), (2, "b")]);
    queues.fit(all);
    let call = queues.take(all);
    offer_many(&mut queues, "a", 10, LONG_KEYS_MAX - PER_KEY_MAX);
    assert!(!queues.is_full("a"));
    offer_many(&mut queues, "b", 1_000, PER_KEY_MAX);
    assert!(queues.is_full("a") && queues.is_full("b"));
    assert!(!queues.is_full("c"));
    queues.complete(&call, &HashSet::new());
    assert!(!queues.is_full("a"), "its rows may start");
}

#[test]
fn a_read_is_void_for_keys_whose_rows_were_dropped_meanwhile() {
    let mut queues = queues(&[(1, "a"), (2, "a"), (3, "b"), (4, "c")]);
    let call = queues.take(Batching::Distinct { max: 2 });
    queues.begin_read();
    queues.complete(&call, &HashSet::from(["a".to_owned()]));
    assert!(queues.is_void("a") && !queues.is_void("b") && !queues.is_void("c"));
    queues.drop_queued();
    assert!(queues.is_void("c") && !queues.is_void("b"), "nothing of b was queued");
    queues.begin_read();
    assert!(!queues.is_void("a"));
    queues.offer(entry(5, "d"));
    queues.keep_only(&HashMap::new());
    assert!(queues.is_void("d"));
}
