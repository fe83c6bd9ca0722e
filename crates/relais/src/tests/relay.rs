//! Outbox → publisher.

use std::time::Duration;

use relais_core::{
    breaker::{BreakerPolicy, BreakerState, OpenCause},
    dead_letter::Resolution,
    delivery::Delivery,
    inspect::InspectExt,
    lane::Scope,
    outbox::OnDeadLetter,
    publisher::Batching,
    query::Filter,
    retry::RetryPolicy,
};

use super::support::{Bench, Script, drain, on_both};
use crate::{DestinationSettings, relay::Relay, worker::Worker};

fn five_attempts() -> DestinationSettings {
    let retry = RetryPolicy::default().jitter(false).first(Duration::from_secs(60));
    DestinationSettings { retry, ..DestinationSettings::default() }
}

/// Returns settings with a breaker that opens as usual and permits the next call at once.
fn quick_breaker() -> DestinationSettings {
    let breaker = BreakerPolicy::default().open_for(Duration::from_millis(1));
    DestinationSettings { breaker, ..five_attempts() }
}

async fn first_dead_letter(bench: &Bench) -> uuid::Uuid {
    let filter = Filter { status: Some("open".into()), limit: 10, ..Filter::default() };
    bench.store.list_dead_letters(filter).await.unwrap()[0].id
}

#[tokio::test]
async fn a_backlog_is_delivered_in_order_per_key() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("a", "a3")]).await;
    drain(&mut bench.relay("w", &publisher).await).await;
    let of =
        |key: &str| publisher.seen().into_iter().filter(|n| n.starts_with(key)).collect::<Vec<_>>();
    assert_eq!(of("a"), ["a1", "a2", "a3"]);
    assert_eq!(of("b"), ["b1", "b2"]);
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 5]);
}

#[tokio::test]
async fn a_call_has_no_more_messages_than_the_batch_of_its_destination() {
    let bench = Bench::new().await;
    let publisher = Script::batching(Batching::InOrder { max: 1_000 }, &[]);
    bench.enqueue(&[("a", "a1"), ("a", "a2"), ("a", "a3"), ("a", "a4"), ("a", "a5")]).await;
    drain(&mut bench.relay_with("w", &publisher, five_attempts().batch_max(2)).await).await;
    assert_eq!(publisher.seen(), ["a1", "a2", "a3", "a4", "a5"]);
    assert_eq!(publisher.sizes().into_iter().max(), Some(2));
}

#[tokio::test]
async fn a_retry_blocks_its_own_key_and_no_other() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[("a1", vec![Delivery::retry("500", "oops")])]);
    bench.enqueue(&[("a", "a1"), ("a", "a2"), ("b", "b1")]).await;
    let mut relay = bench.relay("w", &publisher).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["PENDING 0", "PENDING 0", "DISPATCHED 1"]);
    bench.make_due();
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 3]);
    let seen = publisher.seen();
    assert_eq!(seen.iter().filter(|n| n.starts_with('a')).collect::<Vec<_>>(), ["a1", "a1", "a2"]);
}

#[tokio::test]
async fn a_dead_letter_parks_its_key_until_an_operator_retries_it() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[("a1", vec![Delivery::reject("400", "bad")])]);
    bench.enqueue(&[("a", "a1"), ("a", "a2"), ("b", "b1")]).await;
    let mut relay = bench.relay("w", &publisher).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["FAILED 1", "PENDING 0", "DISPATCHED 1"]);
    let id = first_dead_letter(&bench).await;
    assert!(bench.resolve(id, Resolution::Retried).await);
    drain(&mut relay).await;
    assert_eq!(publisher.seen(), ["a1", "b1", "a1", "a2"]);
}

#[tokio::test]
async fn discarding_a_dead_letter_lets_its_key_continue() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[("a1", vec![Delivery::reject("400", "bad")])]);
    bench.enqueue(&[("a", "a1"), ("a", "a2")]).await;
    let mut relay = bench.relay("w", &publisher).await;
    drain(&mut relay).await;
    let id = first_dead_letter(&bench).await;
    assert!(bench.resolve(id, Resolution::Discarded).await);
    assert!(!bench.resolve(id, Resolution::Discarded).await);
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["FAILED 1", "DISPATCHED 1"]);
}

#[tokio::test]
async fn a_destination_may_choose_to_skip_dead_letters() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[("a1", vec![Delivery::reject("400", "bad")])]);
    let settings = DestinationSettings {
        on_dead_letter: OnDeadLetter::Skip,
        ..DestinationSettings::default()
    };
    bench.enqueue(&[("a", "a1"), ("a", "a2")]).await;
    drain(&mut bench.relay_with("w", &publisher, settings).await).await;
    assert_eq!(bench.statuses(), ["FAILED 1", "DISPATCHED 1"]);
}

#[tokio::test]
async fn the_fifth_failure_beside_a_healthy_key_is_a_dead_letter() {
    let bench = Bench::new().await;
    for (n, failure) in
        [Delivery::retry("500", "oops"), Delivery::busy("503", "later")].into_iter().enumerate()
    {
        let (poison, healthy) = (format!("poison{n}"), format!("healthy{n}"));
        let publisher = Script::new(&[(&poison, vec![failure; 9])]);
        bench.enqueue(&[(&poison, &poison)]).await;
        let mut relay = bench.relay_with("w", &publisher, five_attempts()).await;
        drain(&mut relay).await;
        // The call of the healthy key begins after the other began to fail: only then it counts each time.
        bench.enqueue(&[(&healthy, &healthy)]).await;
        for _ in 0..7 {
            bench.make_due();
            drain(&mut relay).await;
        }
        assert_eq!(bench.statuses()[2 * n..], ["FAILED 5", "DISPATCHED 1"]);
        relay.stop(Duration::MAX).await;
    }
}

#[tokio::test]
async fn an_outage_uses_no_attempt_and_drains_afterwards() {
    for failure in [
        Delivery::outage("DOWN", "refused"),
        Delivery::retry("500", "oops"),
        Delivery::busy("503", "later"),
        Delivery::misconfigured("404", "no such page"),
    ] {
        let bench = Bench::new().await;
        let names: Vec<String> = (0..8).map(|n| format!("m{n}")).collect();
        let publisher = Script::new(&[]);
        publisher.fail_calls(72, failure.clone());
        let messages: Vec<_> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
        bench.enqueue(&messages).await;
        let mut relay = bench.relay_with("w", &publisher, quick_breaker()).await;
        let open = "SELECT id FROM relais_outbox WHERE status = 'PENDING'";
        while !bench.texts(open).is_empty() {
            bench.make_due();
            drain(&mut relay).await;
        }
        assert_eq!(bench.statuses(), ["DISPATCHED 1"; 8], "{failure:?}");
        assert_eq!(bench.observer.snapshot().destinations["d"].outages, 72, "{failure:?}");
    }
}

#[tokio::test]
async fn a_lone_message_that_fails_uses_no_attempt_and_stops_no_other() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[("poison", vec![Delivery::retry("500", "oops"); 1_000])]);
    bench.enqueue(&[("poison", "poison")]).await;
    let mut relay = bench.relay("w", &publisher).await;
    for _ in 0..30 {
        bench.make_due();
        drain(&mut relay).await;
    }
    assert_eq!(bench.statuses(), ["PENDING 0"]);
    assert_eq!(bench.observer.snapshot().destinations["d"].breaker, Some(BreakerState::Closed));
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses()[1..], ["DISPATCHED 1"; 2]);
}

#[tokio::test]
async fn a_target_that_refuses_everything_costs_five_dead_letters_and_is_reported_as_configuration()
{
    let bench = Bench::new().await;
    let names: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
    let refusal = || vec![Delivery::reject("HTTP_400", "what is this"); 2];
    let answers: Vec<_> = names.iter().map(|n| (n.as_str(), refusal())).collect();
    let publisher = Script::new(&answers);
    let messages: Vec<_> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
    bench.enqueue(&messages).await;
    let mut relay = bench.relay("w", &publisher).await;
    drain(&mut relay).await;
    let dead = |bench: &Bench| bench.texts("SELECT id FROM relais_dead_letter").len();
    assert_eq!(dead(&bench), 5);
    let shown = &bench.observer.snapshot().destinations["d"];
    assert_eq!(shown.cause, Some(OpenCause::Configuration));
}

#[tokio::test]
async fn one_message_that_fails_its_whole_call_is_found_by_halving() {
    let bench = Bench::new().await;
    let publisher = Script::batching(Batching::Distinct { max: 200 }, &[]);
    publisher.spoil("m137", Delivery::retry("500", "one of these is bad"));
    let names: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
    let messages: Vec<_> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
    bench.enqueue(&messages).await;
    let mut relay = bench.relay_with("w", &publisher, five_attempts()).await;
    for _ in 0..40 {
        bench.make_due();
        drain(&mut relay).await;
    }
    let statuses = bench.statuses();
    assert_eq!(statuses[137], "FAILED 5");
    assert_eq!(statuses.iter().filter(|status| *status == "DISPATCHED 1").count(), 199);
}

#[tokio::test]
async fn a_settlement_that_the_database_refuses_concerns_its_own_row_only() {
    on_both(one_refused_settlement).await;
}

async fn one_refused_settlement(bench: Bench) {
    bench.refuse("bad", "'DISPATCHED'");
    let publisher = Script::new(&[]);
    bench.enqueue(&[("a", "a1"), ("bad", "bad1"), ("b", "b1"), ("bad", "bad2")]).await;
    drain(&mut bench.relay("w", &publisher).await).await;
    let found = bench
        .texts("SELECT status || ' ' || coalesce(error_code, '') FROM relais_outbox ORDER BY id");
    let refused = "FAILED STORE_REFUSED";
    assert_eq!(found, ["DISPATCHED ", refused, "DISPATCHED ", refused]);
    assert_eq!(publisher.seen().iter().filter(|name| *name == "bad1").count(), 1);
}

#[tokio::test]
async fn a_row_for_a_destination_without_a_worker_waits() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    let mut stranger = super::support::message("a", "x");
    stranger.destination = "unknown".into();
    bench.store.enqueue(vec![stranger]).await.unwrap();
    drain(&mut bench.relay("w", &publisher).await).await;
    assert_eq!(bench.statuses(), ["PENDING 0"]);
    let overview = bench.store.overview().await.unwrap();
    assert_eq!(
        (overview.backlogs[0].destination.as_str(), overview.backlogs[0].pending),
        ("unknown", 1)
    );
}

#[tokio::test]
async fn a_worker_that_lost_its_lanes_changes_nothing() {
    let bench = Bench::new().await;
    let (old, new) = (Script::new(&[]), Script::new(&[]));
    bench.enqueue(&[("a", "a1")]).await;
    let mut zombie = bench.relay("old", &old).await;
    zombie.reader().top_up().await.unwrap();
    bench.expire_leases();
    let mut owner = bench.relay("new", &new).await;
    drain(&mut owner).await;
    bench.sql("UPDATE relais_outbox SET dispatched_at = '2000-01-01T00:00:00.000Z'");
    drain(&mut zombie).await;
    bench.sql("UPDATE relais_outbox SET status = 'PENDING'");
    drain(&mut zombie).await;
    assert_eq!(old.seen(), ["a1"], "a late duplicate cannot be prevented, only made harmless");
    assert_eq!(
        bench.texts("SELECT dispatched_at FROM relais_outbox"),
        ["2000-01-01T00:00:00.000Z"]
    );
    assert_eq!(bench.observer.snapshot().destinations["d"].refused, 1);
}

#[tokio::test]
async fn stopping_releases_lanes_at_once_and_cleanly() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    let mut relay = bench.relay("w", &publisher).await;
    relay.run_once().await.unwrap();
    relay.stop(Duration::MAX).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1", "DISPATCHED 1"], "what was in flight is settled");
    let next = bench.keeper(Scope::Outbox("d".into()), "next");
    next.beat().await.unwrap();
    assert_eq!(next.usable().len(), 64);
    assert!(next.take_unclean(&next.usable()).is_empty());
}

#[tokio::test]
async fn a_slow_key_with_a_long_backlog_does_not_delay_other_keys() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    publisher.stick("slow0");
    let names: Vec<String> = (0..300).map(|n| format!("slow{n}")).collect();
    let mut messages: Vec<(&str, &str)> = names.iter().map(|n| ("slow", n.as_str())).collect();
    messages.push(("quick", "quick"));
    bench.enqueue(&messages).await;
    drain(&mut bench.relay("w", &publisher).await).await;
    assert_eq!(publisher.seen(), ["slow0", "quick"]);
}

#[tokio::test]
async fn batches_of_distinct_keys_settle_row_by_row() {
    let bench = Bench::new().await;
    let answers = [("b1", vec![Delivery::reject("400", "bad")])];
    let publisher = Script::batching(Batching::Distinct { max: 10 }, &answers);
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("c", "c1"), ("a", "a2")]).await;
    drain(&mut bench.relay("w", &publisher).await).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1", "FAILED 1", "DISPATCHED 1", "DISPATCHED 1"]);
}

#[tokio::test]
async fn a_call_without_an_answer_is_a_failure() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    publisher.stick("a1");
    bench.enqueue(&[("a", "a1")]).await;
    let settings = DestinationSettings {
        timeout: Duration::from_millis(10),
        ..DestinationSettings::default()
    };
    let mut relay = bench.relay_with("w", &publisher, settings).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["PENDING 0"], "alone, it is no evidence about the message");
    assert_eq!(bench.texts("SELECT error_code FROM relais_outbox"), ["TIMEOUT"]);
}

#[tokio::test]
async fn a_delayed_message_waits_without_blocking_its_key() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    let mut later = super::support::message("a", "later");
    later.delay = Some(Duration::from_secs(3_600));
    bench.store.enqueue(vec![later]).await.unwrap();
    bench.enqueue(&[("a", "now")]).await;
    let mut relay = bench.relay("w", &publisher).await;
    drain(&mut relay).await;
    assert_eq!(publisher.seen(), ["now"]);
    bench.make_due();
    drain(&mut relay).await;
    assert_eq!(publisher.seen(), ["now", "later"]);
}

#[tokio::test]
async fn a_target_that_fails_for_every_key_uses_no_attempts() {
    let bench = Bench::new().await;
    let names = ["a", "b", "c", "d", "e", "f"];
    let always = || vec![Delivery::retry("500", "oops"); 1_000];
    let answers: Vec<_> = names.into_iter().map(|name| (name, always())).collect();
    let publisher = Script::new(&answers);
    bench.enqueue(&names.map(|name| (name, name))).await;
    let mut relay = bench.relay_with("w", &publisher, quick_breaker()).await;
    while publisher.seen().len() < 60 {
        bench.make_due();
        drain(&mut relay).await;
    }
    assert_eq!(bench.texts("SELECT max(attempts) FROM relais_outbox"), ["0"]);
    let probes: std::collections::HashSet<_> = publisher.seen()[6..].iter().cloned().collect();
    assert_eq!(probes.len(), 6, "probes take turns, so that one bad message cannot block the rest");
}

#[tokio::test]
async fn bad_messages_in_front_of_good_ones_keep_the_breaker_open_for_one_probe() {
    for failure in [Delivery::retry("500", "oops"), Delivery::reject("HTTP_422", "no")] {
        let bench = Bench::new().await;
        let bad: Vec<String> = (0..20).map(|n| format!("bad{n}")).collect();
        let good: Vec<String> = (0..200).map(|n| format!("good{n}")).collect();
        let answers: Vec<_> = bad.iter().map(|n| (n.as_str(), vec![failure.clone(); 99])).collect();
        let publisher = Script::new(&answers);
        let messages: Vec<_> = bad.iter().chain(&good).map(|n| (n.as_str(), n.as_str())).collect();
        bench.enqueue(&messages).await;
        let mut relay = bench.relay_with("w", &publisher, quick_breaker()).await;
        let delivered = "SELECT id FROM relais_outbox WHERE status = 'DISPATCHED'";
        while bench.texts(delivered).len() < 200 {
            drain(&mut relay).await;
        }
        let calls = publisher.seen().len();
        assert!(calls < 400, "{calls} calls for 220 messages: {failure:?}");
    }
}

#[tokio::test]
async fn crashes_during_an_outage_use_no_attempts() {
    let bench = Bench::new().await;
    bench.enqueue(&[("a", "a1"), ("a", "a2")]).await;
    for life in 0..8 {
        let publisher = Script::new(&[("a1", vec![Delivery::outage("DOWN", "refused"); 9])]);
        let mut relay = bench.relay(&format!("w{life}"), &publisher).await;
        bench.make_due();
        drain(&mut relay).await;
        assert_eq!(bench.statuses()[0], "PENDING 0", "life {life}");
        drop(relay);
        bench.expire_leases();
    }
    assert_eq!(bench.texts("SELECT max(lost_workers) FROM relais_outbox"), ["0"]);
    bench.make_due();
    let publisher = Script::new(&[]);
    drain(&mut bench.relay("last", &publisher).await).await;
    assert_eq!(publisher.seen(), ["a1", "a2"]);
}

#[tokio::test]
async fn bytes_in_flight_are_bounded_whatever_the_earlier_rows_had() {
    const MIB: usize = 1024 * 1024;
    let bench = Bench::new().await;
    let large = "x".repeat(3 * MIB - 2);
    let publisher = Script::new(&[]);
    publisher.stick(&large);
    let small: Vec<_> = (0..150).map(|n| format!("s{n}")).collect();
    bench.enqueue(&small.iter().map(|n| (n.as_str(), n.as_str())).collect::<Vec<_>>()).await;
    let mut relay = bench.relay("w", &publisher).await;
    drain(&mut relay).await;
    assert_eq!(publisher.seen().len(), 150);
    let keys: Vec<_> = (0..14).map(|n| format!("l{n}")).collect();
    bench.enqueue(&keys.iter().map(|n| (n.as_str(), large.as_str())).collect::<Vec<_>>()).await;
    relay.request_read();
    for _ in 0..20 {
        relay.run_once().await.unwrap();
        relay.request_read();
    }
    let queues = &relay.reader().queues;
    assert_eq!((queues.held(), queues.bytes()), (6, 18 * MIB));
}

/// The target is probed beside a call that began before the breaker opened, however long it hangs.
#[tokio::test]
async fn a_call_that_hangs_does_not_delay_the_probe() {
    let bench = Bench::new().await;
    let failing = ["a", "b", "c", "d", "e"];
    let answers = failing.map(|name| (name, vec![Delivery::retry("500", "oops")]));
    let publisher = Script::new(&answers);
    publisher.stick("hangs");
    let settings = DestinationSettings { timeout: Duration::from_secs(3_600), ..quick_breaker() };
    let mut relay = bench.relay_with("w", &publisher, settings).await;
    bench.enqueue(&[("hangs", "hangs")]).await;
    bench.enqueue(&failing.map(|name| (name, name))).await;
    let delivered = "SELECT id FROM relais_outbox WHERE status = 'DISPATCHED'";
    for _ in 0..5_000 {
        bench.make_due();
        relay.request_read();
        relay.run_once().await.unwrap();
        if bench.texts(delivered).len() == failing.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(bench.texts(delivered).len(), failing.len(), "{:?}", publisher.seen());
    relay.stop(Duration::ZERO).await;
}

/// Keys whose calls hang take a part of the calls in flight, however many they are and however early
/// their rows.
#[tokio::test]
async fn keys_that_hang_leave_room_for_the_others() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    let hanging: Vec<String> = (0..12).map(|n| format!("hangs{n}")).collect();
    let healthy: Vec<String> = (0..30).map(|n| format!("healthy{n}")).collect();
    hanging.iter().for_each(|name| publisher.stick(name));
    let settings = DestinationSettings { timeout: Duration::from_millis(50), ..quick_breaker() };
    let enqueue = async |names: &[String]| {
        let messages: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        bench.enqueue(&messages).await;
    };
    enqueue(&hanging).await;
    let mut relay = bench.relay_with("w", &publisher, settings).await;
    let was_tried = |name: &String| publisher.seen().contains(name);
    let pass = async |relay: &mut Relay| {
        relay.request_read();
        relay.run_once().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    while !hanging.iter().all(was_tried) {
        bench.make_due();
        pass(&mut relay).await;
    }
    enqueue(&healthy).await;
    bench.make_due();
    let before = publisher.seen().len();
    while !healthy.iter().all(was_tried) {
        pass(&mut relay).await;
    }
    let seen = publisher.seen();
    let last = seen.iter().position(|name| *name == healthy[29]).unwrap();
    let hung = seen[before..last].iter().filter(|name| hanging.contains(name)).count();
    assert!(hung <= 6, "{hung} calls of keys that hang before the last of the others: {seen:?}");
    relay.stop(Duration::MAX).await;
}
