//! Faults.

use reqwest::Method;
use serde_json::json;

use crate::support::{Org, V66, accounts};

const KEY: &str = "sobjects/Account/ExternalId__c/k";

async fn upsert(org: &Org) -> Option<u16> {
    let body = json!({"Name": "A"}).to_string();
    let path = format!("{V66}/{KEY}");
    let reply = org.try_send(Method::PATCH, &path, "application/json", body).await;
    reply.map(|reply| reply.status)
}

#[tokio::test]
async fn a_response_can_be_lost_after_the_effect() {
    let fault =
        json!({"method": "PATCH", "path": "/sobjects/", "times": 1, "action": "drop_after"});
    let org = Org::with_faults(json!({"http": [fault]})).await;
    assert_eq!(upsert(&org).await, None);
    assert_eq!(org.writes("Account", "k"), 1);
    assert_eq!(upsert(&org).await, Some(200));
    let ledger = org.sim.ledger();
    assert_eq!((ledger.repeated(), ledger.entry("Account", "k").unwrap().unchanged), (1, 1));
}

#[tokio::test]
async fn a_call_can_be_lost_before_the_effect() {
    let fault = json!({"path": "/sobjects/", "times": 1, "action": "drop_before"});
    let org = Org::with_faults(json!({"http": [fault]})).await;
    assert_eq!(upsert(&org).await, None);
    assert_eq!(org.writes("Account", "k"), 0);
    assert_eq!(upsert(&org).await, Some(201));
    assert_eq!(org.sim.ledger().repeated(), 0);
}

#[tokio::test]
async fn each_phase_of_a_job_can_lose_its_response() {
    let lost = |method: &str, path: &str| json!({"method": method, "path": path, "times": 1, "action": "drop_after"});
    let org = Org::with_faults(json!({"bulk": {"manual": true}, "http": [
        lost("POST", "/jobs/ingest$"), lost("PUT", "/batches$"), lost("PATCH", "/jobs/ingest/"),
    ]}))
    .await;
    let send = |method, path: String, body: String| {
        let org = &org;
        let kind = if method == Method::PUT { "text/csv" } else { "application/json" };
        async move { org.try_send(method, &path, kind, body).await }
    };
    let spec = json!({
        "object": "Account", "operation": "upsert", "externalIdFieldName": "ExternalId__c",
    });
    let ingest = format!("{V66}/jobs/ingest");
    assert!(send(Method::POST, ingest.clone(), spec.to_string()).await.is_none());
    let jobs = org.sim.jobs();
    assert_eq!((jobs.len(), &jobs[0]["state"]), (1, &json!("Open")), "an orphan");
    let job = format!("{ingest}/{}", jobs[0]["id"].as_str().unwrap());
    assert!(send(Method::PUT, format!("{job}/batches"), accounts(1)).await.is_none());
    assert_eq!(
        (&org.sim.jobs()[0]["uploads"], &org.sim.jobs()[0]["state"]),
        (&json!(1), &json!("Open"))
    );
    let close = json!({"state": "UploadComplete"}).to_string();
    assert!(send(Method::PATCH, job.clone(), close).await.is_none());
    assert_eq!(org.sim.jobs()[0]["state"], "UploadComplete");
}

#[tokio::test]
async fn the_session_can_end_at_a_chosen_step() {
    let fault = json!({"path": "/jobs/", "skip": 1, "times": 1, "action": "session_expired"});
    let mut org = Org::with_faults(json!({"http": [fault]})).await;
    let job = org.open("Account").await;
    let reply = org.upload(&job, &accounts(1)).await;
    assert_eq!((reply.status, reply.code().as_str()), (401, "INVALID_SESSION_ID"));
    assert_eq!(org.read("limits").await.status, 401, "the token is invalid");
    org.log_in().await;
    assert_eq!(org.upload(&job, &accounts(1)).await.status, 201, "nothing was stored");
}

#[tokio::test]
async fn every_kind_of_refusal_is_classified() {
    let org = Org::start().await;
    for (fault, status, part) in [
        (json!({"action": "total_limit"}), 403, "TotalRequests Limit exceeded."),
        (json!({"action": "concurrent_limit"}), 403, "ConcurrentPerOrgLongTxn Limit exceeded"),
        (json!({"action": "unavailable"}), 503, "SERVER_UNAVAILABLE"),
        (json!({"action": "throttled", "retry_after": 7}), 429, "TOO_MANY_REQUESTS"),
        (json!({"action": "server_error"}), 500, "UNKNOWN_EXCEPTION"),
        (json!({"action": "html"}), 503, "<html>"),
        (json!({"action": "html", "status": 200}), 200, "<html>"),
        (
            json!({"action": "error", "status": 420, "code": "X", "message": "Y"}),
            420,
            "[{\"errorCode\":\"X\",\"message\":\"Y\"}]",
        ),
    ] {
        org.put_faults(json!({"http": [fault]})).await;
        let reply = org.patch(KEY, json!({"Name": "A"})).await;
        assert_eq!(reply.status, status);
        assert!(reply.text.contains(part), "{reply:?}");
        assert!(!reply.header("sforce-limit-info").is_empty());
        if status == 429 {
            assert_eq!(reply.header("retry-after"), "7");
        }
    }
    assert_eq!(org.sim.ledger().writes(), 0);
}

#[tokio::test]
async fn the_token_endpoint_can_refuse() {
    let fault = json!({"path": "/oauth2/token", "action": "oauth_error", "code": "inactive_user"});
    let org = Org::start().await;
    org.put_faults(json!({"http": [fault]})).await;
    let reply = org.form("/services/oauth2/token", "grant_type=client_credentials").await;
    assert_eq!((reply.status, &reply.json()["error"]), (400, &json!("inactive_user")));
}

#[tokio::test]
async fn a_response_can_be_truncated_broken_or_slow() {
    let org = Org::start().await;
    let job = org.run("Account", &accounts(3)).await;
    let whole = org.successful(&job).await;
    let path = format!("{V66}/jobs/ingest/{job}/successfulResults");
    let fault = |action: &str, bytes: u64| json!({"http": [{"path": "successfulResults", "action": action, "bytes": bytes}]});
    org.put_faults(fault("truncate", 60)).await;
    assert_eq!(org.successful(&job).await, whole[..60]);
    org.put_faults(fault("break", 60)).await;
    let reply = org.try_send(Method::GET, &path, "text/csv", String::new()).await;
    assert!(reply.is_none(), "{reply:?}");
    org.put_faults(fault("slow", 2_000)).await;
    assert_eq!(org.successful(&job).await, whole);
}

#[tokio::test]
async fn rows_can_be_refused_by_key_with_any_code() {
    let fault = json!({
        "object": "Account", "key": "^key[13]$", "times": 1,
        "code": "DUPLICATES_DETECTED", "message": "Use one of these records?",
    });
    let org = Org::with_faults(json!({"rows": [fault]})).await;
    let job = org.run("Account", &accounts(5)).await;
    let failed = org.failed(&job).await;
    assert_eq!(failed.matches("\"DUPLICATES_DETECTED:Use one of these records?:--\"").count(), 2);
    let again = org.run("Account", &accounts(5)).await;
    assert_eq!(org.info(&again).await["numberRecordsFailed"], 0);
    org.put_faults(json!({"rows": [{"code": "STORAGE_LIMIT_EXCEEDED", "message": "full"}]})).await;
    assert_eq!(org.patch(KEY, json!({"Name": "A"})).await.code(), "STORAGE_LIMIT_EXCEEDED");
    let records = json!({"records": [
        {"attributes": {"type": "Account"}, "ExternalId__c": "z", "Name": "A"},
    ]});
    let reply = org.patch("composite/sobjects/Account/ExternalId__c", records).await.json();
    assert_eq!(reply[0]["errors"][0]["statusCode"], "STORAGE_LIMIT_EXCEEDED");
}

#[tokio::test]
async fn an_admin_can_delete_any_job() {
    let org = Org::manual().await;
    let job = org.submit("Account", &accounts(1)).await;
    org.sim.tick(1);
    let path = format!("/sim/jobs/{job}");
    assert_eq!(org.send(Method::DELETE, &path, json!(null)).await.status, 204);
    assert_eq!(org.info(&job).await[0]["errorCode"], "NOT_FOUND");
    org.sim.tick(1);
    assert_eq!(org.sim.ledger().writes(), 0);
}

#[tokio::test]
async fn faults_are_read_back_and_mistakes_in_them_are_named() {
    let org = Org::start().await;
    org.put_faults(json!({"bulk": {"queued_ms": 5}})).await;
    assert_eq!(org.get("/sim/faults").await.json()["bulk"]["queued_ms"], 5);
    for (body, part) in [
        (json!({"bluk": {}}), "bluk"),
        (json!({"http": [{"action": "explode"}]}), "explode"),
        (json!({"rows": [{"key": "("}]}), "bad pattern"),
    ] {
        let reply = org.send(Method::PUT, "/sim/faults", body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "INVALID_FAULTS"));
        assert!(reply.message().contains(part), "{reply:?}");
    }
    assert_eq!(org.get("/sim/faults").await.json()["bulk"]["queued_ms"], 5);
}

#[tokio::test]
async fn extreme_settings_do_no_harm() {
    let most = u64::MAX;
    let org = Org::with_faults(json!({
        "bulk": {"batch_rows": most, "chunk_rows": most, "manual": true, "queued_ms": most, "round_ms": most},
        "limits": {"api_spent": 5, "api_max": most, "bulk_batches_max": most, "bulk_batches_spent": 5},
        "jobs": [{"fail_after_rows": most}],
    }))
    .await;
    let job = org.submit("Account", &accounts(3)).await;
    org.sim.tick(2);
    assert_eq!(org.info(&job).await["state"], "JobComplete");
    org.put_faults(
        json!({"limits": {"api_spent": most}, "bulk": {"batch_rows": 0, "chunk_rows": 0}}),
    )
    .await;
    assert_eq!(org.read("limits").await.status, 403);
    for _ in 0..2 {
        org.sim.skip(std::time::Duration::MAX);
    }
    assert_eq!(org.get("/").await.status, 200);
}

#[tokio::test]
async fn invalid_paths_are_not_found() {
    let org = Org::start().await;
    for path in [
        "/services",
        "/services/data/v66.0x",
        "/sim",
        "/sim/records",
        "/id",
        "/x%FF%00",
        "/services/data/v66.0/jobs/other",
        "/services/data/v66.0/jobs/ingest/%FF/batches/x",
        "/services/data/v66.0/sobjects/Account/a/b/c/d",
        "/services/data/v66.0/composite/tree/Account",
    ] {
        assert_eq!(org.get(path).await.status, 404, "{path}");
    }
    let job = org.read("jobs/ingest/750/successfulResults").await;
    assert_eq!(job.status, 404);
}
