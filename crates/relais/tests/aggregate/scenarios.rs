//! What holds on every store, with its driver's own connection.

use relais::{OutboxRow, Repository, SaveError};
use uuid::Uuid;

use super::{Bed, Connection};
use crate::order::{
    Fault, Order, OrderArchived, OrderForgotten, OrderPaid, OrderPlaced, OrderUnsayable, READ,
    outbox, repository,
};

/// Events of one save, more than any driver writes in one statement.
const MANY: i64 = 1_000;
const WRITERS: usize = 4;
const LINES_EACH: usize = 5;

/// Lines and version of the order in the database, and how many events there are.
pub(super) async fn both(bed: &Bed, id: &str) -> (Option<(i64, i64)>, usize) {
    let state = sqlx::query_as(READ).bind(id).fetch_optional(&bed.pool).await.unwrap();
    (state, outbox(&bed.store).await.len())
}

pub(super) async fn read(bed: &Bed, id: &str) -> Order {
    let state = sqlx::query_as(READ).bind(id).fetch_one(&bed.pool).await;
    let (lines, version) = state.unwrap();
    Order::read(id, lines, version)
}

/// In a transaction of its own; rolled back on an error, as `?` does.
pub(super) async fn save(bed: &Bed, order: &mut Order) -> Result<Vec<Uuid>, SaveError> {
    save_with(bed, &repository(), order).await
}

async fn save_with(
    bed: &Bed,
    repository: &Repository,
    order: &mut Order,
) -> Result<Vec<Uuid>, SaveError> {
    let mut tx = bed.begin().await;
    let connection: &mut Connection = &mut tx;
    let ids = repository.save(connection, order).await?;
    tx.commit().await.unwrap();
    Ok(ids)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saving_writes_state_and_events_and_forgets_the_events() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1");
    order.add_line();
    order.events.record(&OrderArchived { order_id: "o-1".into() });
    let because = repository().because_of("shop-1", "m-1").header("tenant", "t-1");
    let ids = save_with(&bed, &because, &mut order).await.unwrap();

    assert_eq!((order.events.version(), order.events.recorded().len()), (1, 0));
    assert_eq!(both(&bed, "o-1").await, (Some((1, 1)), 3));
    let rows = outbox(&bed.store).await;
    assert_eq!(rows.iter().map(|row| row.message_id).collect::<Vec<_>>(), ids);
    let told = |row: &OutboxRow| (row.event_type.clone(), row.destination.clone());
    assert_eq!(told(&rows[0]), ("OrderPlaced".into(), "orders".into()));
    assert_eq!(told(&rows[1]), ("LineAdded".into(), "orders".into()));
    assert_eq!(told(&rows[2]), ("OrderArchived".into(), "archive".into()));
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
async fn a_save_without_events_still_proves_and_raises_the_version() {
    let Some(bed) = Bed::new().await else { return };
    save(&bed, &mut Order::place("o-1")).await.unwrap();
    let mut order = read(&bed, "o-1").await;
    order.lines = 7;
    assert!(save(&bed, &mut order).await.unwrap().is_empty());
    assert_eq!(both(&bed, "o-1").await, (Some((7, 2)), 1));
    assert_eq!(order.events.version(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_after_a_save_leaves_neither_and_the_aggregate_must_be_read_again() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1");
    let mut tx = bed.begin().await;
    repository().save(&mut *tx, &mut order).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(both(&bed, "o-1").await, (None, 0));

    // In memory it is ahead of the database now. Saved again it would lack the events: refused.
    assert_eq!((order.events.version(), order.events.recorded().len()), (1, 0));
    let refused = save(&bed, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 1, .. }), "{refused}");
    assert_eq!(both(&bed, "o-1").await, (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_of_a_later_save_is_a_conflict_until_it_is_read_again() {
    let Some(bed) = Bed::new().await else { return };
    save(&bed, &mut Order::place("o-1")).await.unwrap();
    let mut order = read(&bed, "o-1").await;
    order.add_line();
    let mut tx = bed.begin().await;
    repository().save(&mut *tx, &mut order).await.unwrap();
    drop(tx);
    order.add_line();
    let refused = save(&bed, &mut order).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Order o-1 is not at version 2 any more; read it again and decide again"
    );
    let mut order = read(&bed, "o-1").await;
    order.add_line();
    save(&bed, &mut order).await.unwrap();
    assert_eq!(both(&bed, "o-1").await, (Some((1, 2)), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_refuses_an_event_leaves_no_state_and_the_aggregate_can_be_saved_again() {
    let Some(bed) = Bed::new().await else { return };
    bed.refuse("LineAdded").await;
    let mut order = Order::place("o-1");
    order.add_line();
    let kept: Vec<_> = order.events.recorded().iter().map(|event| event.message_id()).collect();
    let refused = save(&bed, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Events { .. }), "{refused}");
    assert!(refused.to_string().starts_with("the events of Order o-1 were not written: "));
    assert_eq!(both(&bed, "o-1").await, (None, 0));
    assert_eq!((order.events.version(), order.events.recorded().len()), (0, 2));

    let mut plain = Order::place("o-2");
    save(&bed, &mut plain).await.unwrap();
    assert_eq!(both(&bed, "o-2").await, (Some((0, 1)), 1));
    let again: Vec<_> = order.events.recorded().iter().map(|event| event.message_id()).collect();
    assert_eq!(again, kept, "a second try sends the same messages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_is_refused_leaves_no_events_and_the_aggregate_can_be_saved_again() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1").with_fault(Fault::StateRefused);
    let refused = save(&bed, &mut order).await.unwrap_err();
    let SaveError::State { aggregate, source } = &refused else { panic!("{refused}") };
    assert_eq!(aggregate, "Order o-1");
    assert!(source.downcast_ref::<sqlx::Error>().is_some());
    assert_eq!(both(&bed, "o-1").await, (None, 0));
    order.fault = None;
    save(&bed, &mut order).await.unwrap();
    assert_eq!(both(&bed, "o-1").await, (Some((0, 1)), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_between_state_and_events_leaves_neither() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1").with_fault(Fault::ConnectionDies);
    let refused = save(&bed, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Events { .. }), "{refused}");
    assert_eq!(both(&bed, "o-1").await, (None, 0));
    assert_eq!((order.events.version(), order.events.recorded().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_is_given_up_half_way_leaves_neither() {
    let Some(bed) = Bed::new().await else { return };
    let repository = repository();
    for polls in 1.. {
        let id = format!("o-{polls}");
        let mut order = Order::place(&id);
        let mut tx = bed.begin().await;
        let done = {
            let connection: &mut Connection = &mut tx;
            let mut saving = Box::pin(repository.save(connection, &mut order));
            give_up_after(polls, &mut saving).await
        };
        drop(tx);
        assert_eq!(both(&bed, &id).await, (None, 0), "given up at poll {polls}");
        if done.is_some() {
            assert!(polls > 1);
            break;
        }
        assert_eq!((order.events.version(), order.events.recorded().len()), (0, 1));
    }
}

/// What the future says within so many polls.
async fn give_up_after<F: Future + Unpin>(polls: usize, future: &mut F) -> Option<F::Output> {
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
async fn who_saves_second_has_a_conflict_and_keeps_what_it_recorded() {
    let Some(bed) = Bed::new().await else { return };
    save(&bed, &mut Order::place("o-1")).await.unwrap();
    let (mut first, mut second) = (read(&bed, "o-1").await, read(&bed, "o-1").await);
    first.add_line();
    second.add_line();
    second.add_line();
    save(&bed, &mut first).await.unwrap();
    let refused = save(&bed, &mut second).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 1, .. }), "{refused}");
    assert_eq!((second.events.version(), second.events.recorded().len()), (1, 2));
    assert_eq!(both(&bed, "o-1").await, (Some((1, 2)), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregate_that_is_made_twice_is_a_conflict_and_one_that_is_gone_too() {
    let Some(bed) = Bed::new().await else { return };
    save(&bed, &mut Order::place("o-1")).await.unwrap();
    let refused = save(&bed, &mut Order::place("o-1")).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 0, .. }), "{refused}");

    let mut order = read(&bed, "o-1").await;
    sqlx::query("DELETE FROM orders").execute(&bed.pool).await.unwrap();
    order.add_line();
    let refused = save(&bed, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 1, .. }), "{refused}");
    assert_eq!(both(&bed, "o-1").await, (None, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overwrites_what_another_one_saved_at_the_same_time() {
    let Some(bed) = Bed::new().await else { return };
    save(&bed, &mut Order::place("o-1")).await.unwrap();
    let bed = std::sync::Arc::new(bed);
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let bed = std::sync::Arc::clone(&bed);
            tokio::spawn(async move {
                for _ in 0..LINES_EACH {
                    loop {
                        let mut order = read(&bed, "o-1").await;
                        order.add_line();
                        match save(&bed, &mut order).await {
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
    assert_eq!(both(&bed, "o-1").await.0, Some((lines, lines + 1)));
    let told: Vec<_> =
        outbox(&bed.store).await.into_iter().skip(1).map(|row| row.payload).collect();
    let line = |number: i64| format!(r#"{{"order_id":"o-1","number":{number}}}"#);
    assert_eq!(told, (1..=lines).map(line).collect::<Vec<_>>(), "each line told once, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_event_type_is_said_before_anything_is_written() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1");
    order.events.record(&OrderForgotten { order_id: "o-1".into() });
    let mut tx = bed.begin().await;
    let refused = repository().save(&mut *tx, &mut order).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "unknown event type `OrderForgotten`, recorded by Order o-1: name its destination with \
         `Repository::event`"
    );
    tx.commit().await.unwrap();
    assert_eq!(both(&bed, "o-1").await, (None, 0));
    assert_eq!((order.events.version(), order.events.recorded().len()), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_stored_is_said_before_anything_is_written() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1");
    order.events.record(&OrderUnsayable { order_id: "o-1".into() });
    assert_eq!(order.events.recorded()[1].payload(), None);
    let mut tx = bed.begin().await;
    let refused = repository().save(&mut *tx, &mut order).await.unwrap_err();
    let text = "event `OrderUnsayable` of Order o-1 cannot be stored: no words for it";
    assert_eq!(refused.to_string(), text);
    tx.commit().await.unwrap();

    // The outbox keeps one row of a message id: the second event would have vanished.
    let mut order = Order::place("o-1");
    let event_id = Uuid::now_v7();
    order.events.record(&OrderPaid { event_id, order_id: "o-1".into() });
    order.events.record(&OrderPaid { event_id, order_id: "o-1".into() });
    let refused = save(&bed, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Unstorable { event_type: "OrderPaid", .. }), "{refused}");
    assert_eq!(both(&bed, "o-1").await, (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_events_of_one_save_keep_their_order() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1");
    (0..MANY).for_each(|_| order.add_line());
    let ids = save(&bed, &mut order).await.unwrap();
    assert_eq!(both(&bed, "o-1").await, (Some((MANY, 1)), ids.len()));
    let rows = outbox(&bed.store).await;
    assert_eq!(rows.iter().map(|row| row.message_id).collect::<Vec<_>>(), ids);
    assert_eq!(rows[0].event_type, "OrderPlaced");
    for (row, number) in rows[1..].iter().zip(1..) {
        assert_eq!(row.payload, format!(r#"{{"order_id":"o-1","number":{number}}}"#));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_events_than_one_save_takes_are_refused_before_anything_is_written() {
    let Some(bed) = Bed::new().await else { return };
    let mut order = Order::place("o-1");
    (0..relais::aggregate::EVENTS_MAX).for_each(|_| order.add_line());
    let refused = save(&bed, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::TooMany { events: 10_001, .. }), "{refused}");
    assert_eq!(both(&bed, "o-1").await, (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_aggregates_of_one_transaction_stand_or_fall_together() {
    let Some(bed) = Bed::new().await else { return };
    let (mut first, mut second) = (Order::place("o-1"), Order::place("o-2"));
    let repository = Repository::new().event::<OrderPlaced>("orders");
    let mut tx = bed.begin().await;
    repository.save(&mut *tx, &mut first).await.unwrap();
    second.add_line();
    assert!(matches!(
        repository.save(&mut *tx, &mut second).await,
        Err(SaveError::UnknownEvent { event_type: "LineAdded", .. })
    ));
    drop(tx);
    assert_eq!(both(&bed, "o-1").await, (None, 0));
    assert_eq!(both(&bed, "o-2").await, (None, 0));
}
