//! The relay of one lane: who may publish and settle which rows, and what every fault does to it.
//!
//! Invariant: the correct machine ([`Config::bug`] `None`) breaks no `always` property within its
//! bounds; each [`Bug`] breaks the property that names its harm.

mod effect;
mod property;
mod state;
mod step;

pub use property::{
    BLAME, CAUSE, FENCE, KILLER, NO_LOSS, ONE_IN_FLIGHT, ORDER, PROGRESS, TERMINAL,
};
pub use state::{
    Answer, Budget, Bug, Config, Item, Lane, Owner, ROWS_MAX, Row, Stage, State, Sweep,
    WORKERS_MAX, Worker,
};
pub use step::Action;

use stateright::{Model, Property};

use super::{Report, Until, explore};

/// The machine.
#[derive(Clone, Debug)]
pub struct Relay(pub Config);

impl Model for Relay {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(&self.0)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        step::enabled(&self.0, state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        effect::apply(&self.0, &mut next, action);
        next.sort_workers();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}

/// Visits every state of the machine.
pub fn exhaust(name: &str, config: Config) -> Report {
    explore(name, Relay(config), Until::Exhausted)
}

/// Runs a machine with a planted bug until `property` breaks.
pub fn hunt(config: Config, property: &'static str) -> Report {
    explore(&format!("{:?}", config.bug), Relay(config), Until::Broken(property))
}
