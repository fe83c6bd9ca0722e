//! What people do with processes, and programs in their place.
//!
//! Invariant: an action is decided from the process as it is and committed only if it still is that;
//! otherwise it is decided again. Who did it and why is written into the log of the process and into the
//! audit log in that same commit.

use std::sync::Arc;

use relais_core::{
    dead_letter::Origin,
    delivery::Problem,
    handler::Outcome,
    inbox::InboxRow,
    process::{
        Action, ActionRecord, Applied, Change, DeadLetterChange, Definition, Input, LogEntry,
        Process, ProcessFilter, ProcessRef, ProcessStatus, actions, advance,
        advance::{begin, cancel, create},
        definition::Begun,
    },
    store::{Store, StoreError},
};
use uuid::Uuid;

use super::{
    decide::{Found, Try, ask, decide, guarded, key_taken, names},
    registry::Registry,
};
use crate::{App, pulse, relay::random};

/// Decisions in vain before an action is given up.
const TRIES_MAX: usize = 20;

/// Looks at processes and acts on them. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
}

/// Why an action was not carried out. Nothing has changed, except perhaps after
/// [`Store`](ActError::Store): then look.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActError {
    #[error("there is no {0}")]
    NotFound(String),
    /// It does not fit: the problem says why and what does.
    #[error("{}", .0.message)]
    Refused(Problem),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("others changed the process each time it was tried; try again")]
    Busy,
}

impl From<Problem> for ActError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl App {
    /// What people do with the processes of this app.
    pub fn operator(&self) -> Operator {
        Operator::with(Arc::clone(&self.store), Arc::new(self.processes.clone()))
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl Operator {
    /// # Panics
    /// If a version of a definition is there twice.
    pub fn new(store: Arc<dyn Store>, definitions: Vec<Definition>) -> Self {
        let mut registry = Registry::default();
        definitions.into_iter().for_each(|definition| registry.add(definition));
        Self::with(store, Arc::new(registry))
    }

    pub(crate) fn with(store: Arc<dyn Store>, registry: Arc<Registry>) -> Self {
        Self { store, registry }
    }

    /// Makes a process that waits to be begun ([`Action::Resume`]): `NEW`, by the highest version of its
    /// definition. `data` is the JSON a process of this type begins with.
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

    /// Makes a process and begins its first step at once.
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

    /// Carries an action out; the process as it is afterwards.
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
            if let Some(problem) = still_held(action, &change) {
                return Err(problem.into());
            }
            if let Some(process) = self.apply(change).await? {
                return Ok(process);
            }
        }
        Err(ActError::Busy)
    }

    /// Replays the dead letter of a process: what it waited for is tried again.
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
            let text = format!("dead letter {dead_letter} was {resolution} before");
            return Err(Problem::new("DEAD_LETTER_RESOLVED", &text).into());
        }
        let process_id = match letter.origin {
            Origin::Process => Uuid::parse_str(&letter.message_id).ok(),
            Origin::Inbox | Origin::Outbox => None,
        };
        let process_id = process_id.ok_or_else(|| {
            let text = format!("dead letter {dead_letter} is about a message; replay it as one");
            Problem::new("DEAD_LETTER_ORIGIN", &text)
        })?;
        let process = self.find(ProcessRef::Id(process_id)).await?;
        let action = match process.ok_or_else(|| not_found(process_id))?.status {
            ProcessStatus::Paused => Action::Resume,
            _ => Action::RetryStep,
        };
        self.act(process_id, action, actor, reason).await
    }

    /// One process, by its id or its business key.
    pub async fn find(&self, process: ProcessRef) -> Result<Option<Process>, StoreError> {
        Ok(self.store.load_processes(vec![process]).await?.pop().flatten())
    }

    /// Processes, newest first.
    pub async fn list(&self, filter: ProcessFilter) -> Result<Vec<Process>, StoreError> {
        self.store.list_processes(filter).await
    }

    /// The log of one, newest first; `before` is the sequence number where the last page ended.
    pub async fn log(
        &self,
        process_id: Uuid,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.store.process_log(process_id, before, limit).await
    }

    /// What a person may do with a process as it is; nothing if its definition is not known here, but to
    /// cancel it.
    pub fn actions(&self, process: &Process) -> Vec<Action> {
        let known = self.registry.of(process).and_then(|known| actions(known, process));
        known.unwrap_or_else(|_| match process.status.is_final() {
            true => Vec::new(),
            false => vec![Action::Cancel],
        })
    }

    /// The definition a process was started with.
    pub fn definition(&self, process: &Process) -> Result<&Definition, Problem> {
        self.registry.of(process)
    }

    /// What the inbox worker would say of a row, with nothing changed.
    pub async fn rehearse(&self, row: &InboxRow) -> Result<Outcome, StoreError> {
        let asked = match ask(&self.registry, row, Try::Again) {
            Ok(asked) => asked,
            Err(problem) => return Ok(Outcome::Fail { problem }),
        };
        let found = self.store.load_processes(asked.wanted.clone()).await?;
        let found = asked.wanted.iter().cloned().zip(found);
        let found: Found = found.filter_map(|(name, process)| Some((name, process?))).collect();
        let decided = decide(&self.registry, row, asked, &found, random());
        Ok(decided.map_or_else(|problem| Outcome::Fail { problem }, |_| Outcome::Done))
    }

    async fn make(
        &self,
        make: fn(&Definition, Uuid, Begun, Option<&str>) -> Change,
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
            if let Some(other) = others.iter().flatten().next() {
                return Err(key_taken(other).into());
            }
        }
        Err(ActError::Busy)
    }

    /// A process can be cancelled without its definition: there is no other way out of a lost one.
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

    /// The process after a change; none if the change came too late.
    async fn apply(&self, change: Change) -> Result<Option<Process>, ActError> {
        let process_id = change.process.process_id;
        if self.store.change_process(change).await? == Applied::Stale {
            return Ok(None);
        }
        relais_store::fail_point!("operator.after_change");
        pulse::sent();
        let process = self.find(ProcessRef::Id(process_id)).await?;
        process.map(Some).ok_or_else(|| not_found(process_id))
    }
}

/// Why setting a process going would only pause it again.
fn still_held(action: Action, change: &Change) -> Option<Problem> {
    let goes_on = matches!(action, Action::Resume | Action::RetryStep);
    match &change.dead_letter {
        DeadLetterChange::Open { problem, .. }
            if goes_on && change.process.status == ProcessStatus::Paused =>
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

/// What people do must say who and why.
fn named(actor: &str, reason: &str) -> Result<(), Problem> {
    if actor.trim().is_empty() || reason.trim().is_empty() {
        return Err(Problem::new(
            "ACTOR_AND_REASON",
            "say who does this and why; neither may be empty",
        ));
    }
    Ok(())
}
