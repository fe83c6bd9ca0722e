//! Batches, chunks, duplicates, locks, quotas: the processing between close and end.

use serde_json::json;

use crate::support::{Org, accounts};

#[tokio::test]
async fn a_key_twice_in_a_chunk_fails_for_both() {
    let org = Org::start().await;
    let job = org.run("Account", "ExternalId__c,Name\nk,A\nother,B\nK,C\n").await;
    let failed = org.failed(&job).await;
    assert!(failed.contains("DUPLICATE_VALUE:Duplicate external id specified: k:ExternalId__c --"));
    assert!(failed.contains("DUPLICATE_VALUE:Duplicate external id specified: K:ExternalId__c --"));
    assert_eq!(org.info(&job).await["numberRecordsFailed"], 2);
    assert_eq!((org.writes("Account", "k"), org.writes("Account", "other")), (0, 1));
}

#[tokio::test]
async fn a_key_in_two_chunks_is_written_twice() {
    let org = Org::start().await;
    let csv = format!("{}key0,Last\n", accounts(200));
    let job = org.run("Account", &csv).await;
    assert_eq!(org.info(&job).await["numberRecordsFailed"], 0);
    assert_eq!(org.record("Account", "key0").unwrap()["Name"], "Last");
    assert_eq!(org.writes("Account", "key0"), 2);
    assert_eq!(org.sim.ledger().entry("Account", "key0").unwrap().created, 1);
}

#[tokio::test]
async fn batches_run_in_parallel_so_the_last_row_may_not_win() {
    let org = Org::with_faults(json!({"bulk": {"batch_rows": 400}})).await;
    // The key is in the second chunk of the first batch and in the first chunk of the second.
    let mut rows: Vec<String> = (0..401).map(|n| format!("key{n},Name {n}\n")).collect();
    rows[300] = "twice,from the first batch\n".to_owned();
    rows[400] = "twice,from the second batch\n".to_owned();
    org.run("Account", &format!("ExternalId__c,Name\n{}", rows.concat())).await;
    assert_eq!(org.record("Account", "twice").unwrap()["Name"], "from the first batch");
    assert_eq!(org.writes("Account", "twice"), 2);
}

#[tokio::test]
async fn counters_move_while_the_job_runs() {
    let org = Org::manual().await;
    let job = org.submit("Account", &accounts(500)).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        org.sim.tick(1);
        seen.push(org.info(&job).await["numberRecordsProcessed"].as_u64().unwrap());
    }
    assert_eq!(seen, [0, 200, 400, 500]);
}

#[tokio::test]
async fn an_abort_keeps_committed_rows_and_leaves_the_rest_unprocessed() {
    let org = Org::manual().await;
    let csv = accounts(500);
    let job = org.submit("Account", &csv).await;
    org.sim.tick(2);
    assert_eq!(org.state(&job, "Aborted").await.json()["state"], "Aborted");
    org.sim.tick(3);
    assert_eq!(org.info(&job).await["numberRecordsProcessed"], 200);
    assert_eq!(org.successful(&job).await.lines().count(), 201);
    let left = org.unprocessed(&job).await;
    assert_eq!(left.lines().count(), 301);
    assert!(csv.ends_with(left.strip_prefix("ExternalId__c,Name\n").unwrap()), "verbatim");
    assert_eq!(org.sim.records("Account").len(), 200);
}

#[tokio::test]
async fn an_abort_before_the_start_leaves_everything_unprocessed() {
    let org = Org::manual().await;
    let csv = accounts(3);
    let open = org.open("Account").await;
    org.upload(&open, &csv).await;
    let closed = org.submit("Account", &csv).await;
    for job in [open, closed] {
        assert_eq!(org.state(&job, "Aborted").await.status, 200);
        assert_eq!(org.unprocessed(&job).await, csv);
        assert_eq!(org.successful(&job).await.lines().count(), 1);
    }
}

#[tokio::test]
async fn a_job_can_fail_half_way() {
    let faults = json!({
        "bulk": {"batch_rows": 4, "chunk_rows": 2},
        "jobs": [{"fail_after_rows": 6, "message": "InternalServerError : gone"}],
    });
    let org = Org::with_faults(faults).await;
    let job = org.run("Account", &accounts(10)).await;
    let info = org.info(&job).await;
    assert_eq!(
        (&info["state"], &info["errorMessage"]),
        (&json!("Failed"), &json!("InternalServerError : gone"))
    );
    assert_eq!(info["numberRecordsProcessed"], 6);
    let names = |text: String| text.lines().skip(1).map(|l| l[..4].to_owned()).collect::<Vec<_>>();
    assert_eq!(names(org.unprocessed(&job).await), ["key6", "key7", "key8", "key9"]);
    assert_eq!(
        (org.successful(&job).await.lines().count(), org.sim.records("Account").len()),
        (7, 6)
    );
}

#[tokio::test]
async fn rows_can_be_missing_from_all_results() {
    for (applied, records) in [(false, 2), (true, 3)] {
        let fault = json!({"missing": "^key1$", "missing_applied": applied});
        let org = Org::with_faults(json!({"jobs": [fault]})).await;
        let job = org.run("Account", &accounts(3)).await;
        let all = [org.successful(&job).await, org.failed(&job).await, org.unprocessed(&job).await];
        assert!(all.iter().all(|text| !text.contains("key1")));
        assert_eq!(org.info(&job).await["numberRecordsProcessed"], 2);
        assert_eq!(org.sim.records("Account").len(), records);
    }
}

#[tokio::test]
async fn a_stuck_job_continues_without_the_fault() {
    let org =
        Org::with_faults(json!({"bulk": {"manual": true}, "jobs": [{"stuck": true, "times": 1}]}))
            .await;
    let stuck = org.submit("Account", &accounts(1)).await;
    org.sim.tick(10);
    assert_eq!(org.info(&stuck).await["state"], "InProgress");
    let free = org.submit("Account", &accounts(1)).await;
    org.sim.tick(2);
    assert_eq!(org.info(&free).await["state"], "JobComplete");
    org.put_faults(json!({})).await;
    assert_eq!(org.ended(&stuck).await["state"], "JobComplete");
}

#[tokio::test]
async fn a_batch_that_times_out_is_retried_up_to_twenty_times() {
    let org = Org::with_faults(json!({"jobs": [{"timeouts": 20}]})).await;
    let job = org.run("Account", &accounts(1)).await;
    let info = org.info(&job).await;
    assert_eq!((&info["state"], &info["retries"]), (&json!("JobComplete"), &json!(20)));
    org.put_faults(json!({"jobs": [{"timeouts": 21}]})).await;
    let job = org.run("Account", &accounts(1)).await;
    let info = org.info(&job).await;
    assert_eq!(info["state"], "Failed");
    assert!(info["errorMessage"].as_str().unwrap().starts_with("Timeout : "));
    assert_eq!(org.unprocessed(&job).await, accounts(1));
}

#[tokio::test]
async fn a_locked_parent_fails_its_rows_for_a_while() {
    let faults = json!({"locks": [{"parent": "AccountId", "attempts": 1}]});
    let org = Org::with_faults(faults).await;
    org.run("Account", "ExternalId__c,Name\nacme,A\n").await;
    let csv = "ExternalId__c,LastName,Account.ExternalId__c\na,A,acme\nb,B,acme\nc,C,\n";
    let first = org.run("Contact", csv).await;
    assert_eq!(org.info(&first).await["numberRecordsFailed"], 2);
    let expected = "UNABLE_TO_LOCK_ROW:unable to obtain exclusive access to this record or 1 \
                    records: acme:--";
    assert!(org.failed(&first).await.contains(expected), "{}", org.failed(&first).await);
    let second = org.run("Contact", csv).await;
    assert_eq!(org.info(&second).await["numberRecordsFailed"], 0);
}

#[tokio::test]
async fn too_many_locks_send_a_batch_back_and_in_the_end_fail_the_job() {
    let bulk = json!({"chunk_rows": 5, "lock_failures_max": 4, "lock_retries_max": 3});
    let faults = json!({"bulk": bulk, "locks": [{"parent": "Family__c", "attempts": 1000}]});
    let org = Org::with_faults(faults).await;
    let rows: String = (0..100).map(|n| format!("k{n},L,f\n")).collect();
    let job = org.run("Contact", &format!("ExternalId__c,LastName,Family__c\n{rows}")).await;
    let info = org.info(&job).await;
    assert_eq!((&info["state"], &info["retries"]), (&json!("Failed"), &json!(4)));
    assert!(info["errorMessage"].as_str().unwrap().starts_with("TooManyLockFailure : "));
    assert_eq!(org.failed(&job).await.lines().count(), 21, "rows that failed are not tried again");
    assert_eq!(org.unprocessed(&job).await.lines().count(), 81);
}

#[tokio::test]
async fn batches_with_the_same_parent_lock_each_other_with_contention() {
    let faults = json!({"bulk": {"contention": true, "batch_rows": 2}});
    let org = Org::with_faults(faults).await;
    org.run("Account", "ExternalId__c,Name\nacme,A\n").await;
    let header = "ExternalId__c,LastName,Account.ExternalId__c\n";
    let job = org.run("Contact", &format!("{header}a,A,acme\nb,B,acme\nc,C,acme\n")).await;
    let failed = org.failed(&job).await;
    assert_eq!(failed.lines().count(), 2, "{failed}");
    assert!(failed.contains("UNABLE_TO_LOCK_ROW:") && failed.contains("\"c\""));
    let again = org.run("Contact", &format!("{header}c,C,acme\n")).await;
    assert_eq!(org.info(&again).await["numberRecordsFailed"], 0);
}

#[tokio::test]
async fn batches_past_the_quota_leave_no_trace() {
    let faults = json!({"bulk": {"batch_rows": 2}, "limits": {"bulk_batches_max": 2}});
    let org = Org::with_faults(faults).await;
    let job = org.run("Account", &accounts(6)).await;
    let info = org.info(&job).await;
    assert_eq!((&info["state"], &info["numberRecordsProcessed"]), (&json!("Failed"), &json!(4)));
    let all = [org.successful(&job).await, org.failed(&job).await, org.unprocessed(&job).await];
    assert!(all.iter().all(|text| !text.contains("key4") && !text.contains("key5")));
    let limits = org.read("limits").await.json();
    assert_eq!(limits["DailyBulkApiBatches"]["Remaining"], 0);
    let spec = json!({"object": "Account", "operation": "insert"});
    let reply = org.post("jobs/ingest", spec).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "EXCEEDEDQUOTA"));
}

#[tokio::test]
async fn a_delay_keeps_a_job_waiting() {
    let org = Org::with_faults(json!({"bulk": {"queued_ms": 600_000}})).await;
    let job = org.submit("Account", &accounts(1)).await;
    assert_eq!(org.info(&job).await["state"], "UploadComplete");
    org.sim.tick(2);
    assert_eq!(org.info(&job).await["state"], "JobComplete");
}

#[tokio::test]
async fn a_record_found_by_a_key_of_several_fails() {
    let schema = "[[object]]\nname='Thing__c'\n[[object.field]]\nname='ExternalId__c'\n\
                  type='text'\nexternal_id=true\n";
    let org = Org::with_schema(schema).await;
    let insert = json!({"object": "Thing__c", "operation": "insert"});
    org.run_with(insert, "ExternalId__c\nx\nx\n").await;
    assert_eq!(org.sim.records("Thing__c").len(), 2);
    let job = org.run("Thing__c", "ExternalId__c\nx\n").await;
    let failed = org.failed(&job).await;
    assert!(failed.contains("DUPLICATE_EXTERNAL_ID:ExternalId__c: more than one record found"));
    assert_eq!(org.sim.ledger().entry("Thing__c", "x").unwrap().created, 2);
}
