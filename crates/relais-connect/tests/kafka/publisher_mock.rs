//! The publisher with librdkafka's mock cluster: errors that a real broker does not produce on
//! request.

use std::{sync::Arc, time::Duration};

use rdkafka::{
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr as Error},
};
use relais_core::{outbox::OutboxRow, publisher::Publisher};

use crate::outgoing::{
    assert_in_order, codes, deliver, large, problem, publisher, read, row, settings,
};

const TOPIC: &str = "orders";

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(partitions: i32) -> (Cluster, String) {
    let cluster = MockCluster::new(3).unwrap();
    cluster.create_topic(TOPIC, partitions, 3).unwrap();
    let brokers = cluster.bootstrap_servers();
    (cluster, brokers)
}

fn rows(count: i64, keys: i64) -> Vec<OutboxRow> {
    (0..count).map(|id| row(id, &format!("k{}", id % keys))).collect()
}

#[tokio::test]
async fn messages_are_accepted_in_order() {
    let (_cluster, brokers) = cluster(4);
    let publisher = publisher(&brokers, TOPIC);
    let rows = rows(500, 20);
    let deliveries = publisher.publish(&rows).await;
    assert_eq!(codes(&deliveries), vec!["accepted"; 500]);
    let records = read(&brokers, TOPIC);
    assert_eq!(records.len(), 500);
    assert_in_order(&rows, &records);
}

#[tokio::test]
async fn transient_errors_are_not_reported() {
    for error in [
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
    ] {
        let (cluster, brokers) = cluster(1);
        let publisher = publisher(&brokers, TOPIC);
        cluster.request_errors(RDKafkaApiKey::Produce, &[error, error]);
        let rows = rows(50, 3);
        let deliveries = publisher.publish(&rows).await;
        assert_eq!(codes(&deliveries), vec!["accepted"; 50], "{error:?}");
        assert_in_order(&rows, &read(&brokers, TOPIC));
    }
}

#[tokio::test]
async fn a_producer_that_ends_is_replaced_and_everything_is_delivered() {
    for error in [
        Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        Error::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
    ] {
        let (cluster, brokers) = cluster(2);
        let publisher = publisher(&brokers, TOPIC);
        cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
        let rows = rows(100, 7);
        let deliveries = publisher.publish(&rows).await;
        assert_eq!(codes(&deliveries), vec!["accepted"; 100], "{error:?}");
        assert_in_order(&rows, &read(&brokers, TOPIC));
        let deliveries = publisher.publish(&rows).await;
        assert_eq!(codes(&deliveries), vec!["accepted"; 100], "{error:?}");
    }
}

#[tokio::test]
async fn a_producer_that_ends_again_and_again_is_a_retry_and_the_rest_is_held() {
    let (cluster, brokers) = cluster(1);
    let publisher = publisher(&brokers, TOPIC);
    let fatal = [Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER; 20];
    cluster.request_errors(RDKafkaApiKey::Produce, &fatal);
    let rows = [row(1, "a"), row(2, "a")];
    let deliveries = publisher.publish(&rows).await;
    assert_eq!(codes(&deliveries), ["retry", "held"], "{deliveries:?}");
    cluster.clear_request_errors(RDKafkaApiKey::Produce);
    deliver(&publisher, &rows).await;
    assert_in_order(&rows, &read(&brokers, TOPIC));
}

#[tokio::test]
async fn a_refused_batch_is_sent_again_one_by_one() {
    for error in [
        Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        Error::RD_KAFKA_RESP_ERR_INVALID_RECORD,
        Error::RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
    ] {
        let (cluster, brokers) = cluster(2);
        let publisher = publisher(&brokers, TOPIC);
        cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
        let rows = rows(40, 5);
        let deliveries = publisher.publish(&rows).await;
        assert_eq!(codes(&deliveries), vec!["accepted"; 40], "{error:?}");
        assert_in_order(&rows, &read(&brokers, TOPIC));
    }
}

#[tokio::test]
async fn each_topic_error_is_classified() {
    let table = [
        (
            Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            "misconfigured",
            "KAFKA_TOPIC_AUTHORIZATION",
        ),
        (
            Error::RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,
            "misconfigured",
            "KAFKA_UNSUPPORTED",
        ),
        (Error::RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS, "retry", "KAFKA_ERROR"),
        (
            Error::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            "misconfigured",
            "KAFKA_CLUSTER_AUTHORIZATION",
        ),
    ];
    for (error, answer, code) in table {
        let (cluster, brokers) = cluster(1);
        let publisher = publisher(&brokers, TOPIC);
        cluster.request_errors(RDKafkaApiKey::Produce, &[error; 50]);
        let deliveries = publisher.publish(&[row(1, "a"), row(2, "a")]).await;
        assert_eq!(codes(&deliveries), [answer, "held"], "{error:?}: {deliveries:?}");
        let (found, message) = problem(&deliveries[0]);
        assert_eq!(found, code, "{message}");
        assert!(message.starts_with("topic `orders`: "), "{message}");
    }
}

#[tokio::test]
async fn a_client_without_idempotent_write_gets_the_missing_permission() {
    let (cluster, brokers) = cluster(1);
    let denied = Error::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[denied; 50]);
    let publisher = publisher(&brokers, TOPIC);
    let deliveries = publisher.publish(&[row(1, "a"), row(2, "b")]).await;
    let (code, message) = problem(&deliveries[0]);
    assert_eq!(code, "KAFKA_CLUSTER_AUTHORIZATION", "{message}");
    assert!(message.contains("IDEMPOTENT_WRITE"), "{message}");
    assert_eq!(codes(&deliveries)[0], "misconfigured");
}

#[tokio::test]
async fn a_refused_topic_is_requested_again_in_the_next_call() {
    let (cluster, brokers) = cluster(1);
    let denied = Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::Produce, &[denied; 1]);
    let publisher = publisher(&brokers, TOPIC);
    let first = publisher.publish(&[row(1, "a")]).await;
    assert_eq!(codes(&first), ["misconfigured"]);
    assert_eq!(codes(&publisher.publish(&[row(2, "a")]).await), ["accepted"]);
}

#[tokio::test]
async fn an_unavailable_cluster_is_an_outage_and_accepts_everything_once_it_is_back() {
    let (cluster, brokers) = cluster(2);
    let publisher = publisher(&brokers, TOPIC);
    assert_eq!(codes(&publisher.publish(&[row(0, "k0")]).await), ["accepted"]);
    cluster.broker_down(-1).unwrap();
    let rows = rows(20, 4);
    let deliveries = publisher.publish(&rows[1..]).await;
    assert!(codes(&deliveries).iter().all(|code| ["outage", "held"].contains(code)));
    assert_eq!(problem(&deliveries[0]).0, "KAFKA_UNREACHABLE", "{deliveries:?}");
    cluster.broker_up(-1).unwrap();
    deliver(&publisher, &rows[1..]).await;
    assert_in_order(&rows, &read(&brokers, TOPIC));
}

#[tokio::test]
async fn a_cluster_that_never_answers_is_an_outage_within_the_time_limit() {
    let (cluster, brokers) = cluster(1);
    let mut settings = settings(&brokers, TOPIC);
    settings.timeout = Duration::from_secs(4);
    let publisher = relais_connect::kafka::KafkaPublisher::new(settings.clone()).unwrap();
    assert_eq!(codes(&publisher.publish(&[row(0, "a")]).await), ["accepted"]);
    cluster.broker_round_trip_time(-1, Duration::from_secs(3_600)).unwrap();
    let rows = [row(1, "a")];
    let call = publisher.publish(&rows);
    let deliveries = tokio::time::timeout(settings.timeout, call).await.expect("an answer in time");
    assert_eq!(codes(&deliveries), ["outage"]);
    assert_eq!(problem(&deliveries[0]).0, "KAFKA_TIMEOUT");
}

#[tokio::test]
async fn a_call_that_is_dropped_delivers_nothing_late() {
    let (cluster, brokers) = cluster(1);
    let publisher = publisher(&brokers, TOPIC);
    assert_eq!(codes(&publisher.publish(&[row(0, "a")]).await), ["accepted"]);
    cluster.broker_down(-1).unwrap();
    let dropped = [row(1, "a"), row(2, "a")];
    let call = publisher.publish(&dropped);
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    cluster.broker_up(-1).unwrap();
    let later = [row(3, "a"), row(4, "a")];
    deliver(&publisher, &later).await;
    publisher.close().await;
    let ids: Vec<i64> = read(&brokers, TOPIC).iter().map(crate::outgoing::id).collect();
    assert_eq!(ids, [0, 3, 4]);
}

#[tokio::test]
async fn parallel_calls_are_independent() {
    let (cluster, brokers) = cluster(3);
    let publisher = Arc::new(publisher(&brokers, TOPIC));
    let fatal = Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    let fine = Error::RD_KAFKA_RESP_ERR_NO_ERROR;
    cluster.request_errors(RDKafkaApiKey::Produce, &[fine, fatal, fine, fine, fatal]);
    let calls = (0..8).map(|call| {
        let publisher = Arc::clone(&publisher);
        tokio::spawn(async move {
            let rows: Vec<_> =
                (0..50).map(|n| row(call * 1000 + n, &format!("c{call}-{}", n % 5))).collect();
            deliver(&publisher, &rows).await;
            rows
        })
    });
    let mut rows = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        rows.extend(call.await.unwrap());
    }
    assert_in_order(&rows, &read(&brokers, TOPIC));
}

#[tokio::test]
async fn a_message_beyond_our_own_limit_fails_alone_and_holds_only_its_key() {
    let (_cluster, brokers) = cluster(2);
    let publisher = publisher(&brokers, TOPIC);
    let rows = [row(1, "a"), large(2, "a", 1_000_000), row(3, "a"), row(4, "b")];
    let deliveries = publisher.publish(&rows).await;
    assert_eq!(codes(&deliveries), ["accepted", "reject", "held", "accepted"]);
    let (code, message) = problem(&deliveries[1]);
    assert_eq!(code, "KAFKA_TOO_LARGE");
    assert!(message.contains("message.max.bytes"), "{message}");
}

#[tokio::test]
async fn closing_leaves_nothing_behind() {
    let (_cluster, brokers) = cluster(1);
    let publisher = publisher(&brokers, TOPIC);
    let rows = rows(100, 3);
    let call = publisher.publish(&rows);
    let (deliveries, ()) = tokio::join!(call, async {
        tokio::task::yield_now().await;
        publisher.close().await;
    });
    let accepted = codes(&deliveries).iter().filter(|code| **code == "accepted").count();
    let arrived = read(&brokers, TOPIC).len();
    assert!(arrived >= accepted, "{accepted} said to be accepted, {arrived} arrived");
    assert_eq!(deliveries.len(), rows.len());
}
