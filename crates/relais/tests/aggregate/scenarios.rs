//! Scenarios for every store, with the connection of its driver.

use relais::{OutboxRow, Repository, SaveError};
use uuid::Uuid;

use super::{Connection, Fixture};
use crate::order::{
    Fault, Order, OrderArchived, OrderForgotten, OrderPaid, OrderPlaced, OrderUnserialisable, READ,
    outbox, repository,
};

/// Events of one save, more than any driver writes in one statement.
const MANY: i64 = 1_000;
const WRITERS: usize = 4;
const LINES_EACH: usize = 5;

/// Returns lines and version of the order in the database, and the number of events.
pub(super) async fn both(fixture: &Fixture, id: &str) -> (Option<(i64, i64)>, usize) {
    let state = sqlx::query_as(READ).bind(id).fetch_optional(&fixture.pool).await.unwrap();
    (state, outbox(&fixture.store).await.len())
}

pub(super) async fn read(fixture: &Fixture, id: &str) -> Order {
    let state = sqlx::query_as(READ).bind(id).fetch_one(&fixture.pool).await;
    let (lines, version) = state.unwrap();
    Order::read(id, lines, version)
}

/// Saves in a transaction of its own; rolled back on an error, as `?` does.
pub(super) async fn save(fixture: &Fixture, order: &mut Order) -> Result<Vec<Uuid>, SaveError> {
    save_with(fixture, &repository(), order).await
}

async fn save_with(
    fixture: &Fixture,
    repository: &Repository,
    order: &mut Order,
) -> Result<Vec<Uuid>, SaveError> {
    let mut tx = fixture.begin().await;
    let connection: &mut Connection = &mut tx;
    let ids = repository.save(connection, order).await?;
    tx.commit().await.unwrap();
    Ok(ids)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saving_writes_state_and_events_and_clears_the_events() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1");
    order.add_line();
    order.events.record(&OrderArchived { order_id: "o-1".into() });
    let because = repository().because_of("shop-1", "m-1").header("tenant", "t-1");
    let ids = save_with(&fixture, &because, &mut order).await.unwrap();

    assert_eq!((order.events.version(), order.events.recorded().len()), (1, 0));
    assert_eq!(both(&fixture, "o-1").await, (Some((1, 1)), 3));
    let rows = outbox(&fixture.store).await;
    assert_eq!(rows.iter().map(|row| row.message_id).collect::<Vec<_>>(), ids);
    let target = |row: &OutboxRow| (row.event_type.clone(), row.destination.clone());
    assert_eq!(target(&rows[0]), ("OrderPlaced".into(), "orders".into()));
    assert_eq!(target(&rows[1]), ("LineAdded".into(), "orders".into()));
    assert_eq!(target(&rows[2]), ("OrderArchived".into(), "archive".into()));
    assert_eq!((rows[1].event_version, rows[1].category.as_str()), (2, "command"));
    assert_eq!(rows[1].payload, r#"{"order_id":"o-1","number":1}"#);
    for row in rows {
        let about = (row.aggregate_type.as_str(), row.aggregate_id.as_str(), row.msg_key.as_str());
        assert_eq!(about, ("Order", "o-1", "o-1"));
        assert_eq!(row.headers.get("tenant"), Some("t-1"));
        let cause = (row.correlation_id.as_deref(), row.causation_id.as_deref());
        assert_eq!(cause, (Some("shop-1"), Some("m-1")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_without_events_still_checks_and_increases_the_version() {
    let Some(fixture) = Fixture::new().await else { return };
    save(&fixture, &mut Order::place("o-1")).await.unwrap();
    let mut order = read(&fixture, "o-1").await;
    order.lines = 7;
    assert!(save(&fixture, &mut order).await.unwrap().is_empty());
    assert_eq!(both(&fixture, "o-1").await, (Some((7, 2)), 1));
    assert_eq!(order.events.version(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_after_a_save_leaves_neither_and_the_aggregate_must_be_read_again() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1");
    let mut tx = fixture.begin().await;
    repository().save(&mut *tx, &mut order).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(both(&fixture, "o-1").await, (None, 0));

    // In memory it is ahead of the database now. Saved again it would lack the events: refused.
    assert_eq!((order.events.version(), order.events.recorded().len()), (1, 0));
    let refused = save(&fixture, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 1, .. }), "{refused}");
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_of_a_later_save_is_a_conflict_until_it_is_read_again() {
    let Some(fixture) = Fixture::new().await else { return };
    save(&fixture, &mut Order::place("o-1")).await.unwrap();
    let mut order = read(&fixture, "o-1").await;
    order.add_line();
    let mut tx = fixture.begin().await;
    repository().save(&mut *tx, &mut order).await.unwrap();
    drop(tx);
    order.add_line();
    let refused = save(&fixture, &mut order).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot save Order o-1: it is not at version 2 any more; read it again and decide again"
    );
    let mut order = read(&fixture, "o-1").await;
    order.add_line();
    save(&fixture, &mut order).await.unwrap();
    assert_eq!(both(&fixture, "o-1").await, (Some((1, 2)), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_refuses_an_event_leaves_no_state_and_the_aggregate_can_be_saved_again() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture.refuse("LineAdded").await;
    let mut order = Order::place("o-1");
    order.add_line();
    let kept: Vec<_> = order.events.recorded().iter().map(|event| event.message_id()).collect();
    let refused = save(&fixture, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Events { .. }), "{refused}");
    assert!(refused.to_string().starts_with("cannot write the events of Order o-1: "));
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
    assert_eq!((order.events.version(), order.events.recorded().len()), (0, 2));

    let mut plain = Order::place("o-2");
    save(&fixture, &mut plain).await.unwrap();
    assert_eq!(both(&fixture, "o-2").await, (Some((0, 1)), 1));
    let again: Vec<_> = order.events.recorded().iter().map(|event| event.message_id()).collect();
    assert_eq!(again, kept, "a second attempt sends the same messages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_is_refused_leaves_no_events_and_the_aggregate_can_be_saved_again() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1").with_fault(Fault::StateRefused);
    let refused = save(&fixture, &mut order).await.unwrap_err();
    let SaveError::State { aggregate, source } = &refused else { panic!("{refused}") };
    assert_eq!(aggregate, "Order o-1");
    assert!(source.downcast_ref::<sqlx::Error>().is_some());
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
    order.fault = None;
    save(&fixture, &mut order).await.unwrap();
    assert_eq!(both(&fixture, "o-1").await, (Some((0, 1)), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_between_state_and_events_leaves_neither() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1").with_fault(Fault::ConnectionDies);
    let refused = save(&fixture, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Events { .. }), "{refused}");
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
    assert_eq!((order.events.version(), order.events.recorded().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_is_dropped_half_way_leaves_neither() {
    let Some(fixture) = Fixture::new().await else { return };
    let repository = repository();
    for polls in 1.. {
        let id = format!("o-{polls}");
        let mut order = Order::place(&id);
        let mut tx = fixture.begin().await;
        let done = {
            let connection: &mut Connection = &mut tx;
            let mut saving = Box::pin(repository.save(connection, &mut order));
            drop_after(polls, &mut saving).await
        };
        drop(tx);
        assert_eq!(both(&fixture, &id).await, (None, 0), "dropped at poll {polls}");
        if done.is_some() {
            assert!(polls > 1);
            break;
        }
        assert_eq!((order.events.version(), order.events.recorded().len()), (0, 1));
    }
}

/// Returns the output of the future if it completes within this many polls.
async fn drop_after<F: Future + Unpin>(polls: usize, future: &mut F) -> Option<F::Output> {
    let mut left = polls;
    std::future::poll_fn(|context| {
        left -= 1;
        match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Pending if left > 0 => std::task::Poll::Pending,
            std::task::Poll::Pending => std::task::Poll::Ready(None),
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_save_has_a_conflict_and_keeps_its_events() {
    let Some(fixture) = Fixture::new().await else { return };
    save(&fixture, &mut Order::place("o-1")).await.unwrap();
    let (mut first, mut second) = (read(&fixture, "o-1").await, read(&fixture, "o-1").await);
    first.add_line();
    second.add_line();
    second.add_line();
    save(&fixture, &mut first).await.unwrap();
    let refused = save(&fixture, &mut second).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 1, .. }), "{refused}");
    assert_eq!((second.events.version(), second.events.recorded().len()), (1, 2));
    assert_eq!(both(&fixture, "o-1").await, (Some((1, 2)), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregate_that_is_created_twice_is_a_conflict_and_a_deleted_one_too() {
    let Some(fixture) = Fixture::new().await else { return };
    save(&fixture, &mut Order::place("o-1")).await.unwrap();
    let refused = save(&fixture, &mut Order::place("o-1")).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 0, .. }), "{refused}");

    let mut order = read(&fixture, "o-1").await;
    sqlx::query("DELETE FROM orders").execute(&fixture.pool).await.unwrap();
    order.add_line();
    let refused = save(&fixture, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 1, .. }), "{refused}");
    assert_eq!(both(&fixture, "o-1").await, (None, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_saves_do_not_overwrite_each_other() {
    let Some(fixture) = Fixture::new().await else { return };
    save(&fixture, &mut Order::place("o-1")).await.unwrap();
    let fixture = std::sync::Arc::new(fixture);
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let fixture = std::sync::Arc::clone(&fixture);
            tokio::spawn(async move {
                for _ in 0..LINES_EACH {
                    loop {
                        let mut order = read(&fixture, "o-1").await;
                        order.add_line();
                        match save(&fixture, &mut order).await {
                            Ok(_) => break,
                            Err(SaveError::Conflict { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let lines = i64::try_from(WRITERS * LINES_EACH).unwrap();
    assert_eq!(both(&fixture, "o-1").await.0, Some((lines, lines + 1)));
    let payloads: Vec<_> =
        outbox(&fixture.store).await.into_iter().skip(1).map(|row| row.payload).collect();
    let line = |number: i64| format!(r#"{{"order_id":"o-1","number":{number}}}"#);
    assert_eq!(payloads, (1..=lines).map(line).collect::<Vec<_>>(), "each line once, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_event_type_is_refused_before_anything_is_written() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1");
    order.events.record(&OrderForgotten { order_id: "o-1".into() });
    let mut tx = fixture.begin().await;
    let refused = repository().save(&mut *tx, &mut order).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "unknown event type `OrderForgotten`, recorded by Order o-1; set its destination with \
         `Repository::event`"
    );
    tx.commit().await.unwrap();
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
    assert_eq!((order.events.version(), order.events.recorded().len()), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_stored_is_refused_before_anything_is_written() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1");
    order.events.record(&OrderUnserialisable { order_id: "o-1".into() });
    assert_eq!(order.events.recorded()[1].payload(), None);
    let mut tx = fixture.begin().await;
    let refused = repository().save(&mut *tx, &mut order).await.unwrap_err();
    let text = "cannot store event `OrderUnserialisable` of Order o-1: not serialisable";
    assert_eq!(refused.to_string(), text);
    tx.commit().await.unwrap();

    // The outbox keeps one row per message id: the second event would be lost.
    let mut order = Order::place("o-1");
    let event_id = Uuid::now_v7();
    order.events.record(&OrderPaid { event_id, order_id: "o-1".into() });
    order.events.record(&OrderPaid { event_id, order_id: "o-1".into() });
    let refused = save(&fixture, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Unstorable { event_type: "OrderPaid", .. }), "{refused}");
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_events_of_one_save_keep_their_order() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1");
    (0..MANY).for_each(|_| order.add_line());
    let ids = save(&fixture, &mut order).await.unwrap();
    assert_eq!(both(&fixture, "o-1").await, (Some((MANY, 1)), ids.len()));
    let rows = outbox(&fixture.store).await;
    assert_eq!(rows.iter().map(|row| row.message_id).collect::<Vec<_>>(), ids);
    assert_eq!(rows[0].event_type, "OrderPlaced");
    for (row, number) in rows[1..].iter().zip(1..) {
        assert_eq!(row.payload, format!(r#"{{"order_id":"o-1","number":{number}}}"#));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_events_than_one_save_takes_are_refused_before_anything_is_written() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1");
    (0..relais::aggregate::EVENTS_MAX).for_each(|_| order.add_line());
    let refused = save(&fixture, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::TooMany { events: 10_001, .. }), "{refused}");
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_aggregates_of_one_transaction_are_saved_together_or_not_at_all() {
    let Some(fixture) = Fixture::new().await else { return };
    let (mut first, mut second) = (Order::place("o-1"), Order::place("o-2"));
    let repository = Repository::new().event::<OrderPlaced>("orders");
    let mut tx = fixture.begin().await;
    repository.save(&mut *tx, &mut first).await.unwrap();
    second.add_line();
    assert!(matches!(
        repository.save(&mut *tx, &mut second).await,
        Err(SaveError::UnknownEvent { event_type: "LineAdded", .. })
    ));
    drop(tx);
    assert_eq!(both(&fixture, "o-1").await, (None, 0));
    assert_eq!(both(&fixture, "o-2").await, (None, 0));
}
