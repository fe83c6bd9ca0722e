//! Tokens, versions, limits.

use salesforce_sim::{AuthConfig, SimulatorConfig};
use serde_json::json;

use crate::support::{Org, V66};

const TOKEN: &str = "/services/oauth2/token";

#[tokio::test]
async fn client_credentials_give_a_token_and_the_address_of_the_org() {
    let org = Org::start().await;
    let form = "grant_type=client_credentials&client_id=me&client_secret=x";
    let reply = org.form(TOKEN, form).await;
    let json = reply.json();
    assert_eq!(reply.status, 200);
    assert_eq!(json["instance_url"], org.sim.url());
    assert_eq!(json["token_type"], "Bearer");
    assert!(json["access_token"].as_str().unwrap().starts_with("00D"));
    assert!(json["id"].as_str().unwrap().contains("/id/00D"));
    assert!(json.get("expires_in").is_none() && json.get("refresh_token").is_none());
}

#[tokio::test]
async fn configured_credentials_are_checked() {
    let auth = AuthConfig {
        client_id: Some("me".to_owned()),
        client_secret: Some("right".to_owned()),
        username: Some("joe@example.org".to_owned()),
        password: Some("pw".to_owned()),
        refresh_token: Some("r1".to_owned()),
        ..AuthConfig::default()
    };
    let org = Org::with(SimulatorConfig { auth, ..SimulatorConfig::default() }).await;
    let client = "client_id=me&client_secret=right";
    for (form, status, error) in [
        (format!("grant_type=client_credentials&{client}"), 200, ""),
        (
            "grant_type=client_credentials&client_id=me&client_secret=no".to_owned(),
            400,
            "invalid_client",
        ),
        (
            "grant_type=client_credentials&client_id=you&client_secret=right".to_owned(),
            400,
            "invalid_client_id",
        ),
        (
            format!("grant_type=password&{client}&username=joe@example.org&password=pwTOKEN"),
            200,
            "",
        ),
        (
            format!("grant_type=password&{client}&username=joe@example.org&password=no"),
            400,
            "invalid_grant",
        ),
        (format!("grant_type=refresh_token&{client}&refresh_token=r1"), 200, ""),
        ("grant_type=refresh_token&client_id=me&refresh_token=r1".to_owned(), 200, ""),
        (format!("grant_type=refresh_token&{client}&refresh_token=r2"), 400, "invalid_grant"),
        ("grant_type=magic".to_owned(), 400, "unsupported_grant_type"),
        (String::new(), 400, "unsupported_grant_type"),
    ] {
        let reply = org.form(TOKEN, &form).await;
        assert_eq!(reply.status, status, "{form}: {reply:?}");
        assert_eq!(reply.json()["error"].as_str().unwrap_or_default(), error);
    }
}

#[tokio::test]
async fn a_rotated_refresh_token_works_once() {
    let auth = AuthConfig { rotate_refresh_tokens: true, ..AuthConfig::default() };
    let org = Org::with(SimulatorConfig { auth, ..SimulatorConfig::default() }).await;
    let refresh =
        |token: String| format!("grant_type=refresh_token&client_id=me&refresh_token={token}");
    let first = org.form(TOKEN, &refresh("start".to_owned())).await;
    let next = first.json()["refresh_token"].as_str().unwrap().to_owned();
    assert_eq!(org.form(TOKEN, &refresh("start".to_owned())).await.status, 400);
    assert_eq!(org.form(TOKEN, &refresh(next)).await.status, 200);
}

#[tokio::test]
async fn without_a_valid_token_every_resource_answers_401_with_an_array() {
    let mut org = Org::start().await;
    org.token = "made up".to_owned();
    for path in ["limits", "sobjects", "jobs/ingest", "query?q=SELECT", "nothing"] {
        let reply = org.read(path).await;
        assert_eq!((reply.status, reply.code().as_str()), (401, "INVALID_SESSION_ID"));
        assert_eq!(reply.message(), "Session expired or invalid");
    }
    let upload = org.upload("750", "x").await;
    assert_eq!(upload.status, 401);
}

#[tokio::test]
async fn sessions_end_on_demand_and_after_two_hours_without_use() {
    let mut org = Org::start().await;
    assert_eq!(org.read("limits").await.status, 200);
    org.sim.skip(std::time::Duration::from_secs(2 * 60 * 60 - 60));
    assert_eq!(org.read("limits").await.status, 200);
    org.sim.skip(std::time::Duration::from_secs(2 * 60 * 60 + 1));
    assert_eq!(org.read("limits").await.status, 401);
    org.log_in().await;
    org.sim.expire_sessions();
    assert_eq!(org.read("limits").await.status, 401);
}

#[tokio::test]
async fn versions_need_no_token_and_others_are_unknown() {
    let mut org = Org::start().await;
    org.token.clear();
    let reply = org.get("/services/data").await.json();
    assert_eq!(reply[0]["url"], "/services/data/v41.0");
    assert!(reply.as_array().unwrap().iter().any(|it| it["version"] == "66.0"));
    org.log_in().await;
    assert_eq!(org.get("/services/data/v68.0/limits/").await.status, 200);
    assert_eq!(org.get("/services/data/v99.0/limits").await.status, 404);
    let resources = org.get(V66).await.json();
    assert!(resources["identity"].as_str().unwrap().contains("/id/00D"));
}

#[tokio::test]
async fn every_response_has_the_daily_usage() {
    let org = Org::start().await;
    assert_eq!(org.read("limits").await.header("sforce-limit-info"), "api-usage=1/100000");
    assert_eq!(org.read("nothing").await.header("sforce-limit-info"), "api-usage=2/100000");
    let limits = org.read("limits").await.json();
    assert_eq!(limits["DailyApiRequests"], json!({"Max": 100_000, "Remaining": 99_997}));
    assert_eq!(limits["DailyBulkApiBatches"]["Max"], 15_000);
}

#[tokio::test]
async fn a_used_up_daily_limit_refuses_calls_until_it_is_reset() {
    let mut org = Org::with_faults(json!({"limits": {"api_max": 2}})).await;
    assert_eq!(org.read("limits").await.status, 200);
    assert_eq!(org.read("limits").await.status, 200);
    let reply = org.read("limits").await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "REQUEST_LIMIT_EXCEEDED"));
    assert_eq!(reply.message(), "TotalRequests Limit exceeded.");
    org.sim.skip(std::time::Duration::from_secs(25 * 60 * 60));
    org.log_in().await;
    assert_eq!(org.read("limits").await.status, 200);
}

#[tokio::test]
async fn soap_login_still_works_for_old_clients() {
    let org = Org::start().await;
    let body = "<env:Body><n1:login><n1:username>joe@example.org</n1:username>\
                <n1:password>secret</n1:password></n1:login></env:Body>";
    let path = "/services/Soap/u/59.0";
    let send = |body: &str| org.try_send(reqwest::Method::POST, path, "text/xml", body.to_owned());
    let reply = send(body).await.unwrap();
    assert_eq!(reply.status, 200);
    assert!(reply.text.contains("<sessionId>00D"));
    assert!(reply.text.contains(&format!("<serverUrl>{}/services/Soap", org.sim.url())));
    let reply = send("<x/>").await.unwrap();
    assert_eq!(reply.status, 500);
    assert!(reply.text.contains("INVALID_LOGIN"));
}
