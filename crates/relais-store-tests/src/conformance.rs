//! The contract of [`Store`](relais_core::store::Store), as checks that every driver must pass.
//!
//! Invariant: [`store_conformance!`](crate::store_conformance) runs every check, so that a driver
//! cannot forget one.
//! No check sleeps: leases run out and rows become due by an UPDATE of their time.

pub mod accept;
pub mod backoff;
pub mod browse;
pub mod bulk;
pub mod bulk_rows;
pub mod bytes;
pub mod cleanup;
pub mod controls;
pub mod credentials;
pub mod dead_letters;
pub mod edit;
pub mod event_types;
pub mod fence;
pub mod fidelity;
pub mod inbox;
pub mod inboxes;
pub mod inspect;
pub mod lanes;
mod list;
pub mod migration;
pub mod operators;
pub mod order;
pub mod outbox;

pub mod process;
mod process_build;
pub mod process_dead_letters;
pub mod process_fidelity;
pub mod process_settle;
pub mod quarantine;
pub mod repair;
pub mod schema;
pub mod send;
pub mod timers;
mod worker;

use std::{fmt::Debug, future::Future};

use relais_core::{
    BoxFuture,
    dead_letter::{DeadLetter, DecisionAction, DecisionResult, OperatorDecision, Resolution},
    inspect::InspectExt,
    query::Filter,
    store::StoreError,
};
use uuid::Uuid;

use crate::fixture::Fixture;

/// The content of the database when a check begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing.
    Empty,
    /// relais's tables, without rows.
    Migrated,
}

/// One check of the contract.
pub type Check = for<'a> fn(&'a dyn Fixture) -> BoxFuture<'a, ()>;

/// Runs one check on a database of its own; what [`store_conformance!`](crate::store_conformance)
/// calls.
///
/// # Panics
/// If the store does not keep the contract.
pub fn run(open: impl Future<Output = Option<Box<dyn Fixture>>>, start: Start, check: Check) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let Some(fixture) = open.await else { return };
        if start == Start::Migrated {
            fixture.migrate().await.expect("migrate");
        }
        check(&*fixture).await;
    });
}

/// The request is wrong for good: the caller must not try it again.
fn assert_invalid<T: Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Invalid(_))), "expected invalid, got {result:?}");
}

/// Returns open dead letters, newest first.
async fn open_dead_letters(f: &dyn Fixture) -> Vec<DeadLetter> {
    let filter = Filter { status: Some("open".to_owned()), limit: 100, ..Filter::default() };
    f.store().list_dead_letters(filter).await.expect("list dead letters")
}

async fn only_dead_letter(f: &dyn Fixture) -> DeadLetter {
    let mut open = open_dead_letters(f).await;
    assert_eq!(open.len(), 1, "{open:?}");
    open.remove(0)
}

/// A decision comes from another process than the workers'.
async fn resolve(f: &dyn Fixture, id: Uuid, resolution: Resolution) -> bool {
    let decided = f.second().decide(resolution_of(id, resolution)).await.expect("resolve");
    decided == DecisionResult::Done
}

fn resolution_of(dead_letter: Uuid, resolution: Resolution) -> OperatorDecision {
    decision(DecisionAction::Resolve { dead_letter, resolution })
}

fn decision(action: DecisionAction) -> OperatorDecision {
    OperatorDecision { action, actor: "ann".to_owned(), reason: "it's repaired 😀".to_owned() }
}

/// One test of each check in a list; for [`store_conformance!`](crate::store_conformance) only.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (@each $open:path; $($module:ident { $($check:ident)* })*) => {
        $(
            mod $module {
                $(
                    #[test]
                    fn $check() {
                        $crate::conformance::run(
                            $open(),
                            $crate::conformance::$module::START,
                            |f| Box::pin($crate::conformance::$module::$check(f)),
                        );
                    }
                )*
            }
        )*
    };
}
