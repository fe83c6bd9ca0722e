//! Topics as a source: a member of a consumer group, read in batches.
//!
//! Invariant: a batch is acknowledged to the group only after the database has it, and only for
//! partitions that are still ours. Everything of librdkafka happens in one thread, which polls only
//! while a batch is wanted; so partitions never change hands between storing and acknowledging.

mod batch;
mod lag;
mod membership;
mod offsets;
mod placing;
mod reader;
mod record;
mod topic_id;
mod trouble;

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
    BoxFuture, InvalidSettings,
    extract::Mapping,
    inbox::{Accepted, SourcePosition},
    source::{Positions, Source, SourceBatch, SourceError},
};
use tokio::sync::mpsc;

use self::{
    membership::Blueprint,
    reader::{Command, Reader, Reply},
};
use super::KafkaConnection;

/// What a [`KafkaSource`] reads. Start from [`KafkaSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct KafkaSourceSettings {
    /// The name under which positions are kept in the database.
    pub name: String,
    pub connection: KafkaConnection,
    /// The consumer group; processes of one group share the partitions.
    pub group: String,
    pub topics: Vec<String>,
    pub mapping: Mapping,
    /// Where a topic begins that neither the database nor the group knows.
    pub start: Start,
}

impl KafkaSourceSettings {
    /// Everything but these has a default.
    pub fn new(
        name: &str,
        connection: KafkaConnection,
        group: &str,
        topics: Vec<String>,
        mapping: Mapping,
    ) -> Self {
        let (name, group) = (name.to_owned(), group.to_owned());
        Self { name, connection, group, topics, mapping, start: Start::Earliest }
    }
}

/// Where reading begins in a topic nobody has read yet. Partitions added to a known topic are
/// always read from their beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record.
    #[default]
    Earliest,
    /// At the records that come from now on.
    Latest,
}

/// What a [`KafkaSource`] has found wrong with its topics, and how far it is behind.
#[derive(Debug, Default)]
pub struct KafkaSourceCounters {
    missed: AtomicU64,
    recreated: AtomicU64,
    told: Mutex<lag::Told>,
}

impl KafkaSourceCounters {
    /// Offsets that were deleted at the broker before relais had read them.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// How often a partition was found in a topic that had been deleted and created again.
    pub fn recreated(&self) -> u64 {
        self.recreated.load(Ordering::Relaxed)
    }

    /// Records in the partitions this source reads that are not stored yet, as of a few seconds ago;
    /// nothing while it reads none.
    pub fn lag(&self) -> Option<u64> {
        self.told().lag
    }

    /// Whether there was a connection to any broker a few seconds ago; nothing before it is known.
    pub fn connected(&self) -> Option<bool> {
        self.told().connected
    }

    fn set_lag(&self, lag: u64) {
        self.told().lag = Some(lag);
    }

    fn tell(&self, told: lag::Told) {
        *self.told() = told;
    }

    fn told(&self) -> MutexGuard<'_, lag::Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the topics of a Kafka cluster.
///
/// ```
/// use relais_connect::kafka::{KafkaConnection, KafkaSource, KafkaSourceSettings, Start};
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
/// let source = KafkaSource::new(KafkaSourceSettings { start: Start::Latest, ..settings })?;
/// # let _ = source;
/// # Ok(())
/// # }
/// ```
///
/// Where it goes on after a start or a rebalance is what the database says; the group's offset is
/// kept equal to it, for others to see. Dropping the source leaves the group.
///
/// A batch of records that cannot be read (damaged, or packed by a codec nobody knows) is never
/// skipped: its partition waits there, with a warning that names it, and the others go on.
pub struct KafkaSource {
    name: String,
    positions: Option<Arc<dyn Positions>>,
    counters: Arc<KafkaSourceCounters>,
    /// Until the first `next`: nothing connects before.
    blueprint: Option<Blueprint>,
    thread: Option<Thread>,
    /// A batch was asked for and has not come yet.
    asked: bool,
    /// A batch is out and not settled.
    out: bool,
}

/// The other side of the reader's thread.
struct Thread {
    commands: mpsc::Sender<Command>,
    replies: mpsc::Receiver<Reply>,
    closing: Arc<AtomicBool>,
    pausing: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

/// Most commands that wait: one settles the last batch, one asks for the next.
const COMMANDS_MAX: usize = 2;
/// How long closing waits for the broker. The thread ends without us, and the database knows how
/// far it has read.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// How long a pause waits until the reader has stopped.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl KafkaSource {
    /// Checks the settings, as far as that goes without a broker. Connects at the first `next`.
    pub fn new(settings: KafkaSourceSettings) -> Result<Self, InvalidSettings> {
        if settings.topics.is_empty() || settings.topics.iter().any(|topic| topic.is_empty()) {
            return Err("no topic; give `topics` at least one name".into());
        }
        if settings.group.is_empty() {
            return Err("no consumer group; give `group` a name".into());
        }
        let name = settings.name.clone();
        let counters = Arc::new(KafkaSourceCounters::default());
        let blueprint = Blueprint::new(settings, Arc::clone(&counters))?;
        Ok(Self {
            name,
            positions: None,
            counters,
            blueprint: Some(blueprint),
            thread: None,
            asked: false,
            out: false,
        })
    }

    /// What it has found wrong; stays alive when the source is given away.
    pub fn counters(&self) -> Arc<KafkaSourceCounters> {
        Arc::clone(&self.counters)
    }

    async fn take(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let max = max.max(1);
        if std::mem::take(&mut self.out) {
            // Nobody settled it: it comes again.
            self.send(Command::Refuse).await?;
        }
        let mut positions = None;
        loop {
            if !self.asked {
                self.send(Command::Collect { max, positions: positions.take() }).await?;
                self.asked = true;
            }
            let reply = self.thread()?.replies.recv().await;
            self.asked = false;
            match reply {
                // Asked for by a call that was dropped and wanted more.
                Some(Reply::Batch(batch)) if batch.messages.len() > max => {
                    self.send(Command::Refuse).await?;
                }
                Some(Reply::Batch(batch)) => {
                    self.out = true;
                    return Ok(batch);
                }
                Some(Reply::AskPositions) => positions = Some(self.stored().await?),
                Some(Reply::Unavailable(reason)) => return Err(SourceError::Unavailable(reason)),
                Some(Reply::Paused) => {}
                Some(Reply::Closed) => return Err(SourceError::Closed),
                None => return Err(died()),
            }
        }
    }

    /// Has the reader stop reading. What it has collected and not stored comes again after the pause.
    async fn rest(&mut self) -> Result<(), SourceError> {
        if self.asked {
            let thread = self.thread()?;
            thread.pausing.store(true, Ordering::Relaxed);
            let reply = thread.replies.recv().await;
            self.asked = false;
            self.out = matches!(reply, Some(Reply::Batch(_)));
        }
        if std::mem::take(&mut self.out) {
            self.send(Command::Refuse).await?;
        }
        self.send(Command::Pause).await
    }

    async fn stored(&self) -> Result<Vec<SourcePosition>, SourceError> {
        let Some(positions) = &self.positions else { return Ok(Vec::new()) };
        positions.positions(self.name.clone()).await.map_err(|error| {
            SourceError::Unavailable(format!("where reading stopped is not known yet: {error}"))
        })
    }

    async fn send(&mut self, command: Command) -> Result<(), SourceError> {
        self.thread()?.commands.send(command).await.map_err(|_| died())
    }

    fn thread(&mut self) -> Result<&mut Thread, SourceError> {
        if let Some(blueprint) = self.blueprint.take() {
            let failed = |error| SourceError::Unavailable(format!("no thread to read in: {error}"));
            self.thread = Some(start(blueprint).map_err(failed)?);
        }
        self.thread.as_mut().ok_or(SourceError::Closed)
    }
}

fn start(blueprint: Blueprint) -> io::Result<Thread> {
    let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
    let (outbox, replies) = mpsc::channel(1);
    let (closing, pausing) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let reader = Reader::new(blueprint, Arc::clone(&closing), Arc::clone(&pausing));
    let handle = thread::Builder::new()
        .name("kafka source".to_owned())
        .spawn(move || reader.run(inbox, &outbox))?;
    Ok(Thread { commands, replies, closing, pausing, handle })
}

fn died() -> SourceError {
    SourceError::Unavailable("the thread that reads has died; restart the process".to_owned())
}

impl Source for KafkaSource {
    fn attach(&mut self, positions: Arc<dyn Positions>) {
        self.positions = Some(positions);
    }

    fn next(&mut self, max: usize) -> BoxFuture<'_, Result<SourceBatch, SourceError>> {
        Box::pin(self.take(max))
    }

    fn acknowledge(&mut self, _accepted: Vec<Accepted>) -> BoxFuture<'_, Result<(), SourceError>> {
        self.out = false;
        Box::pin(self.send(Command::Acknowledge))
    }

    fn refuse(&mut self, _reason: String) -> BoxFuture<'_, ()> {
        self.out = false;
        Box::pin(async {
            // If it died, the next `next` says so.
            let _ = self.send(Command::Refuse).await;
        })
    }

    fn pause(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // Nothing is connected before the first `next`.
            if self.thread.is_none() {
                return;
            }
            // If it died, the next `next` says so. If it is busy with a broker that does not answer, it
            // reads nothing either.
            let _ = tokio::time::timeout(PAUSE_MAX, self.rest()).await;
            if let Some(thread) = &self.thread {
                thread.pausing.store(false, Ordering::Relaxed);
            }
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.blueprint = None;
        let thread = self.thread.take();
        Box::pin(async {
            let Some(Thread { commands, mut replies, closing, handle, .. }) = thread else {
                return;
            };
            closing.store(true, Ordering::Relaxed);
            drop(commands);
            // Ends when the thread does.
            let ended = async { while replies.recv().await.is_some() {} };
            match tokio::time::timeout(CLOSE_MAX, ended).await {
                Ok(()) => drop(handle.join()),
                Err(_) => tracing::warn!("the broker does not answer; left without a word to it"),
            }
        })
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
