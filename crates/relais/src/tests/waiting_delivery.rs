//! Messages that wait for something that only they need.

use std::time::Duration;

use relais_core::{
    breaker::BreakerState,
    delivery::{Delivery, Problem},
    retry::RetryPolicy,
};

use super::support::{Bench, Script, drain};
use crate::DestinationSettings;

#[tokio::test]
async fn messages_that_wait_hold_their_keys_use_no_attempt_and_open_no_breaker() {
    let bench = Bench::new().await;
    let problem = Problem::new("TOPIC", "it does not exist");
    let wait = || Delivery::Wait { problem: problem.clone(), after: None };
    let names: Vec<String> = (0..20).map(|n| format!("w{n}")).collect();
    let answers: Vec<_> = names.iter().map(|n| (n.as_str(), vec![wait(); 8])).collect();
    let publisher = Script::new(&answers);
    for name in &names {
        bench.enqueue(&[(name, name), (name, "behind")]).await;
    }
    let retry = RetryPolicy::default().jitter(false).first(Duration::from_secs(60));
    let settings = DestinationSettings { retry, ..DestinationSettings::default() };
    let mut relay = bench.relay_with("w", &publisher, settings).await;
    for _ in 0..7 {
        bench.make_due();
        drain(&mut relay).await;
    }
    assert_eq!(bench.statuses(), ["PENDING 0"; 40]);
    assert_eq!(bench.observer.snapshot().destinations["d"].breaker, Some(BreakerState::Closed));
    bench.enqueue(&[("healthy", "healthy")]).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses()[40], "DISPATCHED 1", "other keys continue");
    for _ in 0..3 {
        bench.make_due();
        drain(&mut relay).await;
    }
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 41]);
}
