//! Actions of operators on processes.
//!
//! Invariant: an action is committed only if the process has not changed since it was read; otherwise it
//! is decided again. Actor and reason are written to the log of the process and to the audit log in the
//! same commit.

use std::sync::Arc;

use relais_core::{
    dead_letter::Origin,
    delivery::Problem,
    handler::Outcome,
    inbox::InboxRow,
    inspect::InspectExt,
    process::{
        Action, ActionRecord, Change, ChangeOutcome, DeadLetterChange, Definition, Input, KeyHold,
        LogEntry, Process, ProcessFilter, ProcessRef, ProcessStatus, ReplayDifference,
        ReplayedProcess, actions, advance,
        advance::{begin, cancel, create},
        definition::ProcessStart,
        handler_step::address,
        replay,
    },
    query::PAGE_MAX,
    store::{StoreDriver, StoreError},
};
use uuid::Uuid;

use super::{
    decide::{DecisionAttempt, LoadedProcesses, decide, guarded, key_taken, look_up, names},
    registry::Registry,
};
use crate::{App, random::random, wake};

/// Maximum number of stale decisions before an action is refused.
const TRIES_MAX: usize = 20;

/// Reads processes and acts on them. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    store: Arc<dyn StoreDriver>,
    registry: Arc<Registry>,
    /// The inbox of the program that runs the processes.
    inbox: String,
}

/// The reason why an action was not carried out. Nothing has changed, except perhaps after
/// [`Store`](ActError::Store): then read the process again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActError {
    /// No such process exists.
    #[error("there is no {0}")]
    NotFound(String),
    /// The action is not possible now; the problem names the reason and the possible actions.
    #[error("{}", .0.message)]
    Refused(Problem),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another change was faster, again and again; try again.
    #[error("cannot change the process: other changes came first each time; try again")]
    Busy,
}

impl From<Problem> for ActError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl App {
    /// Returns the operator's actions on the processes of this app.
    pub fn operator(&self) -> Operator {
        Operator::with(Arc::clone(&self.store), Arc::new(self.processes.clone())).inbox(&self.inbox)
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl Operator {
    /// Returns an operator for processes of these definitions.
    ///
    /// # Panics
    /// If a version of a definition is given twice.
    pub fn new(store: Arc<dyn StoreDriver>, definitions: Vec<Definition>) -> Self {
        let mut registry = Registry::default();
        definitions.into_iter().for_each(|definition| registry.add(definition));
        Self::with(store, Arc::new(registry))
    }

    pub(crate) fn with(store: Arc<dyn StoreDriver>, registry: Arc<Registry>) -> Self {
        Self { store, registry, inbox: String::new() }
    }

    /// Sets the [inbox](App::inbox) of the program that runs the processes.
    #[must_use]
    pub fn inbox(mut self, name: &str) -> Self {
        name.clone_into(&mut self.inbox);
        self
    }

    /// Creates a process that waits for [`Action::Resume`]: `NEW`, with the highest version of its
    /// definition. `data` is the initial JSON of a process of this type.
    pub async fn create(
        &self,
        process_type: &str,
        business_key: Option<&str>,
        data: &str,
        actor: &str,
        reason: &str,
    ) -> Result<Process, ActError> {
        let record = ActionRecord::new("created", actor, reason);
        self.make(create, process_type, (business_key, data), record).await
    }

    /// Creates a process and starts its first step at once.
    pub async fn start(
        &self,
        process_type: &str,
        business_key: Option<&str>,
        data: &str,
        actor: &str,
        reason: &str,
    ) -> Result<Process, ActError> {
        let record = ActionRecord::new("started", actor, reason);
        self.make(begin, process_type, (business_key, data), record).await
    }

    /// Carries out an action; returns the process after it.
    pub async fn act(
        &self,
        process_id: Uuid,
        action: Action,
        actor: &str,
        reason: &str,
    ) -> Result<Process, ActError> {
        named(actor, reason)?;
        for _ in 0..TRIES_MAX {
            let process = self.find(ProcessRef::Id(process_id)).await?;
            let process = process.ok_or_else(|| not_found(process_id))?;
            let mut change = self.decide(&process, action, actor, reason)?;
            change.audit = Some(ActionRecord::new(action.done(), actor, reason));
            if let Some(problem) = pauses_again(action, &change) {
                return Err(problem.into());
            }
            if let Some(process) = self.apply(change).await? {
                return Ok(process);
            }
        }
        Err(ActError::Busy)
    }

    /// Retries the dead letter of a process: its step is tried again.
    pub async fn retry(
        &self,
        dead_letter: Uuid,
        actor: &str,
        reason: &str,
    ) -> Result<Process, ActError> {
        let letter = self.store.find_dead_letter(dead_letter).await?;
        let letter =
            letter.ok_or_else(|| ActError::NotFound(format!("dead letter {dead_letter}")))?;
        if let Some(resolution) = &letter.resolution {
            let text = format!("dead letter {dead_letter} was {resolution} already");
            return Err(Problem::new("DEAD_LETTER_RESOLVED", &text).into());
        }
        let process_id = match letter.origin {
            Origin::Process => Uuid::parse_str(&letter.message_id).ok(),
            Origin::Inbox | Origin::Outbox => None,
        };
        let process_id = process_id.ok_or_else(|| {
            let text = format!("dead letter {dead_letter} is about a message; retry it as one");
            Problem::new("DEAD_LETTER_ORIGIN", &text)
        })?;
        let process = self.find(ProcessRef::Id(process_id)).await?;
        let action = match process.ok_or_else(|| not_found(process_id))?.status {
            ProcessStatus::Paused => Action::Resume,
            _ => Action::RetryStep,
        };
        self.act(process_id, action, actor, reason).await
    }

    /// Returns one process, by its id or its business key.
    pub async fn find(&self, process: ProcessRef) -> Result<Option<Process>, StoreError> {
        Ok(self.store.load_processes(vec![process]).await?.pop().flatten())
    }

    /// Returns processes, newest first.
    pub async fn list(&self, filter: ProcessFilter) -> Result<Vec<Process>, StoreError> {
        self.store.list_processes(filter).await
    }

    /// Returns the log of a process, newest first; `before` is the last sequence number of the previous page.
    pub async fn log(
        &self,
        process_id: Uuid,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.store.process_log(process_id, before, limit).await
    }

    /// Computes the state of a process from its log, and how the stored state differs from it.
    pub async fn verify(
        &self,
        process: &Process,
    ) -> Result<(ReplayedProcess, Vec<ReplayDifference>), ActError> {
        let definition = self.registry.of(process)?;
        let (mut log, mut before) = (Vec::new(), None);
        loop {
            let page = self.store.process_log(process.process_id, before, PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            before = Some(last.seq);
            log.extend(page);
        }
        // Entries of changes since the process was read are not part of it.
        log.retain(|entry| entry.seq <= process.version);
        log.reverse();
        let replayed = replay(definition, &log)?;
        let differences = replayed.differences(definition, process);
        Ok((replayed, differences))
    }

    /// Returns the possible actions on a process; only `Cancel` if its definition is not known here.
    pub fn actions(&self, process: &Process) -> Vec<Action> {
        let known = self.registry.of(process).and_then(|known| actions(known, process));
        known.unwrap_or_else(|_| match process.status.is_final() {
            true => Vec::new(),
            false => vec![Action::Cancel],
        })
    }

    /// Returns the definition that a process was started with.
    pub fn definition(&self, process: &Process) -> Result<&Definition, Problem> {
        self.registry.of(process)
    }

    /// Returns the outcome that the inbox worker would decide for a row; changes nothing.
    pub async fn validate(&self, row: &InboxRow) -> Result<Outcome, StoreError> {
        let lookup = match look_up(&self.registry, row, DecisionAttempt::Again) {
            Ok(lookup) => lookup,
            Err(problem) => return Ok(Outcome::Fail { problem }),
        };
        let found = self.store.load_processes(lookup.wanted.clone()).await?;
        let found = lookup.wanted.iter().cloned().zip(found);
        let found: LoadedProcesses =
            found.filter_map(|(name, process)| Some((name, process?))).collect();
        let decided = decide(&self.registry, row, lookup, &found, random());
        Ok(decided.map_or_else(|problem| Outcome::Fail { problem }, |_| Outcome::Done))
    }

    async fn make(
        &self,
        make: fn(&Definition, Uuid, ProcessStart, Option<&str>) -> Change,
        process_type: &str,
        (business_key, data): (Option<&str>, &str),
        record: ActionRecord,
    ) -> Result<Process, ActError> {
        named(&record.actor, &record.reason)?;
        let definition = self.registry.newest(process_type)?;
        let begun = guarded(|| definition.begun(business_key, data))?;
        let mut change = guarded(|| Ok(make(definition, Uuid::now_v7(), begun, None)))?;
        if let Some(first) = change.log.first_mut() {
            first.actor = Some(record.actor.clone());
            first.reason = Some(record.reason.clone());
        }
        change.audit = Some(record);
        for _ in 0..TRIES_MAX {
            if let Some(process) = self.apply(change.clone()).await? {
                return Ok(process);
            }
            let others = self.store.load_processes(names(&change.process)).await?;
            let mut holders = others.iter().flatten();
            if let Some(other) = holders.find(|other| other.key_hold != KeyHold::Released) {
                return Err(key_taken(other).into());
            }
        }
        Err(ActError::Busy)
    }

    /// Decides an action. `Cancel` needs no definition: it is the only action on a process without one.
    fn decide(
        &self,
        process: &Process,
        action: Action,
        actor: &str,
        reason: &str,
    ) -> Result<Change, Problem> {
        if action == Action::Cancel {
            return cancel(process, actor, reason);
        }
        let definition = self.registry.of(process)?;
        let input = Input::Action { action, actor, reason };
        guarded(|| advance(definition, process, &input, random()))
    }

    /// Commits a change; returns the process after it, or `None` if the change was stale.
    async fn apply(&self, mut change: Change) -> Result<Option<Process>, ActError> {
        change.messages.iter_mut().for_each(|message| address(message, &self.inbox));
        let process_id = change.process.process_id;
        if self.store.change_process(change).await? == ChangeOutcome::Stale {
            return Ok(None);
        }
        crate::fail_point!("operator.after_change");
        wake::committed_anywhere();
        let process = self.find(ProcessRef::Id(process_id)).await?;
        process.map(Some).ok_or_else(|| not_found(process_id))
    }
}

/// Returns the problem that would pause a resumed process again at once.
fn pauses_again(action: Action, change: &Change) -> Option<Problem> {
    let continues = matches!(action, Action::Resume | Action::RetryStep);
    match &change.dead_letter {
        DeadLetterChange::Open { problem, .. }
            if continues && change.process.status == ProcessStatus::Paused =>
        {
            let text = format!("it would be paused again: {}", problem.message);
            Some(Problem::new(&problem.code, &text))
        }
        _ => None,
    }
}

fn not_found(process_id: Uuid) -> ActError {
    ActError::NotFound(format!("process {process_id}"))
}

/// Checks that actor and reason are given.
fn named(actor: &str, reason: &str) -> Result<(), Problem> {
    if actor.trim().is_empty() || reason.trim().is_empty() {
        return Err(Problem::new(
            "ACTOR_AND_REASON",
            "cannot act without an actor and a reason; give both",
        ));
    }
    Ok(())
}
