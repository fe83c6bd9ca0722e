//! Lists of operators read no history, planned as in a session of relais. By key they need the indexes of
//! `docs/postgresql.md`, which relais does not create itself.

use relais_core::{inspect::InspectExt, process::ProcessFilter};

use crate::{
    bed::Bed,
    fetch_cost::{buffers_of, fill},
};

/// Rows of a long history.
const HISTORY: usize = 100_000;
/// Rows of each key.
const ROWS_OF_KEY: usize = 10;
/// Rows that a page of the console looks at; their index entries fit into few pages.
const ROWS_OF_PAGE: usize = 5_000;
/// Buffers that a few rows may need, each in a page of its own, and the pages of the indexes above them.
const BUFFERS_MAX: i64 = 100;

/// The filters of a list: the parameters of the statement from the first to the last, without one that is set.
const NO_FILTER: &str = "NULL, NULL, NULL, NULL, NULL, 100, NULL, NULL, NULL, NULL, NULL, 1000";
const TYPES: &str =
    "text, text, text, bigint, bigint, bigint, text, text, text, int, bigint, bigint";

/// Makes finished rows, and one of each table that waits.
async fn bed() -> Option<Bed> {
    let bed = Bed::new().await?;
    let key = format!("'k-' || n % {}", HISTORY / ROWS_OF_KEY);
    fill(&bed, "orders", &key, HISTORY).await;
    let rest = format!(
        "UPDATE relais_outbox SET status = 'DISPATCHED';
         INSERT INTO relais_outbox_position (destination, position) SELECT 'orders', max(id) FROM relais_outbox;
         INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key, \
         event_type, payload, status)
         SELECT 'm-' || n, 'crm', 't', 0, n, {key}, 'E', to_json(repeat('x', 300)),
                CASE n WHEN {HISTORY} THEN 'RECEIVED' ELSE 'PROCESSED' END
         FROM generate_series(1, {HISTORY}) AS n;
         INSERT INTO relais_dead_letter (origin, origin_id, message_id, msg_key, payload, failed_status, parked_by, \
         parked_at, resolution, resolved_at)
         SELECT 'inbox', n, 'm-' || n, {key}, to_json(repeat('x', 300)), 'FAILED', 'w', now() - n * INTERVAL '1 second',
                CASE WHEN n < {HISTORY} THEN 'retried' END, CASE WHEN n < {HISTORY} THEN now() END
         FROM generate_series(1, {HISTORY}) AS n"
    );
    bed.raw.batch_execute(&rest).await.unwrap();
    fill(&bed, "orders", "'new'", 1).await;
    Some(bed)
}

/// Buffers that the lists of inbox and outbox read with the filter at this place.
async fn buffers_of_lists(bed: &Bed, [inbox, outbox]: [&str; 2]) -> [i64; 2] {
    bed.raw.batch_execute("VACUUM ANALYZE relais_inbox, relais_outbox").await.unwrap();
    let lists = [
        (include_str!("../../src/postgres/sql/list_inbox.sql"), inbox),
        (include_str!("../../src/postgres/sql/list_outbox.sql"), outbox),
    ];
    let mut buffers = [0; 2];
    for (buffers, (sql, values)) in buffers.iter_mut().zip(lists) {
        *buffers = buffers_of(bed, sql, TYPES, values).await;
    }
    buffers
}

/// Returns the statements of the page that create the indexes.
fn documented() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/postgresql.md");
    let page = std::fs::read_to_string(page).unwrap();
    let indexes: Vec<&str> = page.lines().filter(|line| line.contains("_by_key ON")).collect();
    assert_eq!(indexes.len(), 2, "one of the inbox, one of the outbox");
    indexes.join("\n")
}

#[tokio::test]
async fn with_the_indexes_of_the_page_a_list_by_key_reads_no_history() {
    let Some(bed) = bed().await else { return };
    let of_key = NO_FILTER.replacen("NULL, NULL, NULL", "NULL, NULL, 'k-7'", 1);
    let without = buffers_of_lists(&bed, [&of_key; 2]).await;
    assert!(without.iter().all(|buffers| *buffers > 50 * BUFFERS_MAX), "{without:?}");
    bed.raw.batch_execute(&documented()).await.unwrap();
    let with = buffers_of_lists(&bed, [&of_key; 2]).await;
    assert!(with.iter().all(|buffers| *buffers < BUFFERS_MAX), "{with:?} instead of {without:?}");
}

#[tokio::test]
async fn a_list_of_rows_that_wait_reads_no_finished_ones() {
    let Some(bed) = bed().await else { return };
    let of = |status: &str| NO_FILTER.replacen("NULL", &format!("'{status}'"), 1);
    let read = buffers_of_lists(&bed, [&of("RECEIVED"), &of("PENDING")]).await;
    assert!(read.iter().all(|buffers| *buffers < BUFFERS_MAX), "{read:?}");
}

#[tokio::test]
async fn a_list_of_open_dead_letters_reads_no_resolved_ones() {
    let Some(bed) = bed().await else { return };
    bed.raw.batch_execute("VACUUM ANALYZE relais_dead_letter").await.unwrap();
    let sql = include_str!("../../src/postgres/sql/list_dead_letters.sql");
    let types = "text, text, text, bigint, uuid, bigint, text, text, text, int, uuid";
    let values = "'open', NULL, NULL, NULL, NULL, 100, NULL, NULL, NULL, NULL, NULL";
    let read = buffers_of(&bed, sql, types, values).await;
    assert!(read < BUFFERS_MAX, "{read}");
    let sql = include_str!("../../src/postgres/sql/dead_letters_of.sql");
    let of_message = buffers_of(&bed, sql, "text, text, bigint", "'m-7', NULL, 100").await;
    assert!(of_message < BUFFERS_MAX, "{of_message} for those of one message");
}

#[tokio::test]
async fn a_page_of_the_console_reads_no_more_than_its_own_rows() {
    let Some(bed) = bed().await else { return };
    bed.raw.batch_execute("VACUUM ANALYZE relais_inbox, relais_outbox").await.unwrap();
    let reach = [
        include_str!("../../src/postgres/sql/reach_inbox.sql"),
        include_str!("../../src/postgres/sql/reach_outbox.sql"),
    ];
    for sql in reach {
        for status in ["NULL", "'FAILED'", "'PENDING'", "'RECEIVED'"] {
            let values = format!("{status}, NULL, {ROWS_OF_PAGE}, NULL");
            let read = buffers_of(&bed, sql, "text, bigint, bigint, bigint", &values).await;
            // Beside open transactions VACUUM leaves pages that an index scan looks up; the whole table has thousands.
            assert!(read < 10 * BUFFERS_MAX, "{read} for {status} of {sql}");
        }
    }
}

#[tokio::test]
async fn a_list_of_processes_of_a_key_reads_no_others() {
    let Some(bed) = Bed::new().await else { return };
    let fill = format!(
        "INSERT INTO relais_process (process_id, process_type, definition, business_key, released_key, status, data, \
         version, created_at)
         SELECT gen_random_uuid(), 'order', 1, CASE n % 2 WHEN 0 THEN 'b-' || n / 2 END,
                CASE n % 2 WHEN 1 THEN 'b-' || n / 2 END, 'SUCCEEDED', '{{}}', 1, now() - n * INTERVAL '1 second'
         FROM generate_series(1, {HISTORY}) AS n"
    );
    bed.raw.batch_execute(&fill).await.unwrap();
    bed.raw.batch_execute("VACUUM ANALYZE relais_process").await.unwrap();
    let sql = include_str!("../../src/postgres/sql/list_processes.sql");
    let types = "text, text, text, bigint, uuid, bigint";
    let read = buffers_of(&bed, sql, types, "NULL, NULL, 'b-7', NULL, NULL, 100").await;
    assert!(read < BUFFERS_MAX, "{read}");
    let filter =
        ProcessFilter { business_key: Some("b-7".into()), limit: 100, ..ProcessFilter::default() };
    let found = bed.store.list_processes(filter).await.unwrap();
    assert_eq!(found.len(), 2, "one that holds the key, and one that held it: {found:?}");
}
