//! Topics as a source: a member of a consumer group that reads in batches.
//!
//! Invariant: offsets are committed to the group only after the batch is in the database, and only
//! for partitions that are still assigned. All calls of librdkafka happen in one thread, which
//! polls only while a batch is requested. No partition is revoked between storing and acknowledging a batch:
//! a revocation waits for it.

mod batch;
mod consumer_error;
mod lag;
mod membership;
mod offsets;
mod reader;
mod record;
mod schema;
mod settlement;
mod start_offset;
mod topic_id;

#[cfg(any(test, fuzzing))]
pub(super) use record::read_key;

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use relais_core::{
    InvalidSettings, async_trait,
    extract::Mapping,
    inbox::{AcceptOutcome, SourcePosition},
    source::{Positions, Source, SourceBatch, SourceError},
};
use tokio::{runtime::Handle, sync::mpsc};

use self::{
    membership::ConsumerFactory,
    reader::{KafkaReader, ReaderCommand, ReaderReply},
};
use super::{KafkaConnection, KafkaStartOffset, SchemaRegistry};
use crate::kafka_settings::UNKNOWN_SCHEMA_WAIT;

/// The settings of a [`KafkaSource`]. Start from [`KafkaSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct KafkaSourceSettings {
    /// The name of the source in `relais_source_position`.
    pub name: String,
    /// The connection to the cluster.
    pub connection: KafkaConnection,
    /// The consumer group; processes of one group share the partitions.
    pub group: String,
    /// The topics to read.
    pub topics: Vec<String>,
    /// The decoder and the places of ids in its messages.
    pub mapping: Mapping,
    /// The start of a topic that neither the database nor the group knows.
    pub start: KafkaStartOffset,
    /// The schema registry; [`relais_core::decode::Decoder::ConfluentAvro`] needs it.
    pub registry: Option<Arc<SchemaRegistry>>,
    /// The time that a record waits whose schema id the registry does not know. Then it is undecodable.
    pub unknown_schema_wait: Duration,
}

impl KafkaSourceSettings {
    /// Sets a default for everything except these.
    pub fn new(
        name: &str,
        connection: KafkaConnection,
        group: &str,
        topics: Vec<String>,
        mapping: Mapping,
    ) -> Self {
        let (name, group) = (name.to_owned(), group.to_owned());
        Self {
            name,
            connection,
            group,
            topics,
            mapping,
            start: KafkaStartOffset::Earliest,
            registry: None,
            unknown_schema_wait: UNKNOWN_SCHEMA_WAIT,
        }
    }
}

/// Counters of problems with the topics, and the lag.
#[derive(Debug, Default)]
pub struct KafkaSourceCounters {
    missed: AtomicU64,
    recreated: AtomicU64,
    status: Mutex<lag::SourceStatus>,
}

impl KafkaSourceCounters {
    /// Returns the number of offsets that were deleted at the broker before relais had read them.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Returns how often a partition belonged to a topic that was deleted and created again.
    pub fn recreated(&self) -> u64 {
        self.recreated.load(Ordering::Relaxed)
    }

    /// Returns the number of records in the assigned partitions that are not stored yet, as of a
    /// few seconds ago; `None` without partitions.
    pub fn lag(&self) -> Option<u64> {
        self.status().lag
    }

    /// Returns whether a broker was connected a few seconds ago; `None` before it is known.
    pub fn connected(&self) -> Option<bool> {
        self.status().connected
    }

    fn set_lag(&self, lag: u64) {
        self.status().lag = Some(lag);
    }

    fn set_status(&self, status: lag::SourceStatus) {
        *self.status() = status;
    }

    fn status(&self) -> MutexGuard<'_, lag::SourceStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the topics of a Kafka cluster.
///
/// ```
/// use relais_connect::kafka::{KafkaConnection, KafkaSource, KafkaSourceSettings, KafkaStartOffset};
/// use relais_core::extract::{Mapping, Pick};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mapping = Mapping::json("crm")
///     .message_id(Pick::header("message-id"))
///     .event_type(Pick::payload("/type"))
///     .aggregate_id(Pick::Key);
/// let connection = KafkaConnection::new("localhost:9092");
/// let topics = vec!["members".into()];
/// let settings = KafkaSourceSettings::new("members", connection, "relais", topics, mapping);
/// let source = KafkaSource::new(KafkaSourceSettings { start: KafkaStartOffset::Latest, ..settings })?;
/// # let _ = source;
/// # Ok(())
/// # }
/// ```
///
/// After a start or a rebalance it continues at the position in the database. The group's offset is
/// kept equal to it, for monitoring. Dropping the source leaves the group.
///
/// Unreadable records (damaged, or compressed by an unknown codec) are never skipped.
/// Their partition waits, with a warning that names it; the others continue.
pub struct KafkaSource {
    name: String,
    positions: Option<Arc<dyn Positions>>,
    counters: Arc<KafkaSourceCounters>,
    /// Present until the first `next`: it does not connect earlier.
    factory: Option<ConsumerFactory>,
    thread: Option<ReaderThread>,
    /// A batch was requested and has not arrived yet.
    requested: bool,
    /// Batches that were returned and are neither acknowledged nor refused.
    unsettled: usize,
    /// The refusals that were sent to the reader.
    refusals: u64,
}

/// The handle of the reader's thread.
struct ReaderThread {
    commands: mpsc::Sender<ReaderCommand>,
    replies: mpsc::Receiver<ReaderReply>,
    closing: Arc<AtomicBool>,
    pausing: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

/// Maximum number of waiting commands: two settle batches, one requests the next.
const COMMANDS_MAX: usize = 3;
/// Time that closing waits for the broker. After it the thread ends by itself; the positions are in
/// the database.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Time that a pause waits until the reader has stopped.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl KafkaSource {
    /// Validates the settings as far as possible without a broker. Connects at the first `next`.
    pub fn new(settings: KafkaSourceSettings) -> Result<Self, InvalidSettings> {
        if settings.topics.is_empty() || settings.topics.iter().any(|topic| topic.is_empty()) {
            return Err("no topic; set `topics` to at least one name".into());
        }
        if settings.group.is_empty() {
            return Err("no consumer group; set `group` to a name".into());
        }
        if settings.mapping.decoder.needs_schema() && settings.registry.is_none() {
            return Err("no schema registry; set `registry_url`, or another `decoder`".into());
        }
        let name = settings.name.clone();
        let counters = Arc::new(KafkaSourceCounters::default());
        let factory = ConsumerFactory::new(settings, Arc::clone(&counters))?;
        Ok(Self {
            name,
            positions: None,
            counters,
            factory: Some(factory),
            thread: None,
            requested: false,
            unsettled: 0,
            refusals: 0,
        })
    }

    /// Returns the counters; they stay valid after the source is moved.
    pub fn counters(&self) -> Arc<KafkaSourceCounters> {
        Arc::clone(&self.counters)
    }

    /// Stops the reader. Records that were collected but not stored are read again after the pause.
    async fn stop_reading(&mut self) -> Result<(), SourceError> {
        if self.requested {
            let thread = self.thread()?;
            thread.pausing.store(true, Ordering::Relaxed);
            let reply = thread.replies.recv().await;
            self.requested = false;
            self.unsettled += usize::from(matches!(reply, Some(ReaderReply::Batch { .. })));
        }
        self.refuse_unsettled().await?;
        self.send(ReaderCommand::Pause).await
    }

    /// Reads again what is neither acknowledged nor refused.
    async fn refuse_unsettled(&mut self) -> Result<(), SourceError> {
        match self.unsettled {
            0 => Ok(()),
            _ => self.send_refusal().await,
        }
    }

    /// Counts a refusal if and only if it is sent, also when the call is cancelled.
    async fn send_refusal(&mut self) -> Result<(), SourceError> {
        let place = self.thread()?.commands.reserve().await.map_err(|_| died())?;
        place.send(ReaderCommand::Refuse);
        self.refusals += 1;
        self.unsettled = 0;
        Ok(())
    }

    /// Requests a batch, unless that is done, and waits for it.
    async fn collect(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let max = max.max(1);
        let mut positions = None;
        loop {
            if !self.requested {
                self.send(ReaderCommand::Collect { max, positions: positions.take() }).await?;
                self.requested = true;
            }
            let reply = self.thread()?.replies.recv().await;
            self.requested = false;
            match reply {
                // Void: a batch before it was refused after it was collected.
                Some(ReaderReply::Batch { refusals, .. }) if refusals != self.refusals => {}
                // Requested by a cancelled call with a larger maximum.
                Some(ReaderReply::Batch { batch, .. })
                    if batch.messages.len() > max && self.unsettled == 0 =>
                {
                    self.send_refusal().await?;
                }
                Some(ReaderReply::Batch { batch, .. }) => {
                    self.unsettled += 1;
                    return Ok(batch);
                }
                Some(ReaderReply::AskPositions) => positions = Some(self.stored().await?),
                Some(ReaderReply::Unavailable(reason)) => {
                    return Err(SourceError::Unavailable(reason));
                }
                Some(ReaderReply::Paused) => {}
                Some(ReaderReply::Closed) => return Err(SourceError::Closed),
                None => return Err(died()),
            }
        }
    }

    async fn stored(&self) -> Result<Vec<SourcePosition>, SourceError> {
        let Some(positions) = &self.positions else { return Ok(Vec::new()) };
        positions.positions(self.name.clone()).await.map_err(|error| {
            SourceError::Unavailable(format!("cannot read the stored positions: {error}"))
        })
    }

    async fn send(&mut self, command: ReaderCommand) -> Result<(), SourceError> {
        self.thread()?.commands.send(command).await.map_err(|_| died())
    }

    fn thread(&mut self) -> Result<&mut ReaderThread, SourceError> {
        if let Some(factory) = self.factory.take() {
            let failed = |error| {
                SourceError::Unavailable(format!("cannot start the reader thread: {error}"))
            };
            self.thread = Some(start(factory).map_err(failed)?);
        }
        self.thread.as_mut().ok_or(SourceError::Closed)
    }
}

fn start(factory: ConsumerFactory) -> io::Result<ReaderThread> {
    let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
    let (outbox, replies) = mpsc::channel(1);
    let (closing, pausing) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    // The source is read by a task; only requests to a registry need its runtime.
    let runtime = factory.settings.registry.is_some().then(Handle::current);
    let flags = (Arc::clone(&closing), Arc::clone(&pausing));
    let reader = KafkaReader::new(factory, flags, inbox, runtime);
    let handle = thread::Builder::new()
        .name("kafka source".to_owned())
        .spawn(move || reader.run(&outbox))?;
    Ok(ReaderThread { commands, replies, closing, pausing, handle })
}

fn died() -> SourceError {
    SourceError::Unavailable("the reader thread has died; restart the process".to_owned())
}

#[async_trait]
impl Source for KafkaSource {
    fn attach(&mut self, positions: Arc<dyn Positions>) {
        self.positions = Some(positions);
    }

    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        self.refuse_unsettled().await?;
        self.collect(max).await
    }

    async fn read_ahead(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        self.collect(max).await
    }

    async fn acknowledge(&mut self, _accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        self.unsettled = self.unsettled.saturating_sub(1);
        self.send(ReaderCommand::Acknowledge).await
    }

    async fn refuse(&mut self, _reason: String) {
        // If the thread has died, the next `next` reports it.
        let _ = self.send_refusal().await;
    }

    async fn pause(&mut self) {
        // It does not connect before the first `next`.
        if self.thread.is_none() {
            return;
        }
        // If the thread has died, the next `next` reports it. If it waits for a broker that does
        // not answer, it reads nothing either.
        let _ = tokio::time::timeout(PAUSE_MAX, self.stop_reading()).await;
        if let Some(thread) = &self.thread {
            thread.pausing.store(false, Ordering::Relaxed);
        }
    }

    async fn close(&mut self) {
        self.factory = None;
        let thread = self.thread.take();

        let Some(ReaderThread { commands, mut replies, closing, handle, .. }) = thread else {
            return;
        };
        closing.store(true, Ordering::Relaxed);
        drop(commands);
        // Ends with the thread.
        let ended = async { while replies.recv().await.is_some() {} };
        match tokio::time::timeout(CLOSE_MAX, ended).await {
            Ok(()) => drop(handle.join()),
            Err(_) => tracing::warn!(
                "broker did not answer within 5 s; closed the consumer without leaving the group"
            ),
        }
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        if let Some(thread) = &self.thread {
            thread.closing.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KafkaSource").field(&self.name).finish()
    }
}
