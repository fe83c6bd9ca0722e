//! The schemas of records, asked for in the reader's thread.
//!
//! Invariant: a record waits while the registry cannot answer, however long that takes. If the registry answers
//! that it has no such schema, the record waits for a configured time, and is then undecodable.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use relais_core::{decode::DecodedValue, delivery::Problem};
use tokio::runtime::Handle;

use crate::kafka::registry::{
    self, ANSWER_MAX, RegisteredSchema, RegistryError, SchemaRegistry, UNKNOWN_SCHEMA_ID,
};

/// The pause before a schema is asked for again, which doubles up to a maximum.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The most schemas whose failures are kept.
const FAILURES_MAX: usize = 1_000;
/// Interval at which a waiting reader checks whether it is to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time of a request to the registry and to those for the schemas that it names.
const ASK_MAX: Duration = ANSWER_MAX.saturating_mul(2);
/// Shortest time without an unknown id after which the next one waits again.
const QUIET_MIN: Duration = Duration::from_secs(60);

/// A record cannot be decoded now; its partition waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemaWait {
    pub(super) reason: String,
    pub(super) pause: Duration,
}

/// Finds the schemas of records.
pub(super) struct SchemaResolver {
    registry: Arc<SchemaRegistry>,
    runtime: Handle,
    failures: SchemaFailures,
}

impl SchemaResolver {
    pub(super) fn new(
        registry: Arc<SchemaRegistry>,
        unknown_wait: Duration,
        runtime: Handle,
    ) -> Self {
        Self { registry, runtime, failures: SchemaFailures::new(unknown_wait) }
    }

    /// Decodes a value; the error says why it has to wait. Asks the registry for at most a few seconds, and ends
    /// at once if `is_stopping`.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        is_stopping: impl Fn() -> bool,
    ) -> Result<Result<DecodedValue, Problem>, SchemaWait> {
        let (id, value) = match registry::split(bytes) {
            Ok(parts) => parts,
            Err(problem) => return Ok(Err(problem)),
        };
        let schema = match self.registry.known(id) {
            Some(known) => Ok(known),
            None => match self.failures.recent(id, Instant::now()) {
                Some(error) => Err(error),
                None => self.ask(id, is_stopping).inspect_err(|error| {
                    self.failures.note(id, error.clone(), Instant::now());
                }),
            },
        };
        match schema {
            Ok(schema) => {
                self.failures.forget(id);
                Ok(schema.decode(id, value))
            }
            Err(error) => self.failures.judge(id, &error, Instant::now()).map(Err),
        }
    }

    /// Returns whether records waited and none does any more, once.
    pub(super) fn take_recovery(&mut self) -> bool {
        std::mem::take(&mut self.failures.recovered)
    }

    fn ask(
        &self,
        id: u32,
        is_stopping: impl Fn() -> bool,
    ) -> Result<Arc<RegisteredSchema>, RegistryError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let registry = Arc::clone(&self.registry);
        self.runtime.spawn(async move {
            let asked = tokio::time::timeout(ASK_MAX, registry.schema(id)).await;
            // The reader may have stopped waiting.
            let _ = answer.send(asked.unwrap_or_else(|_| Err(late(id))));
        });
        loop {
            match answered.recv_timeout(CHECK_INTERVAL) {
                Ok(answer) => return answer,
                Err(mpsc::RecvTimeoutError::Timeout) if !is_stopping() => {}
                Err(_) => return Err(late(id)),
            }
        }
    }
}

fn late(id: u32) -> RegistryError {
    RegistryError::Unavailable(format!(
        "cannot read schema {id}: no answer in time; check the registry"
    ))
}

/// The schemas that the registry did not give.
#[derive(Debug)]
struct SchemaFailures {
    unknown_wait: Duration,
    by_id: HashMap<u32, SchemaFailure>,
    /// The time in which the registry said of ids that it has none.
    unknown: Option<UnknownPeriod>,
    recovered: bool,
}

#[derive(Debug)]
struct SchemaFailure {
    error: RegistryError,
    /// The last pause.
    pause: Duration,
    ask_at: Instant,
}

/// It is one period for all ids: else records of a writer without a registry would wait one after the other.
#[derive(Clone, Copy, Debug)]
struct UnknownPeriod {
    since: Instant,
    last: Instant,
}

impl SchemaFailures {
    fn new(unknown_wait: Duration) -> Self {
        Self { unknown_wait, by_id: HashMap::new(), unknown: None, recovered: false }
    }

    /// Returns the last failure while it is too early to ask again.
    fn recent(&self, id: u32, now: Instant) -> Option<RegistryError> {
        self.by_id.get(&id).filter(|failure| now < failure.ask_at).map(|one| one.error.clone())
    }

    fn note(&mut self, id: u32, error: RegistryError, now: Instant) {
        let pause = self.by_id.get(&id).map_or(PAUSE_MIN, |one| (one.pause * 2).min(PAUSE_MAX));
        if self.by_id.len() >= FAILURES_MAX {
            self.by_id.clear();
        }
        self.by_id.insert(id, SchemaFailure { error, pause, ask_at: now + pause });
    }

    /// Forgets the failures of an id that is known now.
    fn forget(&mut self, id: u32) {
        if self.by_id.remove(&id).is_some() {
            self.unknown = None;
            self.recovered = self.by_id.is_empty();
        }
    }

    /// Decides whether a record waits or is undecodable.
    fn judge(
        &mut self,
        id: u32,
        error: &RegistryError,
        now: Instant,
    ) -> Result<Problem, SchemaWait> {
        let ask_at = self.by_id.get(&id).map_or(now, |failure| failure.ask_at);
        let mut pause = ask_at.saturating_duration_since(now).max(Duration::from_millis(1));
        if let RegistryError::NotFound(why) = error {
            let quiet = self.unknown_wait.max(QUIET_MIN);
            let since = match self.unknown {
                Some(period) if now.duration_since(period.last) < quiet => period.since,
                _ => now,
            };
            self.unknown = Some(UnknownPeriod { since, last: now });
            let waited = now.duration_since(since);
            if waited >= self.unknown_wait {
                return Ok(Problem::new(
                    UNKNOWN_SCHEMA_ID,
                    &format!("{why}; register the schema, or correct `registry_url`"),
                ));
            }
            pause = pause.min(self.unknown_wait - waited);
        }
        Err(SchemaWait { reason: error.to_string(), pause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(600);

    fn missing() -> RegistryError {
        RegistryError::NotFound("none".to_owned())
    }

    #[test]
    fn a_registry_that_is_unavailable_is_waited_for_without_an_end() {
        let mut failures = SchemaFailures::new(WAIT);
        let error = RegistryError::Unavailable("no connection".to_owned());
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..1_000 {
            assert_eq!(failures.recent(7, now), None);
            failures.note(7, error.clone(), now);
            let wait = failures.judge(7, &error, now).unwrap_err();
            assert_eq!(failures.recent(7, now), Some(error.clone()));
            now += wait.pause;
            pauses.push(wait.pause.as_secs());
        }
        assert_eq!((&pauses[..5], pauses[999]), (&[1, 2, 4, 8, 10][..], 10));
    }

    #[test]
    fn an_unknown_id_waits_for_the_configured_time_once() {
        let mut failures = SchemaFailures::new(WAIT);
        let start = Instant::now();
        failures.note(7, missing(), start);
        failures.judge(7, &missing(), start).unwrap_err();
        failures.judge(7, &missing(), start + WAIT / 2).unwrap_err();
        let problem = failures.judge(7, &missing(), start + WAIT).unwrap();
        assert_eq!(problem.code, UNKNOWN_SCHEMA_ID);
        // The next garbage does not wait again, until it was quiet for long enough.
        failures.judge(8, &missing(), start + WAIT).unwrap();
        failures.judge(9, &missing(), start + WAIT * 2 - PAUSE_MIN).unwrap();
        failures.judge(9, &missing(), start + WAIT * 4).unwrap_err();
    }

    #[test]
    fn a_schema_that_appears_ends_the_wait() {
        let mut failures = SchemaFailures::new(WAIT);
        let start = Instant::now();
        failures.note(7, missing(), start);
        failures.judge(7, &missing(), start).unwrap_err();
        failures.forget(8);
        assert!(!failures.recovered && failures.unknown.is_some());
        failures.forget(7);
        assert!(failures.recovered && failures.unknown.is_none());
        failures.judge(9, &missing(), start + WAIT).unwrap_err();
    }

    #[test]
    fn failures_are_bounded() {
        let mut failures = SchemaFailures::new(WAIT);
        for id in 0..5_000 {
            failures.note(id, missing(), Instant::now());
        }
        assert!(failures.by_id.len() <= FAILURES_MAX);
    }
}
