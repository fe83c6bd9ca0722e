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

/// Called once: the second message is a duplicate.
fn on_paid(_tx: &Transaction<'_>, message: Received<serde_json::Value>) {
    println!("{} paid {}", message.message_id, message.payload["cents"]);
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = scratch::sqlite().await; // a service opens a `SqliteStore`
    let (post, posted) = mpsc::channel(8);
    let running = App::new(db.store())
        .source("till", Box::new(ChannelSource { posted, unanswered: None }))
        .handle("Paid", sqlite::handler(&db, on_paid))
        .start();
    for (id, expected) in [("p-1", AcceptOutcome::Stored), ("p-1", AcceptOutcome::Duplicate)] {
        let (answer, answered) = oneshot::channel();
        post.send((NewInbox::new("till", id, "Paid", r#"{"cents": 500}"#), answer)).await?;
        anyhow::ensure!(answered.await? == expected, "{id}");
    }
    running.stop_when_idle().await?;
    Ok(())
}
