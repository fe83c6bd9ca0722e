//! Ordinary trouble with the real program, on SQLite and PostgreSQL: one bad message beside good ones, short
//! outages, a wrong deployment, kills. What must come out is in docs/failures.md.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod place;
mod target;
// Shared with tests that use more of it.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use place::{Place, on_both};
use target::{Reply, RuleTarget};

/// A destination at the target's path of its name.
fn destination(target: &RuleTarget, name: &str, more: &str) -> String {
    format!(
        "[[destination]]\nname = \"{name}\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/{name}\"\n{more}",
        target.address
    )
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

const FIVE_ATTEMPTS: &str = "[destination.retry]\nattempts = 5\n";
/// The answers of a target to a poison message; each is the name of a destination.
const TROUBLES: [&str; 6] = ["429", "500", "502", "503", "504", "hangs"];
const SHORT_TIMEOUT: &str = "[destination.limits]\ntimeout = \"300ms\"\n";

#[test]
fn one_poison_key_beside_200_healthy_ones_is_a_dead_letter_and_they_are_delivered() {
    on_both(|store| {
        let target = RuleTarget::start(|call| match (call.destination(), call.key()) {
            ("hangs", "poison") => Reply::Never,
            (status, "poison") => Reply::Status(status.parse().unwrap()),
            _ => Reply::Status(200),
        });
        let names = TROUBLES;
        let more = format!("{FIVE_ATTEMPTS}{SHORT_TIMEOUT}");
        let all: String = names.iter().map(|name| destination(&target, name, &more)).collect();
        let place = Place::new(&store, &all);
        for name in names {
            place.send(name, &["poison".to_owned()]);
            place.send(name, &keys(200));
        }
        let _running = place.run();
        place.until("DISPATCHED", 1_200);
        place.until("FAILED", 6);
        let dead = place.dead_letters();
        assert!(dead.iter().all(|(key, attempts)| key == "poison" && *attempts == 5), "{dead:?}");
    });
}

#[test]
fn a_poison_message_alone_stops_no_key_that_comes_later() {
    on_both(|store| {
        let target = RuleTarget::start(|call| match (call.destination(), call.key()) {
            ("hangs", "poison") => Reply::Never,
            (status, "poison") => Reply::Status(status.parse().unwrap()),
            _ => Reply::Status(200),
        });
        let all: String =
            TROUBLES.iter().map(|name| destination(&target, name, SHORT_TIMEOUT)).collect();
        let place = Place::new(&store, &all);
        for name in TROUBLES {
            place.send(name, &["poison".to_owned()]);
        }
        let _running = place.run();
        for name in TROUBLES {
            target.wait_for_calls_of(name, 6);
        }
        for name in TROUBLES {
            place.send(name, &keys(20));
        }
        place.until("DISPATCHED", 20 * TROUBLES.len() as u64);
        assert!(place.dead_letters().is_empty());
    });
}

#[test]
fn a_wrong_deployment_pauses_its_destination_as_a_matter_of_configuration() {
    on_both(|store| {
        let target = RuleTarget::start(|call| match call.destination() {
            _ if call.is_calm() => Reply::Status(200),
            status => Reply::Status(status.parse().unwrap()),
        });
        let names = ["404", "401", "400"];
        let all: String = names.iter().map(|name| destination(&target, name, "")).collect();
        let place = Place::new(&store, &all);
        for name in names {
            place.send(name, &keys(40));
        }
        let _running = place.run();
        for name in names {
            place.until_guard(name, |guards| guards["cause"] == "configuration");
        }
        target.wait_for_calls(40);
        let dead = place.count("FAILED");
        assert!(dead <= 5, "{dead} dead letters");
        target.calm();
        place.until("DISPATCHED", 120 - dead);
        assert_eq!(place.count("FAILED"), dead);
    });
}

#[test]
fn one_call_in_three_fails_at_random_and_everything_arrives() {
    const SEED: u64 = 13;
    on_both(|store| {
        let target = RuleTarget::start(|call| match random(SEED, call.number as u64) % 3 {
            0 => Reply::Status(500),
            _ => Reply::Status(200),
        });
        let place = Place::new(&store, &destination(&target, "out", ""));
        place.send("out", &keys(150));
        let _running = place.run();
        place.until("DISPATCHED", 150);
        assert!(place.dead_letters().is_empty());
    });
}

/// The number at this place of a random sequence (SplitMix64).
fn random(seed: u64, place: u64) -> u64 {
    let mut z = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn two_shards_of_ten_fail_and_the_others_continue() {
    on_both(|store| {
        let target = RuleTarget::start(|call| match call.key().chars().last() {
            Some('0' | '1') if !call.is_calm() => Reply::Status(503),
            _ => Reply::Status(200),
        });
        let place = Place::new(&store, &destination(&target, "out", ""));
        place.send("out", &keys(200));
        let _running = place.run();
        place.until("DISPATCHED", 160);
        target.wait_for_calls(210);
        assert_eq!((place.count("DISPATCHED"), place.count("FAILED")), (160, 0));
        target.calm();
        place.until("DISPATCHED", 200);
    });
}

#[test]
fn a_pause_that_one_key_is_asked_for_delays_no_other() {
    on_both(|store| {
        let target = RuleTarget::start(|call| match call.key() {
            "k7" => Reply::RetryAfter(3_600),
            _ => Reply::Status(200),
        });
        let place = Place::new(&store, &destination(&target, "out", ""));
        place.send("out", &keys(50));
        let _running = place.run();
        place.until("DISPATCHED", 49);
        place.send("out", &keys(7));
        place.until("DISPATCHED", 56);
    });
}

#[test]
fn a_pause_that_two_keys_are_asked_for_delays_no_key_that_is_accepted() {
    on_both(|store| {
        let target = RuleTarget::start(|call| match call.key() {
            "k7" | "k20" => Reply::RetryAfter(3_600),
            _ => Reply::Status(200),
        });
        let place = Place::new(&store, &destination(&target, "out", ""));
        place.send("out", &keys(50));
        let _running = place.run();
        place.until("DISPATCHED", 48);
        place.send("out", &keys(7));
        place.until("DISPATCHED", 55);
    });
}

#[test]
fn a_target_that_fails_the_first_call_of_each_message_gets_them_all() {
    on_both(|store| {
        let known = Mutex::new(HashSet::new());
        let target = RuleTarget::start(move |call| {
            let first = known.lock().unwrap().insert(call.key().to_owned());
            Reply::Status(if first { 503 } else { 200 })
        });
        let place = Place::new(&store, &destination(&target, "out", ""));
        place.send("out", &keys(200));
        let _running = place.run();
        place.until("DISPATCHED", 200);
        assert!(place.dead_letters().is_empty());
    });
}

#[test]
fn half_of_the_calls_throttled_make_no_dead_letter_and_no_storm() {
    on_both(|store| {
        let target = RuleTarget::start(|call| match (call.number % 2, call.destination()) {
            (0, "asks") => Reply::RetryAfter(1),
            (0, _) => Reply::Status(429),
            _ => Reply::Status(200),
        });
        let all: String =
            ["out", "asks"].iter().map(|name| destination(&target, name, "")).collect();
        let place = Place::new(&store, &all);
        place.send("out", &keys(100));
        // Each pause that the target asks for takes a second.
        place.send("asks", &keys(8));
        let _running = place.run();
        place.until("DISPATCHED", 108);
        assert!(place.dead_letters().is_empty());
        assert!(target.calls() < 430, "{} calls for 108 messages", target.calls());
    });
}

#[test]
fn a_hot_key_that_makes_nine_tenths_of_the_calls_and_fails_lets_the_others_continue() {
    on_both(|store| {
        let hot = Arc::new(AtomicUsize::new(0));
        let of_rule = Arc::clone(&hot);
        let target = RuleTarget::start(move |call| match call.key() {
            "hot" => {
                of_rule.fetch_add(1, SeqCst);
                Reply::Status(500)
            }
            _ => Reply::Status(200),
        });
        let quick = "[destination.retry]\nfirst = \"10ms\"\nmax = \"20ms\"\nattempts = 1000\n";
        let place = Place::new(&store, &destination(&target, "out", quick));
        place.send("out", &vec!["hot".to_owned(); 50]);
        let _running = place.run();
        let mut sent = 0;
        for part in keys(30).chunks(3) {
            sent += part.len();
            // The others have a tenth of the calls at each moment.
            target.wait_until(|| hot.load(SeqCst) >= 9 * sent);
            place.send("out", part);
            place.until("DISPATCHED", sent as u64);
        }
        let (hot, all) = (hot.load(SeqCst), target.calls());
        assert!(hot * 10 >= all * 9, "{hot} of {all} calls");
        assert_eq!(place.count("FAILED"), 0);
    });
}

#[test]
fn kills_while_the_target_is_unavailable_use_no_attempts() {
    on_both(|store| {
        let target = RuleTarget::start(|_| Reply::Cut);
        let place = Place::new(&store, &destination(&target, "out", ""));
        place.send("out", &keys(300));
        for life in 1..=10 {
            // Killed as soon as something of it was in flight.
            let running = place.run();
            target.wait_for_calls(12 * life);
            drop(running);
        }
        assert_eq!((place.attempts_max(), place.count("PENDING")), (0, 300));
    });
}
