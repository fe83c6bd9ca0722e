//! One record at a time.

use reqwest::Method;
use serde_json::{Value as Json, json};

use crate::support::{Org, V66};

const KEY: &str = "sobjects/Account/ExternalId__c/k1";

#[tokio::test]
async fn an_upsert_by_external_id_creates_then_updates() {
    let org = Org::start().await;
    let reply = org.patch(KEY, json!({"Name": "Acme"})).await;
    assert_eq!(reply.status, 201);
    let json = reply.json();
    assert_eq!((&json["success"], &json["created"]), (&json!(true), &json!(true)));
    let id = json["id"].as_str().unwrap().to_owned();
    assert_eq!((id.len(), &id[..3]), (18, "001"));
    assert_eq!(reply.header("location"), format!("{V66}/sobjects/Account/{id}"));
    let reply = org.patch(KEY, json!({"Phone": "1"})).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json(), json!({"id": id, "success": true, "errors": [], "created": false}));
    let record = org.read(KEY).await.json();
    assert_eq!((&record["Name"], &record["Phone"]), (&json!("Acme"), &json!("1")));
    assert_eq!(org.writes("Account", "k1"), 2);
}

#[tokio::test]
async fn before_version_46_an_update_says_nothing() {
    let org = Org::start().await;
    let path = "/services/data/v45.0/sobjects/Account/ExternalId__c/k1";
    let created = org.send(Method::PATCH, path, json!({"Name": "A"})).await;
    assert_eq!(created.status, 201);
    assert!(created.json().get("created").is_none());
    let updated = org.send(Method::PATCH, path, json!({"Name": "B"})).await;
    assert_eq!((updated.status, updated.text.as_str()), (204, ""));
}

#[tokio::test]
async fn a_row_can_be_read_and_deleted_by_its_key() {
    let org = Org::start().await;
    org.patch(KEY, json!({"Name": "A"})).await;
    let id = org.read(KEY).await.json()["Id"].as_str().unwrap().to_owned();
    let part = org.read(&format!("{KEY}?fields=Name")).await.json();
    assert_eq!(part["Name"], "A");
    assert!(part.get("Phone").is_none());
    assert_eq!(org.delete(KEY).await.status, 204);
    assert_eq!(org.read(KEY).await.status, 404);
    assert_eq!(org.delete(KEY).await.status, 404);
    let late = org.patch(&format!("sobjects/Account/{id}"), json!({"Name": "B"})).await;
    assert_eq!((late.status, late.code().as_str()), (404, "ENTITY_IS_DELETED"));
}

#[tokio::test]
async fn rows_by_id_are_created_read_changed_and_deleted() {
    let org = Org::start().await;
    let reply = org.post("sobjects/Account", json!({"Name": "A"})).await;
    assert_eq!(reply.status, 201);
    let path = format!("sobjects/account/{}", reply.json()["id"].as_str().unwrap());
    assert_eq!(org.patch(&path, json!({"Name": "B"})).await.status, 204);
    assert_eq!(org.read(&path[..path.len() - 3]).await.json()["Name"], "B");
    assert_eq!(org.delete(&path).await.status, 204);
    assert_eq!(org.read("sobjects/Account/0015f0000000099").await.code(), "NOT_FOUND");
}

#[tokio::test]
async fn a_wrong_row_gets_its_reason() {
    let org = Org::start().await;
    for (path, body, status, code) in [
        (KEY, json!({}), 400, "REQUIRED_FIELD_MISSING"),
        (KEY, json!({"Name": null}), 400, "REQUIRED_FIELD_MISSING"),
        (KEY, json!({"Name": "A", "Nope__c": 1}), 400, "INVALID_FIELD"),
        (KEY, json!({"Name": "A", "ExternalId__c": "k1"}), 400, "INVALID_FIELD"),
        (KEY, json!({"Name": ["A"]}), 400, "JSON_PARSER_ERROR"),
        (
            KEY,
            json!({"Name": "A", "CreatedDate": "2024-01-01T00:00:00Z"}),
            400,
            "INVALID_FIELD_FOR_INSERT_UPDATE",
        ),
        (KEY, json!({"Name": "x".repeat(256)}), 400, "STRING_TOO_LONG"),
        (KEY, json!({"Name": "A", "Parent": {"ExternalId__c": "no"}}), 400, "INVALID_FIELD"),
        (
            KEY,
            json!({"Name": "A", "ParentId": "0015f0000000099"}),
            400,
            "INVALID_CROSS_REFERENCE_KEY",
        ),
        (KEY, json!({"Name": "A", "ParentId": "x"}), 400, "MALFORMED_ID"),
        (KEY, json!([]), 400, "JSON_PARSER_ERROR"),
        ("sobjects/Account/Name/k1", json!({}), 404, "NOT_FOUND"),
        ("sobjects/Nothing/ExternalId__c/k1", json!({}), 404, "NOT_FOUND"),
    ] {
        let reply = org.patch(path, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{reply:?}");
    }
    let reply = org.patch("sobjects/Account/Name/k1", json!({})).await;
    let expected = "Provided external ID field does not exist or is not accessible: Name";
    assert_eq!(reply.message(), expected);
    assert_eq!(org.sim.ledger().writes(), 0);
}

#[tokio::test]
async fn null_clears_a_field_and_a_missing_one_stays() {
    let org = Org::start().await;
    org.patch(KEY, json!({"Name": "A", "Phone": "1", "NumberOfEmployees": 5})).await;
    org.patch(KEY, json!({"Phone": null})).await;
    let record = org.read(KEY).await.json();
    assert_eq!((&record["Phone"], &record["NumberOfEmployees"]), (&Json::Null, &json!(5)));
}

#[tokio::test]
async fn a_parent_is_found_by_its_external_id() {
    let org = Org::start().await;
    org.patch(KEY, json!({"Name": "A"})).await;
    let body = json!({"LastName": "L", "Account": {"ExternalId__c": "k1"}});
    assert_eq!(org.patch("sobjects/Contact/ExternalId__c/c1", body.clone()).await.status, 201);
    let account = org.record("Account", "k1").unwrap()["Id"].clone();
    assert_eq!(org.record("Contact", "c1").unwrap()["AccountId"], account);
    let orphan = json!({"LastName": "L", "Account": {"ExternalId__c": "k2"}});
    let reply = org.patch("sobjects/Contact/ExternalId__c/c2", orphan).await;
    let expected =
        "Foreign key external ID: k2 not found for field ExternalId__c in entity Account";
    assert_eq!(reply.message(), expected);
}

#[tokio::test]
async fn a_key_that_several_records_share_has_multiple_choices() {
    let schema = "[[object]]\nname='Thing__c'\n[[object.field]]\nname='Ext__c'\ntype='text'\n\
                  external_id=true\n";
    let org = Org::with_schema(schema).await;
    for _ in 0..2 {
        assert_eq!(org.post("sobjects/Thing__c", json!({"Ext__c": "x"})).await.status, 201);
    }
    let reply = org.patch("sobjects/Thing__c/Ext__c/x", json!({})).await;
    assert_eq!(reply.status, 300);
    let urls = reply.json();
    assert_eq!(urls.as_array().unwrap().len(), 2);
    assert!(urls[0].as_str().unwrap().starts_with(&format!("{V66}/sobjects/Thing__c/z00")));
}

#[tokio::test]
async fn external_ids_ignore_case_unless_the_field_says_otherwise() {
    let org = Org::start().await;
    org.patch("sobjects/Account/ExternalId__c/Key", json!({"Name": "A"})).await;
    assert_eq!(
        org.patch("sobjects/Account/ExternalId__c/KEY", json!({"Name": "B"})).await.status,
        200
    );
    let schema = "[[object]]\nname='Thing__c'\n[[object.field]]\nname='Ext__c'\ntype='text'\n\
                  external_id=true\nunique=true\ncase_sensitive=true\n";
    let org = Org::with_schema(schema).await;
    assert_eq!(org.patch("sobjects/Thing__c/Ext__c/Key", json!({})).await.status, 201);
    assert_eq!(org.patch("sobjects/Thing__c/Ext__c/KEY", json!({})).await.status, 201);
}

#[tokio::test]
async fn update_only_creates_nothing() {
    let org = Org::start().await;
    let path = format!("{KEY}?updateOnly=true");
    assert_eq!(org.patch(&path, json!({"Name": "A"})).await.status, 404);
    org.patch(KEY, json!({"Name": "A"})).await;
    assert_eq!(org.patch(&path, json!({"Name": "B"})).await.status, 200);
}

#[tokio::test]
async fn a_unique_value_is_taken_once() {
    let org = Org::start().await;
    org.patch(KEY, json!({"Name": "A"})).await;
    let reply = org.post("sobjects/Account", json!({"Name": "B", "ExternalId__c": "K1"})).await;
    let id = org.record("Account", "k1").unwrap()["Id"].as_str().unwrap().to_owned();
    assert_eq!(reply.code(), "DUPLICATE_VALUE");
    let expected =
        format!("duplicate value found: ExternalId__c duplicates value on record with id: {id}");
    assert_eq!(reply.message(), expected);
}

#[tokio::test]
async fn an_older_version_is_refused_if_the_schema_requires_it() {
    let schema = "[[object]]\nname='Thing__c'\nversion_field='Version__c'\n\
                  older_version_message='stale version'\n\
                  [[object.field]]\nname='Ext__c'\ntype='text'\nexternal_id=true\nunique=true\n\
                  [[object.field]]\nname='Version__c'\ntype='double'\n";
    let org = Org::with_schema(schema).await;
    let path = "sobjects/Thing__c/Ext__c/x";
    assert_eq!(org.patch(path, json!({"Version__c": 2})).await.status, 201);
    let reply = org.patch(path, json!({"Version__c": 1})).await;
    assert_eq!(reply.code(), "FIELD_CUSTOM_VALIDATION_EXCEPTION");
    assert_eq!(reply.message(), "stale version");
    assert_eq!(org.patch(path, json!({"Version__c": 3})).await.status, 200);
}

#[tokio::test]
async fn objects_describe_themselves() {
    let org = Org::start().await;
    let all = org.read("sobjects/").await.json();
    let names: Vec<&Json> =
        all["sobjects"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["Account", "Contact", "Block__c"]);
    let contact = org.read("sobjects/Contact/describe").await.json();
    let field = |name: &str| {
        let fields = contact["fields"].as_array().unwrap();
        fields.iter().find(|field| field["name"] == name).unwrap().clone()
    };
    assert_eq!(field("LastName")["nillable"], false);
    assert_eq!(field("ExternalId__c")["externalId"], true);
    assert_eq!(field("ExternalId__c")["unique"], true);
    assert_eq!(field("AccountId")["referenceTo"], json!(["Account"]));
    assert_eq!(field("AccountId")["relationshipName"], "Account");
    assert_eq!(org.read("sobjects/Nothing/describe").await.status, 404);
}
