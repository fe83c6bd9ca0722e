//! Login: by each grant, once, and not repeated when it is refused.

use relais_connect::{
    SecretString,
    salesforce::{Auth, SalesforceBulk, SalesforceCollections},
};
use relais_core::{bulk::BulkTarget, delivery::Delivery, publisher::Publisher};
use salesforce_sim::{
    AuthConfig, RunningSimulator, Simulator, SimulatorConfig,
    faults::{HttpAction, HttpFault},
};

use crate::common::{failing, http_fault, members, once, send, settings, simulator, split};

async fn guarded(auth: AuthConfig) -> RunningSimulator {
    Simulator::start(SimulatorConfig { auth, ..SimulatorConfig::default() }).await.unwrap()
}

/// Refuses every login after the first `count`.
fn logins_max(count: u64) -> HttpFault {
    HttpFault { skip: count, ..http_fault("POST", "oauth2/token", HttpAction::OauthError) }
}

#[tokio::test]
async fn wrong_credentials_stop_the_destination_with_a_clear_reason() {
    let auth = AuthConfig { client_secret: Some("right".into()), ..AuthConfig::default() };
    let sim = guarded(auth).await;
    let (bulk, rows) = (SalesforceBulk::new(settings(&sim), None).unwrap(), members(2));
    for _ in 0..3 {
        let (kind, problem, _) = split(bulk.create().await);
        assert_eq!(kind, "refused");
        assert!(problem.code.starts_with("invalid_client"), "{problem:?}");
        assert!(problem.message.contains("check the credentials"));
        assert!(!problem.message.contains("hush-hush"));
    }
    let collections = SalesforceCollections::new(settings(&sim), None).unwrap();
    for answer in collections.publish(&rows).await {
        assert!(matches!(answer, Delivery::Misconfigured { after: Some(_), .. }));
    }
    assert_eq!(sim.ledger().writes(), 0);
}

#[tokio::test]
async fn a_claim_signed_with_the_right_key_is_accepted() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let auth = AuthConfig { jwt_public_key: Some(pair.public_key_pem()), ..AuthConfig::default() };
    let sim = guarded(auth).await;
    let with = |pair: &rcgen::KeyPair| {
        let mut settings = settings(&sim);
        settings.auth = Auth::JwtBearer {
            client_id: "app".into(),
            username: "relais@example.org".into(),
            private_key: SecretString::from(pair.serialize_pem()),
            audience: None,
        };
        SalesforceBulk::new(settings, None).unwrap()
    };
    assert_eq!(send(&with(&pair), &members(2)).await, vec![Delivery::Accepted; 2]);
    let (kind, problem, _) = split(with(&other).create().await);
    assert_eq!((kind, problem.code.as_str()), ("refused", "invalid_grant"));
}

#[tokio::test]
async fn a_refresh_token_that_the_org_replaces_needs_a_vault() {
    let auth = AuthConfig {
        refresh_token: Some("first".into()),
        rotate_refresh_tokens: true,
        ..AuthConfig::default()
    };
    let sim = guarded(auth).await;
    let mut settings = settings(&sim);
    settings.auth = Auth::RefreshToken {
        client_id: "app".into(),
        client_secret: None,
        refresh_token: SecretString::from("first"),
    };
    let bulk = SalesforceBulk::new(settings, None).unwrap();
    let (kind, problem, _) = split(bulk.create().await);
    assert_eq!((kind, problem.code.as_str()), ("refused", "REFRESH_TOKEN_ROTATES"));
}

#[tokio::test]
async fn a_refused_login_is_not_repeated_at_once() {
    let refused = once(http_fault("POST", "oauth2/token", HttpAction::OauthError));
    let sim = simulator(failing(vec![refused])).await;
    let bulk = SalesforceBulk::new(settings(&sim), None).unwrap();
    for _ in 0..3 {
        assert_eq!(split(bulk.create().await).0, "refused");
    }
    let elsewhere = SalesforceBulk::new(settings(&sim), None).unwrap();
    elsewhere.create().await.unwrap();
}

#[tokio::test]
async fn calls_at_the_same_time_and_destinations_of_one_org_share_a_token() {
    let sim = simulator(failing(vec![logins_max(1)])).await;
    let shared = settings(&sim);
    let bulk = SalesforceBulk::new(shared.clone(), None).unwrap();
    let collections = SalesforceCollections::new(shared, None).unwrap();
    let rows = members(20);
    let (a, b, c) = tokio::join!(bulk.create(), bulk.create(), collections.publish(&rows));
    assert!(a.is_ok() && b.is_ok());
    assert_eq!(c, vec![Delivery::Accepted; 20]);
    assert!(bulk.budget().usage().is_some());
    assert_eq!(bulk.budget().usage(), collections.budget().usage());
}

#[tokio::test]
async fn a_refused_new_token_is_a_permission_problem() {
    let denied = http_fault("PATCH", "composite", HttpAction::SessionExpired);
    let sim = simulator(failing(vec![logins_max(2), denied])).await;
    let collections = SalesforceCollections::new(settings(&sim), None).unwrap();
    for answer in collections.publish(&members(2)).await {
        assert!(matches!(answer, Delivery::Misconfigured { after: Some(_), problem }
            if problem.code == "INVALID_SESSION_ID"));
    }
    assert_eq!(sim.ledger().writes(), 0);
}

#[tokio::test]
async fn a_failing_login_server_is_an_outage() {
    for action in [HttpAction::Unavailable, HttpAction::Html, HttpAction::Throttled] {
        let fault = HttpFault { times: Some(1), ..http_fault("POST", "oauth2/token", action) };
        let sim = simulator(failing(vec![fault])).await;
        let bulk = SalesforceBulk::new(settings(&sim), None).unwrap();
        let (kind, problem, _) = split(bulk.create().await);
        assert_eq!(kind, "outage", "{action:?}: {problem:?}");
        bulk.create().await.unwrap();
    }
}
