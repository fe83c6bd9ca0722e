//! A namespace: its queues, topics and subscriptions, and the key that signs tokens.

use std::{collections::HashMap, time::SystemTime};

use crate::{
    entity::{Entity, EntityConfig, LockedMessage, Settlement},
    token,
    wire::AnyMessage,
};

/// The end of the address of dead letters.
const DEAD_LETTERS: &str = "/$deadletterqueue";

/// Names and settings of a namespace.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// The name of the shared access key.
    pub key_name: String,
    /// The key.
    pub key: String,
    /// Queues by name.
    pub queues: Vec<(String, EntityConfig)>,
    /// Topics and the names of their subscriptions.
    pub topics: Vec<(String, Vec<(String, EntityConfig)>)>,
    /// The largest message.
    pub message_bytes_max: u64,
}

impl Default for NamespaceConfig {
    fn default() -> Self {
        Self {
            key_name: "RootManageSharedAccessKey".to_owned(),
            key: "c2VjcmV0LWtleS1vZi10aGUtc2ltdWxhdG9y".to_owned(),
            queues: Vec::new(),
            topics: Vec::new(),
            message_bytes_max: 256 * 1024,
        }
    }
}

/// Everything that is stored. Names compare without case.
#[derive(Debug)]
pub(crate) struct Namespace {
    config: NamespaceConfig,
    entities: HashMap<String, Entity>,
    topics: HashMap<String, Vec<String>>,
    links: u64,
    /// Tokens that were accepted.
    pub(crate) tokens: usize,
}

impl Namespace {
    pub(crate) fn new(config: NamespaceConfig) -> Self {
        let (mut entities, mut topics) = (HashMap::new(), HashMap::new());
        let mut add = |name: &str, config: &EntityConfig| {
            let name = name.to_lowercase();
            let dead = EntityConfig { sessions: false, ..EntityConfig::default() };
            entities.insert(format!("{name}{DEAD_LETTERS}"), Entity::new(dead));
            entities.insert(name.clone(), Entity::new(config.clone()));
            name
        };
        for (name, config) in &config.queues {
            add(name, config);
        }
        for (topic, subscriptions) in &config.topics {
            let names = subscriptions
                .iter()
                .map(|(name, config)| add(&format!("{topic}/subscriptions/{name}"), config));
            topics.insert(topic.to_lowercase(), names.collect());
        }
        Self { config, entities, topics, links: 0, tokens: 0 }
    }

    pub(crate) fn message_bytes_max(&self) -> u64 {
        self.config.message_bytes_max
    }

    /// Returns a number for a new link.
    pub(crate) fn next_link(&mut self) -> u64 {
        self.links += 1;
        self.links
    }

    /// Checks a token. Returns the path that it opens, and its end.
    pub(crate) fn check_token(
        &mut self,
        token: &str,
        now: SystemTime,
    ) -> Result<(String, SystemTime), String> {
        let checked = token::check(token, &self.config.key_name, &self.config.key, now)?;
        self.tokens += 1;
        Ok(checked)
    }

    pub(crate) fn may_receive(&self, address: &str) -> bool {
        self.entities.contains_key(&address.to_lowercase())
    }

    pub(crate) fn may_send(&self, address: &str) -> bool {
        let name = address.to_lowercase();
        self.topics.contains_key(&name)
            || (self.entities.contains_key(&name) && !name.contains('/'))
    }

    pub(crate) fn entity(&self, address: &str) -> Option<&Entity> {
        self.entities.get(&address.to_lowercase())
    }

    pub(crate) fn needs_session(&self, address: &str) -> bool {
        self.entity(address).is_some_and(|entity| entity.config.sessions)
    }

    /// Stores a message in a queue, or in every subscription of a topic.
    pub(crate) fn store(
        &mut self,
        address: &str,
        message: &AnyMessage,
        now: SystemTime,
    ) -> Result<(), (&'static str, String)> {
        let name = address.to_lowercase();
        let places = self.topics.get(&name).cloned().unwrap_or_else(|| vec![name]);
        for place in places {
            if let Some(entity) = self.entities.get_mut(&place) {
                entity.store(message.clone(), now)?;
            }
        }
        Ok(())
    }

    pub(crate) fn next_session(&mut self, address: &str, link: u64) -> Option<String> {
        self.entities.get_mut(&address.to_lowercase())?.next_session(link)
    }

    pub(crate) fn take_session(&mut self, address: &str, session: &str, link: u64) -> bool {
        let entity = self.entities.get_mut(&address.to_lowercase());
        entity.is_some_and(|entity| entity.take_session(session, link))
    }

    pub(crate) fn lock(
        &mut self,
        address: &str,
        link: u64,
        session: Option<&str>,
        now: SystemTime,
    ) -> Option<LockedMessage> {
        self.entities.get_mut(&address.to_lowercase())?.lock(link, session, now)
    }

    /// Settles a lock. Returns whether it was valid.
    pub(crate) fn settle(&mut self, address: &str, token: u128, how: Settlement) -> bool {
        let name = address.to_lowercase();
        let settled = self.entities.get_mut(&name).and_then(|entity| entity.settle(token, how));
        let Some(dead) = settled else { return false };
        self.bury(&name, dead);
        true
    }

    pub(crate) fn leave(&mut self, address: &str, link: u64) {
        let name = address.to_lowercase();
        let dead = self.entities.get_mut(&name).map(|entity| entity.leave(link));
        self.bury(&name, dead.into_iter().flatten());
    }

    pub(crate) fn tick(&mut self, now: SystemTime) {
        let expired: Vec<(String, Vec<AnyMessage>)> = self
            .entities
            .iter_mut()
            .map(|(name, entity)| (name.clone(), entity.tick(now)))
            .filter(|(_, dead)| !dead.is_empty())
            .collect();
        for (name, dead) in expired {
            self.bury(&name, dead);
        }
    }

    fn bury(&mut self, name: &str, dead: impl IntoIterator<Item = AnyMessage>) {
        let Some(grave) = self.entities.get_mut(&format!("{name}{DEAD_LETTERS}")) else { return };
        for message in dead {
            // A dead letter has no session there, and nothing refuses it.
            let _ = grave.store(message, SystemTime::now());
        }
    }
}
