//! Reports to the server that messages are still in work, so that it does not deliver them again while
//! the database is slow or unavailable.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::{Client, Subject};
use tokio::task::JoinHandle;

/// The acknowledgement that only prolongs the time.
const IN_PROGRESS: &[u8] = b"+WPI";
/// Reports in the time after which the server would deliver again.
const REPORTS: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The messages in work, by sequence, and the task that reports them. It ends with this value.
#[derive(Debug)]
pub(super) struct KeepAlive {
    held: Arc<Mutex<BTreeMap<u64, Subject>>>,
    task: JoinHandle<()>,
}

impl KeepAlive {
    pub(super) fn start(client: Client, ack_wait: Duration) -> Self {
        let held: Arc<Mutex<BTreeMap<u64, Subject>>> = Arc::default();
        let shared = Arc::clone(&held);
        let pause = (ack_wait / REPORTS).max(PAUSE_MIN);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let replies: Vec<Subject> = locked(&shared).values().cloned().collect();
                for reply in replies {
                    if client.publish(reply, IN_PROGRESS.into()).await.is_err() {
                        return;
                    }
                }
            }
        });
        Self { held, task }
    }

    /// Returns whether the message was not in work yet.
    pub(super) fn add(&self, sequence: u64, reply: &Subject) -> bool {
        locked(&self.held).insert(sequence, reply.clone()).is_none()
    }

    pub(super) fn remove(&self, sequence: u64) {
        locked(&self.held).remove(&sequence);
    }
}

fn locked(held: &Mutex<BTreeMap<u64, Subject>>) -> MutexGuard<'_, BTreeMap<u64, Subject>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}
