//! The rules for uploaded files.

use serde_json::{Value as Json, json};

use crate::support::Org;

async fn failed_with(org: &Org, csv: &str, message: &str) {
    let job = org.run("Account", csv).await;
    let info = org.info(&job).await;
    assert_eq!((&info["state"], &info["errorMessage"]), (&json!("Failed"), &json!(message)));
    assert_eq!(
        (&info["numberRecordsProcessed"], &info["numberRecordsFailed"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(org.unprocessed(&job).await, csv);
    assert_eq!(org.sim.ledger().writes(), 0);
}

#[tokio::test]
async fn an_unknown_column_fails_the_whole_job() {
    let org = Org::start().await;
    let csv = "ExternalId__c,Name,Nope__c,Neither__c\nk,A,1,2\n";
    failed_with(&org, csv, "InvalidBatch : Field name not found : Nope__c").await;
    let csv = "ExternalId__c,Name,Nobody.ExternalId__c\nk,A,1\n";
    failed_with(&org, csv, "InvalidBatch : Unable to find relationship: Nobody").await;
    let csv = "ExternalId__c,Name,Account:Parent.ExternalId__c\nk,A,1\n";
    let message =
        "InvalidBatch : type is not needed for non polymorphic foreign key references: Parent";
    failed_with(&org, csv, message).await;
    let csv = "ExternalId__c,Name,Parent.Name\nk,A,1\n";
    failed_with(&org, csv, "InvalidBatch : Field name not found : Parent.Name").await;
    let csv = "Name\nA\n";
    failed_with(&org, csv, "InvalidBatch : Field name not found : ExternalId__c").await;
    let csv = "ExternalId__c,Name,name\nk,A,B\n";
    failed_with(&org, csv, "InvalidBatch : Duplicate field name found : name").await;
}

#[tokio::test]
async fn a_byte_order_mark_becomes_part_of_the_first_column() {
    let org = Org::start().await;
    let csv = "\u{FEFF}ExternalId__c,Name\nk,A\n";
    let message = "InvalidBatch : Field name not found : \u{FEFF}ExternalId__c";
    failed_with(&org, csv, message).await;
}

#[tokio::test]
async fn a_foreign_line_ending_fails_the_whole_job() {
    let org = Org::start().await;
    let message =
        "ClientInputError : LineEnding is invalid on user data. Current LineEnding setting is LF";
    failed_with(&org, "ExternalId__c,Name\r\nk,A\r\n", message).await;
    failed_with(&org, "ExternalId__c,Name\nk,\"A\r\nB\"\n", message).await;
}

#[tokio::test]
async fn each_delimiter_and_line_ending_can_be_chosen() {
    let org = Org::start().await;
    for (name, sign) in [
        ("COMMA", ","),
        ("TAB", "\t"),
        ("SEMICOLON", ";"),
        ("PIPE", "|"),
        ("CARET", "^"),
        ("BACKQUOTE", "`"),
    ] {
        let job = json!({
            "object": "Account", "operation": "upsert", "externalIdFieldName": "ExternalId__c",
            "columnDelimiter": name, "lineEnding": "CRLF",
        });
        let csv = format!("ExternalId__c{sign}Name\r\n{name}{sign}A\r\n");
        let job = org.run_with(job, &csv).await;
        let id = org.record("Account", name).unwrap()["Id"].as_str().unwrap().to_owned();
        let expected = format!(
            "\"sf__Id\"{sign}\"sf__Created\"{sign}ExternalId__c{sign}Name\n\
             \"{id}\"{sign}\"true\"{sign}\"{name}\"{sign}\"A\"\n"
        );
        assert_eq!(org.successful(&job).await, expected);
    }
}

#[tokio::test]
async fn an_empty_cell_keeps_a_field_and_na_clears_it() {
    let org = Org::start().await;
    let header = "ExternalId__c,Name,Phone,NumberOfEmployees\n";
    org.run("Account", &format!("{header}k,A,1,5\n")).await;
    org.run("Account", &format!("{header}k,,#N/A,\"\"\n")).await;
    let record = org.record("Account", "k").unwrap();
    assert_eq!((&record["Name"], &record["NumberOfEmployees"]), (&json!("A"), &json!(5)));
    assert_eq!(record["Phone"], Json::Null);
    let job = org.run("Account", &format!("{header}k,#N/A,,\n")).await;
    assert!(org.failed(&job).await.contains("REQUIRED_FIELD_MISSING"));
}

#[tokio::test]
async fn values_arrive_as_they_were_written() {
    let org = Org::start().await;
    let name = "\"quoted\", comma;\nnew line \u{1F600} ü";
    let cell = format!("\"{}\"", name.replace('"', "\"\""));
    let job = org.run("Account", &format!("ExternalId__c,Name\nk,{cell}\n")).await;
    assert_eq!(org.record("Account", "k").unwrap()["Name"], name);
    assert!(org.successful(&job).await.ends_with(&format!("\"true\",\"k\",{cell}\n")));
}

#[tokio::test]
async fn an_invalid_row_fails_alone() {
    let org = Org::start().await;
    let csv = "ExternalId__c,Name\na, \"A\"\nb,B\nc\nd,D,D\n";
    let job = org.run("Account", csv).await;
    let info = org.info(&job).await;
    assert_eq!((&info["state"], &info["numberRecordsFailed"]), (&json!("JobComplete"), &json!(3)));
    assert!(org.record("Account", "b").is_some());
    let failed = org.failed(&job).await;
    assert!(failed.lines().skip(1).all(|line| line.matches("\",\"").count() == 3), "{failed}");
}

#[tokio::test]
async fn an_open_quote_fails_the_whole_job() {
    let org = Org::start().await;
    let csv = "ExternalId__c,Name\nk,\"A\n";
    let message =
        "ClientInputError : Failed to parse CSV. EOF reached before closing an opened quote";
    failed_with(&org, csv, message).await;
}

#[tokio::test]
async fn nothing_uploaded_is_a_complete_job_without_rows() {
    let org = Org::start().await;
    for csv in ["", "ExternalId__c,Name\n"] {
        let job = org.run("Account", csv).await;
        let info = org.info(&job).await;
        assert_eq!(
            (&info["state"], &info["numberRecordsProcessed"]),
            (&json!("JobComplete"), &json!(0))
        );
        assert_eq!(org.unprocessed(&job).await, csv);
    }
}

#[tokio::test]
async fn an_empty_id_column_is_ignored_and_a_filled_one_refused() {
    let org = Org::start().await;
    let csv = "Id,ExternalId__c,Name\n,a,A\n0015f0000000001,b,B\n";
    let job = org.run("Account", csv).await;
    assert!(org.record("Account", "a").is_some());
    let failed = org.failed(&job).await;
    assert!(failed.contains("INVALID_FIELD:cannot specify both an external ID reference"));
    org.put_faults(json!({"bulk": {"id_on_upsert": "ignore"}})).await;
    org.run("Account", csv).await;
    assert!(org.record("Account", "b").is_some());
}

#[tokio::test]
async fn parents_are_named_by_their_key_in_a_column() {
    let org = Org::start().await;
    org.run("Account", "ExternalId__c,Name\nacme,A\n").await;
    let csv = "ExternalId__c,LastName,Account.ExternalId__c\nc1,L,acme\nc2,L,nobody\nc3,L,\n";
    let job = org.run("Contact", csv).await;
    let account = org.record("Account", "acme").unwrap()["Id"].clone();
    assert_eq!(org.record("Contact", "c1").unwrap()["AccountId"], account);
    assert_eq!(org.record("Contact", "c3").unwrap()["AccountId"], Json::Null);
    let expected = "INVALID_FIELD:Foreign key external ID: nobody not found for field \
                    ExternalId__c in entity Account:--";
    assert!(org.failed(&job).await.contains(expected));
    org.run("Block__c", "ExternalId__c,Contact__r.ExternalId__c\nb1,c1\n").await;
    assert!(org.record("Block__c", "b1").unwrap()["Contact__c"].is_string());
}

#[tokio::test]
async fn inserts_updates_and_deletes_work_by_id() {
    let org = Org::start().await;
    let job = |operation: &str| json!({"object": "Account", "operation": operation});
    org.run_with(job("insert"), "ExternalId__c,Name\na,A\nb,B\n").await;
    let id = org.record("Account", "a").unwrap()["Id"].as_str().unwrap().to_owned();
    let update = org.run_with(job("update"), &format!("Id,Name\n{id},A2\n,X\nbad,X\n")).await;
    assert!(org.successful(&update).await.contains(&format!("\"{id}\",\"false\"")));
    let failed = org.failed(&update).await;
    assert!(failed.contains("MISSING_ARGUMENT:") && failed.contains("MALFORMED_ID:"), "{failed}");
    let delete = org.run_with(job("delete"), &format!("Id\n{id}\n")).await;
    assert!(org.successful(&delete).await.contains(&format!("\"{id}\",\"false\",\"{id}\"")));
    assert!(org.record("Account", "a").is_none());
    let again = org.run_with(job("hardDelete"), &format!("Id\n{id}\n")).await;
    assert!(org.failed(&again).await.contains("ENTITY_IS_DELETED:entity is deleted:--"));
    let wide = org.run_with(job("delete"), "Id,Name\nx,y\n").await;
    assert_eq!(org.info(&wide).await["state"], "Failed");
}
