//! A network that fails on command: [`FaultProxy`] stands between a program and a server.
//!
//! Invariant: what was forwarded was forwarded whole and in order; a fault only delays, withholds or
//! ends. [`Fault::DropReplies`] is the interesting one: the server did what it was asked, and the
//! client never learns it.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// Bytes forwarded at once.
const CHUNK: usize = 16 << 10;

/// A fault of every connection, those that are open included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Each piece waits this long, in both directions.
    Delay(Duration),
    /// Nothing goes through and nothing is closed; connections can still be made.
    BlackHole,
    /// Requests arrive at the server, replies do not come back. A connection ends when the server has
    /// replied, or closed: the caller cannot know whether it worked.
    DropReplies,
    /// Connections are closed as a program that ends closes them, new ones at once.
    Cut,
    /// As [`Fault::Cut`], but with a reset: the other side gets an error, not an end.
    Reset,
}

/// Counts of forwarded and dropped bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections so far.
    pub connections: u64,
    /// Bytes that reached the server.
    pub requests: u64,
    /// Bytes that reached the caller.
    pub replies: u64,
    /// Bytes of dropped replies.
    pub dropped: u64,
}

/// A TCP proxy for tests. Stops when it is dropped, and its connections with it.
///
/// ```
/// # async fn test() -> std::io::Result<()> {
/// use relais_testkit::proxy::{Fault, FaultProxy};
///
/// let database = "127.0.0.1:5432".parse().unwrap();
/// let proxy = FaultProxy::to(database).await?;
/// let url = format!("postgres://app@{}/app", proxy.address());
/// // connect to `url`, then, at the worst moment:
/// proxy.set(Fault::DropReplies);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    counters: Arc<Counters>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    replies: AtomicU64,
    dropped: AtomicU64,
}

impl FaultProxy {
    /// Listens on a free port of this machine and forwards to `server`.
    pub async fn to(server: SocketAddr) -> io::Result<Self> {
        Self::bind(SocketAddr::from(([127, 0, 0, 1], 0)), server).await
    }

    /// As [`FaultProxy::to`], at an address of your choice: for a server that gives its clients the address where
    /// it is, as a broker does.
    pub async fn bind(listen: SocketAddr, server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let (fault, watched) = watch::channel(Fault::None);
        let counters = Arc::new(Counters::default());
        let accepting = tokio::spawn(accept(listener, server, watched, Arc::clone(&counters)));
        Ok(Self { address, fault, counters, accepting })
    }

    /// Returns the address for the program under test.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, until the next call.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Since the start.
    pub fn traffic(&self) -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let Counters { connections, requests, replies, dropped } = &*self.counters;
        Traffic {
            connections: read(connections),
            requests: read(requests),
            replies: read(replies),
            dropped: read(dropped),
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    fault: watch::Receiver<Fault>,
    counters: Arc<Counters>,
) {
    // Dropped with this task, and then they end too.
    let mut open = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((caller, _)) = accepted else { continue };
                counters.connections.fetch_add(1, Relaxed);
                open.spawn(connection(caller, server, fault.clone(), Arc::clone(&counters)));
            }
            Some(_) = open.join_next() => {}
        }
    }
}

/// One caller, until one side ends or a fault ends it.
async fn connection(
    caller: TcpStream,
    server: SocketAddr,
    fault: watch::Receiver<Fault>,
    counters: Arc<Counters>,
) {
    let now = *fault.borrow();
    match now {
        Fault::Cut => return,
        Fault::Reset => return reset(&caller),
        Fault::None | Fault::Delay(_) | Fault::BlackHole | Fault::DropReplies => {}
    }
    let Ok(upstream) = TcpStream::connect(server).await else { return };
    drop((caller.set_nodelay(true), upstream.set_nodelay(true)));
    let (from_caller, to_caller) = caller.into_split();
    let (from_server, to_server) = upstream.into_split();
    let mut ended = fault.clone();
    let ended = ended.wait_for(|fault| matches!(fault, Fault::Cut | Fault::Reset));
    let ended = tokio::select! {
        () = requests(from_caller, to_server, fault.clone(), &counters) => None,
        () = replies(from_server, &to_caller, fault.clone(), &counters) => None,
        Ok(fault) = ended => Some(*fault),
    };
    if ended == Some(Fault::Reset) {
        reset(to_caller.as_ref());
        // Without this, the connection is closed in order before the reset.
        to_caller.forget();
    }
}

/// From now on the connection ends with a reset. If the other side was faster, there is nothing to reset.
fn reset(caller: &TcpStream) {
    drop(caller.set_zero_linger());
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fault: watch::Receiver<Fault>,
    counters: &Counters,
) {
    let mut bytes = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        hold_back(&mut fault).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
        counters.requests.fetch_add(count as u64, Relaxed);
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    to: &OwnedWriteHalf,
    mut fault: watch::Receiver<Fault>,
    counters: &Counters,
) {
    let mut bytes = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        hold_back(&mut fault).await;
        if *fault.borrow() == Fault::DropReplies {
            counters.dropped.fetch_add(count as u64, Relaxed);
            return;
        }
        if write_all(to, &bytes[..count]).await.is_err() {
            return;
        }
        counters.replies.fetch_add(count as u64, Relaxed);
    }
}

/// Waits as the fault demands; what was read before a black hole goes through after it.
async fn hold_back(fault: &mut watch::Receiver<Fault>) {
    let now = *fault.borrow();
    match now {
        Fault::Delay(time) => tokio::time::sleep(time).await,
        Fault::BlackHole => {
            // An error means that the proxy was dropped, and this connection with it.
            drop(fault.wait_for(|fault| *fault != Fault::BlackHole).await);
        }
        Fault::None | Fault::DropReplies | Fault::Cut | Fault::Reset => {}
    }
}

/// Through a reference, because the end of the connection needs the other half's socket as well.
async fn write_all(to: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
