//! Properties that must always hold, and states that must be reachable.

use relais_core::{outbox::OutboxStatus, quarantine::HOLD_AFTER};
use stateright::Property;

use super::{
    RelayModel,
    state::{Owner, RelayState, RowStage},
    step::{self, RelayAction},
};

/// `DISPATCHED` only if the target has it.
pub const NO_LOSS: &str = "no loss";
/// Only the lane's owner of the current epoch changes a row.
pub const FENCE: &str = "fence";
/// `DISPATCHED` and `FAILED` change only by an operator.
pub const TERMINAL: &str = "terminal";
/// First deliveries of a key come in order of id, except past rows an operator discarded.
pub const ORDER: &str = "order";
/// One row of a key at a time in the hands of one owner.
pub const ONE_IN_FLIGHT: &str = "one in flight";
/// A worker starts no call under an epoch for which the fence has refused it.
pub const STOPS: &str = "a refused worker starts nothing";
/// A row is published again only after a failure, an unclean take-over or an operator's retry.
pub const CAUSE: &str = "every copy has a cause";
/// A dead letter was rejected, used up its attempts, lost its worker each time since it last came back, or
/// was failed by an operator; an outage is none of these.
pub const BLAME: &str = "dead letters failed themselves";
/// A row never has more attempts than its destination allows.
pub const ATTEMPTS: &str = "attempts stay within their maximum";
/// A message that kills its worker does so four times, and twice more each time another loss acquits it.
pub const KILLER: &str = "a killer ends";
/// Reachable: an operator fails a row while it is in flight.
pub const FAILED_IN_FLIGHT: &str = "a row in flight is failed";
/// Reachable: the next row of a key starts when the one before it is accepted, not settled.
pub const KEY_CONTINUES: &str = "a key continues before its settlement";
/// Reachable: a crash repeats several accepted rows of a key whose settlement was not committed.
pub const UNSETTLED_REPEATED: &str = "a crash repeats unsettled rows";
/// In a state without steps, each open row stands behind a dead letter of its key.
pub const PROGRESS: &str = "progress";

pub(super) fn all() -> Vec<Property<RelayModel>> {
    vec![
        Property::always(NO_LOSS, no_loss),
        Property::always(FENCE, |_, state: &RelayState| !state.stale_write),
        Property::always(TERMINAL, |_, state: &RelayState| !state.reopened),
        Property::always(ORDER, order),
        Property::always(ONE_IN_FLIGHT, one_in_flight),
        Property::always(STOPS, |_, state: &RelayState| !state.continued),
        Property::always(CAUSE, |_, state: &RelayState| !state.uncaused),
        Property::always(BLAME, blame),
        Property::always(ATTEMPTS, |model: &RelayModel, state: &RelayState| {
            state.rows.iter().all(|row| row.attempts <= model.0.attempts_max)
        }),
        Property::always(KILLER, killer),
        Property::always(PROGRESS, progress),
        Property::sometimes("everything is dispatched", drained),
        Property::sometimes("a duplicate", |model: &RelayModel, state: &RelayState| {
            model.0.rows().any(|row| state.rows[row].delivered && may_land(state, row))
        }),
        Property::sometimes("a late duplicate", late_duplicate),
        Property::sometimes("an unclean take-over", |_, state: &RelayState| {
            state.workers.iter().any(|worker| worker.caution)
        }),
        Property::sometimes("a dead letter", |model: &RelayModel, state: &RelayState| {
            model.0.rows().any(|row| state.rows[row].status == OutboxStatus::Failed)
        }),
        Property::sometimes(
            "a key waits behind its dead letter",
            |model: &RelayModel, state: &RelayState| {
                model.0.rows().any(|row| waits_parked(model, state, row))
            },
        ),
        Property::sometimes(
            "two keys in flight together",
            |model: &RelayModel, state: &RelayState| {
                state.workers.iter().any(|worker| {
                    model
                        .0
                        .rows()
                        .filter(|row| worker.items[*row].stage == RowStage::Publishing)
                        .count()
                        > 1
                })
            },
        ),
        Property::sometimes(KEY_CONTINUES, key_continues),
        Property::sometimes(UNSETTLED_REPEATED, unsettled_repeated),
    ]
}

/// The states that must be reachable where operators fail rows.
pub(super) fn of_failed_rows() -> Property<RelayModel> {
    Property::sometimes(FAILED_IN_FLIGHT, failed_in_flight)
}

/// Only an operator fails a row that the owner of its lane has in flight.
fn failed_in_flight(model: &RelayModel, state: &RelayState) -> bool {
    state.workers.iter().enumerate().any(|(number, worker)| {
        model.0.rows().any(|row| {
            let item = worker.items[row];
            let flies = item.stage == RowStage::Publishing && state.owns(number, item.epoch);
            flies && state.rows[row].status == OutboxStatus::Failed
        })
    })
}

/// A row is in flight while the one before it is accepted and not yet settled.
fn key_continues(model: &RelayModel, state: &RelayState) -> bool {
    state.workers.iter().any(|worker| {
        let flying = |row: &usize| worker.items[*row].stage == RowStage::Publishing;
        model.0.rows().filter(flying).any(|row| {
            let mut earlier = model.0.same_key(row).take_while(|earlier| *earlier < row);
            earlier.any(|other| worker.items[other].stage.unsettled().is_some())
        })
    })
}

/// A worker is lost with several rows of a key that were accepted and not settled: all are sent again.
fn unsettled_repeated(model: &RelayModel, state: &RelayState) -> bool {
    let open = |row: &usize| {
        let row = &state.rows[*row];
        row.delivered && row.status == OutboxStatus::Pending
    };
    let several = |row| model.0.same_key(row).filter(open).count() > 1;
    state.lane.owner == Owner::Lost && model.0.rows().any(several)
}

fn no_loss(model: &RelayModel, state: &RelayState) -> bool {
    model.0.rows().all(|row| {
        let row = &state.rows[row];
        row.status != OutboxStatus::Dispatched || row.delivered
    })
}

/// Delivered rows of a key are a prefix of it: a hole means that a later row came first.
fn order(model: &RelayModel, state: &RelayState) -> bool {
    model.0.rows().filter(|row| state.rows[*row].delivered).all(|row| {
        model.0.same_key(row).take_while(|earlier| *earlier < row).all(|earlier| {
            let earlier = &state.rows[earlier];
            earlier.delivered || earlier.skipped
        })
    })
}

fn one_in_flight(model: &RelayModel, state: &RelayState) -> bool {
    state.workers.iter().all(|worker| {
        let flying = |row: &usize| worker.items[*row].stage == RowStage::Publishing;
        model.0.rows().filter(flying).all(|row| {
            let alike = |other: &usize| worker.items[*other].epoch == worker.items[row].epoch;
            model.0.same_key(row).filter(flying).filter(alike).count() == 1
        })
    })
}

fn blame(model: &RelayModel, state: &RelayState) -> bool {
    model.0.rows().all(|row| {
        let row = &state.rows[row];
        row.status != OutboxStatus::Failed || row.blame >= model.0.attempts_max
    })
}

fn killer(_: &RelayModel, state: &RelayState) -> bool {
    let most = |acquitted: u8| HOLD_AFTER + 1 + 2 * u32::from(acquitted);
    state.rows.iter().all(|row| u32::from(row.kills) <= most(row.acquitted))
}

fn progress(model: &RelayModel, state: &RelayState) -> bool {
    let open = |row: &usize| {
        state.rows[*row].status == OutboxStatus::Pending && !state.is_parked(&model.0, *row)
    };
    if !model.0.rows().any(|row| open(&row)) {
        return true;
    }
    let mut actions = Vec::new();
    step::enabled(&model.0, state, &mut actions);
    // No row may need an operator who gives it up.
    actions.iter().any(|action| !matches!(action, RelayAction::Fail(_)))
}

fn drained(model: &RelayModel, state: &RelayState) -> bool {
    model.0.rows().all(|row| state.rows[row].status == OutboxStatus::Dispatched)
}

fn late_duplicate(model: &RelayModel, state: &RelayState) -> bool {
    model.0.rows().any(|row| {
        state.rows[row].delivered
            && may_land(state, row)
            && model.0.same_key(row).any(|later| later > row && state.rows[later].delivered)
    })
}

fn may_land(state: &RelayState, row: usize) -> bool {
    state.limbo[row] > 0
        || state.workers.iter().any(|worker| worker.items[row].stage == RowStage::Publishing)
}

fn waits_parked(model: &RelayModel, state: &RelayState, row: usize) -> bool {
    state.rows[row].status == OutboxStatus::Pending && state.is_parked(&model.0, row)
}
