//! Queues and subscriptions: stored messages, their locks, sessions and dead letters.
//!
//! Pure: time is an argument.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime},
};

use fe2o3_amqp_types::{
    messaging::{MessageId, annotations::OwnedKey},
    primitives::{SimpleValue, Symbol, Timestamp, Value},
};

use crate::wire::AnyMessage;

/// The settings of a queue or subscription.
#[derive(Clone, Debug)]
pub struct EntityConfig {
    /// Messages are received by session only.
    pub sessions: bool,
    /// The time within which a message id is accepted once.
    pub duplicate_window: Option<Duration>,
    /// The time after which a locked message is delivered again.
    pub lock: Duration,
    /// A message is a dead letter after this many deliveries.
    pub deliveries_max: u32,
}

impl Default for EntityConfig {
    fn default() -> Self {
        Self {
            sessions: false,
            duplicate_window: None,
            lock: Duration::from_secs(60),
            deliveries_max: 10,
        }
    }
}

/// The state of one stored message.
#[derive(Clone, Debug, PartialEq)]
enum StoredState {
    Available,
    Scheduled(SystemTime),
    Locked { token: u128, until: SystemTime, link: u64 },
}

#[derive(Clone, Debug)]
struct StoredMessage {
    message: AnyMessage,
    enqueued: SystemTime,
    deliveries: u32,
    session: Option<String>,
    state: StoredState,
}

/// A delivery with its lock.
#[derive(Debug)]
pub(crate) struct LockedMessage {
    pub(crate) token: u128,
    pub(crate) message: AnyMessage,
}

/// The decision of a receiver about a delivery.
#[derive(Clone, Debug)]
pub(crate) enum Settlement {
    Complete,
    Abandon,
    /// Returned without counting as a delivery.
    Release,
    DeadLetter {
        reason: Option<String>,
        description: Option<String>,
    },
}

/// A queue or subscription.
#[derive(Debug, Default)]
pub(crate) struct Entity {
    pub(crate) config: EntityConfig,
    messages: BTreeMap<i64, StoredMessage>,
    next_sequence: i64,
    tokens: u128,
    seen: HashMap<String, SystemTime>,
    /// Sessions and the links that have locked them.
    sessions: HashMap<String, u64>,
    /// Messages that were sent and recognised as duplicates.
    pub(crate) duplicates: usize,
}

impl Entity {
    pub(crate) fn new(config: EntityConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Returns the number of messages, locked and scheduled ones included.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn messages(&self) -> Vec<AnyMessage> {
        self.messages.values().map(|stored| stored.message.clone()).collect()
    }

    /// Stores a message. The error is the condition and text of a rejection.
    pub(crate) fn store(
        &mut self,
        message: AnyMessage,
        now: SystemTime,
    ) -> Result<(), (&'static str, String)> {
        let properties = message.properties.as_ref();
        let session = properties.and_then(|properties| properties.group_id.clone());
        if self.config.sessions && session.is_none() {
            let why =
                "The SessionId was not set on a message, and it cannot be sent to the entity.";
            return Err(("amqp:not-allowed", why.to_owned()));
        }
        if session.as_ref().is_some_and(|session| session.len() > 128) {
            let why = "The SessionId has more than 128 characters.";
            return Err(("com.microsoft:argument-error", why.to_owned()));
        }
        if let Some(window) = self.config.duplicate_window
            && let Some(id) = properties.and_then(|properties| properties.message_id.as_ref())
        {
            self.seen.retain(|_, at| *at + window > now);
            if self.seen.insert(id_text(id), now).is_some() {
                // Accepted, and not stored.
                self.duplicates += 1;
                return Ok(());
            }
        }
        let state = match scheduled(&message) {
            Some(at) if at > now => StoredState::Scheduled(at),
            _ => StoredState::Available,
        };
        self.next_sequence += 1;
        let stored = StoredMessage { message, enqueued: now, deliveries: 0, session, state };
        self.messages.insert(self.next_sequence, stored);
        Ok(())
    }

    /// Ends expired locks and starts scheduled messages. Returns messages that are dead letters now.
    pub(crate) fn tick(&mut self, now: SystemTime) -> Vec<AnyMessage> {
        let mut expired = Vec::new();
        for (sequence, stored) in &mut self.messages {
            match stored.state {
                StoredState::Locked { until, .. } if until <= now => expired.push(*sequence),
                StoredState::Scheduled(at) if at <= now => {
                    stored.state = StoredState::Available;
                    stored.enqueued = now;
                }
                _ => {}
            }
        }
        expired.into_iter().filter_map(|sequence| self.unlock(sequence, 1)).collect()
    }

    /// Gives a session that has a message and no link to this link.
    pub(crate) fn next_session(&mut self, link: u64) -> Option<String> {
        let free = |stored: &&StoredMessage| {
            stored.state == StoredState::Available
                && stored.session.as_ref().is_some_and(|one| !self.sessions.contains_key(one))
        };
        let session = self.messages.values().find(free)?.session.clone()?;
        self.sessions.insert(session.clone(), link);
        Some(session)
    }

    /// Gives this session to the link, unless another has it.
    pub(crate) fn take_session(&mut self, session: &str, link: u64) -> bool {
        match self.sessions.get(session) {
            Some(owner) if *owner != link => false,
            _ => {
                self.sessions.insert(session.to_owned(), link);
                true
            }
        }
    }

    /// Locks the next message for a link.
    pub(crate) fn lock(
        &mut self,
        link: u64,
        session: Option<&str>,
        now: SystemTime,
    ) -> Option<LockedMessage> {
        let fits = |stored: &StoredMessage| {
            stored.state == StoredState::Available
                && session.is_none_or(|session| stored.session.as_deref() == Some(session))
        };
        let (sequence, stored) = self.messages.iter_mut().find(|(_, stored)| fits(stored))?;
        self.tokens += 1;
        let (token, until) = (self.tokens, now + self.config.lock);
        stored.state = StoredState::Locked { token, until, link };
        let mut message = stored.message.clone();
        message.header.get_or_insert_default().delivery_count = stored.deliveries;
        let annotations = &mut message.message_annotations.get_or_insert_default().0;
        let mut note = |name: &str, value| {
            annotations.insert(OwnedKey::Symbol(Symbol::from(name)), value);
        };
        note("x-opt-sequence-number", Value::Long(*sequence));
        note("x-opt-enqueued-time", Value::Timestamp(timestamp(stored.enqueued)));
        note("x-opt-locked-until", Value::Timestamp(timestamp(until)));
        Some(LockedMessage { token, message })
    }

    /// Settles a lock. `None` if it has expired; else a message that is a dead letter now, if any.
    pub(crate) fn settle(&mut self, token: u128, how: Settlement) -> Option<Option<AnyMessage>> {
        let has = |stored: &StoredMessage| matches!(stored.state, StoredState::Locked { token: known, .. } if known == token);
        let sequence = *self.messages.iter().find(|(_, stored)| has(stored))?.0;
        Some(match how {
            Settlement::Complete => {
                self.messages.remove(&sequence);
                None
            }
            Settlement::Abandon => self.unlock(sequence, 1),
            Settlement::Release => self.unlock(sequence, 0),
            Settlement::DeadLetter { reason, description } => {
                let stored = self.messages.remove(&sequence)?;
                Some(dead(stored.message, reason.as_deref(), description.as_deref()))
            }
        })
    }

    /// Ends the locks of a link that was closed. Returns messages that are dead letters now.
    pub(crate) fn leave(&mut self, link: u64) -> Vec<AnyMessage> {
        self.sessions.retain(|_, owner| *owner != link);
        let of_link = |stored: &StoredMessage| matches!(stored.state, StoredState::Locked { link: owner, .. } if owner == link);
        let locked: Vec<i64> = self
            .messages
            .iter()
            .filter_map(|(sequence, stored)| of_link(stored).then_some(*sequence))
            .collect();
        locked.into_iter().filter_map(|sequence| self.unlock(sequence, 1)).collect()
    }

    fn unlock(&mut self, sequence: i64, deliveries: u32) -> Option<AnyMessage> {
        let stored = self.messages.get_mut(&sequence)?;
        stored.state = StoredState::Available;
        stored.deliveries += deliveries;
        if stored.deliveries < self.config.deliveries_max {
            return None;
        }
        let stored = self.messages.remove(&sequence)?;
        let why = "Message could not be consumed after the most deliveries.";
        Some(dead(stored.message, Some("MaxDeliveryCountExceeded"), Some(why)))
    }
}

fn dead(mut message: AnyMessage, reason: Option<&str>, description: Option<&str>) -> AnyMessage {
    let properties = message.application_properties.get_or_insert_default();
    let notes = [("DeadLetterReason", reason), ("DeadLetterErrorDescription", description)];
    for (name, text) in notes {
        if let Some(text) = text {
            properties.0.insert(name.to_owned(), SimpleValue::String(text.to_owned()));
        }
    }
    message
}

fn scheduled(message: &AnyMessage) -> Option<SystemTime> {
    let annotations = message.message_annotations.as_ref()?;
    let key = OwnedKey::Symbol(Symbol::from("x-opt-scheduled-enqueue-time"));
    match annotations.0.iter().find(|(known, _)| **known == key)?.1 {
        Value::Timestamp(at) => {
            let millis = u64::try_from(at.milliseconds()).ok()?;
            Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
        }
        _ => None,
    }
}

pub(crate) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_milliseconds(i64::try_from(since.as_millis()).unwrap_or_default())
}

fn id_text(id: &MessageId) -> String {
    match id {
        MessageId::String(text) => text.clone(),
        other => format!("{other:?}"),
    }
}
