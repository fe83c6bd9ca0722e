//! The last daily calls of the org are reserved for its users.

use relais_connect::salesforce::{ApiCallUsage, SalesforceBulk, SalesforceCollections};
use relais_core::{bulk::BulkTarget, delivery::Delivery, publisher::Publisher};
use salesforce_sim::{Faults, faults::LimitSettings};

use crate::common::{members, settings, simulator, split};

#[tokio::test]
async fn no_call_is_made_when_the_budget_is_almost_used_up() {
    let limits = LimitSettings { api_max: 1_000, api_spent: 960, ..LimitSettings::default() };
    let sim = simulator(Faults { limits, ..Faults::default() }).await;
    let shared = settings(&sim);
    let bulk = SalesforceBulk::new(shared.clone(), None).unwrap();
    let collections = SalesforceCollections::new(shared, None).unwrap();
    assert_eq!(bulk.budget().usage(), None);
    bulk.create().await.unwrap();
    assert!(matches!(bulk.budget().usage(), Some(ApiCallUsage { limit: 1_000, used: 960.. })));
    let before: u64 = sim.calls().values().sum();
    let (kind, problem, after) = split(bulk.create().await);
    assert_eq!((kind, problem.code.as_str()), ("outage", "API_BUDGET"));
    assert!(after.is_some() && problem.message.contains("of 1000 daily API calls"));
    let answers = collections.publish(&members(2)).await;
    assert!(matches!(answers[1], Delivery::Outage { after: Some(_), .. }));
    assert_eq!(sim.calls().values().sum::<u64>(), before);
}

#[tokio::test]
async fn every_response_updates_the_usage() {
    let sim = simulator(Faults::default()).await;
    let bulk = SalesforceBulk::new(settings(&sim), None).unwrap();
    bulk.create().await.unwrap();
    let first = bulk.budget().usage().unwrap();
    bulk.create().await.unwrap();
    assert!(bulk.budget().usage().unwrap().used > first.used);
}
