//! A simulator of Azure Service Bus for tests: AMQP 1.0 with SASL, claims, links, sessions, locks, dead
//! letters, scheduled messages and duplicate detection. It stores messages in memory.
//!
//! Microsoft's own Java client works with it unmodified (`tests/clients.rs`).

mod attach;
mod connection;
mod deliver;
mod entity;
mod lenient;
mod link;
mod namespace;
mod reply;
mod token;
mod wire;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use entity::EntityConfig;
pub use fe2o3_amqp_types::messaging::Message;
pub use namespace::NamespaceConfig;

use namespace::Namespace;

/// A message as it is stored.
pub type StoredMessageView = wire::AnyMessage;

/// A running simulator. It ends with this value.
#[derive(Debug)]
pub struct ServiceBusSimulator {
    address: SocketAddr,
    config: NamespaceConfig,
    namespace: Arc<Mutex<Namespace>>,
    cut: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl ServiceBusSimulator {
    /// Listens on a free port of the loopback interface, without TLS.
    pub async fn start(config: NamespaceConfig) -> io::Result<Self> {
        Self::listen(config, ([127, 0, 0, 1], 0).into()).await
    }

    /// Listens on this address, without TLS.
    pub async fn listen(config: NamespaceConfig, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let namespace = Arc::new(Mutex::new(Namespace::new(config.clone())));
        let (cut, cuts) = watch::channel(0);
        let shared = Arc::clone(&namespace);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(connection::serve(stream, Arc::clone(&shared), cuts.clone()));
            }
        });
        Ok(Self { address, config, namespace, cut, task })
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a connection string for the whole namespace, reached at `host:port`.
    pub fn connection_string(&self, place: &str) -> String {
        let NamespaceConfig { key_name, key, .. } = &self.config;
        format!(
            "Endpoint=sb://{place};SharedAccessKeyName={key_name};SharedAccessKey={key};\
             UseDevelopmentEmulator=true;"
        )
    }

    /// Returns the number of messages of a queue or subscription, locked and scheduled ones included.
    pub fn len(&self, address: &str) -> usize {
        self.namespace().entity(address).map_or(0, entity::Entity::len)
    }

    /// Returns whether a queue or subscription has no message.
    pub fn is_empty(&self, address: &str) -> bool {
        self.len(address) == 0
    }

    /// Returns the messages of a queue or subscription.
    pub fn messages(&self, address: &str) -> Vec<StoredMessageView> {
        self.namespace().entity(address).map(entity::Entity::messages).unwrap_or_default()
    }

    /// Stores messages as if another client had sent them. Refused ones are left out.
    pub fn send(&self, address: &str, messages: Vec<StoredMessageView>) {
        let mut namespace = self.namespace();
        for message in messages {
            let _ = namespace.store(address, &message, SystemTime::now());
        }
    }

    /// Returns how many messages were accepted and not stored, because their ids were known.
    pub fn duplicates(&self, address: &str) -> usize {
        self.namespace().entity(address).map_or(0, |entity| entity.duplicates)
    }

    /// Returns how many tokens were accepted.
    pub fn tokens(&self) -> usize {
        self.namespace().tokens
    }

    /// Ends every connection, as a failing gateway does.
    pub fn cut_connections(&self) {
        self.cut.send_modify(|number| *number += 1);
    }

    fn namespace(&self) -> MutexGuard<'_, Namespace> {
        locked(&self.namespace)
    }
}

impl Drop for ServiceBusSimulator {
    fn drop(&mut self) {
        self.cut_connections();
        self.task.abort();
    }
}

pub(crate) fn locked(namespace: &Mutex<Namespace>) -> MutexGuard<'_, Namespace> {
    namespace.lock().unwrap_or_else(PoisonError::into_inner)
}
