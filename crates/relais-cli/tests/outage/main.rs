//! Trouble that lasts, with the real program on SQLite and PostgreSQL: an outage of a minute with default
//! settings, a process that is killed again and again, a message that kills its worker.
//!
//! It runs alone: a minute after the outage everything must be delivered.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Shared with tests that use more of them.
#[allow(dead_code)]
#[path = "../trouble/place.rs"]
mod place;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code)]
#[path = "../trouble/target.rs"]
mod target;

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use place::{Database, Place};
use support::postgres::PostgresSchema;
use target::{Reply, RuleTarget};

const OUTAGE: Duration = Duration::from_secs(60);
/// Everything is delivered this long after the return of the target.
const RETURN_MAX: Duration = Duration::from_secs(60);
const SIZES: [usize; 3] = [1, 8, 5_000];

/// Runs a scenario on both databases at once.
fn beside_each_other(scenario: fn(&Database)) {
    std::thread::scope(|threads| {
        threads.spawn(|| scenario(&Database::Sqlite));
        if let Some(schema) = PostgresSchema::new() {
            threads.spawn(move || scenario(&Database::Postgres(schema)));
        }
    });
}

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

#[test]
fn an_outage_of_a_minute_makes_no_dead_letter_and_all_is_delivered_within_another() {
    beside_each_other(|store| {
        let target = RuleTarget::start(|call| match call.destination().split('-').next() {
            _ if call.is_calm() => Reply::Status(200),
            Some("errs") => Reply::Status(500),
            Some("cuts") => Reply::Cut,
            _ => Reply::Never,
        });
        let backlogs = ["errs", "cuts", "hangs"]
            .iter()
            .flat_map(|trouble| SIZES.map(|size| (format!("{trouble}-{size}"), size)));
        let backlogs: Vec<(String, usize)> = backlogs.collect();
        let all = backlogs.iter().map(|(name, _)| destination(&target, name, ""));
        let place = Place::with_default_lease(store, &all.collect::<String>());
        for (name, size) in &backlogs {
            place.send(name, &keys(*size));
        }
        let running = place.run();
        running.drain();
        for (name, _) in &backlogs {
            target.wait_for_calls_of(name, 1);
        }
        std::thread::sleep(OUTAGE);
        assert_eq!((place.count("FAILED"), place.parked_keys()), (0, 0));
        target.calm();
        let sent: usize = backlogs.iter().map(|(_, size)| size).sum();
        place.until_within(RETURN_MAX, "DISPATCHED", sent as u64);
        assert_eq!((place.dead_letters(), place.parked_keys()), (Vec::new(), 0));
    });
}

/// The last row is sent a minute after the last loss at the latest, and few at a time.
const RECOVERY_MAX: Duration = Duration::from_secs(300);

#[test]
fn a_process_that_is_killed_every_3_s_beside_a_target_that_takes_longer_makes_no_dead_letter() {
    const KILLS: usize = 8;
    beside_each_other(|store| {
        let target = RuleTarget::start(|_| {
            std::thread::sleep(Duration::from_millis(2_500));
            Reply::Status(200)
        });
        let slow = destination(&target, "out", "[destination.limits]\nconcurrency = 4\n");
        let place = Place::new(store, &slow);
        place.send("out", &keys(12));
        for kill in 1..=KILLS {
            let running = place.run();
            std::thread::sleep(Duration::from_secs(3));
            drop(running);
            assert_eq!(place.count("FAILED"), 0, "after {kill} kills");
        }
        let suspects = place.texts("SELECT id FROM relais_outbox WHERE lost_workers > 0");
        assert!(!suspects.is_empty(), "no worker was lost with a row in flight");
        let _running = place.run();
        place.until_within(RECOVERY_MAX, "DISPATCHED", 12);
        assert!(place.dead_letters().is_empty());
    });
}

#[test]
fn a_message_that_kills_its_worker_is_the_only_dead_letter() {
    beside_each_other(|store| {
        let (worker, killed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (of_rule, seen) = (Arc::clone(&worker), Arc::clone(&killed));
        let target = RuleTarget::start(move |call| {
            if call.key() == "poison" {
                let pid = of_rule.load(SeqCst).to_string();
                assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
                seen.store(true, SeqCst);
                return Reply::Never;
            }
            Reply::Status(200)
        });
        let place = Place::new(store, &destination(&target, "out", ""));
        let mut sent = keys(12);
        sent.insert(3, "poison".to_owned());
        place.send("out", &sent);
        let mut lives = 0;
        while place.count("FAILED") == 0 {
            lives += 1;
            assert!(
                lives < 12,
                "{:?}",
                place.texts("SELECT status FROM relais_outbox ORDER BY id")
            );
            // Its id is known before its first call: it takes over the lanes first.
            let running = place.run_noting(&worker);
            let started = Instant::now();
            while !killed.swap(false, SeqCst) && place.count("FAILED") == 0 {
                assert!(started.elapsed() < RECOVERY_MAX, "it is neither killed nor done");
                std::thread::sleep(Duration::from_millis(100));
            }
            drop(running);
        }
        let _running = place.run_noting(&worker);
        place.until_within(RECOVERY_MAX, "DISPATCHED", 12);
        let dead = place.texts("SELECT msg_key || ' ' || error_class FROM relais_dead_letter");
        assert_eq!(dead, ["poison WORKER_LOST"]);
    });
}
