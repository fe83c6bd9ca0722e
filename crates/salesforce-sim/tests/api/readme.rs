//! The examples of the README are accepted.

use reqwest::Method;
use salesforce_sim::SimulatorConfig;
use serde_json::{Value as Json, json};

use crate::support::Org;

const README: &str = include_str!("../../README.md");

fn blocks(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    let parts = README.split(start.as_str()).skip(1);
    parts.map(|part| part.split("```").next().unwrap()).collect()
}

#[tokio::test]
async fn the_files_of_the_readme_work() {
    let [faults, schema] = blocks("toml")[..] else { panic!("two files are shown") };
    let config = SimulatorConfig::default().with_schema_file(schema).unwrap();
    let mut org = Org::with(config).await;
    let form = "grant_type=client_credentials&client_id=relais&client_secret=secret";
    let reply = org.form("/services/oauth2/token", form).await;
    org.token = reply.json()["access_token"].as_str().unwrap().to_owned();
    let first = org.patch("sobjects/Invoice__c/Number__c/1", json!({"Version__c": 1})).await;
    assert_eq!(first.status, 201, "{first:?}");
    let body = json!({"Previous__r": {"Number__c": "1"}});
    let second = org.patch("sobjects/Invoice__c/Number__c/2", body).await;
    assert_eq!(second.status, 201, "{second:?}");
    let faults: Json = toml::from_str(faults).unwrap();
    org.put_faults(faults).await;
}

#[tokio::test]
async fn every_setting_is_in_the_readme() {
    let org = Org::start().await;
    let fault = json!({"http": [{}], "rows": [{}], "locks": [{}], "jobs": [{}]});
    let faults = org.send(Method::PUT, "/sim/faults", fault).await.json();
    let mut names = Vec::new();
    collect(&faults, &mut names);
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(
            README.contains(&format!("`{name}`")) || README.contains(&format!("`{name} ")),
            "{name}"
        );
    }
}

fn collect(json: &Json, names: &mut Vec<String>) {
    match json {
        Json::Object(map) => {
            for (name, inner) in map {
                // A list of faults is shown as `name = [{…}]`.
                names.push(name.clone());
                collect(inner, names);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}
