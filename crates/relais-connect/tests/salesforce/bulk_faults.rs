//! Bulk jobs with faults of the org or the network: results are reported truthfully, and nothing is
//! done twice.

use std::time::Duration;

use relais_connect::salesforce::SalesforceBulk;
use relais_core::{
    bulk::{BulkTarget, Remote},
    delivery::Delivery,
};
use salesforce_sim::{
    Faults,
    faults::{HttpAction, HttpFault, LimitSettings, SecondPut},
};

use crate::common::{
    bulk, columns, ended, failing, http_fault, ids, kind, members, once, send, settings, simulator,
    split, start,
};

#[tokio::test]
async fn an_unknown_header_stops_the_destination_and_fails_no_row() {
    let sim = simulator(Faults::default()).await;
    let mut settings = settings(&sim);
    settings.columns = columns(&[("LastName", "last"), ("Unknown__c", "first")]);
    let (bulk, rows) = (SalesforceBulk::new(settings, None).unwrap(), members(3));
    let id = start(&bulk, &rows).await;
    let Remote::Failed(problem) = ended(&bulk, &id).await else { panic!("the job fails") };
    assert_eq!(problem.code, "InvalidBatch");
    assert!(problem.message.contains("Field name not found : Unknown__c"), "{problem:?}");
    for answer in bulk.results(&id, &ids(&rows)).await.unwrap() {
        assert!(matches!(answer, Delivery::Outage { after: Some(_), problem }
            if problem.code == "InvalidBatch"));
    }
    assert_eq!(sim.ledger().writes(), 0);
}

#[tokio::test]
async fn a_lost_response_to_a_new_job_leaves_an_orphan_that_is_swept() {
    let drop = once(http_fault("POST", "jobs/ingest", HttpAction::DropAfter));
    let sim = simulator(failing(vec![drop])).await;
    let mut settings = settings(&sim);
    settings.orphan_age = Duration::ZERO;
    let patient = bulk(&sim);
    let bulk = SalesforceBulk::new(settings, None).unwrap();
    assert_eq!(kind(bulk.create().await), "unclear");
    let known = bulk.create().await.unwrap();
    assert_eq!(sim.jobs().len(), 2);
    assert_eq!(patient.sweep(&[]).await.unwrap(), 0, "they are too young");
    assert_eq!(bulk.sweep(std::slice::from_ref(&known)).await.unwrap(), 1);
    assert_eq!(bulk.state(&known).await.unwrap(), Remote::Open);
    assert_eq!(bulk.sweep(&[]).await.unwrap(), 1);
    assert_eq!(bulk.state(&known).await.unwrap(), Remote::Aborted);
    assert_eq!(bulk.sweep(&[]).await.unwrap(), 0);
}

#[tokio::test]
async fn jobs_of_other_users_are_not_swept() {
    let sim = simulator(Faults::default()).await;
    let (mut contacts, mut accounts) = (settings(&sim), settings(&sim));
    accounts.object = "Account".into();
    accounts.columns = columns(&[("Name", "last")]);
    (contacts.orphan_age, accounts.orphan_age) = (Duration::ZERO, Duration::ZERO);
    let contacts = SalesforceBulk::new(contacts, None).unwrap();
    let accounts = SalesforceBulk::new(accounts, None).unwrap();
    let theirs = accounts.create().await.unwrap();
    let running = start(&contacts, &members(2)).await;
    ended(&contacts, &running).await;
    assert_eq!(contacts.sweep(&[]).await.unwrap(), 0);
    assert_eq!(accounts.state(&theirs).await.unwrap(), Remote::Open);
}

#[tokio::test]
async fn an_upload_whose_response_is_lost_is_not_repeated() {
    for action in [HttpAction::DropAfter, HttpAction::DropBefore] {
        let sim = simulator(failing(vec![once(http_fault("PUT", "batches", action))])).await;
        let (bulk, rows) = (bulk(&sim), members(3));
        let body = bulk.encode(&rows, 0).await.unwrap().body;
        let id = bulk.create().await.unwrap();
        assert_eq!(kind(bulk.upload(&id, vec![body]).await), "unclear");
        assert_eq!(bulk.state(&id).await.unwrap(), Remote::Open);
        bulk.abort(&id).await.unwrap();
        assert_eq!(sim.ledger().writes(), 0);
        assert_eq!(send(&bulk, &rows).await, vec![Delivery::Accepted; 3]);
        assert_eq!(sim.ledger().repeated(), 0);
    }
}

#[tokio::test]
async fn a_close_whose_response_is_lost_shows_in_the_state() {
    let drop = once(http_fault("PATCH", "jobs/ingest/", HttpAction::DropAfter));
    let sim = simulator(failing(vec![drop])).await;
    let (bulk, rows) = (bulk(&sim), members(3));
    let body = bulk.encode(&rows, 0).await.unwrap().body;
    let id = bulk.create().await.unwrap();
    bulk.upload(&id, vec![body]).await.unwrap();
    assert_eq!(kind(bulk.close(&id).await), "unclear");
    assert_eq!(ended(&bulk, &id).await, Remote::Complete);
    assert_eq!(bulk.results(&id, &ids(&rows)).await.unwrap(), vec![Delivery::Accepted; 3]);
    assert_eq!(sim.ledger().repeated(), 0);
}

#[tokio::test]
async fn a_job_with_two_uploads_is_aborted_and_its_rows_are_sent_again() {
    let mut faults = Faults::default();
    faults.bulk.second_put = SecondPut::Close;
    let sim = simulator(faults).await;
    let (bulk, rows) = (bulk(&sim), members(3));
    let body = bulk.encode(&rows, 0).await.unwrap().body;
    let id = bulk.create().await.unwrap();
    bulk.upload(&id, vec![body.clone()]).await.unwrap();
    bulk.upload(&id, vec![body.clone()]).await.unwrap();
    assert_eq!(kind(bulk.close(&id).await), "other state");
    assert_eq!(bulk.state(&id).await.unwrap(), Remote::Aborted);
    assert_eq!(sim.ledger().writes(), 0);
    sim.set_faults(Faults::default());
    let id = bulk.create().await.unwrap();
    bulk.upload(&id, vec![body.clone()]).await.unwrap();
    assert_eq!(kind(bulk.upload(&id, vec![body]).await), "other state");
}

#[tokio::test]
async fn a_session_that_expires_at_any_step_is_renewed() {
    let sim = simulator(Faults::default()).await;
    let (bulk, rows) = (bulk(&sim), members(3));
    let body = bulk.encode(&rows, 0).await.unwrap().body;
    sim.expire_sessions();
    let id = bulk.create().await.unwrap();
    sim.expire_sessions();
    // An upload is never repeated, not even for this: the state of the job shows whether it was
    // stored.
    assert_eq!(kind(bulk.upload(&id, vec![body.clone()]).await), "unclear");
    sim.expire_sessions();
    bulk.abort(&id).await.unwrap();
    let id = bulk.create().await.unwrap();
    bulk.upload(&id, vec![body]).await.unwrap();
    sim.expire_sessions();
    bulk.close(&id).await.unwrap();
    sim.expire_sessions();
    assert_eq!(ended(&bulk, &id).await, Remote::Complete);
    sim.expire_sessions();
    assert_eq!(bulk.results(&id, &ids(&rows)).await.unwrap(), vec![Delivery::Accepted; 3]);
    assert_eq!(sim.ledger().repeated(), 0);
}

#[tokio::test]
async fn a_pause_requested_by_the_org_is_respected() {
    let html = HttpFault { status: Some(200), ..http_fault("POST", "jobs", HttpAction::Html) };
    let asked =
        HttpFault { retry_after: Some(7), ..http_fault("POST", "jobs", HttpAction::Throttled) };
    for (fault, at_least) in [
        (http_fault("POST", "jobs", HttpAction::TotalLimit), Some(900)),
        (http_fault("POST", "jobs", HttpAction::ConcurrentLimit), Some(5)),
        (http_fault("POST", "jobs", HttpAction::Throttled), None),
        (asked, Some(7)),
        (http_fault("POST", "jobs", HttpAction::Unavailable), None),
        (http_fault("POST", "jobs", HttpAction::Html), None),
        (html, None),
        (http_fault("POST", "jobs", HttpAction::ServerError), None),
    ] {
        let action = fault.action;
        let sim = simulator(failing(vec![fault])).await;
        let (kind, problem, after) = split(bulk(&sim).create().await);
        assert_eq!(kind, "outage", "{action:?}: {problem:?}");
        assert_eq!(after.map(|after| after.as_secs()), at_least, "{action:?}");
    }
}

#[tokio::test]
async fn an_upload_answered_by_a_proxy_does_not_count() {
    let page = HttpFault { status: Some(200), ..http_fault("PUT", "batches", HttpAction::Html) };
    for fault in [
        http_fault("PUT", "batches", HttpAction::Unavailable),
        http_fault("PUT", "batches", HttpAction::Html),
        page,
        http_fault("PUT", "batches", HttpAction::ServerError),
    ] {
        let action = fault.action;
        let sim = simulator(failing(vec![fault])).await;
        let bulk = bulk(&sim);
        let id = bulk.create().await.unwrap();
        assert_eq!(kind(bulk.upload(&id, vec![b"x".to_vec()]).await), "unclear", "{action:?}");
        assert_eq!(bulk.state(&id).await.unwrap(), Remote::Open);
    }
}

#[tokio::test]
async fn a_used_up_batch_quota_uses_no_attempt() {
    let limits =
        LimitSettings { bulk_batches_max: 10, bulk_batches_spent: 10, ..LimitSettings::default() };
    let sim = simulator(Faults { limits, ..Faults::default() }).await;
    let (bulk, rows) = (bulk(&sim), members(3));
    match bulk.create().await {
        Err(_) => assert_eq!(kind(bulk.create().await), "outage"),
        Ok(id) => {
            let body = bulk.encode(&rows, 0).await.unwrap().body;
            bulk.upload(&id, vec![body]).await.unwrap();
            bulk.close(&id).await.unwrap();
            ended(&bulk, &id).await;
            for answer in bulk.results(&id, &ids(&rows)).await.unwrap() {
                assert!(matches!(answer, Delivery::Outage { .. } | Delivery::Retry { .. }));
            }
        }
    }
    assert_eq!(sim.ledger().writes(), 0);
}

#[tokio::test]
async fn an_unknown_object_needs_an_operator() {
    let sim = simulator(Faults::default()).await;
    let mut settings = settings(&sim);
    settings.object = "Nothing__c".into();
    let bulk = SalesforceBulk::new(settings, None).unwrap();
    let (kind, problem, _) = split(bulk.create().await);
    assert_eq!(kind, "refused", "{problem:?}");
    let mut settings = crate::common::settings(&sim);
    settings.external_id = "Nothing__c".into();
    let bulk = SalesforceBulk::new(settings, None).unwrap();
    let (kind, problem, _) = split(bulk.create().await);
    assert_eq!(kind, "refused", "{problem:?}");
}

#[tokio::test]
async fn an_unreachable_org_is_an_outage() {
    let sim = simulator(Faults::default()).await;
    let bulk = bulk(&sim);
    let id = bulk.create().await.unwrap();
    sim.stop().await;
    assert_eq!(kind(bulk.state(&id).await), "outage");
    assert_eq!(kind(bulk.create().await), "outage");
}
