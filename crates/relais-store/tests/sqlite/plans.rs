//! The hot statements walk their indexes: their cost must not grow with history or backlog.

use crate::bed::Bed;

macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../../src/sqlite/sql/", $name, ".sql"))
    };
}

/// The plan of a statement, one step a line.
fn plan(bed: &Bed, sql: &str) -> String {
    let db = bed.raw();
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
    for (sql, table) in [(sql!("fetch_outbox"), "outbox"), (sql!("fetch_inbox"), "inbox")] {
        let plan = plan(&bed, sql);
        assert_bounded(&plan);
        for index in ["fresh", "due", "held"] {
            assert!(plan.contains(&format!("relais_{table}_{index}")), "{index} unused: {plan}");
        }
    }
}

#[tokio::test]
async fn the_mark_moves_along_the_partial_indexes() {
    let bed = Bed::new().await;
    for (sql, table) in
        [(sql!("advance_outbox_mark"), "outbox"), (sql!("advance_inbox_mark"), "inbox")]
    {
        let plan = plan(&bed, sql);
        assert_bounded(&plan);
        assert!(plan.contains(&format!("relais_{table}_fresh")), "{plan}");
    }
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
    assert!(plan(&bed, sql!("list_outbox")).contains("relais_outbox_failed"));
    assert!(plan(&bed, sql!("count_inbox")).contains("relais_inbox_fresh"));
    for (list, reach, table) in [
        (sql!("list_inbox"), sql!("reach_inbox"), "inbox"),
        (sql!("list_outbox"), sql!("reach_outbox"), "outbox"),
    ] {
        for plan in [plan(&bed, list), plan(&bed, reach)] {
            for index in ["fresh", "due"] {
                let index = format!("relais_{table}_{index}");
                assert!(plan.contains(&index), "{index} unused: {plan}");
            }
        }
    }
    for sql in [sql!("list_dead_letters"), sql!("reach_dead_letters")] {
        let plan = plan(&bed, sql);
        assert!(plan.contains("relais_dead_letter_open"), "{plan}");
        assert!(plan.contains("relais_dead_letter_age"), "{plan}");
    }
    assert!(plan(&bed, sql!("backlogs")).contains("relais_outbox_fresh"));
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
