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
    fn attempts(&self) -> u32 {
        0
    }
    fn bytes(&self) -> usize {
        1
    }
}

fn job(id: i64, key: &'static str) -> Job<Small> {
    let lane = OwnedLane { lane: 1, epoch: 1, unclean: false };
    Job { row: Small(id, key), lane, suspect: None, counted: false }
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

#[test]
fn a_suspect_of_no_company_goes_alone_and_only_one_at_a_time() {
    let mut flight = Flight::new();
    flight.offer(Job { suspect: Some(1), ..job(1, "a") });
    flight.offer(Job { suspect: Some(1), ..job(2, "b") });
    flight.offer(job(3, "c"));
    let first = flight.take(Batching::InOrder { max: 9 });
    assert_eq!(ids(&first), [1]);
    assert_eq!(ids(&flight.take(Batching::InOrder { max: 9 })), [3]);
    assert!(flight.take(Batching::InOrder { max: 9 }).is_empty());
    flight.land(&first, &HashSet::new());
    assert_eq!(ids(&flight.take(Batching::InOrder { max: 9 })), [2]);
}

#[test]
fn suspects_go_in_the_smallest_company_of_any_of_them() {
    let mut flight = Flight::new();
    for (id, key, company) in [(1, "a", 3), (2, "b", 2), (3, "c", 3), (4, "d", 1), (5, "e", 3)] {
        flight.offer(Job { suspect: Some(company), ..job(id, key) });
    }
    let first = flight.take(Batching::InOrder { max: 9 });
    assert_eq!((ids(&first), ids(&flight.take(Batching::Single))), (vec![1], vec![2]));
    assert!(flight.take(Batching::Single).is_empty(), "the second may go with one other");
    flight.land(&first, &HashSet::new());
    assert_eq!(ids(&flight.take(Batching::Single)), [3]);
    flight.land(
        &[job(2, "b"), job(3, "c")].map(|job| Job { suspect: Some(3), ..job }),
        &HashSet::new(),
    );
    assert_eq!(ids(&flight.take(Batching::Single)), [4], "it is not overtaken for ever");
    assert!(flight.take(Batching::Single).is_empty());
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
