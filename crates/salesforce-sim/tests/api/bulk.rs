//! The life of a bulk job, call by call.

use reqwest::Method;
use serde_json::{Value as Json, json};

use crate::support::{Org, V66, accounts};

#[tokio::test]
async fn a_new_job_is_open_and_described_as_documented() {
    let org = Org::start().await;
    let wanted = json!({
        "object": "Account", "operation": "upsert", "externalIdFieldName": "ExternalId__c",
    });
    let reply = org.post("jobs/ingest/", wanted).await;
    assert_eq!(reply.status, 200);
    assert!(reply.text.contains("\"apiVersion\":66.0"), "a number with its point");
    let job = reply.json();
    let id = job["id"].as_str().unwrap();
    assert_eq!((id.len(), &id[..3]), (18, "750"));
    for (name, value) in [
        ("state", "Open"),
        ("object", "Account"),
        ("operation", "upsert"),
        ("externalIdFieldName", "ExternalId__c"),
        ("contentType", "CSV"),
        ("concurrencyMode", "Parallel"),
        ("lineEnding", "LF"),
        ("columnDelimiter", "COMMA"),
        ("contentUrl", &format!("services/data/v66.0/jobs/ingest/{id}/batches")),
    ] {
        assert_eq!(job[name], value, "{name}");
    }
    assert!(job["createdById"].as_str().unwrap().starts_with("005"));
    let date = job["createdDate"].as_str().unwrap();
    assert!(date.len() == 28 && date.ends_with("+0000"), "{date}");
    let info = org.info(id).await;
    assert_eq!((&info["jobType"], &info["retries"]), (&json!("V2Ingest"), &json!(0)));
    assert_eq!(info["totalProcessingTime"], 0);
    assert!(info.get("numberRecordsProcessed").is_none());
}

#[tokio::test]
async fn an_invalid_job_is_refused() {
    let org = Org::start().await;
    let upsert = "upsert";
    for (body, code) in [
        (json!({"object": "Nothing", "operation": "insert"}), "INVALIDENTITY"),
        (json!({"object": "Account", "operation": "Insert"}), "INVALIDJOB"),
        (json!({"object": "Account", "operation": upsert}), "INVALIDJOB"),
        (
            json!({"object": "Account", "operation": upsert, "externalIdFieldName": "Name"}),
            "INVALIDJOB",
        ),
        (json!({"object": "Account", "operation": "insert", "contentType": "XML"}), "INVALIDJOB"),
        (json!({"object": "Account", "operation": "insert", "lineEnding": "CR"}), "INVALIDJOB"),
        (json!({"object": "Account", "operation": "insert", "columnDelimiter": ","}), "INVALIDJOB"),
        (json!({"operation": "insert"}), "JSON_PARSER_ERROR"),
    ] {
        let reply = org.post("jobs/ingest", body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{reply:?}");
    }
    let reply = org.post("jobs/ingest", json!({"object": "Account", "operation": upsert})).await;
    let expected =
        "External ID was blank for Account. An External ID must be specified for upsert.";
    assert_eq!(reply.message(), expected);
}

#[tokio::test]
async fn a_job_goes_through_its_states() {
    let org = Org::manual().await;
    let job = org.open("Account").await;
    let upload = org.upload(&job, &accounts(3)).await;
    assert_eq!((upload.status, upload.text.as_str()), (201, ""));
    assert_eq!(org.info(&job).await["state"], "Open");
    let closed = org.state(&job, "UploadComplete").await.json();
    assert_eq!((&closed["id"], &closed["state"]), (&json!(job), &json!("UploadComplete")));
    for absent in ["jobType", "contentUrl", "lineEnding", "columnDelimiter", "retries"] {
        assert!(closed.get(absent).is_none(), "{absent}");
    }
    org.sim.tick(1);
    let info = org.info(&job).await;
    assert_eq!(
        (&info["state"], &info["numberRecordsProcessed"]),
        (&json!("InProgress"), &json!(0))
    );
    org.sim.tick(1);
    let info = org.info(&job).await;
    assert_eq!(
        (&info["state"], &info["numberRecordsProcessed"]),
        (&json!("JobComplete"), &json!(3))
    );
    assert_eq!(info["numberRecordsFailed"], 0);
    assert!(info.get("contentUrl").is_none());
    assert_eq!(org.sim.records("Account").len(), 3);
}

#[tokio::test]
async fn calls_that_do_not_match_the_state_are_refused() {
    let org = Org::manual().await;
    let job = org.submit("Account", &accounts(1)).await;
    for reply in [
        org.state(&job, "UploadComplete").await,
        org.upload(&job, &accounts(1)).await,
        org.state(&job, "InProgress").await,
        org.state(&job, "JobComplete").await,
        org.result(&job, "successfulResults").await,
    ] {
        assert_eq!((reply.status, reply.code().as_str()), (400, "INVALIDJOBSTATE"), "{reply:?}");
    }
    org.sim.tick(1);
    assert_eq!(org.delete(&format!("jobs/ingest/{job}")).await.code(), "INVALIDJOBSTATE");
    org.sim.tick(1);
    let reply = org.state(&job, "Aborted").await;
    assert_eq!(reply.code(), "INVALIDJOBSTATE");
    assert_eq!(reply.message(), "Aborting already Completed Job not allowed");
    assert_eq!(org.sim.ledger().writes(), 1);
}

#[tokio::test]
async fn an_open_job_cannot_be_deleted_but_aborted() {
    let org = Org::start().await;
    let job = org.open("Account").await;
    let path = format!("jobs/ingest/{job}");
    assert_eq!(org.delete(&path).await.code(), "INVALIDJOBSTATE");
    assert_eq!(org.state(&job, "Aborted").await.json()["state"], "Aborted");
    assert_eq!(org.delete(&path).await.status, 204);
    for reply in [org.read(&path).await, org.delete(&path).await, org.state(&job, "Aborted").await]
    {
        assert_eq!((reply.status, reply.code().as_str()), (404, "NOT_FOUND"));
        assert_eq!(reply.message(), "The requested resource does not exist");
    }
}

#[tokio::test]
async fn the_second_upload_is_refused_or_fails_the_close() {
    let org = Org::start().await;
    let job = org.open("Account").await;
    assert_eq!(org.upload(&job, &accounts(1)).await.status, 201);
    let reply = org.upload(&job, &accounts(1)).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "INVALIDJOB"));
    assert!(reply.message().starts_with(&format!("Found multipe contents for job: <{job}>")));
    org.put_faults(json!({"bulk": {"second_put": "close"}})).await;
    assert_eq!(org.upload(&job, &accounts(1)).await.status, 201);
    let reply = org.state(&job, "UploadComplete").await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "INVALIDJOB"));
    assert_eq!(org.state(&job, "Aborted").await.status, 200);
    assert_eq!(org.sim.ledger().writes(), 0);
}

#[tokio::test]
async fn an_incomplete_upload_is_discarded() {
    use std::io::Write;
    let org = Org::start().await;
    let job = org.open("Account").await;
    let address = org.sim.url().replace("http://", "");
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    let head = format!(
        "PUT {V66}/jobs/ingest/{job}/batches HTTP/1.1\r\nHost: {address}\r\n\
         Authorization: Bearer {}\r\nContent-Length: 1000\r\n\r\nExternalId__c,Name\nk,",
        org.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    drop(stream);
    assert_eq!(org.info(&job).await["state"], "Open");
    assert_eq!(org.upload(&job, &accounts(2)).await.status, 201);
    org.close(&job).await;
    assert_eq!(org.ended(&job).await["numberRecordsProcessed"], 2);
}

#[tokio::test]
async fn an_upload_over_the_limit_is_refused() {
    let org = Org::with_faults(json!({"bulk": {"upload_max_bytes": 400}})).await;
    let job = org.open("Account").await;
    assert_eq!(org.upload(&job, &"x".repeat(301)).await.status, 413);
    assert_eq!(org.upload(&job, &"x".repeat(300)).await.status, 201);
}

#[tokio::test]
async fn a_job_can_bring_its_rows_along() {
    let org = Org::start().await;
    let job = json!({
        "object": "Account", "operation": "upsert", "externalIdFieldName": "ExternalId__c",
    });
    let send = |rows: String| {
        let body = format!(
            "--B\r\nContent-Type: application/json\r\nContent-Disposition: form-data; \
             name=\"job\"\r\n\r\n{job}\r\n--B\r\nContent-Type: text/csv\r\nContent-Disposition: \
             form-data; name=\"content\"; filename=\"content\"\r\n\r\n{rows}\r\n--B--\r\n"
        );
        let path = format!("{V66}/jobs/ingest");
        let kind = "multipart/form-data; boundary=B";
        let org = &org;
        async move { org.try_send(Method::POST, &path, kind, body).await.unwrap() }
    };
    let reply = send(accounts(2)).await;
    assert_eq!((reply.status, &reply.json()["state"]), (200, &json!("UploadComplete")));
    let info = org.ended(reply.json()["id"].as_str().unwrap()).await;
    assert_eq!(info["numberRecordsProcessed"], 2);
    assert_eq!(send("x".repeat(100_001)).await.code(), "INVALIDJOB");
}

#[tokio::test]
async fn jobs_are_listed_by_pages_and_by_type() {
    let org = Org::manual().await;
    for _ in 0..1_001 {
        org.open("Account").await;
    }
    let first = org.read("jobs/ingest?jobType=V2Ingest").await.json();
    assert_eq!(
        (&first["done"], first["records"].as_array().unwrap().len()),
        (&json!(false), 1_000)
    );
    let next = org.get(first["nextRecordsUrl"].as_str().unwrap()).await.json();
    assert_eq!((&next["done"], &next["nextRecordsUrl"]), (&json!(true), &Json::Null));
    assert_eq!(next["records"].as_array().unwrap().len(), 1);
    let ids = |page: &Json| {
        let records = page["records"].as_array().unwrap();
        records.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(!ids(&first).is_sorted(), "the order means nothing");
    let classic = org.read("jobs/ingest?jobType=Classic").await.json();
    assert_eq!(classic["records"], json!([]));
}

#[tokio::test]
async fn jobs_are_removed_after_seven_days() {
    let mut org = Org::start().await;
    let job = org.run("Account", &accounts(1)).await;
    org.sim.skip(std::time::Duration::from_secs(7 * 24 * 60 * 60 - 60));
    org.log_in().await;
    assert_eq!(org.result(&job, "successfulResults").await.status, 200);
    org.sim.skip(std::time::Duration::from_secs(61));
    assert_eq!(org.result(&job, "successfulResults").await.status, 404);
    assert_eq!(org.sim.records("Account").len(), 1);
}

#[tokio::test]
async fn each_client_is_a_user_of_its_own() {
    let org = Org::start().await;
    let mine = org.open("Account").await;
    let form = "grant_type=client_credentials&client_id=other&client_secret=b";
    let other = org.form("/services/oauth2/token", form).await.json();
    let user = org.info(&mine).await["createdById"].as_str().unwrap().to_owned();
    assert!(!other["id"].as_str().unwrap().ends_with(&user));
}
