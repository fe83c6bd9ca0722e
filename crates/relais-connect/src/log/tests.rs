//! Tests with real files.

use std::fs;

use super::*;
use crate::testing;

fn row(id: i64, payload: &str) -> OutboxRow {
    OutboxRow { id, ..testing::row(payload) }
}

#[test]
fn a_line_has_the_fields_of_the_message_and_no_state_of_its_row() {
    let row = row(1, r#"{"n":9007199254740993,"n":1e400}"#);
    let line = String::from_utf8(lines(std::slice::from_ref(&row))).unwrap();
    assert!(line.contains(r#""payload":{"n":9007199254740993,"n":1e400},"#), "{line}");
    let of_row = serde_json::to_value(OutboxRow { payload: "null".into(), ..row.clone() }).unwrap();
    let plain = lines(&[OutboxRow { payload: "1".into(), ..row }]);
    let line: serde_json::Map<_, _> = serde_json::from_slice(&plain).unwrap();
    for (name, value) in line.iter().filter(|(name, _)| *name != "payload") {
        assert_eq!(value, &of_row[name], "{name}");
    }
    for bookkeeping in ["lane", "status", "attempts", "next_attempt_at", "error_code", "job_id"] {
        assert!(!line.contains_key(bookkeeping), "{bookkeeping}");
    }
}

#[test]
fn a_line_is_one_line_whatever_the_payload() {
    for payload in ["{\n  \"a\": \"x\\ny\",\r\n \"b\": [1]\n}", "no json\n", "", "\"\u{2028}\""] {
        let line = String::from_utf8(lines(&[row(1, payload)])).unwrap();
        assert_eq!(line.matches(['\n', '\r']).count(), 1, "{line}");
        assert!(line.ends_with('\n'));
        assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
    }
}

#[tokio::test]
async fn batches_follow_each_other_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let publisher = LogPublisher::file(&path);
    for batch in [[row(1, "1"), row(2, "2")], [row(3, "3"), row(4, "4")]] {
        assert_eq!(publisher.publish(&batch).await, [Delivery::Accepted, Delivery::Accepted]);
    }
    let text = fs::read_to_string(&path).unwrap();
    let ids: Vec<i64> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_i64().unwrap()
        })
        .collect();
    assert_eq!(ids, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_partial_line_after_a_crash_leaves_the_other_lines_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let publisher = LogPublisher::file(&path);
    publisher.publish(&[row(1, "1")]).await;
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], &whole[..20]].concat()).unwrap();
    assert_eq!(publisher.publish(&[row(2, "2")]).await, [Delivery::Accepted]);
    let text = fs::read_to_string(&path).unwrap();
    let good: Vec<_> =
        text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()).collect();
    assert_eq!(good, [true, false, true]);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_outage_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("no/such/folder/out")] {
        let publisher = LogPublisher::file(&path);
        let deliveries = publisher.publish(&[row(1, "1"), row(2, "2")]).await;
        assert_eq!(deliveries.len(), 2);
        for delivery in deliveries {
            let Delivery::Outage { problem, .. } = delivery else { panic!("{delivery:?}") };
            assert_eq!(problem.code, "WRITE_FAILED");
            assert!(problem.message.contains(path.to_str().unwrap()), "{}", problem.message);
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_an_outage() {
    let deliveries = LogPublisher::file("/dev/full").publish(&[row(1, "1")]).await;
    assert!(
        matches!(&deliveries[0], Delivery::Outage { problem, .. }
        if problem.message.contains("No space left")),
        "{deliveries:?}"
    );
}

#[tokio::test]
async fn a_write_that_fails_half_way_leaves_no_partial_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let publisher = LogPublisher::file(&path);
    publisher.publish(&[row(1, "1")]).await;
    let before = fs::read_to_string(&path).unwrap();
    let mut file = open(&path).unwrap();
    let failed = write_or_undo(&mut file, Some(before.len() as u64), |file| {
        file.write_all(b"{\"id\":2,")?;
        Err(io::ErrorKind::StorageFull.into())
    });
    assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    drop(file);
    assert_eq!(publisher.publish(&[row(2, "2")]).await, [Delivery::Accepted]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()), "{text}");
    assert_eq!(text.lines().count(), 2);
}

#[tokio::test]
async fn publishers_that_share_a_file_lose_no_line_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let writers = (0..4).map(|writer| {
        let publisher = LogPublisher::file(&path);
        tokio::spawn(async move {
            for number in 0..25 {
                let sent = publisher.publish(&[row(writer * 100 + number, "1")]).await;
                assert_eq!(sent, [Delivery::Accepted]);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 100);
}

#[tokio::test]
async fn a_file_that_was_moved_is_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let publisher = LogPublisher::file(&path);
    publisher.publish(&[row(1, "1")]).await;
    fs::rename(&path, folder.path().join("old")).unwrap();
    assert_eq!(publisher.publish(&[row(2, "2")]).await, [Delivery::Accepted]);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
}
