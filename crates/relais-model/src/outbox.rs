//! The relay of one lane: who may publish and settle which rows, and what every fault does to it.
//!
//! A worker reads, publishes and settles at the same time. One settlement carries the results of several
//! calls; the next row of a key starts when the previous one is accepted, not when it is settled.
//!
//! Invariant: the correct machine ([`RelayConfig::bug`] `None`) breaks no `always` property within its
//! bounds; each [`RelayBug`] breaks the property that names its harm.

mod effect;
mod evidence;
mod property;
mod state;
mod step;

pub use evidence::OtherKeys;
pub use property::{
    ATTEMPTS, BLAME, CAUSE, FAILED_IN_FLIGHT, FENCE, KEY_CONTINUES, KILLER, NO_LOSS, ONE_IN_FLIGHT,
    ORDER, PROGRESS, STOPS, TERMINAL, UNSETTLED_REPEATED,
};
pub use state::{
    Lane, Owner, ROWS_MAX, RelayAnswer, RelayBudget, RelayBug, RelayConfig, RelayItem, RelayRow,
    RelayState, RelayWorker, RowStage, Sweep, WORKERS_MAX,
};
pub use step::RelayAction;

use stateright::{Model, Property};

use super::{ModelGoal, ModelReport, explore};

/// The machine.
#[derive(Clone, Debug)]
pub struct RelayModel(pub RelayConfig);

impl Model for RelayModel {
    type State = RelayState;
    type Action = RelayAction;

    fn init_states(&self) -> Vec<RelayState> {
        vec![RelayState::start(&self.0)]
    }

    fn actions(&self, state: &RelayState, actions: &mut Vec<RelayAction>) {
        step::enabled(&self.0, state, actions);
    }

    fn next_state(&self, state: &RelayState, action: RelayAction) -> Option<RelayState> {
        let mut next = state.clone();
        effect::apply(&self.0, &mut next, action);
        next.sort_workers();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = property::all();
        if self.0.budget.given_up > 0 {
            properties.push(property::of_failed_rows());
        }
        properties
    }
}

/// Visits every state of the machine.
pub fn exhaust(name: &str, config: RelayConfig) -> ModelReport {
    explore(name, RelayModel(config), ModelGoal::Exhausted)
}

/// Runs a machine with a planted bug until `property` breaks.
pub fn hunt(config: RelayConfig, property: &'static str) -> ModelReport {
    explore(&format!("{:?}", config.bug), RelayModel(config), ModelGoal::Broken(property))
}
