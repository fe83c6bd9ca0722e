//! Those who write: business row and outbox row in one transaction, and posts to the sources.
//!
//! Each writer has keys of its own and writes their numbers one after the other, so that there is an
//! order to keep.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;

use crate::{
    base::{Base, Client},
    dice::Dice,
    history::{Flow, Name},
};

/// Of a hundred transactions, so many are rolled back: their messages must never arrive.
const ROLLED_BACK_PERCENT: u64 = 5;
/// Of a hundred posts, so many are made twice although the first was answered.
const TWICE_PERCENT: u64 = 5;
/// Messages in one transaction.
const BATCH_MAX: u64 = 40;
/// Between two tries of a post.
const PAUSE: Duration = Duration::from_millis(20);

/// How often a database that is away is asked for a session.
const RECONNECTS_MAX: usize = 3_000;

/// What all writers of an arena share.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// Write no more.
    pub(crate) closed: AtomicBool,
    /// Where relais listens now.
    pub(crate) sources: Mutex<Vec<SocketAddr>>,
    pub(crate) sent: AtomicU64,
    pub(crate) heard: AtomicU64,
    pub(crate) rolled_back: AtomicU64,
    /// Posts without an answer, or with one that is no promise.
    pub(crate) unanswered: AtomicU64,
}

/// The keys of a writer, and how far each is.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) flow: Flow,
    pub(crate) first: u32,
    /// The last number of each.
    pub(crate) numbers: Vec<u32>,
}

impl Keys {
    pub(crate) fn new(flow: Flow, first: u32, count: usize) -> Self {
        Self { flow, first, numbers: vec![0; count] }
    }

    fn next(&mut self, dice: &mut Dice) -> Name {
        let place = usize::try_from(dice.below(self.numbers.len() as u64)).unwrap_or(0);
        self.numbers[place] += 1;
        let key = self.first + u32::try_from(place).unwrap_or(0);
        Name { flow: self.flow, key, number: self.numbers[place] }
    }
}

fn payload(name: Name) -> String {
    format!(
        "{{\"type\":\"Heard\",\"key\":\"{}{}\",\"name\":\"{name}\"}}",
        name.flow.letter(),
        name.key
    )
}

/// Writes up to `limit` messages, with pauses that make about `pace` of them a second.
pub(crate) async fn send(
    base: Base,
    desk: Arc<Desk>,
    mut keys: Keys,
    mut dice: Dice,
    limit: u64,
    pace: u64,
) -> Result<()> {
    let mut client = base.connect().await?;
    let mut written = 0;
    while written < limit && !desk.closed.load(Relaxed) {
        let count = 1 + dice.below(BATCH_MAX);
        let before = keys.numbers.clone();
        let names: Vec<Name> = (0..count).map(|_| keys.next(&mut dice)).collect();
        let commit = !dice.percent(ROLLED_BACK_PERCENT);
        let committed = match write(&mut client, &names, commit).await {
            Ok(()) => commit,
            // The session ended: whether the commit was the last thing it did, only the rows can tell.
            Err(_) => {
                client = reconnect(&base).await?;
                is_written(&mut client, names[0]).await?
            }
        };
        if committed {
            written += count;
            desk.sent.fetch_add(count, Relaxed);
        } else {
            keys.numbers = before;
            desk.rolled_back.fetch_add(count, Relaxed);
        }
        tokio::time::sleep(Duration::from_micros(1_000_000 * count / pace)).await;
    }
    Ok(())
}

async fn reconnect(base: &Base) -> Result<Client> {
    for _ in 0..RECONNECTS_MAX {
        if let Ok(client) = base.connect().await {
            return Ok(client);
        }
        tokio::time::sleep(PAUSE).await;
    }
    base.connect().await
}

async fn is_written(client: &mut Client, name: Name) -> Result<bool> {
    let sql = format!("SELECT name FROM shop_order WHERE name = '{name}'");
    Ok(!client.texts(&sql).await?.is_empty())
}

async fn write(client: &mut Client, names: &[Name], commit: bool) -> Result<()> {
    let orders = names.iter().map(|name| format!("('{name}')")).collect::<Vec<_>>().join(", ");
    let rows = names.iter().map(|name| {
        let key = format!("{}{}", name.flow.letter(), name.key);
        // A rolled-back message has the name a later one gets: only its payload tells them apart.
        let payload = if commit { payload(*name) } else { "{\"name\":\"rolled back\"}".to_owned() };
        format!("('Order', '{key}', 'OrderPlaced', 'sink', '{payload}')")
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    let end = if commit { "COMMIT" } else { "ROLLBACK" };
    let begin = match client {
        Client::Sqlite(_) => "BEGIN IMMEDIATE",
        Client::Postgres(_) => "BEGIN",
    };
    client
        .run(&format!(
            "{begin}; INSERT INTO shop_order (name) VALUES {orders}; \
             INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
             VALUES {rows}; {end}"
        ))
        .await
}

/// Posts up to `limit` messages, each until it is answered with a promise; the last numbers, which all
/// must arrive.
pub(crate) async fn post(
    desk: Arc<Desk>,
    mut keys: Keys,
    mut dice: Dice,
    http: reqwest::Client,
    limit: u64,
) -> Keys {
    for _ in 0..limit {
        if desk.closed.load(Relaxed) {
            break;
        }
        let name = keys.next(&mut dice);
        let times = 1 + u64::from(dice.percent(TWICE_PERCENT));
        for _ in 0..times {
            while !post_once(&desk, &http, name, &mut dice).await {
                desk.unanswered.fetch_add(1, Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        }
        desk.heard.fetch_add(1, Relaxed);
    }
    keys
}

async fn post_once(desk: &Desk, http: &reqwest::Client, name: Name, dice: &mut Dice) -> bool {
    let source = {
        let sources = desk.sources.lock().expect("nobody panics with the list");
        let place = usize::try_from(dice.below(sources.len().max(1) as u64)).unwrap_or(0);
        sources.get(place).copied()
    };
    let Some(source) = source else { return false };
    let request = http
        .post(format!("http://{source}/hook"))
        .header("message-id", name.to_string())
        .body(payload(name));
    request.send().await.is_ok_and(|answer| answer.status() == reqwest::StatusCode::ACCEPTED)
}
