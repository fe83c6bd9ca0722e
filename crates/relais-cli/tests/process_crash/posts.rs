//! A queue of messages to relais: each is posted to one of its processes until one acknowledges it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::sync::mpsc;

/// Most queued messages; far more than a run has.
const WAITING_MAX: usize = 100_000;
/// Messages posted at once.
const POSTERS: usize = 48;
/// Pause before the next process is tried.
const PAUSE: Duration = Duration::from_millis(20);
/// Time limit of a request.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A message for relais.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: String,
    /// The process and the command it answers, if it is a reply.
    pub(crate) correlation: Option<(String, String)>,
    pub(crate) body: String,
}

/// The queue.
#[derive(Clone)]
pub(crate) struct PostQueue {
    queue: mpsc::Sender<Outgoing>,
    counts: Arc<PostCounts>,
}

#[derive(Default)]
struct PostCounts {
    /// The addresses of relais.
    addresses: Mutex<Vec<SocketAddr>>,
    /// Queued and not acknowledged yet.
    waiting: AtomicUsize,
    duplicates: AtomicUsize,
    failures: AtomicUsize,
}

/// The results of the posts.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Stored before.
    pub(crate) duplicates: usize,
    /// No acknowledgement.
    pub(crate) failures: usize,
}

impl PostQueue {
    /// Begins to post on this runtime.
    pub(crate) fn start() -> Self {
        let (queue, receiver) = mpsc::channel(WAITING_MAX);
        let posts = Self { queue, counts: Arc::default() };
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build().unwrap();
        for poster in 0..POSTERS {
            let (receiver, counts) = (Arc::clone(&receiver), Arc::clone(&posts.counts));
            let client = client.clone();
            tokio::spawn(async move {
                loop {
                    let next = receiver.lock().await.recv().await;
                    let Some(outgoing) = next else { return };
                    counts.deliver(&client, &outgoing, poster).await;
                    counts.waiting.fetch_sub(1, SeqCst);
                }
            });
        }
        posts
    }

    pub(crate) async fn send(&self, outgoing: Outgoing) {
        self.counts.waiting.fetch_add(1, SeqCst);
        self.queue.send(outgoing).await.unwrap();
    }

    /// From now on relais is here.
    pub(crate) fn move_to(&self, addresses: Vec<SocketAddr>) {
        *self.counts.addresses.lock().unwrap() = addresses;
    }

    /// Returns true if the queue is empty.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts.waiting.load(SeqCst) == 0
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            duplicates: self.counts.duplicates.load(SeqCst),
            failures: self.counts.failures.load(SeqCst),
        }
    }
}

impl PostCounts {
    async fn deliver(&self, client: &reqwest::Client, outgoing: &Outgoing, poster: usize) {
        for turn in poster.. {
            let address = {
                let addresses = self.addresses.lock().unwrap();
                addresses.get(turn % addresses.len().max(1)).copied()
            };
            match address {
                Some(address) => match post(client, address, outgoing).await {
                    Some(status) => {
                        self.duplicates.fetch_add(usize::from(status == "duplicate"), SeqCst);
                        return;
                    }
                    None => self.failures.fetch_add(1, SeqCst),
                },
                None => 0,
            };
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The answer of relais to a stored message.
async fn post(
    client: &reqwest::Client,
    address: SocketAddr,
    outgoing: &Outgoing,
) -> Option<String> {
    let mut request = client
        .post(format!("http://{address}/hook"))
        .header("message-id", &outgoing.id)
        .body(outgoing.body.clone());
    if let Some((process_id, command)) = &outgoing.correlation {
        request = request.header("correlation-id", process_id).header("causation-id", command);
    }
    let answer = request.send().await.ok()?;
    let stored = answer.status() == 202;
    let body: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
    stored.then(|| body["status"].as_str().unwrap().to_owned())
}
