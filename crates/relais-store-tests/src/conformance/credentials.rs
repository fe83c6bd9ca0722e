//! Secrets that a target replaces: one process at a time, and no change is lost.

use std::time::Duration;

use relais_core::credential::Credential;

use super::Start;
use crate::fixture::Fixture;

pub const START: Start = Start::Migrated;

const LEASE: Duration = Duration::from_secs(60);

async fn take(f: &dyn Fixture, owner: &str) -> Option<Credential> {
    let taken = f.credentials().take_credential("org".into(), owner.into(), LEASE).await;
    taken.expect("take")
}

async fn replace(f: &dyn Fixture, owner: &str, version: i64, sealed: &str) -> bool {
    let credentials = f.credentials();
    let replaced =
        credentials.replace_credential("org".into(), owner.into(), version, sealed.into());
    replaced.await.expect("replace")
}

pub async fn a_secret_is_replaced_and_read_by_the_next_owner(f: &dyn Fixture) {
    assert_eq!(take(f, "a").await, Some(Credential { version: 0, sealed: None }));
    assert!(replace(f, "a", 0, "one").await);
    let one = Credential { version: 1, sealed: Some("one".into()) };
    assert_eq!(take(f, "b").await, Some(one));
    assert!(replace(f, "b", 1, "two").await);
    assert_eq!(take(f, "a").await, Some(Credential { version: 2, sealed: Some("two".into()) }));
}

pub async fn a_secret_has_one_owner_until_its_lease_ends(f: &dyn Fixture) {
    let none = Credential { version: 0, sealed: None };
    assert_eq!(take(f, "a").await, Some(none.clone()));
    assert_eq!(take(f, "b").await, None);
    assert_eq!(take(f, "a").await, None, "an owner is one exchange, not one process");
    f.credentials().release_credential("org".into(), "b".into()).await.expect("release");
    assert_eq!(take(f, "b").await, None, "only the owner gives it back");
    f.credentials().release_credential("org".into(), "a".into()).await.expect("release");
    assert_eq!(take(f, "b").await, Some(none.clone()));
    let past = f.dialect().ago(1);
    f.execute(&format!("UPDATE relais_credential SET lease_until = {past}")).await.expect("expire");
    assert_eq!(take(f, "a").await, Some(none));
}

pub async fn who_lost_the_lease_of_a_secret_changes_nothing(f: &dyn Fixture) {
    take(f, "a").await.expect("free");
    let past = f.dialect().ago(1);
    f.execute(&format!("UPDATE relais_credential SET lease_until = {past}")).await.expect("expire");
    take(f, "b").await.expect("expired");
    assert!(!replace(f, "a", 0, "late").await);
    assert!(!replace(f, "b", 7, "wrong version").await);
    assert!(replace(f, "b", 0, "new").await);
    assert!(!replace(f, "b", 1, "without a lease").await);
    let stored = take(f, "a").await.expect("free");
    assert_eq!(stored, Credential { version: 1, sealed: Some("new".into()) });
}
