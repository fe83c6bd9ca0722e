//! Source and publisher while the server is killed and started again.

use std::{collections::BTreeSet, time::Duration};

use relais_connect::nats::{
    NatsConnection, NatsPublisher, NatsPublisherSettings, NatsSource, NatsSourceSettings,
};
use relais_core::{
    delivery::Delivery,
    extract::{Mapping, Pick},
    inbox::AcceptOutcome,
    publisher::Publisher,
    source::{Source, SourceError},
};
use relais_testkit::connector::{outbox_row, soon};
use serde_json::json;

use super::server::OwnServer;

const PAUSE: Duration = Duration::from_millis(100);
const CONFIG: &str = "jetstream { store_dir: \"{folder}/data\" }";

async fn publish(publisher: &NatsPublisher, number: usize) -> Delivery {
    let row = outbox_row(number, "a");
    soon("it answers", publisher.publish(&[row])).await.into_iter().next().unwrap()
}

/// Sends it again until it is accepted, as a worker does.
async fn accept(publisher: &NatsPublisher, number: usize) {
    let accepting = async {
        while publish(publisher, number).await != Delivery::Accepted {
            tokio::time::sleep(PAUSE).await;
        }
    };
    soon("it is accepted", accepting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_continue_when_a_killed_server_is_back() {
    let Some(mut server) = OwnServer::start(CONFIG, |_| {}).await else { return };
    let url = format!("nats://127.0.0.1:{}", server.port);
    let client = async_nats::connect(&url).await.unwrap();
    let stream = json!({
        "name": "ORDERS", "subjects": ["orders"], "storage": "file", "num_replicas": 1,
    });
    client.request("$JS.API.STREAM.CREATE.ORDERS", stream.to_string().into()).await.unwrap();
    let connection = NatsConnection::new(&url).unwrap();
    let mapping = Mapping::json("test").message_id(Pick::header("Nats-Msg-Id"));
    let origin = NatsSourceSettings::new("orders", connection.clone(), "ORDERS", "relais", mapping);
    let origin = NatsSourceSettings { ack_wait: Duration::from_secs(2), ..origin };
    let target = NatsPublisherSettings::new("orders", connection, "orders".parse().unwrap());
    let (mut source, publisher) =
        (NatsSource::new(origin).unwrap(), NatsPublisher::new(target).unwrap());

    accept(&publisher, 0).await;
    let batch = soon("it is read", source.next(10)).await.unwrap();
    assert_eq!(batch.messages.len(), 1);
    server.kill();
    let stopped = publish(&publisher, 1).await;
    assert!(matches!(stopped, Delivery::Outage { .. }), "{stopped:?}");
    let failed = source.acknowledge(vec![AcceptOutcome::Stored]).await;
    assert!(failed.is_err(), "the acknowledgement has no answer");
    let unavailable = soon("it notices", source.next(10)).await;
    assert!(matches!(unavailable, Err(SourceError::Unavailable(_))), "{unavailable:?}");

    server.run_again().await;
    for number in 1..50 {
        accept(&publisher, number).await;
    }
    let everything: BTreeSet<String> =
        (0..50).map(|number| outbox_row(number, "a").message_id.to_string()).collect();
    let mut seen: Vec<String> = Vec::new();
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
