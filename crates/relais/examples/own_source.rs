//! Your own source: brings messages into the inbox, and acknowledges them after the commit.
//!
//! `cargo run -p relais --features sqlite --example own_source`

use std::sync::Arc;

use relais::{
    Accepted, App, NewInbox, Received, Source, SourceBatch, SourceError, Store, async_trait,
    sqlite::{self, SqliteOptions, SqliteStore},
};
use rusqlite::{Connection, Transaction};
use tokio::sync::{mpsc, oneshot};

/// A message and the place where its sender waits for the answer.
type Posted = (NewInbox, oneshot::Sender<Accepted>);

/// Reads from a channel; it could be a socket, a file or a queue.
struct ChannelSource {
    posted: mpsc::Receiver<Posted>,
    unanswered: Option<oneshot::Sender<Accepted>>,
}

#[async_trait]
impl Source for ChannelSource {
    async fn next(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        let (message, answer) = self.posted.recv().await.ok_or(SourceError::Closed)?;
        self.unanswered = Some(answer);
        Ok(SourceBatch { messages: vec![message], positions: Vec::new() })
    }

    /// The batch is committed: only now may its sender forget it.
    async fn acknowledge(&mut self, accepted: Vec<Accepted>) -> Result<(), SourceError> {
        if let Some(answer) = self.unanswered.take() {
            let _ = answer.send(accepted[0]); // the sender may have stopped
        }
        Ok(())
    }

    /// The batch could not be stored: without an answer, the sender sends it again.
    async fn refuse(&mut self, _reason: String) {
        self.unanswered = None;
    }
}

#[derive(serde::Deserialize)]
struct Paid {
    cents: i64,
}

fn on_paid(tx: &Transaction<'_>, message: Received<Paid>) -> rusqlite::Result<()> {
    tx.execute("UPDATE till SET cents = cents + ?1", [message.payload.cents])?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).await?;
    store.migrate().await?;
    let db = Connection::open(&file)?;
    db.execute_batch("CREATE TABLE till (cents INTEGER); INSERT INTO till VALUES (0)")?;

    let (post, posted) = mpsc::channel(8);
    let running = App::new(Arc::new(store.clone()))
        .source("till", Box::new(ChannelSource { posted, unanswered: None }))
        .handle("Paid", sqlite::handler(&store, on_paid))
        .start();
    for id in ["p-1", "p-2", "p-1"] {
        let (answer, answered) = oneshot::channel();
        post.send((NewInbox::new("till", id, "Paid", r#"{"cents": 500}"#), answer)).await?;
        println!("{id}: {:?}", answered.await?);
    }
    running.idle().await?;
    running.stop().await;

    let cents: i64 = db.query_row("SELECT cents FROM till", (), |row| row.get(0))?;
    println!("in the till: {cents} cents"); // p-1 counted once
    anyhow::ensure!(cents == 1_000, "a duplicate has no effect");
    Ok(())
}
