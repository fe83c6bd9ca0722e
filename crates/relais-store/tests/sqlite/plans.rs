//! The hot statements walk their indexes: their cost must not grow with history or backlog.

use rusqlite::{StatementStatus, functions::FunctionFlags};

use crate::bed::Bed;

macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../../src/sqlite/sql/", $name, ".sql"))
    };
}

/// The plan of a statement, one step a line.
fn plan(bed: &Bed, sql: &str) -> String {
    let db = bed.raw();
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    db.create_scalar_function("ascii_lane", 1, flags, |_| Ok(0)).unwrap();
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get::<_, String>(3).unwrap());
    }
    steps.join("\n")
}

/// No step reads a whole table of messages, nor sorts what it read.
fn assert_bounded(plan: &str) {
    for step in plan.lines() {
        assert!(!step.contains("TEMP B-TREE FOR ORDER BY"), "sorts: {plan}");
        let scans = step.starts_with("SCAN ") && !step.contains("VIRTUAL TABLE");
        let harmless = ["SCAN (subquery", "SCAN CONSTANT ROW", "SCAN source", "SCAN never"];
        // Rows that were found before, at most the limit of the statement.
        let found = ["SCAN open", "SCAN found", "SCAN summed", "SCAN page"];
        // A partial index in its order, up to the first row that serves.
        let in_order = ["INDEX relais_inbox_fresh", "INDEX relais_inbox_held"];
        let harmless = harmless.iter().any(|part| step.starts_with(part))
            || found.contains(&step)
            || in_order.iter().any(|part| step.ends_with(part));
        assert!(!scans || harmless, "reads a whole table in `{step}`: {plan}");
    }
}

#[tokio::test]
async fn fetching_walks_the_partial_indexes_in_order() {
    let bed = Bed::new().await;
    let plan = plan(&bed, sql!("fetch_inbox"));
    assert_bounded(&plan);
    for index in ["fresh", "due", "held"] {
        assert!(plan.contains(&format!("relais_inbox_{index}")), "{index} unused: {plan}");
    }
}

#[tokio::test]
async fn fetching_messages_walks_behind_the_position_and_along_due_rows() {
    let bed = Bed::new().await;
    for sql in [sql!("fetch_outbox"), sql!("first_fresh")] {
        let plan = plan(&bed, sql);
        assert_bounded(&plan);
        assert!(plan.contains("relais_outbox_destination (destination=? AND rowid>?)"), "{plan}");
    }
    let due = plan(&bed, sql!("fetch_due"));
    assert_bounded(&due);
    assert!(due.contains("relais_waiting_due (destination=? AND due_at>? AND due_at<?)"), "{due}");
    assert!(due.contains("relais_waiting_key (destination=? AND msg_key=? AND rowid<?)"), "{due}");
}

#[tokio::test]
async fn no_index_mentions_a_column_that_a_settlement_changes() {
    let bed = Bed::new().await;
    let db = bed.raw();
    let sql = "SELECT l.name, x.name FROM pragma_index_list('relais_outbox') AS l, \
               pragma_index_xinfo(l.name) AS x WHERE x.key";
    let mut statement = db.prepare(sql).unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let indexed: Vec<_> = statement.query_map([], read).unwrap().map(Result::unwrap).collect();
    assert!(indexed.len() >= 4, "{indexed:?}");
    for (index, column) in indexed {
        let fixed = ["message_id", "destination", "causation_id", "adopted_by", "adopted_key"]
            .contains(&column.as_str());
        assert!(fixed, "{index} has {column}");
    }
    let partial = "SELECT count(*) FROM pragma_index_list('relais_outbox') WHERE partial";
    let partial: i64 = db.query_row(partial, [], |row| row.get(0)).unwrap();
    assert_eq!(partial, 2, "only on the cause and on adopted rows");
}

#[tokio::test]
async fn the_mark_moves_along_the_partial_indexes() {
    let bed = Bed::new().await;
    let plan = plan(&bed, sql!("advance_inbox_mark"));
    assert_bounded(&plan);
    assert!(plan.contains("relais_inbox_fresh"), "{plan}");
}

#[tokio::test]
async fn settling_goes_straight_to_the_row() {
    let bed = Bed::new().await;
    for sql in [
        sql!("mark_processed"),
        sql!("retry_inbox"),
        sql!("fail_inbox"),
        sql!("bury_inbox"),
        sql!("mark_dispatched"),
        sql!("retry_outbox"),
        sql!("fail_outbox"),
        sql!("bury_outbox"),
        sql!("mark_inbox_in_flight"),
        sql!("mark_outbox_in_flight"),
        sql!("compare_inbox"),
        sql!("keep_conflict"),
        sql!("enqueued"),
        sql!("find_inbox"),
        sql!("reopen_inbox"),
        sql!("reopen_outbox"),
        sql!("plan_bulk_rows"),
        sql!("dispatch_bulk"),
        sql!("retry_bulk"),
        sql!("fail_bulk"),
        sql!("free_bulk_rows"),
        sql!("bulk_rows"),
        sql!("read_outbox"),
        sql!("lane_of_row"),
        sql!("pass_outbox"),
        sql!("key_obstacles"),
        sql!("enter_waiting"),
        sql!("leave_waiting"),
        sql!("release_waiting"),
        sql!("hold_waiting"),
        sql!("free_bulk"),
        sql!("free_waiting"),
        sql!("fail_pending"),
        sql!("finish_bulk"),
        sql!("inbox_to_repair"),
        sql!("repair_inbox"),
        sql!("settle_duplicate"),
        sql!("discard_serde_error"),
        sql!("edit_dead_letter"),
        sql!("edit_inbox"),
        sql!("edit_outbox"),
        sql!("load_processes"),
        sql!("lock_processes"),
        sql!("update_processes"),
        sql!("clear_timers"),
        sql!("fire_timers"),
        sql!("close_process_dead_letters"),
        sql!("cleanup_attempts"),
    ] {
        assert_bounded_find(&plan(&bed, sql));
    }
}

/// As [`assert_bounded`]; the one row found may be put in order.
fn assert_bounded_find(plan: &str) {
    assert_bounded(&plan.replace("USE TEMP B-TREE FOR ORDER BY", "ORDER ONE ROW"));
}

#[tokio::test]
async fn an_operator_finds_failed_rows_by_index() {
    let bed = Bed::new().await;
    assert!(plan(&bed, sql!("list_inbox")).contains("relais_inbox_trouble"));
    let in_order = plan(&bed, sql!("list_serde_errors"));
    assert!(in_order.contains("relais_inbox_trouble"), "{in_order}");
    assert_bounded(&in_order);
    assert!(plan(&bed, sql!("list_outbox")).contains("relais_dead_letter_failed"));
    assert!(plan(&bed, sql!("count_outbox")).contains("relais_dead_letter_failed"));
    assert!(plan(&bed, sql!("count_inbox")).contains("relais_inbox_fresh"));
    for plan in [plan(&bed, sql!("list_inbox")), plan(&bed, sql!("reach_inbox"))] {
        for index in ["relais_inbox_fresh", "relais_inbox_due"] {
            assert!(plan.contains(index), "{index} unused: {plan}");
        }
    }
    for plan in [plan(&bed, sql!("list_outbox")), plan(&bed, sql!("reach_outbox"))] {
        assert!(plan.contains("relais_outbox_destination (destination=? AND rowid>?)"), "{plan}");
    }
    for sql in [sql!("list_dead_letters"), sql!("reach_dead_letters")] {
        let plan = plan(&bed, sql);
        assert!(plan.contains("relais_dead_letter_open"), "{plan}");
        assert!(plan.contains("relais_dead_letter_age"), "{plan}");
    }
    let destinations = plan(&bed, sql!("backlogs"));
    assert!(destinations.contains("relais_outbox_destination (destination>?)"), "{destinations}");
    let backlog = plan(&bed, sql!("backlog"));
    assert!(!backlog.contains("SCAN o") && !backlog.contains("SCAN relais_outbox"), "{backlog}");
    assert!(!backlog.contains("SCAN relais_waiting"), "{backlog}");
}

#[tokio::test]
async fn processes_are_found_by_their_indexes() {
    let bed = Bed::new().await;
    let list = plan(&bed, sql!("list_processes"));
    for index in ["relais_process_state", "relais_process_age", "autoindex_relais_process_2"] {
        assert!(list.contains(index), "{index} unused: {list}");
    }
    assert!(plan(&bed, sql!("count_processes")).contains("relais_process_state"));
    for sql in [sql!("process_log"), sql!("process_log_of"), sql!("cleanup_processes")] {
        assert_bounded_find(&plan(&bed, sql));
    }
    assert!(plan(&bed, sql!("cleanup_processes")).contains("relais_process_age (created_at<?)"));
}

#[tokio::test]
async fn an_operator_finds_what_belongs_to_a_message_by_its_indexes() {
    let bed = Bed::new().await;
    for sql in [sql!("attempts"), sql!("dead_letters_of"), sql!("caused_by")] {
        assert_bounded_find(&plan(&bed, sql));
    }
    assert!(plan(&bed, sql!("list_audit")).contains("relais_audit_target"));
}

/// Returns the steps of one pass of the first clean-up statement over `rows` rows past their retention.
async fn cleanup_steps(rows: usize) -> i32 {
    let bed = Bed::new().await;
    let insert = format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload, status, \
                                    created_at, dispatched_at)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         SELECT 'Order', 'k', 'E', 'd', '{{}}', 'DISPATCHED', '2020-01-01T00:00:00.000Z', \
                '2020-01-01T00:00:00.000Z' FROM n"
    );
    bed.raw().execute_batch(&insert).unwrap();
    let db = bed.raw();
    let mut remove = db.prepare(sql!("cleanup_outbox")).unwrap();
    assert_eq!(remove.query_map((60, 100, true), |_| Ok(())).unwrap().count(), 100);
    remove.get_status(StatementStatus::VmStep)
}

#[tokio::test]
async fn a_pass_of_the_cleanup_does_not_read_all_rows_that_are_old() {
    let (few, many) = (cleanup_steps(5_000).await, cleanup_steps(40_000).await);
    assert!(many < few + few / 5, "{few} steps, {many} beside more old rows");
}
