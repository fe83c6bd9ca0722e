//! The source while the broker is killed and restarted. It is a test binary of its own, because
//! every other test would lose its broker too.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used)]

use std::process::Command;

use relais_core::source::{Source, SourceError};

use incoming::{World, until};
use outgoing::LONG;

#[allow(dead_code)]
#[path = "kafka/incoming.rs"]
mod incoming;
#[allow(dead_code)]
#[path = "kafka/outgoing.rs"]
mod outgoing;
#[path = "../src/testing.rs"]
mod testing;

/// One test, because there is one broker to kill.
#[tokio::test]
async fn all_sources_continue_when_a_killed_broker_is_back() {
    let what = "killing the broker";
    let Some(program) = outgoing::server("RELAIS_TEST_KAFKA_RESTART", what) else { return };
    let Some(mut world) = World::new(what, 4).await else { return };
    // A member that does not leave is removed soon.
    world.options.push(("session.timeout.ms", "3000".into()));
    world.options.push(("heartbeat.interval.ms", "500".into()));
    let run = async |half: &'static str| {
        let mut command = Command::new(&program);
        command.arg(half);
        let done = tokio::task::spawn_blocking(move || command.status()).await.unwrap().unwrap();
        assert!(done.success(), "{half}: {done}");
    };
    let (first, second) = (world.worker(), world.worker());
    for round in 1..=2 {
        world.send_plain(300, 4).await;
        until("some of it is stored", || world.db.count() > (round - 1) * 300).await;
        run("stop").await;
        run("start").await;
        until("everything is stored", || world.db.count() == round * 300).await;
        world.no_lag(4).await;
    }
    let mut source = first.stop().await;
    run("stop").await;
    // It reports the error, and can still be closed.
    let error = loop {
        match tokio::time::timeout(LONG, source.next(100)).await.expect("it complains") {
            Ok(_) => {}
            Err(SourceError::Unavailable(reason)) => break reason,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(error.contains(&world.brokers), "{error}");
    tokio::time::timeout(LONG, source.close()).await.expect("it closes");
    run("start").await;
    world.send_plain(300, 4).await;
    until("everything is stored", || world.db.count() == 900).await;
    world.no_lag(4).await;
    second.stop().await.close().await;
}
