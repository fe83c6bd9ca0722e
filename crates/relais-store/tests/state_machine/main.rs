//! Random steps on a real store and on a model of it: after each the two must agree, on the answer,
//! on every row, and on what each worker would be given next.
//!
//! The model is the one that `relais_model` proves the protocol with, as far as a store is
//! concerned: lanes and epochs, the fence, retries, dead letters, parked keys, an operator's decisions.

#[path = "../support/mod.rs"]
mod support;

mod model;
mod names;
mod steps;
mod system;

use std::sync::{LazyLock, OnceLock};

use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use relais_core::{BoxFuture, inspect::InspectExt};
use relais_store_tests::fixture::Fixture;
use relais_testkit::build;
use tokio::runtime::Runtime;

use model::{KEYS, Model, Rules};
use steps::{Reference, Step};
use system::System;

/// Steps of one case.
const STEPS: std::ops::Range<usize> = 30..41;

/// A kind of store.
pub(crate) trait Backend: Sized + std::fmt::Debug + 'static {
    /// Returns the differences of the driver from the others.
    fn rules() -> Rules;
    fn open() -> BoxFuture<'static, Option<Box<dyn Fixture>>>;
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// The real store follows the model.
struct Follows<B>(std::marker::PhantomData<B>);

impl<B: Backend> StateMachineTest for Follows<B> {
    type SystemUnderTest = System;
    type Reference = Reference<B>;

    fn init_test(_: &Model) -> System {
        RUNTIME.block_on(async {
            let fixture = B::open().await.expect("asked before");
            fixture.migrate().await.expect("migrate");
            System::new(fixture)
        })
    }

    fn apply(mut system: System, model: &Model, _: Step) -> System {
        RUNTIME.block_on(system.call(model));
        system
    }

    fn check_invariants(system: &System, model: &Model) {
        RUNTIME.block_on(system.compare(model));
    }

    fn teardown(system: System, _: Model) {
        // The fixture's connections end inside the runtime.
        let _guard = RUNTIME.enter();
        drop(system);
    }
}

fn run<B: Backend>(cases: u32) {
    let config = Config {
        cases,
        max_shrink_iters: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/state_machine.regressions",
        ))),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config.clone());
    let outcome =
        runner.run(&Reference::<B>::sequential_strategy(STEPS), |(start, steps, seen)| {
            Follows::<B>::test_sequential(config.clone(), start, steps, seen);
            Ok::<_, TestCaseError>(())
        });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// The lane of each key, asked from a database of this kind.
fn lanes_of_keys<B: Backend>() -> [i16; KEYS.len()] {
    RUNTIME.block_on(async {
        let fixture = B::open().await.expect("asked before");
        fixture.migrate().await.expect("migrate");
        let store = fixture.store();
        let mut lanes = [0; KEYS.len()];
        for (lane, key) in lanes.iter_mut().zip(KEYS) {
            let ids = store.enqueue(vec![build::message("lanes", key)]).await.expect("enqueue");
            let row = store.find_outbox(ids[0].to_string()).await.expect("find");
            *lane = row.expect("it was written").lane;
        }
        lanes
    })
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_follows_the_model() {
    #[derive(Debug)]
    struct Sqlite;

    impl Backend for Sqlite {
        fn rules() -> Rules {
            static LANES: OnceLock<[i16; KEYS.len()]> = OnceLock::new();
            Rules { lanes: *LANES.get_or_init(lanes_of_keys::<Self>), due_behind_due: false }
        }

        fn open() -> BoxFuture<'static, Option<Box<dyn Fixture>>> {
            Box::pin(support::sqlite::open())
        }
    }

    run::<Sqlite>(100);
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_follows_the_model() {
    #[derive(Debug)]
    struct Postgres;

    impl Backend for Postgres {
        fn rules() -> Rules {
            static LANES: OnceLock<[i16; KEYS.len()]> = OnceLock::new();
            Rules { lanes: *LANES.get_or_init(lanes_of_keys::<Self>), due_behind_due: true }
        }

        fn open() -> BoxFuture<'static, Option<Box<dyn Fixture>>> {
            Box::pin(support::postgres::open())
        }
    }

    if support::postgres::server_url().is_some() {
        run::<Postgres>(40);
    }
}
