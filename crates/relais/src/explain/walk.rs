//! Walks from a thing to its causes and to its effects.
//!
//! Upwards it is a chain: a message has one cause. Downwards every effect is followed, nearest first, up to
//! [`THINGS_MAX`]. Other effects of the causes are not part of the explanation.

mod collect;
mod waits;

use std::collections::{HashMap, HashSet, VecDeque};

use relais_core::{
    bulk::BulkJob,
    control::{ControlKind, PROCESS_TYPE_PAUSED},
    dead_letter::Origin,
    inspect::InspectExt,
    outbox::OutboxRow,
    process::{LogEntry, Process},
    query::{PAGE_MAX, ParkedKey},
    store::{StoreDriver, StoreError},
};
use uuid::Uuid;

use super::{
    EVENTS_MAX, Explanation, THINGS_MAX, Thing, ThingKind, ThingName, ThingRole, TimelineEvent,
    events, order,
    subject::{SubjectRow, copies, load, received, retried_conflicts, sent},
};

/// Maximum length of the chain of causes.
const CAUSES_MAX: usize = 100;
/// Maximum number of log entries of one process, the newest.
const LOG_MAX: usize = 1_000;
/// Header in which a reply names the command it answers.
const HEADER_CAUSATION: &str = "causation-id";
/// The prefix of the message id of a fired timer; its command follows.
const TIMER: &str = "timer:";

/// Explains a row.
pub(super) async fn explain(
    store: &dyn StoreDriver,
    subject: SubjectRow,
) -> Result<Explanation, StoreError> {
    let name = subject.name();
    let mut walk = Walk {
        store,
        things: Vec::new(),
        names: HashSet::new(),
        events: Vec::new(),
        logged: HashSet::new(),
        next: VecDeque::new(),
        processes: HashMap::new(),
        jobs: HashMap::new(),
        notes: Vec::new(),
        cut: false,
    };
    for cause in walk.causes(&subject).await? {
        walk.add(&cause, ThingRole::Cause).await?;
    }
    walk.next.push_back((subject, ThingRole::Subject));
    while let Some((row, role)) = walk.next.pop_front() {
        if walk.add(&row, role).await? {
            walk.follow(&row).await?;
        }
    }
    walk.mark_parked().await?;
    walk.mark_waits().await?;
    Ok(walk.finish(name))
}

/// A process with its log, oldest first.
struct LoggedProcess {
    process: Process,
    log: Vec<LogEntry>,
}

struct Walk<'a> {
    store: &'a dyn StoreDriver,
    things: Vec<Thing>,
    names: HashSet<ThingName>,
    /// The events of one thing are in order.
    events: Vec<TimelineEvent>,
    /// The log entries among them.
    logged: HashSet<(Uuid, i64)>,
    next: VecDeque<(SubjectRow, ThingRole)>,
    processes: HashMap<Uuid, Option<LoggedProcess>>,
    /// By destination.
    jobs: HashMap<String, Vec<BulkJob>>,
    notes: Vec<String>,
    cut: bool,
}

impl Walk<'_> {
    /// Returns the chain of causes, first cause first.
    async fn causes(&mut self, subject: &SubjectRow) -> Result<Vec<SubjectRow>, StoreError> {
        let mut chain: Vec<SubjectRow> = Vec::new();
        let mut seen = HashSet::from([subject.name()]);
        while let Some(cause) = self.cause_of(chain.last().unwrap_or(subject)).await? {
            if !seen.insert(cause.name()) {
                break;
            }
            if chain.len() == CAUSES_MAX {
                self.cut = true;
                break;
            }
            chain.push(cause);
        }
        chain.reverse();
        Ok(chain)
    }

    async fn cause_of(&mut self, row: &SubjectRow) -> Result<Option<SubjectRow>, StoreError> {
        match row {
            SubjectRow::Inbox(row) => {
                // Ids of other systems may be anything: only a message sent from here is a cause.
                let command = row.message_id.strip_prefix(TIMER);
                let command = command.or_else(|| row.headers.get(HEADER_CAUSATION));
                for id in [command, Some(row.message_id.as_str())].into_iter().flatten() {
                    if let Some(row) = sent(self.store, id).await? {
                        return Ok(Some(SubjectRow::Outbox(Box::new(row))));
                    }
                }
                Ok(None)
            }
            SubjectRow::Outbox(row) => {
                let Some(cause) = &row.causation_id else { return Ok(None) };
                if let Some(row) = received(self.store, cause).await? {
                    return Ok(Some(SubjectRow::Inbox(Box::new(row))));
                }
                if let Some(row) = sent(self.store, cause).await? {
                    return Ok(Some(SubjectRow::Outbox(Box::new(row))));
                }
                self.notes.push(format!(
                    "outbox:{} was caused by message {cause}, which is not stored here (any more)",
                    row.id
                ));
                Ok(None)
            }
            SubjectRow::Process(_) | SubjectRow::Job(_) | SubjectRow::Removed(_) => Ok(None),
        }
    }

    /// Adds a row to the explanation; returns `false` if it is part of it already or there is no room.
    async fn add(&mut self, row: &SubjectRow, role: ThingRole) -> Result<bool, StoreError> {
        if !self.enter(events::thing(row, role)) {
            return Ok(false);
        }
        let name = row.name();
        match row {
            SubjectRow::Inbox(row) => self.add_inbox(&name, row, role).await?,
            SubjectRow::Outbox(row) => self.add_outbox(&name, row, role).await?,
            SubjectRow::Job(job) => self.events.extend(events::of_job(job)),
            SubjectRow::Process(_) | SubjectRow::Removed(_) => {
                let letters = self.store.trail(row.message_id()).await?.dead_letters;
                self.add_letters(&name, letters).await?;
            }
        }
        Ok(true)
    }

    fn enter(&mut self, thing: Thing) -> bool {
        if self.names.contains(&thing.name) {
            return false;
        }
        if self.things.len() >= THINGS_MAX {
            self.cut = true;
            return false;
        }
        self.names.insert(thing.name.clone());
        self.things.push(thing);
        true
    }

    /// Queues the effects of a row.
    async fn follow(&mut self, row: &SubjectRow) -> Result<(), StoreError> {
        match row {
            SubjectRow::Inbox(_) | SubjectRow::Removed(_) => {
                if let SubjectRow::Inbox(row) = row {
                    let mut beside = copies(self.store, row).await?;
                    beside.extend(retried_conflicts(self.store, row).await?);
                    for row in beside {
                        self.effect(SubjectRow::Inbox(Box::new(row)));
                    }
                }
                let id = row.message_id();
                for entry in self.store.trail(id.clone()).await?.process_log {
                    self.follow_process(entry.process_id, entry.seq).await?;
                }
                self.follow_sent(id).await
            }
            SubjectRow::Outbox(row) => {
                let id = row.message_id.to_string();
                self.follow_command(row).await?;
                if let Some(back) = received(self.store, &id).await? {
                    self.effect(SubjectRow::Inbox(Box::new(back)));
                }
                self.follow_sent(id).await
            }
            SubjectRow::Process(process) => self.follow_process(process.process_id, 0).await,
            // It may have more rows than an explanation.
            SubjectRow::Job(_) => Ok(()),
        }
    }

    fn effect(&mut self, row: SubjectRow) {
        if self.names.contains(&row.name()) {
            return;
        }
        if self.things.len() + self.next.len() >= THINGS_MAX {
            self.cut = true;
        } else {
            self.next.push_back((row, ThingRole::Effect));
        }
    }

    async fn follow_sent(&mut self, cause: String) -> Result<(), StoreError> {
        let rows = self.store.trail(cause).await?.caused;
        self.cut |= rows.len() >= PAGE_MAX;
        for row in rows {
            self.effect(SubjectRow::Outbox(Box::new(row)));
        }
        Ok(())
    }

    /// Follows the process of a command, from the entry that sent it.
    async fn follow_command(&mut self, row: &OutboxRow) -> Result<(), StoreError> {
        let id = row.correlation_id.as_deref().and_then(|id| Uuid::try_parse(id).ok());
        let Some(id) = id else { return Ok(()) };
        let Some(process) = self.process(id).await? else { return Ok(()) };
        let begun = process
            .log
            .iter()
            .find(|entry| events::command_of(&entry.entry.event) == Some(row.message_id))
            .map(|entry| entry.seq);
        match begun {
            Some(seq) => self.follow_process(id, seq).await,
            None => Ok(()),
        }
    }

    /// Follows a process from a log entry: all later entries are effects of it.
    async fn follow_process(&mut self, id: Uuid, from: i64) -> Result<(), StoreError> {
        let Some(found) = self.process(id).await? else { return Ok(()) };
        let entries: Vec<_> = found.log.iter().filter(|e| e.seq >= from).cloned().collect();
        let process = SubjectRow::Process(Box::new(found.process.clone()));
        let problem = events::stop_reason(&found.process, &found.log);
        self.add(&process, ThingRole::Effect).await?;
        let name = process.name();
        for thing in self.things.iter_mut().filter(|thing| thing.name == name) {
            thing.problem.clone_from(&problem);
        }
        for entry in entries {
            if !self.add_entry(&entry).await? {
                continue;
            }
            if let Some(id) = &entry.message_id
                && let Some(row) = received(self.store, id).await?
            {
                self.effect(SubjectRow::Inbox(Box::new(row)));
            }
            if let Some(id) = events::command_of(&entry.entry.event)
                && let Some(row) = sent(self.store, &id.to_string()).await?
            {
                self.effect(SubjectRow::Outbox(Box::new(row)));
            }
        }
        Ok(())
    }

    /// Adds a log entry; returns `false` if it was added before.
    async fn add_entry(&mut self, entry: &LogEntry) -> Result<bool, StoreError> {
        if !self.logged.insert((entry.process_id, entry.seq)) {
            return Ok(false);
        }
        let Some(found) = self.process(entry.process_id).await? else { return Ok(false) };
        let event = events::of_log(&found.process, entry);
        self.events.push(event);
        Ok(true)
    }

    async fn process(&mut self, id: Uuid) -> Result<Option<&LoggedProcess>, StoreError> {
        if !self.processes.contains_key(&id) {
            let found = match load(self.store, id).await? {
                Some(process) => Some(LoggedProcess { process, log: self.read_log(id).await? }),
                None => None,
            };
            self.processes.insert(id, found);
        }
        Ok(self.processes[&id].as_ref())
    }

    async fn read_log(&mut self, id: Uuid) -> Result<Vec<LogEntry>, StoreError> {
        let (mut log, mut before) = (Vec::new(), None);
        while log.len() < LOG_MAX {
            let page = self.store.process_log(id, before, PAGE_MAX).await?;
            let full = page.len() == PAGE_MAX;
            before = page.last().map(|entry| entry.seq);
            log.extend(page);
            if !full {
                log.reverse();
                return Ok(log);
            }
        }
        self.cut = true;
        log.reverse();
        Ok(log)
    }

    /// Sets the dead letter that parks the key of an open row; notes pauses of operators.
    async fn mark_parked(&mut self) -> Result<(), StoreError> {
        let open = |thing: &Thing| matches!(&*thing.status, "RECEIVED" | "RETRY" | "PENDING");
        if !self.things.iter().any(open) {
            return Ok(());
        }
        for control in self.store.controls().await? {
            let Some(pause) = &control.pause else { continue };
            let concerns = |thing: &Thing| match control.kind {
                ControlKind::Destination => {
                    thing.name.kind == ThingKind::Outbox
                        && thing.place.as_ref() == Some(&control.name)
                }
                ControlKind::ProcessType => {
                    let code = thing.problem.as_ref().map(|problem| problem.code.as_str());
                    code == Some(PROCESS_TYPE_PAUSED)
                }
                ControlKind::Source => false,
            };
            if self.things.iter().any(|thing| open(thing) && concerns(thing)) {
                self.notes.push(format!(
                    "{} {} is paused since {} by {}: {}",
                    control.kind.words(),
                    control.name,
                    pause.at,
                    pause.by,
                    pause.reason
                ));
            }
        }
        let parked = self.store.parked_keys(PAGE_MAX).await?;
        for thing in self.things.iter_mut().filter(|thing| open(thing)) {
            let parked = parked.iter().find(|parked| parks(parked, thing));
            thing.held_by = parked.map(|parked| parked.dead_letter_id);
        }
        Ok(())
    }

    fn finish(mut self, subject: ThingName) -> Explanation {
        self.events = order::by_time(self.events);
        if self.events.len() > EVENTS_MAX {
            self.events.truncate(EVENTS_MAX);
            self.cut = true;
        }
        let Self { things, events, notes, cut, .. } = self;
        Explanation { subject, things, events, notes, cut }
    }
}

fn parks(parked: &ParkedKey, thing: &Thing) -> bool {
    let place = match (parked.origin, thing.name.kind) {
        (Origin::Inbox, ThingKind::Inbox) => true,
        (Origin::Outbox, ThingKind::Outbox) => parked.destination == thing.place,
        _ => false,
    };
    place && Some(&parked.msg_key) == thing.key.as_ref()
}
