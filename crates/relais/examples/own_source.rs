//! Your own source: brings messages into the inbox, and acknowledges them after the commit.
//!
//! `cargo run -p relais --features sqlite --example own_source`

use relais::{
    AcceptOutcome, App, NewInbox, Received, Source, SourceBatch, SourceError, async_trait, sqlite,
};
use relais_testkit::{Database, scratch};
use rusqlite::Transaction;
use tokio::sync::{mpsc, oneshot};

/// Reads messages from a channel, each with the place where its sender waits for the answer.
struct ChannelSource {
    posted: mpsc::Receiver<(NewInbox, oneshot::Sender<AcceptOutcome>)>,
    unanswered: Option<oneshot::Sender<AcceptOutcome>>,
}

#[async_trait]
impl Source for ChannelSource {
    async fn next(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        let (message, answer) = self.posted.recv().await.ok_or(SourceError::Closed)?;
        self.unanswered = Some(answer);
        Ok(SourceBatch { messages: vec![message], positions: Vec::new() })
    }

    /// The batch is committed: only now may its sender forget it.
    async fn acknowledge(&mut self, accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
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

fn on_paid(tx: &Transaction<'_>, message: Received<serde_json::Value>) -> rusqlite::Result<()> {
    tx.execute("UPDATE till SET cents = cents + ?1", [message.payload["cents"].as_i64()])?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = scratch::sqlite().await; // a service opens a `SqliteStore`
    db.run("CREATE TABLE till (cents INTEGER); INSERT INTO till VALUES (0)").await;
    let (post, posted) = mpsc::channel(8);
    let running = App::new(db.store())
        .source("till", Box::new(ChannelSource { posted, unanswered: None }))
        .handle("Paid", sqlite::handler(&db, on_paid))
        .start();
    for id in ["p-1", "p-2", "p-1"] {
        let (answer, answered) = oneshot::channel();
        post.send((NewInbox::new("till", id, "Paid", r#"{"cents": 500}"#), answer)).await?;
        println!("{id}: {:?}", answered.await?);
    }
    running.idle().await?;
    running.stop().await;
    let till = db.query("SELECT cents FROM till").await.map_err(anyhow::Error::msg)?;
    anyhow::ensure!(till[0][0].as_deref() == Some("1000"), "a duplicate has no effect");
    Ok(())
}
