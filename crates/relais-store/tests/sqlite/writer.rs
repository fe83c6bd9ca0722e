//! The writer thread: group commits, futures that go away, a disk that fills up.

use std::{task::Poll, time::Duration};

use futures_util::future::{join_all, poll_fn};
use relais_core::{inspect::InspectExt, store::StoreError};
use relais_store::sqlite::SqliteOptions;

use crate::bed::{Bed, message, received};

#[tokio::test]
async fn a_dropped_future_leaves_its_job_done_whole() {
    let bed = Bed::new().await;
    // Held write lock: the job is in the queue, and cannot have run when its future goes.
    let blocker = bed.raw();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut asked = Box::pin(bed.store.enqueue(vec![message("a"), message("b")]));
    poll_fn(|cx| {
        assert!(asked.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(asked);
    blocker.execute_batch("COMMIT").unwrap();
    // Jobs run in order: when this one is answered, the dropped one was done.
    bed.store.once("h".into(), "m".into()).await.unwrap();
    assert_eq!(bed.count("relais_outbox"), 2);
}

#[tokio::test]
async fn a_job_that_fails_takes_nothing_of_its_group_along() {
    let bed = Bed::new().await;
    let blocker = bed.raw();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let jobs = (0..30).map(|n| {
        let mut bad = message(&format!("{n}"));
        if n % 3 == 0 {
            bad.payload = "{oops".into();
        }
        bed.store.enqueue(vec![message(&format!("first-{n}")), bad])
    });
    let jobs = join_all(jobs);
    let release = async move {
        tokio::task::yield_now().await;
        blocker.execute_batch("COMMIT").unwrap();
    };
    let (answers, ()) = tokio::join!(jobs, release);
    for (n, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(ids) => assert_eq!(ids.len(), 2),
            Err(StoreError::Invalid(_)) => assert_eq!(n % 3, 0),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(bed.count("relais_outbox"), 40);
}

#[tokio::test]
async fn a_held_write_lock_is_unavailable_and_passes() {
    let options = SqliteOptions::default().busy_timeout(Duration::from_millis(1));
    let bed = Bed::with(options).await;
    let blocker = bed.raw();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = bed.store.enqueue(vec![message("a")]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(why)) if why.contains("write lock")));
    bed.store.overview().await.expect("readers do not wait for writers");
    blocker.execute_batch("ROLLBACK").unwrap();
    bed.store.enqueue(vec![message("a")]).await.unwrap();
    assert_eq!(bed.count("relais_outbox"), 1);
}

#[tokio::test]
async fn a_full_disk_is_unavailable_stores_nothing_halfway_and_recovers() {
    let options = SqliteOptions::default().pages_max(200);
    let bed = Bed::with(options).await;
    let payload = format!("\"{}\"", "x".repeat(50_000));
    let mut stored = 0;
    let why = loop {
        let ids = [format!("{stored}-a"), format!("{stored}-b")];
        let batch = ids.iter().map(|id| received(id, &payload)).collect();
        match bed.store.accept(batch, Vec::new()).await {
            Ok(_) => stored += 1,
            Err(StoreError::Unavailable(why)) => break why,
            Err(other) => panic!("{other}"),
        }
        assert!(stored < 100, "never full");
    };
    assert!(why.contains("full"), "{why}");
    assert_eq!(bed.count("relais_inbox"), 2 * stored);
    bed.raw().execute_batch("DELETE FROM relais_inbox").unwrap();
    bed.store.accept(vec![received("after", &payload)], Vec::new()).await.unwrap();
    assert_eq!(bed.count("relais_inbox"), 1);
    bed.store.check().await.unwrap();
}

#[tokio::test]
async fn what_was_answered_is_seen_by_another_node_at_once() {
    let bed = Bed::new().await;
    let second = bed.second().await;
    for n in 0..10 {
        let ids = bed.store.enqueue(vec![message(&format!("{n}"))]).await.unwrap();
        assert!(second.find_outbox(ids[0].to_string()).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn the_file_is_sound_after_many_writers() {
    let bed = Bed::new().await;
    let second = bed.second().await;
    let jobs = (0..200).map(|n| {
        let store = if n % 2 == 0 { &bed.store } else { &second };
        store.enqueue(vec![message(&format!("{n}"))])
    });
    for answer in join_all(jobs).await {
        answer.unwrap();
    }
    assert_eq!(bed.count("relais_outbox"), 200);
    let sound: String = bed.raw().query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

/// While a long read runs, nothing can be taken out of the log; afterwards it must not stay large.
#[tokio::test]
async fn the_log_shrinks_again_after_a_reader_that_stayed_long() {
    const LIMIT: u64 = 64 * 1024 * 1024;
    let bed = Bed::new().await;
    let reader = bed.raw();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM relais_inbox", [], |r| r.get::<_, i64>(0)).unwrap();
    let log = || std::fs::metadata(bed.path().with_extension("db-wal")).unwrap().len();
    let large = format!("\"{}\"", "x".repeat(8_000_000));
    let mut stored = 0;
    while log() <= LIMIT {
        let batch = vec![received(&format!("large-{stored}"), &large)];
        bed.store.accept(batch, Vec::new()).await.unwrap();
        stored += 1;
        assert!(stored < 100, "the reader does not hold it");
    }
    drop(reader);
    for n in 0..3 {
        let batch = vec![received(&format!("small-{n}"), "{}")];
        bed.store.accept(batch, Vec::new()).await.unwrap();
    }
    assert!(log() <= LIMIT, "{} bytes", log());
    assert_eq!(bed.count("relais_inbox"), stored + 3);
}
