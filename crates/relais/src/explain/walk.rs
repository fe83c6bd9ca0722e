//! From a thing to what caused it and to what it led to.
//!
//! Upwards it is a chain: a message has one cause. Downwards everything is followed, nearest first,
//! until [`THINGS_MAX`]. What the causes led to beside is not told.

mod tell;
mod waits;

use std::collections::{HashMap, HashSet, VecDeque};

use relais_core::{
    bulk::BulkJob,
    control::{ControlKind, PROCESS_TYPE_PAUSED},
    dead_letter::Origin,
    outbox::OutboxRow,
    process::{LogEntry, Process},
    query::{PAGE_MAX, ParkedKey},
    store::{Store, StoreError},
};
use uuid::Uuid;

use super::{
    EVENTS_MAX, Event, Explanation, Kind, Name, Role, THINGS_MAX, Thing, events, order,
    subject::{Row, load, received, sent},
};

/// Most causes of causes.
const CAUSES_MAX: usize = 100;
/// Most entries of one process's log, the newest.
const LOG_MAX: usize = 1_000;
/// Header in which a reply names the command it answers.
const HEADER_CAUSATION: &str = "causation-id";
/// What the message id of a timer that has fired begins with; its command follows.
const TIMER: &str = "timer:";

/// The whole story of a row.
pub(super) async fn explain(store: &dyn Store, subject: Row) -> Result<Explanation, StoreError> {
    let name = subject.name();
    let mut walk = Walk {
        store,
        things: Vec::new(),
        names: HashSet::new(),
        events: Vec::new(),
        told: HashSet::new(),
        next: VecDeque::new(),
        processes: HashMap::new(),
        jobs: HashMap::new(),
        notes: Vec::new(),
        cut: false,
    };
    for cause in walk.causes(&subject).await? {
        walk.add(&cause, Role::Cause).await?;
    }
    walk.next.push_back((subject, Role::Subject));
    while let Some((row, role)) = walk.next.pop_front() {
        if walk.add(&row, role).await? {
            walk.follow(&row).await?;
        }
    }
    walk.mark_held().await?;
    walk.mark_waits().await?;
    Ok(walk.finish(name))
}

/// A process with its log, oldest first, and whether that is all of it.
struct Logged {
    process: Process,
    log: Vec<LogEntry>,
}

struct Walk<'a> {
    store: &'a dyn Store,
    things: Vec<Thing>,
    names: HashSet<Name>,
    /// Those of one thing in their order.
    events: Vec<Event>,
    /// Log entries among them.
    told: HashSet<(Uuid, i64)>,
    next: VecDeque<(Row, Role)>,
    processes: HashMap<Uuid, Option<Logged>>,
    /// By destination.
    jobs: HashMap<String, Vec<BulkJob>>,
    notes: Vec<String>,
    cut: bool,
}

impl Walk<'_> {
    /// The first cause first.
    async fn causes(&mut self, subject: &Row) -> Result<Vec<Row>, StoreError> {
        let mut chain: Vec<Row> = Vec::new();
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

    async fn cause_of(&mut self, row: &Row) -> Result<Option<Row>, StoreError> {
        match row {
            Row::Inbox(row) => {
                // Another system's ids may be anything: only what was sent from here is a cause.
                let command = row.message_id.strip_prefix(TIMER);
                let command = command.or_else(|| row.headers.get(HEADER_CAUSATION));
                for id in [command, Some(row.message_id.as_str())].into_iter().flatten() {
                    if let Some(row) = sent(self.store, id).await? {
                        return Ok(Some(Row::Outbox(Box::new(row))));
                    }
                }
                Ok(None)
            }
            Row::Outbox(row) => {
                let Some(cause) = &row.causation_id else { return Ok(None) };
                if let Some(row) = received(self.store, cause).await? {
                    return Ok(Some(Row::Inbox(Box::new(row))));
                }
                if let Some(row) = sent(self.store, cause).await? {
                    return Ok(Some(Row::Outbox(Box::new(row))));
                }
                self.notes.push(format!(
                    "outbox:{} was caused by message {cause}, which is not here (any more)",
                    row.id
                ));
                Ok(None)
            }
            Row::Process(_) | Row::Gone(_) => Ok(None),
        }
    }

    /// Takes a row into the story; `false` if it is there already or there is no room.
    async fn add(&mut self, row: &Row, role: Role) -> Result<bool, StoreError> {
        if !self.enter(events::thing(row, role)) {
            return Ok(false);
        }
        let name = row.name();
        match row {
            Row::Inbox(row) => self.add_inbox(&name, row, role).await?,
            Row::Outbox(row) => self.add_outbox(&name, row, role).await?,
            Row::Process(_) | Row::Gone(_) => {
                let letters = self.store.dead_letters_of(row.message_id()).await?;
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

    /// Puts everything that a row led to behind what is waiting.
    async fn follow(&mut self, row: &Row) -> Result<(), StoreError> {
        match row {
            Row::Inbox(_) | Row::Gone(_) => {
                let id = row.message_id();
                for entry in self.store.process_log_of(id.clone()).await? {
                    self.follow_process(entry.process_id, entry.seq).await?;
                }
                self.follow_sent(id).await
            }
            Row::Outbox(row) => {
                let id = row.message_id.to_string();
                self.follow_command(row).await?;
                if let Some(back) = received(self.store, &id).await? {
                    self.effect(Row::Inbox(Box::new(back)));
                }
                self.follow_sent(id).await
            }
            Row::Process(process) => self.follow_process(process.process_id, 0).await,
        }
    }

    fn effect(&mut self, row: Row) {
        if self.names.contains(&row.name()) {
            return;
        }
        if self.things.len() + self.next.len() >= THINGS_MAX {
            self.cut = true;
        } else {
            self.next.push_back((row, Role::Effect));
        }
    }

    async fn follow_sent(&mut self, cause: String) -> Result<(), StoreError> {
        let rows = self.store.caused_by(cause).await?;
        self.cut |= rows.len() >= PAGE_MAX;
        for row in rows {
            self.effect(Row::Outbox(Box::new(row)));
        }
        Ok(())
    }

    /// What its process made of a command, from the moment it was sent.
    async fn follow_command(&mut self, row: &OutboxRow) -> Result<(), StoreError> {
        let id = row.correlation_id.as_deref().and_then(|id| Uuid::try_parse(id).ok());
        let Some(id) = id else { return Ok(()) };
        let Some(logged) = self.logged(id).await? else { return Ok(()) };
        let begun = logged
            .log
            .iter()
            .find(|entry| events::command_of(&entry.entry.event) == Some(row.message_id))
            .map(|entry| entry.seq);
        match begun {
            Some(seq) => self.follow_process(id, seq).await,
            None => Ok(()),
        }
    }

    /// A process goes in a line: everything from an entry on follows from it.
    async fn follow_process(&mut self, id: Uuid, from: i64) -> Result<(), StoreError> {
        let Some(logged) = self.logged(id).await? else { return Ok(()) };
        let entries: Vec<_> = logged.log.iter().filter(|e| e.seq >= from).cloned().collect();
        let process = Row::Process(Box::new(logged.process.clone()));
        let stands = events::standstill(&logged.process, &logged.log);
        self.add(&process, Role::Effect).await?;
        let name = process.name();
        for thing in self.things.iter_mut().filter(|thing| thing.name == name) {
            thing.problem.clone_from(&stands);
        }
        for entry in entries {
            if !self.tell_entry(&entry).await? {
                continue;
            }
            if let Some(id) = &entry.message_id
                && let Some(row) = received(self.store, id).await?
            {
                self.effect(Row::Inbox(Box::new(row)));
            }
            if let Some(id) = events::command_of(&entry.entry.event)
                && let Some(row) = sent(self.store, &id.to_string()).await?
            {
                self.effect(Row::Outbox(Box::new(row)));
            }
        }
        Ok(())
    }

    /// `false` if it was told before.
    async fn tell_entry(&mut self, entry: &LogEntry) -> Result<bool, StoreError> {
        if !self.told.insert((entry.process_id, entry.seq)) {
            return Ok(false);
        }
        let Some(logged) = self.logged(entry.process_id).await? else { return Ok(false) };
        let event = events::of_log(&logged.process, entry);
        self.events.push(event);
        Ok(true)
    }

    async fn logged(&mut self, id: Uuid) -> Result<Option<&Logged>, StoreError> {
        if !self.processes.contains_key(&id) {
            let logged = match load(self.store, id).await? {
                Some(process) => Some(Logged { process, log: self.read_log(id).await? }),
                None => None,
            };
            self.processes.insert(id, logged);
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

    /// Says of rows that are not done which dead letter they wait behind.
    async fn mark_held(&mut self) -> Result<(), StoreError> {
        let open = |thing: &Thing| matches!(&*thing.status, "RECEIVED" | "RETRY" | "PENDING");
        if !self.things.iter().any(open) {
            return Ok(());
        }
        for control in self.store.controls().await? {
            let Some(pause) = &control.pause else { continue };
            let concerns = |thing: &Thing| match control.kind {
                ControlKind::Destination => {
                    thing.name.kind == Kind::Outbox && thing.place.as_ref() == Some(&control.name)
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
            let held = parked.iter().find(|parked| holds(parked, thing));
            thing.held_by = held.map(|parked| parked.dead_letter_id);
        }
        Ok(())
    }

    fn finish(mut self, subject: Name) -> Explanation {
        self.events = order::by_time(self.events);
        if self.events.len() > EVENTS_MAX {
            self.events.truncate(EVENTS_MAX);
            self.cut = true;
        }
        let Self { things, events, notes, cut, .. } = self;
        Explanation { subject, things, events, notes, cut }
    }
}

fn holds(parked: &ParkedKey, thing: &Thing) -> bool {
    let place = match (parked.origin, thing.name.kind) {
        (Origin::Inbox, Kind::Inbox) => true,
        (Origin::Outbox, Kind::Outbox) => parked.destination == thing.place,
        _ => false,
    };
    place && Some(&parked.msg_key) == thing.key.as_ref()
}
