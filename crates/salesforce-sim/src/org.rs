//! The state of a simulator: one org behind one lock, which is never held across an await.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::{
    auth::OrgSessions,
    bulk::{Jobs, query::QueryJobs},
    clock::OrgClock,
    config::AuthConfig,
    faults::{FaultState, Faults},
    ledger::EffectLedger,
    limits::OrgLimits,
    schema::Schema,
    soql::Cursors,
    store::{OrgTables, transaction::OrgTransaction},
};

#[derive(Debug)]
pub(crate) struct SimulatedOrg {
    pub(crate) auth: AuthConfig,
    org: Mutex<OrgState>,
    /// Wakes the engine of the bulk jobs.
    pub(crate) wake: Notify,
}

/// The mutable state of the org.
#[derive(Debug)]
pub(crate) struct OrgState {
    pub(crate) tables: OrgTables,
    pub(crate) ledger: EffectLedger,
    pub(crate) faults: FaultState,
    pub(crate) clock: OrgClock,
    pub(crate) limits: OrgLimits,
    pub(crate) sessions: OrgSessions,
    pub(crate) jobs: Jobs,
    pub(crate) query_jobs: QueryJobs,
    pub(crate) cursors: Cursors,
    /// Number of calls, by shape.
    pub(crate) calls: BTreeMap<String, u64>,
}

/// Maximum number of distinct shapes; the rest is counted together.
const CALLS_MAX: usize = 1_000;

impl SimulatedOrg {
    pub(crate) fn new(schema: Arc<Schema>, auth: AuthConfig, faults: Faults) -> Self {
        Self { auth, org: Mutex::new(OrgState::new(schema, faults)), wake: Notify::new() }
    }

    pub(crate) fn org(&self) -> MutexGuard<'_, OrgState> {
        // A panic in a test leaves the org as it was: there is nothing to protect.
        self.org.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrgState {
    fn new(schema: Arc<Schema>, faults: Faults) -> Self {
        Self {
            tables: OrgTables::new(schema),
            ledger: EffectLedger::default(),
            faults: FaultState::new(faults),
            clock: OrgClock::default(),
            limits: OrgLimits::default(),
            sessions: OrgSessions::default(),
            jobs: Jobs::default(),
            query_jobs: QueryJobs::default(),
            cursors: Cursors::default(),
            calls: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn begin(&mut self) -> (OrgTransaction<'_>, &mut EffectLedger) {
        let now = self.clock.now();
        (OrgTransaction::begin(&mut self.tables, &mut self.faults, now), &mut self.ledger)
    }

    /// Replaces the faults; stuck jobs continue.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = FaultState::new(faults);
        self.jobs.release();
    }

    /// Empties the org and removes all faults. Tokens stay valid.
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
