//! Source and publisher while each broker is killed and started again. It is a test binary of its own,
//! because every other test would lose its broker too.
#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, process::Command, time::Duration};

use relais_connect::amqp::{AmqpPublisher, AmqpSource};
use relais_core::{
    delivery::Delivery,
    inbox::AcceptOutcome,
    publisher::Publisher,
    source::{Source, SourceError},
};
use relais_testkit::connector::{outbox_row, soon};

#[allow(dead_code)]
#[path = "amqp/fixture.rs"]
mod fixture;

use fixture::{Broker, World};

const PAUSE: Duration = Duration::from_millis(100);

async fn run(program: &str, argument: &'static str) {
    let mut command = Command::new(program);
    command.arg(argument);
    let done = tokio::task::spawn_blocking(move || command.status()).await.unwrap().unwrap();
    assert!(done.success(), "{argument}: {done}");
}

async fn publish(publisher: &AmqpPublisher, number: usize, key: &str) -> Delivery {
    let row = outbox_row(number, key);
    soon("it answers", publisher.publish(&[row])).await.into_iter().next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_continue_when_a_killed_artemis_is_back() {
    continue_after_a_kill(Broker::Artemis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_continue_when_a_killed_qpid_is_back() {
    continue_after_a_kill(Broker::Qpid).await;
}

async fn continue_after_a_kill(broker: Broker) {
    let Some(program) = fixture::server(&broker.variable("_RESTART")) else { return };
    let Some(world) = World::new(broker).await else { return };
    let publisher = AmqpPublisher::new(world.target()).unwrap();
    let mut source = AmqpSource::new(world.origin()).unwrap();

    accept(&publisher, 0, "a").await;
    let batch = soon("it is read", source.next(10)).await.unwrap();
    assert_eq!(batch.messages.len(), 1);
    run(&program, "stop").await;
    // Without a broker both report an outage; afterwards nothing is missing.
    let stopped = publish(&publisher, 1, "a").await;
    assert!(matches!(stopped, Delivery::Outage { .. }), "{stopped:?}");
    let failed = source.acknowledge(vec![AcceptOutcome::Stored]).await;
    let unavailable = soon("it notices", source.next(10)).await;
    assert!(failed.is_err() || matches!(unavailable, Err(SourceError::Unavailable(_))));
    run(&program, "start").await;
    for number in 1..50 {
        accept(&publisher, number, "a").await;
    }
    let mut seen: Vec<String> = Vec::new();
    let everything: BTreeSet<String> =
        (0..50).map(|number| outbox_row(number, "a").message_id.to_string()).collect();
    let reading = async {
        while seen.len() < everything.len() {
            let Ok(batch) = source.next(10).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let _ = source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await;
            for row in batch.messages {
                if !seen.contains(&row.message_id) {
                    seen.push(row.message_id);
                }
            }
        }
    };
    soon("everything is read", reading).await;
    assert_eq!(seen, everything.into_iter().collect::<Vec<_>>(), "in order of the key");
    source.close().await;
    publisher.close().await;
}

/// Sends it again until it is accepted, as a worker does.
async fn accept(publisher: &AmqpPublisher, number: usize, key: &str) {
    let accepting = async {
        while publish(publisher, number, key).await != Delivery::Accepted {
            tokio::time::sleep(PAUSE).await;
        }
    };
    soon("it is accepted", accepting).await;
}
