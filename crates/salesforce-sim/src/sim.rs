//! The state of a simulator: one org behind one lock, held for short, never across a wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::{
    auth::Sessions,
    bulk::{Jobs, query::QueryJobs},
    clock::Clock,
    config::AuthConfig,
    faults::{FaultState, Faults},
    ledger::Ledger,
    limits::Limits,
    schema::Schema,
    soql::Cursors,
    store::{Tables, transaction::Transaction},
};

#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) auth: AuthConfig,
    org: Mutex<Org>,
    /// Wakes the engine of the bulk jobs.
    pub(crate) wake: Notify,
}

/// Everything that changes.
#[derive(Debug)]
pub(crate) struct Org {
    pub(crate) tables: Tables,
    pub(crate) ledger: Ledger,
    pub(crate) faults: FaultState,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) sessions: Sessions,
    pub(crate) jobs: Jobs,
    pub(crate) query_jobs: QueryJobs,
    pub(crate) cursors: Cursors,
    /// How often each call was made.
    pub(crate) calls: BTreeMap<String, u64>,
}

/// More kinds of calls than the API has are counted together.
const CALLS_MAX: usize = 1_000;

impl Sim {
    pub(crate) fn new(schema: Arc<Schema>, auth: AuthConfig, faults: Faults) -> Self {
        Self { auth, org: Mutex::new(Org::new(schema, faults)), wake: Notify::new() }
    }

    pub(crate) fn org(&self) -> MutexGuard<'_, Org> {
        // A panic in a test leaves the org as it was: there is nothing to protect.
        self.org.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Org {
    fn new(schema: Arc<Schema>, faults: Faults) -> Self {
        Self {
            tables: Tables::new(schema),
            ledger: Ledger::default(),
            faults: FaultState::new(faults),
            clock: Clock::default(),
            limits: Limits::default(),
            sessions: Sessions::default(),
            jobs: Jobs::default(),
            query_jobs: QueryJobs::default(),
            cursors: Cursors::default(),
            calls: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn begin(&mut self) -> (Transaction<'_>, &mut Ledger) {
        let now = self.clock.now();
        (Transaction::begin(&mut self.tables, &mut self.faults, now), &mut self.ledger)
    }

    /// Replaces the faults; jobs that were stuck go on.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = FaultState::new(faults);
        self.jobs.release();
    }

    /// An empty org without faults. Tokens stay valid.
    pub(crate) fn reset(&mut self) {
        let sessions = std::mem::take(&mut self.sessions);
        let schema = Arc::clone(&self.tables.schema);
        *self = Self { sessions, ..Self::new(schema, Faults::default()) };
    }

    pub(crate) fn count_call(&mut self, shape: String) {
        let known = self.calls.contains_key(&shape) || self.calls.len() < CALLS_MAX;
        *self.calls.entry(if known { shape } else { "other".to_owned() }).or_default() += 1;
    }
}
