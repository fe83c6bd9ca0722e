//! The senders: post each event until it is acknowledged, and count.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::json;
use tokio::task::JoinSet;

use super::{
    plan::{self, DemoPlan, LightMessage},
    services::CheckoutFaults,
};

/// Number of concurrent senders of orders; each has its own orders.
const SENDERS: u64 = 8;
/// The pause before an unanswered message is posted again.
const AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Senders {
    pub(super) counts: Arc<SentCounts>,
    tasks: JoinSet<()>,
}

/// SentCounts of acknowledged messages, each counted once, and of other posts.
#[derive(Default)]
pub(super) struct SentCounts {
    stop: AtomicBool,
    /// Messages about orders.
    pub(super) orders: AtomicU64,
    pub(super) cents: AtomicU64,
    pub(super) contacts: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) checkouts: AtomicU64,
    /// Checkouts that need an operator.
    pub(super) hopeless: AtomicU64,
    /// Messages that must become dead letters.
    pub(super) dead: AtomicU64,
    /// Messages that must be parked behind one of them.
    pub(super) held: AtomicU64,
    /// Undecodable bodies.
    pub(super) garbage: AtomicU64,
    /// Extra copies posted on purpose or because no answer arrived.
    pub(super) repeats: AtomicU64,
}

impl Senders {
    pub(super) fn start(plan: &Arc<DemoPlan>, hook: SocketAddr) -> Self {
        let counts = Arc::<SentCounts>::default();
        let mut tasks = JoinSet::new();
        for sender in 0..SENDERS {
            let (plan, client) = (Arc::clone(plan), PostClient::new(hook, &counts));
            tasks.spawn(async move { client.send_orders(&plan, sender).await });
        }
        let (plan, client) = (Arc::clone(plan), PostClient::new(hook, &counts));
        tasks.spawn(async move { client.send_extras(&plan).await });
        Self { counts, tasks }
    }

    /// Stops each sender after its message in flight is acknowledged.
    pub(super) fn stop(&self) {
        self.counts.stop.store(true, Relaxed);
    }

    /// Returns true after all messages were sent.
    pub(super) fn finished(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.is_empty()
    }
}

struct PostClient {
    http: reqwest::Client,
    url: String,
    counts: Arc<SentCounts>,
}

impl PostClient {
    fn new(hook: SocketAddr, counts: &Arc<SentCounts>) -> Self {
        let http = reqwest::Client::builder().no_proxy().build();
        let http = http.expect("a client with default settings can be built");
        Self { http, url: format!("http://{hook}/hook"), counts: Arc::clone(counts) }
    }

    fn is_over(&self) -> bool {
        self.counts.stop.load(Relaxed)
    }

    /// Sends one message of each of its orders in turn, so that orders interleave.
    async fn send_orders(&self, plan: &DemoPlan, sender: u64) {
        let mine = (0..plan.orders()).filter(|order| order % SENDERS == sender);
        let mut queues: Vec<_> = mine.map(|order| plan.events(order)).collect();
        while !queues.is_empty() {
            let mut left = Vec::new();
            for mut queue in queues {
                if self.is_over() {
                    return;
                }
                let Some(event) = queue.next() else { continue };
                if let Some(garbage) = plan.garbage(event) {
                    self.post(&format!("garbage-{}", event.id()), &garbage).await;
                    self.counts.garbage.fetch_add(1, Relaxed);
                }
                for light in plan.light(event) {
                    self.send_light(&light).await;
                }
                self.post(&event.id(), &event.body()).await;
                self.counts.orders.fetch_add(1, Relaxed);
                self.counts.cents.fetch_add(event.cents, Relaxed);
                if plan.is_repeated(event) {
                    self.repeat(&event.id(), &event.body()).await;
                }
                left.push(queue);
                tokio::time::sleep(plan.breath()).await;
            }
            queues = left;
        }
    }

    /// Posts it twice, because an order of one message may have no repeats.
    async fn send_light(&self, light: &LightMessage) {
        self.post(&light.id, &light.body).await;
        self.counts.contacts.fetch_add(light.contacts, Relaxed);
        self.counts.blocks.fetch_add(light.blocks, Relaxed);
        self.repeat(&light.id, &light.body).await;
    }

    /// Sends checkouts and the messages that operators have to decide about.
    async fn send_extras(&self, plan: &DemoPlan) {
        let extras = plan.extras();
        let (id, body) = plan::stranger();
        self.post(&id, &body).await;
        self.counts.dead.fetch_add(1, Relaxed);
        for number in 0..extras.checkouts {
            if self.is_over() {
                return;
            }
            let body = json!({
                "type": "CheckoutPlaced", "order": format!("c-{number}"), "cents": 1_999,
            });
            self.post(&format!("checkout-{number}"), &body.to_string()).await;
            self.counts.checkouts.fetch_add(1, Relaxed);
            if CheckoutFaults::of(number).refund_is_refused() {
                self.counts.hopeless.fetch_add(1, Relaxed);
            }
            let batch = number / extras.poison_every;
            if number % extras.poison_every == 1 && batch < extras.poison {
                self.send_poison(batch).await;
            }
            tokio::time::sleep(extras.checkout_every).await;
        }
    }

    async fn send_poison(&self, number: u64) {
        let [well, refused, held] = plan::poison(number);
        self.post(&well.0, &well.1).await;
        self.post(&refused.0, &refused.1).await;
        self.counts.dead.fetch_add(1, Relaxed);
        self.post(&held.0, &held.1).await;
        self.counts.held.fetch_add(1, Relaxed);
        // The id of the first message with the content of the last one is a conflict.
        self.post(&well.0, &held.1).await;
        self.counts.dead.fetch_add(1, Relaxed);
    }

    async fn repeat(&self, id: &str, body: &str) {
        self.counts.repeats.fetch_add(1, Relaxed);
        self.post(id, body).await;
    }

    /// Posts until the answer is 202, because a message without acknowledgement may be lost.
    async fn post(&self, id: &str, body: &str) {
        loop {
            let request = self
                .http
                .post(&self.url)
                .header("content-type", "application/json")
                .header("message-id", id)
                .body(body.to_owned());
            if request.send().await.is_ok_and(|answer| answer.status() == 202) {
                return;
            }
            self.counts.repeats.fetch_add(1, Relaxed);
            tokio::time::sleep(AGAIN).await;
        }
    }
}
