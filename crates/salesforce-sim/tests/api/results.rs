//! The three results of a job, and their formats.

use serde_json::json;

use crate::support::{Org, accounts};

#[tokio::test]
async fn results_look_as_documented() {
    let org = Org::start().await;
    let csv = "ExternalId__c,\"Name\",NumberOfEmployees,AnnualRevenue\n123,GenePoint,800,912260031\n4,,1,2\n";
    let job = org.run("Account", csv).await;
    let id = org.record("Account", "123").unwrap()["Id"].as_str().unwrap().to_owned();
    let successful = org.result(&job, "successfulResults/").await;
    assert!(successful.header("content-type").starts_with("text/csv"));
    assert_eq!(
        successful.text,
        format!(
            "\"sf__Id\",\"sf__Created\",ExternalId__c,\"Name\",NumberOfEmployees,AnnualRevenue\n\
             \"{id}\",\"true\",\"123\",\"GenePoint\",\"800\",\"9.12260031E8\"\n"
        )
    );
    assert_eq!(
        org.failed(&job).await,
        "\"sf__Id\",\"sf__Error\",ExternalId__c,\"Name\",NumberOfEmployees,AnnualRevenue\n\
         \"\",\"REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:Name --\",\
         \"4\",\"\",\"1\",\"2\"\n"
    );
    let header = "ExternalId__c,\"Name\",NumberOfEmployees,AnnualRevenue\n";
    assert_eq!(org.unprocessed(&job).await, header);
    assert_eq!(org.result(&job, "unprocessedRecords").await.text, header);
}

#[tokio::test]
async fn a_failed_update_names_its_record() {
    let org = Org::start().await;
    org.run("Account", "ExternalId__c,Name\nk,A\n").await;
    let id = org.record("Account", "k").unwrap()["Id"].as_str().unwrap().to_owned();
    let csv = "ExternalId__c,NumberOfEmployees\nk,many\n";
    let job = org.run("Account", csv).await;
    let expected = format!(
        "\"{id}\",\"INVALID_TYPE_ON_FIELD_IN_RECORD:NumberOfEmployees: value not of required \
         type: many:NumberOfEmployees --\""
    );
    assert!(org.failed(&job).await.contains(&expected), "{}", org.failed(&job).await);
}

#[tokio::test]
async fn before_version_53_failed_rows_have_no_id_column() {
    let org = Org::start().await;
    let base = "/services/data/v52.0/jobs/ingest";
    let spec = json!({
        "object": "Account", "operation": "upsert", "externalIdFieldName": "ExternalId__c",
    });
    let reply = org.send(reqwest::Method::POST, base, spec).await.json();
    let job = reply["id"].as_str().unwrap();
    org.upload(job, "ExternalId__c\nk\n").await;
    org.close(job).await;
    org.ended(job).await;
    assert!(org.failed(job).await.starts_with("\"sf__Error\",ExternalId__c\n"));
}

#[tokio::test]
async fn a_misspelled_column_loses_its_values_in_failed_rows() {
    let org = Org::start().await;
    let job = org.run("Account", "externalid__c,Phone\nk,1\n").await;
    let failed = org.failed(&job).await;
    assert!(failed.contains("--\",\"\",\"1\"\n"), "{failed}");
    let job = org.run("Account", "externalid__c,Name\nk,A\n").await;
    assert!(org.successful(&job).await.contains("\"k\",\"A\""));
}

#[tokio::test]
async fn no_rows_can_be_a_header_nothing_or_204() {
    let org = Org::start().await;
    let job = org.run("Account", &accounts(1)).await;
    assert_eq!(org.failed(&job).await, "\"sf__Id\",\"sf__Error\",ExternalId__c,Name\n");
    org.put_faults(json!({"results": {"empty": "no_content"}})).await;
    assert_eq!(org.result(&job, "failedResults").await.status, 204);
    assert_eq!(org.result(&job, "successfulResults").await.status, 200);
    org.put_faults(json!({"results": {"empty": "body"}})).await;
    let reply = org.result(&job, "failedResults").await;
    assert_eq!((reply.status, reply.text.as_str()), (200, ""));
}

#[tokio::test]
async fn early_results_can_be_empty() {
    let org =
        Org::with_faults(json!({"bulk": {"manual": true}, "results": {"early": "empty"}})).await;
    let job = org.submit("Account", &accounts(1)).await;
    let reply = org.result(&job, "successfulResults").await;
    assert_eq!((reply.status, reply.text.lines().count()), (200, 1));
    assert_eq!(org.unprocessed(&job).await.lines().count(), 1);
}

#[tokio::test]
async fn rows_and_columns_can_be_shuffled_and_rows_repeated() {
    let org = Org::start().await;
    let job = org.run("Account", &accounts(50)).await;
    let plain = org.successful(&job).await;
    let faults = json!({"seed": 1, "results": {"shuffle_rows": true, "repeat": "^key7$"}});
    org.put_faults(faults).await;
    let shuffled = org.successful(&job).await;
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_ne!(plain, shuffled);
    let mut unique = sorted(&shuffled);
    assert_eq!(unique.len(), 52);
    unique.dedup();
    assert_eq!(unique, sorted(&plain));
    org.put_faults(json!({"seed": 1, "results": {"shuffle_columns": true}})).await;
    let shuffled = org.successful(&job).await;
    assert!(shuffled.starts_with("\"sf__Id\",\"sf__Created\",Name,ExternalId__c\n"), "{shuffled}");
    assert!(shuffled.contains("\"Name 3\",\"key3\"\n"));
}

#[tokio::test]
async fn large_results_are_complete() {
    let org = Org::start().await;
    let job = org.run("Account", &accounts(25_000)).await;
    let text = org.successful(&job).await;
    assert_eq!(text.lines().count(), 25_001);
    let keys: std::collections::HashSet<&str> =
        text.lines().skip(1).map(|line| line.split(',').nth(2).unwrap()).collect();
    assert_eq!(keys.len(), 25_000);
}

#[tokio::test]
async fn responses_are_compressed_for_clients_that_accept_it() {
    let org = Org::start().await;
    let job = org.run("Account", &accounts(1_000)).await;
    let plain = org.successful(&job).await;
    let url = format!("{}/services/data/v66.0/jobs/ingest/{job}/successfulResults", org.sim.url());
    let get = || {
        let client = reqwest::Client::builder().no_proxy().no_gzip().build().unwrap();
        let request = client.get(&url).bearer_auth(&org.token).header("accept-encoding", "gzip");
        async { request.send().await.unwrap() }
    };
    let packed = get().await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let bytes = packed.bytes().await.unwrap();
    assert!(bytes.len() * 5 < plain.len());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
        .unwrap();
    assert_eq!(text, plain);
    org.put_faults(json!({"gzip": false})).await;
    assert!(get().await.headers().get("content-encoding").is_none());
}
