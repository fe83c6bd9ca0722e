//! The kind `salesforce` in whole files.

use std::time::Duration;

use relais::salesforce::{Api, Auth, OnMissing};

use super::{
    explain::explain,
    tests::{bad, check, good},
    *,
};

const NEEDED: &str = "kind = \"salesforce\"\nlogin_url = \"https://acme.my.salesforce.com\"\n\
                      client_id = \"app\"\nclient_secret = \"${KEY}\"\n";

const FULL: &str = r#"
[[destination]]
name = "contacts"
kind = "salesforce"
login_url = "https://acme.my.salesforce.com"
client_id = "CANARY-client"
username = "CANARY-user"
private_key = "${KEY}"
audience = "https://test.salesforce.com"
api = "auto"
object = "Contact"
external_id = "Member_Id__c"
api_version = "v60.0"
hydrate = "SELECT * FROM members\n WHERE id IN (:ids)"
hydrate_id = "member_id"
on_missing = "skip"
version = "row_version"
superseded = "is older"
token_life = "10m"
[destination.columns]
LastName = "last_name"
Account.ExternalId__c = "account_id"
"Owner.Key__c" = "payload:/owner"
[destination.bulk]
rows = 5000
from = 300
linger = "2s"
poll_first = "500ms"
poll_max = "10s"
transfer_timeout = "5m"
sweep_every = "1h"
orphan_age = "20m"
"#;

fn target(settings: &Settings) -> &SalesforceTarget {
    match &settings.destinations[0].target {
        TargetConfig::Salesforce(target) => target,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_key_arrives() {
    let (settings, warnings) = good(FULL);
    assert_eq!(warnings, []);
    let target = target(&settings);
    assert_eq!((target.api, target.object.as_str()), (Api::Auto, "Contact"));
    assert_eq!(
        (target.keys.external_id.as_str(), target.keys.api_version.as_str()),
        ("Member_Id__c", "v60.0")
    );
    let mut columns = target.keys.columns.clone();
    columns.sort();
    let column = |name: &str, field: &str| (name.to_owned(), field.to_owned());
    assert_eq!(
        columns,
        [
            column("Account.ExternalId__c", "account_id"),
            column("LastName", "last_name"),
            column("Owner.Key__c", "payload:/owner"),
        ]
    );
    let keys = &target.keys;
    assert!(keys.hydrate.is_some());
    assert_eq!((keys.hydrate_id.as_str(), keys.on_missing), ("member_id", OnMissing::Skip));
    assert_eq!(keys.version.as_deref(), Some("row_version"));
    assert_eq!((target.bulk.rows, target.bulk.from), (5_000, 300));
    assert_eq!(target.bulk.orphan_age, Duration::from_secs(1_200));
    assert_eq!(target.keys.token_life, Duration::from_secs(600));
    assert!(matches!(target.auth, Auth::JwtBearer { .. }));
}

#[test]
fn the_name_decides_api_and_object_unless_they_are_set() {
    let read = |name: &str, more: &str| {
        let (settings, _) = good(&format!("[[destination]]\nname = \"{name}\"\n{NEEDED}{more}"));
        let target = target(&settings);
        (target.api, target.object.clone())
    };
    assert_eq!(read("HTTP:SFDC:BulkV2:Contact", ""), (Api::BulkV2, "Contact".into()));
    assert_eq!(read("HTTP:SFDC:Collections:Block__c", ""), (Api::Collections, "Block__c".into()));
    assert_eq!(read("HTTP:SFDC:CompositeGraph:Family", ""), (Api::Graph, "Family".into()));
    assert_eq!(read("HTTP:SFDC:BulkV2:Contact", "api = \"auto\"\n"), (Api::Auto, "Contact".into()));
    let set = read("HTTP:SFDC:BulkV2:Contact", "object = \"Lead\"\n");
    assert_eq!(set, (Api::BulkV2, "Lead".into()));
    assert_eq!(read("contacts", "object = \"Contact\"\n"), (Api::Auto, "Contact".into()));
}

#[test]
fn what_does_not_fit_is_named_with_its_place() {
    check(
        "[[destination]]\nname = \"sf\"\nkind = \"salesforce\"\napi = \"bulk\"\nobjct = \"A\"\n\
         version = \"v\"\nrows = 5\n[destination.bulk]\npol_max = \"1s\"\nlinger = \"2d\"\n",
        &[
            "relais.toml:1:1: destination[sf].login_url: is missing; write for example \
             \"https://acme.my.salesforce.com\"",
            "relais.toml:1:1: destination[sf].client_id: is missing",
            "relais.toml:1:1: destination[sf].client_secret: is missing; give one of \
             `client_secret`, `private_key` (with `username`) and `refresh_token`",
            "relais.toml:1:1: destination[sf].object: is missing; write for example \"Contact\"",
            "relais.toml:4:7: destination[sf].api: `bulk` is not known here; did you mean \
             `bulk-v2`?",
            "relais.toml:5:1: destination[sf].objct: unknown key; did you mean `object`?",
            "relais.toml:6:11: destination[sf].version: is for `hydrate` only: the column of its \
             result to compare",
            "relais.toml:7:1: destination[sf].rows: unknown key; it belongs under \
             `[destination.bulk]`",
            "relais.toml:9:1: destination[sf].bulk.pol_max: unknown key; did you mean `poll_max`?",
            "relais.toml:10:10: destination[sf].bulk.linger: `2d` must be from 0s to 1d",
        ],
    );
}

#[test]
fn there_is_one_way_to_sign_in() {
    let with = |more: &str| {
        let text = format!("[[destination]]\nname = \"HTTP:SFDC:BulkV2:A\"\n{NEEDED}{more}");
        bad(&text)
    };
    assert!(with("private_key = \"k\"\nusername = \"u\"\n").contains("one way too many"));
    assert!(with("username = \"u\"\n").contains("is for `private_key` only"));
    let both = "[[destination]]\nname = \"HTTP:SFDC:BulkV2:A\"\n".to_owned()
        + NEEDED
        + "refresh_token = \"r\"\nrefresh_token_key = \"k\"\n";
    assert!(with("refresh_token_key = \"k\"\n").contains("is for `refresh_token` only"));
    assert!(with("refresh_token = \"r\"\n").contains("refresh_token_key: is missing"));
    let (settings, _) = good(&both);
    assert!(matches!(target(&settings).auth, Auth::RefreshToken { client_secret: Some(_), .. }));
}

#[test]
fn no_secret_is_shown() {
    let (settings, _) = good(FULL);
    let shown = format!("{settings:?} {:?}", explain(&settings));
    assert!(!shown.contains("CANARY-key"), "{shown}");
    let lines = explain(&settings).into_iter().find(|e| e.section == "destination").unwrap().lines;
    assert!(!lines.concat().contains("CANARY"), "{lines:?}");
    assert!(lines[0].contains("upserts Contact by Member_Id__c"), "{lines:?}");
    let text = lines.join("\n");
    assert!(text.contains("SELECT * FROM members WHERE id IN (:ids)"), "{text}");
    assert!(text.contains("jobs of up to 5000 rows when 300 or more wait"), "{text}");
}
