//! Handlers on SQLite, sound ones and planted ones.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use relais::{Handler, Outbox, Outcome, Received, sqlite};
use relais_testkit::{
    assert_idempotent,
    database::SqliteScratch,
    idempotent::{self, FaultPoint, HandlerFault},
    scratch,
};
use rusqlite::Transaction;

use crate::shop::{ADD, NOTE, Paid, PaymentReceived, TABLES, payment};

type Answer = rusqlite::Result<()>;
type Function = fn(&Transaction<'_>, Received<PaymentReceived>) -> Answer;

/// A database with a handler that is this function.
async fn shop(function: Function) -> (SqliteScratch, Arc<dyn Handler>) {
    let db = scratch::sqlite().await;
    db.run(TABLES).await;
    let handler = sqlite::handler(&db, function);
    (db, handler)
}

/// Returns the report on this function.
async fn found(function: Function) -> (FaultPoint, String) {
    let messages = [payment(1, "a-1"), payment(2, "a-1")];
    let found = idempotent::check(async || shop(function).await, messages, &[]).await.unwrap_err();
    (found.point.clone(), found.to_string())
}

fn sound(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Answer {
    tx.execute(ADD, (message.payload.cents, &message.payload.account))?;
    tx.execute(NOTE, (&message.message_id, message.received_at.to_string()))?;
    Outbox::to("books").send_blocking(tx, &Paid::of(&message.payload)).map_err(refused)?;
    Ok(())
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

#[tokio::test]
async fn a_sound_handler_passes_every_point() {
    let messages = [payment(1, "a-1"), payment(2, "a-2"), payment(3, "a-1")];
    let points = assert_idempotent!(async || shop(sound).await, messages);
    for point in [
        FaultPoint::CleanAgain,
        FaultPoint::DeliveredTwiceBefore,
        FaultPoint::DeliveredAgainAfter,
        FaultPoint::DiesBeforeTransaction,
        FaultPoint::LosesLaneBeforeMark,
        FaultPoint::LosesLaneToAnother,
        FaultPoint::DiesAfterCommit,
        FaultPoint::WriteFails("accounts".into()),
        FaultPoint::WriteFails("payments".into()),
        FaultPoint::WriteFails("relais_outbox".into()),
        FaultPoint::DiesInside(1),
    ] {
        assert!(points.contains(&point), "{point} is not in {points:?}");
    }
}

#[tokio::test]
async fn a_sound_handler_of_sqlx_passes_every_point() {
    async fn on_payment(
        tx: &mut sqlx::SqliteConnection,
        message: Received<PaymentReceived>,
    ) -> anyhow::Result<()> {
        let PaymentReceived { account, cents } = &message.payload;
        sqlx::query(ADD).bind(cents).bind(account).execute(&mut *tx).await?;
        Outbox::to("books").send(&mut *tx, &Paid::of(&message.payload)).await?;
        Ok(())
    }
    let shop = async || {
        let db = scratch::sqlite().await;
        db.run(TABLES).await;
        let wait = std::time::Duration::from_secs(30);
        let options =
            sqlx::sqlite::SqliteConnectOptions::new().filename(db.path()).busy_timeout(wait);
        let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
        (db, sqlite::sqlx_handler(pool, on_payment))
    };
    let points = assert_idempotent!(shop, [payment(1, "a-1"), payment(2, "a-1")]);
    let inside = points.iter().filter(|point| matches!(point, FaultPoint::DiesInside(_))).count();
    assert!(inside > 2, "it waits for each statement: {points:?}");
}

#[tokio::test]
async fn a_handler_that_asks_for_another_try_is_sound() {
    fn patient(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Outcome {
        let later = std::time::Duration::from_secs(3_600);
        if message.attempt < 3 {
            return Outcome::retry_after(later, "NOT_YET", "the account is not open yet");
        }
        sound(tx, message).map_or_else(|e| Outcome::retry("DB", &e.to_string()), |()| Outcome::Done)
    }
    let shop = async || {
        let db = scratch::sqlite().await;
        db.run(TABLES).await;
        let handler = sqlite::handler(&db, patient);
        (db, handler)
    };
    assert_idempotent!(shop, payment(1, "a-1"));
}

#[tokio::test]
async fn message_ids_that_look_like_numbers_of_rows_are_no_trouble() {
    let numbered = |number: usize, id: &str| {
        let message = payment(number, "a-1");
        relais::core::inbox::NewInbox { message_id: id.into(), ..message }
    };
    assert_idempotent!(async || shop(sound).await, [numbered(1, "2"), numbered(2, "1")]);
}

#[tokio::test]
#[should_panic(expected = "ends its transaction itself")]
async fn a_handler_that_commits_by_itself_is_caught() {
    fn bad(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Answer {
        // The same row however often: the end would look right, but not what a rollback leaves.
        tx.execute("UPDATE accounts SET cents = $1", [message.payload.cents])?;
        tx.execute_batch("COMMIT; BEGIN IMMEDIATE")
    }
    assert_idempotent!(async || shop(bad).await, payment(1, "a-1"));
}

#[tokio::test]
#[should_panic(expected = "the clock or something outside the database")]
async fn a_handler_that_uses_chance_as_data_is_caught() {
    fn bad(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Answer {
        let random = uuid::Uuid::new_v4().to_string();
        tx.execute(NOTE, (&message.message_id, random)).map(drop)
    }
    assert_idempotent!(async || shop(bad).await, payment(1, "a-1"));
}

#[tokio::test]
async fn a_handler_that_writes_the_time_in_seconds_is_caught() {
    fn bad(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Answer {
        let sql = "INSERT INTO payments VALUES ($1, strftime('%s', 'now'))";
        tx.execute(sql, [&message.message_id]).map(drop)
    }
    let (point, text) = found(bad).await;
    assert_eq!(point, FaultPoint::CleanAgain);
    assert!(text.contains("+ payments: message_id='m-1' note='"), "{text}");
    let ignored = ["payments.note"];
    let checked = idempotent::check(async || shop(bad).await, payment(1, "a-1"), &ignored);
    checked.await.unwrap();
}

#[tokio::test]
async fn a_handler_that_continues_after_a_failed_write_is_caught() {
    fn bad(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Answer {
        tx.execute(ADD, (message.payload.cents, &message.payload.account))?;
        if let Err(error) = tx.execute(NOTE, (&message.message_id, "paid")) {
            eprintln!("a note is missing, never mind: {error}");
        }
        Ok(())
    }
    let (point, text) = found(bad).await;
    assert_eq!(point, FaultPoint::WriteFails("payments".into()));
    let expected = "  only without the fault:\n    + payments: message_id='m-1' note='paid'\n";
    assert!(text.contains(expected) && text.contains("(nothing)"), "{text}");
    assert!(text.contains("continues after an error"), "{text}");
}

#[tokio::test]
async fn a_handler_that_continues_after_a_failed_send_is_caught() {
    fn bad(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Answer {
        tx.execute(ADD, (message.payload.cents, &message.payload.account))?;
        drop(Outbox::to("books").send_blocking(tx, &Paid::of(&message.payload)));
        Ok(())
    }
    let (point, text) = found(bad).await;
    assert_eq!(point, FaultPoint::WriteFails("relais_outbox".into()));
    assert!(text.contains("event_type=Paid"), "{text}");
    assert!(text.contains(r#"{"event_id":"<message id>","account":"a-1","cents":100}"#), "{text}");
}

#[tokio::test]
async fn a_handler_that_uses_the_attempt_as_data_is_caught() {
    fn bad(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> Answer {
        tx.execute(NOTE, (&message.message_id, message.attempt)).map(drop)
    }
    let (point, text) = found(bad).await;
    assert_eq!(point, FaultPoint::WriteFails("payments".into()));
    assert!(text.contains("note='1'") && text.contains("note='2'"), "{text}");
}

#[tokio::test]
async fn a_handler_that_counts_in_memory_is_caught_where_its_work_is_rolled_back() {
    let shop = async || {
        let db = scratch::sqlite().await;
        db.run(TABLES).await;
        let count = AtomicI64::new(0);
        let bad = move |tx: &Transaction<'_>, message: Received<PaymentReceived>| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            tx.execute(NOTE, (&message.message_id, number)).map(drop)
        };
        let handler = sqlite::handler(&db, bad);
        (db, handler)
    };
    let found = idempotent::check(shop, payment(1, "a-1"), &[]).await.unwrap_err();
    assert_eq!(found.point, FaultPoint::LosesLaneBeforeMark);
    let HandlerFault::Differs { without, with } = &found.fault else { panic!("{found}") };
    assert_eq!(without, &["+ payments: message_id='m-1' note='0'"]);
    assert_eq!(with, &["+ payments: message_id='m-1' note='1'"]);
}

#[tokio::test]
async fn a_message_that_the_handler_cannot_process_shows_nothing_and_is_said() {
    fn bad(_: &Transaction<'_>, _: Received<PaymentReceived>) -> Answer {
        Err(rusqlite::Error::InvalidQuery)
    }
    let (point, text) = found(bad).await;
    assert_eq!(point, FaultPoint::Clean);
    assert!(text.contains("message `m-1` is FAILED: HANDLER_ERROR: "), "{text}");

    let wrong = relais_testkit::arrived("m-1", "PaymentReceived", serde_json::json!({"cents": 1}));
    let checked = idempotent::check(async || shop(sound).await, wrong, &[]).await.unwrap_err();
    assert!(checked.to_string().contains("FAILED: PAYLOAD_SHAPE: "), "{checked}");
}
