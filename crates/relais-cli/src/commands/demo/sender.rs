//! The senders: post each event until it is acknowledged, as any careful client would.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::plan::Plan;

/// Senders at work at once; each has its own orders.
const SENDERS: u64 = 8;
/// A breath between two messages of a sender, so that a person can watch.
const BREATH: Duration = Duration::from_millis(15);
/// The pause before an unanswered message is posted again.
const AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Senders {
    pub(super) counts: Arc<Counts>,
    _tasks: JoinSet<()>,
}

/// What the senders saw.
#[derive(Default)]
pub(super) struct Counts {
    /// Good messages acknowledged, each counted once.
    pub(super) acknowledged: AtomicU64,
    /// Extra copies posted on purpose or because no answer came.
    pub(super) repeats: AtomicU64,
    pub(super) garbage: AtomicU64,
    /// Light messages acknowledged, each counted once.
    pub(super) light: AtomicU64,
}

impl Senders {
    pub(super) fn start(plan: &Arc<Plan>, hook: SocketAddr) -> Self {
        let counts = Arc::<Counts>::default();
        let mut tasks = JoinSet::new();
        for sender in 0..SENDERS {
            let (plan, counts) = (Arc::clone(plan), Arc::clone(&counts));
            tasks.spawn(async move { send(&plan, &counts, sender, hook).await });
        }
        Self { counts, _tasks: tasks }
    }

    pub(super) fn done(&self) -> u64 {
        self.counts.acknowledged.load(Relaxed)
    }

    pub(super) fn light_done(&self) -> u64 {
        self.counts.light.load(Relaxed)
    }
}

/// Takes one message of each of its orders in turn, so that orders interleave.
async fn send(plan: &Plan, counts: &Counts, sender: u64, hook: SocketAddr) {
    let client = reqwest::Client::builder().no_proxy().build();
    let client = client.expect("a client without special settings can be built");
    let url = format!("http://{hook}/hook");
    let mine = (0..plan.orders()).filter(|order| order % SENDERS == sender);
    let mut queues: Vec<_> = mine.map(|order| plan.events(order)).collect();
    while !queues.is_empty() {
        let mut left = Vec::new();
        for mut queue in queues {
            let Some(event) = queue.next() else { continue };
            if let Some(garbage) = plan.garbage(event) {
                let id = format!("garbage-{}", event.id());
                post(&client, &url, &id, garbage, counts).await;
                counts.garbage.fetch_add(1, Relaxed);
            }
            for (id, body) in plan.light(event) {
                // Always twice: an order of one message may have no repeats.
                post(&client, &url, &id, body.clone(), counts).await;
                counts.light.fetch_add(1, Relaxed);
                counts.repeats.fetch_add(1, Relaxed);
                post(&client, &url, &id, body, counts).await;
            }
            post(&client, &url, &event.id(), event.body(), counts).await;
            counts.acknowledged.fetch_add(1, Relaxed);
            if plan.is_repeated(event) {
                counts.repeats.fetch_add(1, Relaxed);
                post(&client, &url, &event.id(), event.body(), counts).await;
            }
            left.push(queue);
            tokio::time::sleep(BREATH).await;
        }
        queues = left;
    }
}

/// Posts until the answer is 202: what was not acknowledged may be lost, so it is sent again.
async fn post(client: &reqwest::Client, url: &str, id: &str, body: String, counts: &Counts) {
    loop {
        let request = client
            .post(url)
            .header("content-type", "application/json")
            .header("message-id", id)
            .body(body.clone());
        if request.send().await.is_ok_and(|answer| answer.status() == 202) {
            return;
        }
        counts.repeats.fetch_add(1, Relaxed);
        tokio::time::sleep(AGAIN).await;
    }
}
