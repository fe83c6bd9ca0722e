//! Messages as lines of JSON, on standard output or appended to a file: for inspection, or as the
//! simplest destination.
//!
//! Invariant: a message is accepted only after its line is written, and for a file also synced to
//! disk. Lines are complete. A write that failed is truncated again. A partial line left by a crash
//! is ended by a line break, so that the next line stays readable.

mod settings;

#[doc(hidden)]
pub use settings::LogTargetKeys;

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use relais_core::{
    async_trait,
    delivery::Delivery,
    message::{Category, Headers},
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
    time::Timestamp,
};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

/// Maximum number of messages in one write.
const BATCH_MAX: usize = 500;

/// Writes each message as one line of JSON.
///
/// ```
/// use relais_connect::log::LogPublisher;
///
/// let to_screen = LogPublisher::stdout();
/// let to_file = LogPublisher::file("/var/log/relais/orders.jsonl");
/// ```
///
/// A line has the fields of the message, named like the columns. The payload is embedded as JSON,
/// unchanged except that line breaks between its tokens become spaces. The file is opened for each
/// batch, so that it can be rotated at any time. Only its owner can read it.
#[derive(Clone, Debug)]
pub struct LogPublisher {
    target: LogTarget,
    /// One batch is written at a time.
    turn: Arc<Mutex<()>>,
}

#[derive(Clone, Debug)]
enum LogTarget {
    Stdout,
    File(PathBuf),
}

impl LogPublisher {
    /// Writes to standard output.
    pub fn stdout() -> Self {
        Self::new(LogTarget::Stdout)
    }

    /// Appends to a file, and creates it if it does not exist. An unwritable file shows only when
    /// the first message is sent: it is an outage.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(LogTarget::File(path.into()))
    }

    fn new(target: LogTarget) -> Self {
        Self { target, turn: Arc::default() }
    }

    async fn write(&self, lines: Vec<u8>) -> Result<(), String> {
        let Self { target, turn } = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match &target {
                LogTarget::Stdout => {
                    write_stdout(&lines).map_err(|e| format!("standard output: {e}"))
                }
                LogTarget::File(path) => {
                    append(path, &lines).map_err(|e| format!("{}: {e}", path.display()))
                }
            }
        });
        written.await.unwrap_or_else(|_| Err("the runtime is shutting down".to_owned()))
    }
}

#[async_trait]
impl Publisher for LogPublisher {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let delivery = match self.write(lines(messages)).await {
            Ok(()) => Delivery::Accepted,
            Err(why) => Delivery::outage("WRITE_FAILED", &why),
        };
        vec![delivery; messages.len()]
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: BATCH_MAX }
    }
}

/// One line: the fields of the message, named like the columns. The state of the row is left out.
#[derive(Serialize)]
struct LogLine<'a> {
    id: i64,
    message_id: Uuid,
    category: Category,
    aggregate_type: &'a str,
    aggregate_id: &'a str,
    event_type: &'a str,
    event_version: i32,
    payload: LogPayload<'a>,
    headers: &'a Headers,
    destination: &'a str,
    msg_key: &'a str,
    created_at: Timestamp,
    causation_id: Option<&'a str>,
    correlation_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum LogPayload<'a> {
    Json(Box<RawValue>),
    /// A payload that is not JSON, written by another program: kept as text rather than lost.
    Text(&'a str),
}

fn lines(messages: &[OutboxRow]) -> Vec<u8> {
    let mut lines = Vec::new();
    for row in messages {
        serde_json::to_writer(&mut lines, &line(row)).expect("a line is plain JSON");
        lines.push(b'\n');
    }
    lines
}

fn line(row: &OutboxRow) -> LogLine<'_> {
    // In JSON an unescaped line break can only be between two tokens, where a space means the same.
    let payload = RawValue::from_string(row.payload.replace(['\n', '\r'], " "));
    LogLine {
        id: row.id,
        message_id: row.message_id,
        category: row.category,
        aggregate_type: &row.aggregate_type,
        aggregate_id: &row.aggregate_id,
        event_type: &row.event_type,
        event_version: row.event_version,
        payload: payload.map_or(LogPayload::Text(&row.payload), LogPayload::Json),
        headers: &row.headers,
        destination: &row.destination,
        msg_key: &row.msg_key,
        created_at: row.created_at,
        causation_id: row.causation_id.as_deref(),
        correlation_id: row.correlation_id.as_deref(),
    }
}

fn write_stdout(lines: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines)?;
    stdout.flush()
}

fn append(path: &Path, lines: &[u8]) -> io::Result<()> {
    let mut file = open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        // A pipe or a device has no last byte to read and nothing to sync.
        return file.write_all(lines);
    }
    // Other processes may write to the file too. The lock ensures that a failed write removes only
    // our own part.
    let locked = file.lock().is_ok();
    let length = file.metadata()?.len();
    let is_partial = length > 0 && last_byte(path)? != b'\n';
    let write = |file: &mut File| {
        if is_partial {
            file.write_all(b"\n")?;
        }
        file.write_all(lines)?;
        file.sync_data()
    };
    write_or_undo(&mut file, locked.then_some(length), write)?;
    if length == 0 { sync_folder(path) } else { Ok(()) }
}

/// Writes; if that fails, truncates the file to its previous length, so that a full disk leaves no
/// partial line.
fn write_or_undo(
    file: &mut File,
    length_before: Option<u64>,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    write(file).inspect_err(|_| {
        if let Some(length) = length_before {
            // If this fails too, the next batch ends the partial line.
            let _ = file.set_len(length);
        }
    })
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn last_byte(path: &Path) -> io::Result<u8> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0])
}

/// A new file survives a crash only if its directory entry is synced.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
