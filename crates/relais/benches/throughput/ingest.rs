//! A source that is read into the inbox, until a number of rows is stored and acknowledged.

use std::{sync::Arc, time::Instant};

use anyhow::Result;
use relais::{
    App,
    core::{
        async_trait,
        inbox::AcceptOutcome,
        source::{Positions, Source, SourceBatch, SourceError},
    },
};
use tokio::sync::{oneshot, watch};

use crate::{fixture::Fixture, workload::PATIENCE};

/// Measures from the first batch until this many rows are stored and acknowledged.
pub(crate) async fn ingest<B: Fixture>(
    fixture: &B,
    source: Box<dyn Source>,
    rows: usize,
) -> Result<f64> {
    let (stored, mut count) = watch::channel(0);
    let (begun, started) = oneshot::channel();
    let source = CountedSource { source, begun: Some(begun), stored };
    let running = App::new(fixture.store()).source("bench", Box::new(source)).start();
    let done = async {
        let started = tokio::time::timeout(PATIENCE, started).await??;
        tokio::time::timeout(PATIENCE, count.wait_for(|stored| *stored >= rows)).await??;
        Ok(rows as f64 / started.elapsed().as_secs_f64())
    };
    let rate = done.await;
    running.stop().await;
    rate
}

/// A source that says when it began and how far it is.
struct CountedSource {
    source: Box<dyn Source>,
    begun: Option<oneshot::Sender<Instant>>,
    stored: watch::Sender<usize>,
}

#[async_trait]
impl Source for CountedSource {
    fn attach(&mut self, positions: Arc<dyn Positions>) {
        self.source.attach(positions);
    }

    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let batch = self.source.next(max).await;
        if let Some(begun) = self.begun.take_if(|_| batch.is_ok()) {
            let _ = begun.send(Instant::now());
        }
        batch
    }

    async fn read_ahead(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        self.source.read_ahead(max).await
    }

    async fn acknowledge(&mut self, accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        let count = accepted.iter().filter(|a| **a == AcceptOutcome::Stored).count();
        let acknowledged = self.source.acknowledge(accepted).await;
        self.stored.send_modify(|stored| *stored += count);
        acknowledged
    }

    async fn refuse(&mut self, reason: String) {
        self.source.refuse(reason).await
    }

    async fn close(&mut self) {
        self.source.close().await
    }
}
