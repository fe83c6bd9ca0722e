//! Random steps, and how each becomes a call with its right answer.
//!
//! Invariant: a step fits every state (numbers wrap around), so shrinking may leave any of them out.

use std::marker::PhantomData;

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;
use relais_core::{dead_letter::Resolution, store::SettleOutcome};

use crate::{
    Backend,
    model::{
        Call, DESTINATIONS, Fate, INBOX, Ident, KEYS, Model, Row, SCOPES, Settle, State, Time,
        UNDECODABLE, WORKERS,
    },
};

/// Which rows, in whose name.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    scope: usize,
    worker: usize,
    picks: Vec<usize>,
    rows: Rows,
    name: Name,
}

#[derive(Clone, Copy, Debug)]
enum Rows {
    /// Of what a fetch would give.
    Fetched,
    /// Of all, whatever their state.
    Any,
    /// Of those behind a dead letter.
    Parked,
}

#[derive(Clone, Copy, Debug)]
enum Name {
    /// The owner of the first row's lane.
    Owner,
    /// The given worker, with the epoch it remembers.
    Worker,
    /// The owner, with the epoch before.
    Before,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Enqueue(Vec<(usize, usize, bool)>),
    EnqueueAgain(usize),
    Accept(Vec<(u8, u8)>),
    Lease { scope: usize, worker: usize },
    Expire { scope: usize, worker: usize },
    Release { scope: usize, worker: usize, every: i16, leaving: bool },
    Settle(Choice, Vec<Fate>),
    NoteLoss(Choice),
    MakeDue(usize),
    Resolve(usize, Resolution),
    Cleanup,
}

/// The model as proptest drives it, with the rules of one backend.
#[derive(Debug)]
pub(crate) struct Reference<B>(PhantomData<B>);

impl<B: Backend> ReferenceStateMachine for Reference<B> {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        Just(Model::new(B::rules())).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Step> {
        // A scope without an owner refuses everything: it does not stay so for long.
        let orphan = (0..SCOPES).find(|scope| {
            let is_loose = |owner: usize| model.expired[owner];
            model.lanes[*scope].iter().all(|lane| lane.owner.is_none_or(is_loose))
        });
        match (&model.call, orphan) {
            // Who has just lost its lanes tries to settle all the same.
            (Call::Release { scope, worker, .. } | Call::Expire { scope, worker, .. }, _) => {
                let (scope, worker) = (*scope, *worker);
                prop_oneof![settle_as(scope, worker), any_step()].boxed()
            }
            (_, Some(scope)) => {
                let lease =
                    (0..WORKERS.len()).prop_map(move |worker| Step::Lease { scope, worker });
                prop_oneof![lease, any_step()].boxed()
            }
            (_, None) => any_step().boxed(),
        }
    }

    fn apply(mut model: Model, step: &Step) -> Model {
        model.call = call(&mut model, step);
        model
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let place = || (0..SCOPES, 0..WORKERS.len());
    let row = (0..DESTINATIONS.len(), 0..KEYS.len(), prop::bool::weighted(0.2));
    let verdict = prop_oneof![Just(Resolution::Retried), Just(Resolution::Discarded)];
    let variant = prop_oneof![6 => Just(0_u8), 2 => Just(1), 1 => Just(UNDECODABLE)];
    prop_oneof![
        5 => prop::collection::vec(row, 1..5).prop_map(Step::Enqueue),
        1 => any::<usize>().prop_map(Step::EnqueueAgain),
        4 => prop::collection::vec((0_u8..12, variant), 1..5).prop_map(Step::Accept),
        3 => place().prop_map(|(scope, worker)| Step::Lease { scope, worker }),
        2 => place().prop_map(|(scope, worker)| Step::Expire { scope, worker }),
        1 => (place(), 1_i16..4, any::<bool>()).prop_map(|((scope, worker), every, leaving)| {
            Step::Release { scope, worker, every, leaving }
        }),
        14 => (choice(), prop::collection::vec(fate(), 4))
            .prop_map(|(choice, fates)| Step::Settle(choice, fates)),
        2 => choice().prop_map(Step::NoteLoss),
        2 => (0..SCOPES).prop_map(Step::MakeDue),
        6 => (any::<usize>(), verdict).prop_map(|(dead, verdict)| Step::Resolve(dead, verdict)),
        1 => Just(Step::Cleanup),
    ]
}

fn settle_as(scope: usize, worker: usize) -> impl Strategy<Value = Step> {
    (choice(), prop::collection::vec(fate(), 4)).prop_map(move |(choice, fates)| {
        let (rows, name) = (Rows::Fetched, Name::Worker);
        Step::Settle(Choice { scope, worker, rows, name, ..choice }, fates)
    })
}

fn choice() -> impl Strategy<Value = Choice> {
    let rows = prop_oneof![3 => Just(Rows::Fetched), 3 => Just(Rows::Any), 1 => Just(Rows::Parked)];
    let name =
        prop_oneof![5 => Just(Name::Owner), 2 => Just(Name::Worker), 1 => Just(Name::Before)];
    let picks = prop::collection::vec(any::<usize>(), 1..4);
    (0..SCOPES, 0..WORKERS.len(), picks, rows, name)
        .prop_map(|(scope, worker, picks, rows, name)| Choice { scope, worker, picks, rows, name })
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Done),
        4 => (1_u32..5, any::<bool>()).prop_map(|(attempts, due)| Fate::Retry { attempts, due }),
        3 => (0_u32..4, any::<bool>()).prop_map(|(lost, due)| Fate::Wait { lost, due }),
        3 => (1_u32..5, any::<bool>()).prop_map(|(attempts, park)| Fate::Dead { attempts, park }),
        1 => Just(Fate::Untouched),
    ]
}

/// Carries the step out in the model.
fn call(model: &mut Model, step: &Step) -> Call {
    match step {
        Step::Enqueue(messages) => {
            let write = |(destination, key, delayed): &(usize, usize, bool)| {
                (enqueue(model, 1 + destination, *key, *delayed), *delayed)
            };
            Call::Enqueue(messages.iter().map(write).collect())
        }
        Step::EnqueueAgain(pick) => enqueue_again(model, *pick),
        Step::Accept(messages) => Call::Accept(
            messages
                .iter()
                .map(|(m, variant)| (*m, *variant, model.accept(*m, *variant)))
                .collect(),
        ),
        Step::Lease { scope, worker } => {
            let grant = model.lease(*scope, *worker);
            Call::Lease { scope: *scope, worker: *worker, grant }
        }
        Step::Expire { scope, worker } => {
            model.expired[*worker] = true;
            Call::Expire { scope: *scope, worker: *worker }
        }
        Step::Release { scope, worker, every, leaving } => {
            let lanes: Vec<i16> =
                (0..).take(model.lanes[*scope].len()).filter(|lane| lane % every == 0).collect();
            model.release(*scope, *worker, &lanes, *leaving);
            Call::Release { scope: *scope, worker: *worker, lanes, leaving: *leaving }
        }
        Step::Settle(choice, fates) => settle(model, choice, fates),
        Step::NoteLoss(choice) => note_loss(model, choice),
        Step::MakeDue(scope) => {
            for row in &mut model.rows {
                if row.scope == *scope && row.time == Time::Later {
                    row.time = Time::Due;
                }
            }
            Call::MakeDue(*scope)
        }
        Step::Resolve(pick, resolution) => resolve(model, *pick, *resolution),
        Step::Cleanup => {
            let done = |row: &&mut Row| row.scope != INBOX && row.state == State::Done;
            let mut removed = 0;
            for row in model.rows.iter_mut().filter(done) {
                row.state = State::Gone;
                removed += 1;
            }
            Call::Cleanup { removed }
        }
    }
}

fn enqueue(model: &mut Model, scope: usize, key: usize, delayed: bool) -> usize {
    write(model, scope, key, Ident::Sent(next_id(model)), delayed)
}

/// The number of a message id that was not used before.
fn next_id(model: &Model) -> u128 {
    model.rows.len() as u128 + 1
}

fn write(model: &mut Model, scope: usize, key: usize, ident: Ident, delayed: bool) -> usize {
    let time = if delayed { Time::Later } else { Time::None };
    let (variant, state, attempts, lost) = (0, State::Fresh, 0, 0);
    let may_wait = false;
    model.write(Row { scope, key, ident, variant, state, attempts, lost, time, delayed, may_wait })
}

/// The same message id again: the row that is there, or a new one if it was removed.
fn enqueue_again(model: &mut Model, pick: usize) -> Call {
    let sent: Vec<usize> =
        (0..model.rows.len()).filter(|row| model.rows[*row].scope != INBOX).collect();
    if sent.is_empty() {
        return Call::Nothing;
    }
    let Row { scope, key, ident, .. } = model.rows[sent[pick % sent.len()]];
    let row = match model.find(ident) {
        Some(row) => row,
        None => write(model, scope, key, ident, false),
    };
    Call::Enqueue(vec![(row, false)])
}

/// The rows of a choice, each once, with the epoch to prove; and the worker.
fn chosen(model: &Model, choice: &Choice) -> Option<(usize, Vec<(usize, i64)>)> {
    let of_scope = |row: &usize| {
        let it = &model.rows[*row];
        let parked = it.is_open() && model.parked.contains(&(it.scope, it.key));
        let wanted = parked || !matches!(choice.rows, Rows::Parked);
        it.scope == choice.scope && it.state != State::Gone && wanted
    };
    let candidates = match choice.rows {
        Rows::Fetched => model.fetch(choice.scope, None),
        Rows::Any | Rows::Parked => (0..model.rows.len()).filter(of_scope).collect(),
    };
    if candidates.is_empty() {
        return None;
    }
    let mut rows: Vec<usize> = Vec::new();
    for pick in &choice.picks {
        let row = candidates[pick % candidates.len()];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let owner = model.owner(rows[0]).unwrap_or(choice.worker);
    let (worker, behind) = match choice.name {
        Name::Owner => (owner, 0),
        Name::Worker => (choice.worker, 0),
        Name::Before => (owner, 1),
    };
    let epoch = |row: usize| {
        let known = model.memory[choice.scope][worker].get(&model.lane(row));
        known.copied().unwrap_or_default() - behind
    };
    Some((worker, rows.into_iter().map(|row| (row, epoch(row))).collect()))
}

fn settle(model: &mut Model, choice: &Choice, fates: &[Fate]) -> Call {
    let Some((worker, rows)) = chosen(model, choice) else { return Call::Nothing };
    let scope = choice.scope;
    let mut answer = SettleOutcome::default();
    let mut settles = Vec::new();
    let mut sender = None;
    for ((row, epoch), fate) in rows.into_iter().zip(fates.iter().copied()) {
        // The inbox knows no "untouched".
        let fate = match fate {
            Fate::Untouched if scope == INBOX => Fate::Done,
            fate => fate,
        };
        let may = model.may_change(row, worker, epoch);
        let fate = if may && model.is_unsent(row) { Fate::Untouched } else { fate };
        match (fate, may) {
            (Fate::Untouched, _) => {}
            (_, true) => answer.settled += 1,
            (_, false) => answer.refused += 1,
        }
        if may {
            model.settle(row, fate);
        }
        // One row of the batch sends a message: it exists if and only if the row was settled.
        let sends = matches!(fate, Fate::Done) && scope == INBOX && sender.is_none();
        let message = sends.then(|| (next_id(model), model.rows[row].key));
        sender = sender.or(message.map(|message| (message, may)));
        settles.push(Settle { row, epoch, fate, sends: message });
    }
    if let Some(((id, key), true)) = sender {
        write(model, 1, key, Ident::Sent(id), false);
    }
    Call::Settle { scope, worker, rows: settles, answer }
}

fn note_loss(model: &mut Model, choice: &Choice) -> Call {
    let Some((worker, rows)) = chosen(model, choice) else { return Call::Nothing };
    let mut answer = SettleOutcome::default();
    for (row, epoch) in &rows {
        if model.may_change(*row, worker, *epoch) {
            model.rows[*row].lost += 1;
            answer.settled += 1;
        } else {
            answer.refused += 1;
        }
    }
    Call::NoteLoss { scope: choice.scope, worker, rows, answer }
}

fn resolve(model: &mut Model, pick: usize, resolution: Resolution) -> Call {
    if model.dead.is_empty() {
        return Call::Nothing;
    }
    // Mostly one that is still open.
    let open: Vec<usize> = (0..model.dead.len()).filter(|n| !model.dead[*n].resolved).collect();
    let dead = match open.len() {
        0 => pick % model.dead.len(),
        _ if pick.is_multiple_of(4) => pick % model.dead.len(),
        some => open[pick % some],
    };
    let answer = !model.dead[dead].resolved;
    let lets_in = if answer { model.resolve(dead, resolution) } else { None };
    Call::Resolve { dead, resolution, answer, lets_in }
}
