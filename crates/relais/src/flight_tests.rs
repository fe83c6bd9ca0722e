//! What may start when.

use super::*;

#[derive(Clone, Debug)]
struct Small(i64, &'static str);

impl Row for Small {
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

fn job(id: i64, key: &'static str) -> Job<Small> {
    let lane = OwnedLane { lane: 1, epoch: 1, unclean: false };
    Job { row: Small(id, key), lane, treatment: Treatment::Send }
}

fn flight(rows: &[(i64, &'static str)]) -> Flight<Small> {
    let mut flight = Flight::new();
    for (id, key) in rows {
        flight.offer(job(*id, key));
    }
    flight
}

fn ids(jobs: &[Job<Small>]) -> Vec<i64> {
    jobs.iter().map(|j| j.row.0).collect()
}

#[test]
fn one_key_is_under_way_once_other_keys_beside_it() {
    let mut flight = flight(&[(1, "a"), (2, "a"), (3, "b")]);
    let first = flight.take(Batching::Single);
    assert_eq!(ids(&first), [1]);
    assert_eq!(ids(&flight.take(Batching::Single)), [3]);
    assert!(flight.take(Batching::Single).is_empty());
    flight.land(&first, &HashSet::new());
    assert_eq!(ids(&flight.take(Batching::Single)), [2]);
    assert!(flight.holds(1), "held until settled");
    flight.release([1]);
    assert!(!flight.holds(1));
}

#[test]
fn a_key_whose_row_failed_leaves_these_hands() {
    let mut flight = flight(&[(1, "a"), (2, "a"), (3, "b")]);
    let first = flight.take(Batching::Single);
    flight.land(&first, &HashSet::from(["a".to_owned()]));
    assert_eq!(ids(&flight.take(Batching::Distinct { max: 9 })), [3]);
    assert!(!flight.holds(2));
    assert_eq!(flight.queued(), 0);
}

#[test]
fn batches_have_distinct_keys_unless_the_publisher_keeps_order() {
    let rows = [(1, "a"), (2, "a"), (3, "b")];
    assert_eq!(ids(&flight(&rows).take(Batching::Distinct { max: 9 })), [1, 3]);
    assert_eq!(ids(&flight(&rows).take(Batching::InOrder { max: 9 })), [1, 2, 3]);
    assert_eq!(ids(&flight(&rows).take(Batching::InOrder { max: 1 })), [1]);
}

fn suspect(id: i64, key: &'static str) -> Job<Small> {
    Job { treatment: Treatment::SendAlone, ..job(id, key) }
}

#[test]
fn a_suspect_goes_alone_and_only_one_at_a_time() {
    let mut flight = Flight::new();
    flight.offer(suspect(1, "a"));
    flight.offer(suspect(2, "b"));
    flight.offer(job(3, "c"));
    let first = flight.take(Batching::InOrder { max: 9 });
    assert_eq!(ids(&first), [1]);
    assert_eq!(ids(&flight.take(Batching::InOrder { max: 9 })), [3]);
    assert!(flight.take(Batching::InOrder { max: 9 }).is_empty());
    flight.land(&first, &HashSet::new());
    assert_eq!(ids(&flight.take(Batching::InOrder { max: 9 })), [2]);
}

#[test]
fn rows_that_are_not_sent_come_one_by_one_and_noted_ones_with_others() {
    let mut flight = Flight::new();
    flight.offer(Job { treatment: Treatment::NoteAndSend, ..job(1, "a") });
    flight.offer(job(2, "b"));
    flight.offer(Job { treatment: Treatment::Hold, ..job(3, "c") });
    flight.offer(Job { treatment: Treatment::Bury, ..job(4, "d") });
    flight.offer(job(5, "e"));
    let all = Batching::Distinct { max: 9 };
    assert_eq!(ids(&flight.take(all)), [1, 2, 5]);
    assert_eq!((ids(&flight.take(all)), ids(&flight.take(all))), (vec![3], vec![4]));
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
        let mut flight = flight(&rows);
        flight.put_first(rank, random);
        assert_eq!(ids(&flight.take(Batching::Single)), [first]);
        assert_eq!(flight.queued(), 3);
    }
    Flight::<Small>::new().put_first(rank, 0.5);
}

#[test]
fn a_call_that_failed_as_a_whole_is_halved_until_its_messages_go_alone() {
    let all = Batching::Distinct { max: 9 };
    let rows = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
    let mut sizes = Vec::new();
    let mut flight = flight(&rows);
    for _ in 0..3 {
        let batch = flight.take(all);
        sizes.push(batch.len());
        flight.halve(batch.iter());
        flight.land(&batch, &HashSet::new());
        flight.drop_queued();
        flight.release(1..=4);
        rows.iter().for_each(|(id, key)| flight.offer(job(*id, key)));
    }
    assert_eq!(sizes, [4, 2, 1]);
    flight.restore("a");
    flight.offer(job(5, "e"));
    assert_eq!(ids(&flight.take(all)), [1, 3], "the third goes with one other, the second alone");
    assert_eq!((ids(&flight.take(all)), ids(&flight.take(all))), (vec![2], vec![4, 5]));
}

#[test]
fn rows_of_a_lost_lane_are_dropped() {
    let mut flight = flight(&[(1, "a"), (2, "a")]);
    flight.keep_only(&HashMap::from([(1, 2)]));
    assert!(flight.take(Batching::Single).is_empty());
    assert_eq!((flight.ids().len(), flight.queued()), (0, 0));
}

#[test]
fn a_row_offered_twice_is_taken_once() {
    let mut flight = flight(&[(1, "a"), (1, "a")]);
    assert_eq!(ids(&flight.take(Batching::InOrder { max: 9 })), [1]);
    flight.offer(job(1, "a"));
    assert_eq!(flight.queued(), 0);
}

#[test]
fn a_key_with_many_rows_is_full() {
    let mut flight = Flight::new();
    for id in 0..i64::try_from(PER_KEY_MAX).unwrap() {
        flight.offer(job(id, "a"));
    }
    assert_eq!(flight.full_keys(), ["a"]);
}
