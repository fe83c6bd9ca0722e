//! What is on its way to relais: posted to one of its processes, again and again until one says that it
//! is stored.

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

/// Most messages on their way; far more than there ever are.
const WAITING_MAX: usize = 100_000;
/// Messages posted at once.
const POSTERS: usize = 48;
/// A process may be dead: the pause before the next is asked.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a process may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A message for relais.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: String,
    /// The process and the command it answers, if it is a reply.
    pub(crate) correlation: Option<(String, String)>,
    pub(crate) body: String,
}

/// Where messages are handed in.
#[derive(Clone)]
pub(crate) struct Mail {
    queue: mpsc::Sender<Outgoing>,
    office: Arc<Office>,
}

#[derive(Default)]
struct Office {
    /// Where relais listens.
    addresses: Mutex<Vec<SocketAddr>>,
    /// Handed in and not stored yet.
    waiting: AtomicUsize,
    duplicates: AtomicUsize,
    failures: AtomicUsize,
}

/// What became of the posts.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Stored before.
    pub(crate) duplicates: usize,
    /// No answer, or none that says that it is stored.
    pub(crate) failures: usize,
}

impl Mail {
    /// Begins to post on this runtime.
    pub(crate) fn start() -> Self {
        let (queue, receiver) = mpsc::channel(WAITING_MAX);
        let mail = Self { queue, office: Arc::default() };
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build().unwrap();
        for poster in 0..POSTERS {
            let (receiver, office) = (Arc::clone(&receiver), Arc::clone(&mail.office));
            let client = client.clone();
            tokio::spawn(async move {
                loop {
                    let next = receiver.lock().await.recv().await;
                    let Some(outgoing) = next else { return };
                    office.deliver(&client, &outgoing, poster).await;
                    office.waiting.fetch_sub(1, SeqCst);
                }
            });
        }
        mail
    }

    pub(crate) async fn send(&self, outgoing: Outgoing) {
        self.office.waiting.fetch_add(1, SeqCst);
        self.queue.send(outgoing).await.unwrap();
    }

    /// From now on relais is here.
    pub(crate) fn move_to(&self, addresses: Vec<SocketAddr>) {
        *self.office.addresses.lock().unwrap() = addresses;
    }

    /// Nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.office.waiting.load(SeqCst) == 0
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            duplicates: self.office.duplicates.load(SeqCst),
            failures: self.office.failures.load(SeqCst),
        }
    }
}

impl Office {
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

/// What relais says of a message it has stored.
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
