//! The writers: business row and outbox row in one transaction, and posts to the sources.
//!
//! Each writer has keys of its own and writes their numbers one after the other, so that there is an
//! order to keep.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::task::JoinHandle;

use crate::{
    base::{Base, DatabaseClient},
    event_log::EventLog,
    history::{Flow, MessageName, WrittenKeys},
    rng::Rng,
};

/// Share of transactions that are rolled back: their messages must never arrive.
const ROLLED_BACK_PERCENT: u64 = 5;
/// Share of posts that are made twice although the first was answered.
const TWICE_PERCENT: u64 = 5;
/// Messages in one transaction.
const BATCH_MAX: u64 = 40;
/// Between two tries of a post.
const PAUSE: Duration = Duration::from_millis(20);

/// Most attempts to connect to an unavailable database.
const RECONNECTS_MAX: usize = 3_000;

/// Shared by all writers of a run.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    /// Write no more.
    pub(crate) closed: AtomicBool,
    /// Write no more for now: enough is on its way.
    pub(crate) full: AtomicBool,
    /// The current addresses of relais.
    pub(crate) sources: Mutex<Vec<SocketAddr>>,
    /// The path of the source, used by this run only: the port of an ended process may belong to another
    /// one by now.
    hook: String,
    pub(crate) sent: AtomicU64,
    pub(crate) heard: AtomicU64,
    /// Number of messages that the sink of the run must get.
    expected: AtomicU64,
    pub(crate) rolled_back: AtomicU64,
    /// Posts without an answer, or with one that is no promise.
    pub(crate) unanswered: AtomicU64,
    /// Set once the run has started.
    pub(crate) event_log: OnceLock<EventLog>,
}

impl SharedState {
    pub(crate) fn at(hook: &str) -> Self {
        Self { hook: hook.to_owned(), ..Self::default() }
    }

    pub(crate) fn hook(&self) -> &str {
        &self.hook
    }

    fn expect(&self, flow: Flow, count: u64) {
        if matches!(flow, Flow::Sent | Flow::Heard) {
            self.expected.fetch_add(count, Relaxed);
        }
    }

    pub(crate) fn expected(&self) -> u64 {
        self.expected.load(Relaxed)
    }

    fn note(&self, what: impl FnOnce() -> String) {
        if let Some(event_log) = self.event_log.get() {
            event_log.note(what());
        }
    }
}

/// The keys of a writer, and how far each is.
#[derive(Debug)]
pub(crate) struct WriterKeys {
    pub(crate) flow: Flow,
    pub(crate) first: u32,
    /// The last number of each.
    pub(crate) numbers: Vec<u32>,
}

impl WriterKeys {
    pub(crate) fn new(flow: Flow, first: u32, count: usize) -> Self {
        Self { flow, first, numbers: vec![0; count] }
    }

    /// Everything up to the last number was written.
    pub(crate) fn written(&self) -> WrittenKeys {
        let mut written = WrittenKeys::default();
        for (last, key) in self.numbers.iter().zip(self.first..) {
            written.add(self.flow, key, *last);
        }
        written
    }

    pub(crate) fn next(&mut self, rng: &mut Rng) -> MessageName {
        let place = usize::try_from(rng.below(self.numbers.len() as u64)).unwrap_or(0);
        self.numbers[place] += 1;
        let key = self.first + u32::try_from(place).unwrap_or(0);
        MessageName { flow: self.flow, key, number: self.numbers[place] }
    }
}

impl MessageName {
    fn event_type(self) -> &'static str {
        match self.flow {
            Flow::Sent | Flow::Contact | Flow::Patient | Flow::Strict => "OrderPlaced",
            Flow::Heard => "Heard",
            Flow::Booked => "Posted",
            Flow::Record => "Recorded",
            Flow::Queued => "Queued",
            Flow::Streamed => "Streamed",
        }
    }

    /// Returns its destination, if it is written to the outbox.
    fn destination(self) -> &'static str {
        match self.flow {
            Flow::Contact => "contacts",
            Flow::Patient => "patient",
            Flow::Strict => "strict",
            _ => "sink",
        }
    }
}

pub(crate) fn payload(name: MessageName) -> String {
    let (event_type, key, number) = (name.event_type(), name.key(), name.number);
    let filler = match name.large_megabytes() {
        Some(megabytes) => format!(r#","filler":"{}""#, "x".repeat(megabytes << 20)),
        None => String::new(),
    };
    format!(r#"{{"type":"{event_type}","key":"{key}","name":"{name}","number":{number}{filler}}}"#)
}

/// Writes up to `limit` messages, with pauses that make about `pace` of them a second.
pub(crate) async fn send(
    base: Base,
    shared: Arc<SharedState>,
    mut keys: WriterKeys,
    mut rng: Rng,
    limit: u64,
    pace: u64,
) -> Result<()> {
    let mut client = base.connect().await?;
    let mut written = 0;
    while written < limit && !shared.closed.load(Relaxed) {
        if keys.flow == Flow::Sent && shared.full.load(Relaxed) {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let count = 1 + rng.below(BATCH_MAX);
        let before = keys.numbers.clone();
        let names: Vec<MessageName> = (0..count).map(|_| keys.next(&mut rng)).collect();
        let commit = !rng.percent(ROLLED_BACK_PERCENT);
        shared.note(|| format!("writes {}", list(&names)));
        let committed = match write(&mut client, &names, commit).await {
            Ok(()) => commit,
            // The session ended, perhaps after the commit: the rows show it.
            Err(error) => {
                shared.note(|| format!("unknown {} …: {error:#}", names[0]));
                is_written(&mut client, &base, names[0]).await?
            }
        };
        if committed {
            shared.note(|| format!("committed {} …", names[0]));
            written += count;
            shared.sent.fetch_add(count, Relaxed);
            shared.expect(keys.flow, count);
        } else {
            shared.note(|| format!("rolled back {} …", names[0]));
            keys.numbers = before;
            shared.rolled_back.fetch_add(count, Relaxed);
        }
        tokio::time::sleep(Duration::from_micros(1_000_000 * count / pace)).await;
    }
    Ok(())
}

/// Begins to work where it may block: SQLite blocks the thread it is used on.
pub(crate) fn spawn(
    base: &Base,
    work: impl Future<Output = Result<()>> + Send + 'static,
) -> JoinHandle<Result<()>> {
    match base {
        Base::Sqlite(_) => {
            let handle = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || handle.block_on(work))
        }
        Base::Postgres { .. } => tokio::spawn(work),
    }
}

/// Looks it up in a session of its own, which is the next one to write in.
async fn is_written(client: &mut DatabaseClient, base: &Base, name: MessageName) -> Result<bool> {
    let (key, number) = (name.key(), name.number);
    let sql =
        format!("SELECT msg_key FROM shop_order WHERE msg_key = '{key}' AND number = {number}");
    let mut tries = 0;
    loop {
        tries += 1;
        let found = match base.connect().await {
            Ok(fresh) => {
                *client = fresh;
                client.texts(&sql).await
            }
            Err(error) => Err(error),
        };
        match found {
            Err(_) if tries < RECONNECTS_MAX => tokio::time::sleep(PAUSE).await,
            found => return Ok(!found?.is_empty()),
        }
    }
}

fn list(names: &[MessageName]) -> String {
    names.iter().map(MessageName::to_string).collect::<Vec<_>>().join(" ")
}

async fn write(client: &mut DatabaseClient, names: &[MessageName], commit: bool) -> Result<()> {
    let orders = names.iter().map(|name| format!("('{}', {})", name.key(), name.number));
    let orders = orders.collect::<Vec<_>>().join(", ");
    let rows = names.iter().map(|name| {
        let (key, event_type, destination) = (name.key(), name.event_type(), name.destination());
        // A rolled-back message has the name a later one gets: only its payload differs.
        let payload = if commit { payload(*name) } else { "{\"name\":\"rolled back\"}".to_owned() };
        format!("('Order', '{key}', '{event_type}', '{destination}', '{payload}')")
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    let end = if commit { "COMMIT" } else { "ROLLBACK" };
    let begin = match client {
        DatabaseClient::Sqlite(_) => "BEGIN IMMEDIATE",
        DatabaseClient::Postgres(_) => "BEGIN",
    };
    client
        .run(&format!(
            "{begin}; INSERT INTO shop_order (msg_key, number) VALUES {orders}; \
             INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
             VALUES {rows}; {end}"
        ))
        .await
}

/// Posts up to `limit` messages, each until it is answered with a promise; the last numbers, which all
/// must arrive.
pub(crate) async fn post(
    shared: Arc<SharedState>,
    mut keys: WriterKeys,
    mut rng: Rng,
    http: reqwest::Client,
    limit: u64,
) -> WriterKeys {
    for _ in 0..limit {
        if shared.closed.load(Relaxed) {
            break;
        }
        let name = keys.next(&mut rng);
        let times = 1 + u64::from(rng.percent(TWICE_PERCENT));
        let letter = Letter { id: name.to_string(), answers: None, body: payload(name) };
        for _ in 0..times {
            deliver(&shared, &http, &letter, &mut rng).await;
        }
        shared.heard.fetch_add(1, Relaxed);
        shared.expect(keys.flow, 1);
    }
    keys
}

/// A post to a source.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) id: String,
    /// The process and the command it answers, if it is a reply.
    pub(crate) answers: Option<(String, String)>,
    pub(crate) body: String,
}

/// Posts until it is answered with a promise.
pub(crate) async fn deliver(
    shared: &SharedState,
    http: &reqwest::Client,
    letter: &Letter,
    rng: &mut Rng,
) {
    shared.note(|| format!("posts {}", letter.id));
    while !post_once(shared, http, letter, rng).await {
        shared.note(|| format!("no promise {}", letter.id));
        shared.unanswered.fetch_add(1, Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    shared.note(|| format!("promised {}", letter.id));
}

async fn post_once(
    shared: &SharedState,
    http: &reqwest::Client,
    letter: &Letter,
    rng: &mut Rng,
) -> bool {
    let source = {
        let sources = shared.sources.lock().expect("the lock is not poisoned");
        let place = usize::try_from(rng.below(sources.len().max(1) as u64)).unwrap_or(0);
        sources.get(place).copied()
    };
    let Some(source) = source else { return false };
    let mut request = http
        .post(format!("http://{source}/{}", shared.hook))
        .header("message-id", &letter.id)
        .body(letter.body.clone());
    if let Some((process, command)) = &letter.answers {
        request = request.header("correlation-id", process).header("causation-id", command);
    }
    request.send().await.is_ok_and(|answer| answer.status() == reqwest::StatusCode::ACCEPTED)
}
