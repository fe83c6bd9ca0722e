//! The service `ledger`: processes of its own on a database of its own, killed and frozen like the
//! others. Each post must be booked once, and a message about it sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result};
use relais_testkit::proxy::FaultProxy;
use tokio::task::JoinHandle;

use super::{FlowContext, orders::Orders, rate};
use crate::{
    base::Base,
    check::{self, Findings},
    faults::{self, LEASE, NodeSlot},
    history::{Flow, WrittenKeys},
    node::{NodeProcess, NodeProgram},
    rng::Rng,
    sink::Sink,
    writers::{self, Letter, SharedState, WriterKeys},
};

/// Share of posts that are made twice although the first was answered.
const TWICE_PERCENT: u64 = 10;
/// Processes of the service.
const NODES: usize = 2;
/// Number of posters, their posts per second together, and accounts of each.
const POSTERS: u32 = 2;
const POSTS_A_SECOND: u64 = 10;
const ACCOUNTS: usize = 25;

const TABLES: &str = "CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL); \
    CREATE TABLE booking (account text NOT NULL, name text NOT NULL, cents bigint NOT NULL)";

/// The service, those it talks to, and those who post.
pub(crate) struct LedgerFlow {
    base: Base,
    program: NodeProgram,
    sink: Sink,
    orders: Orders,
    /// To the sink, to the services of the orders.
    proxies: [Arc<FaultProxy>; 2],
    shared: Arc<SharedState>,
    disturbers: Vec<JoinHandle<()>>,
    disrupted: Vec<JoinHandle<Result<NodeProcess>>>,
    nodes: Vec<NodeProcess>,
    posters: Vec<JoinHandle<WriterKeys>>,
    posted: Vec<WriterKeys>,
}

impl LedgerFlow {
    /// Makes its database.
    pub(crate) async fn start(context: &FlowContext) -> Result<Self> {
        let base = match &context.base {
            Base::Sqlite(path) => Base::Sqlite(path.with_file_name("ledger.db")),
            Base::Postgres { server, .. } => Base::postgres(server.clone()).await?,
        };
        let shared = Arc::new(SharedState::at(&format!("ledger-{}", context.base.name())));
        let (sink, bookings) = Sink::start(Rng::new(context.plan.seed, 40)).await?;
        let _ = (
            shared.event_log.set(context.event_log.clone()),
            sink.event_log.set(context.event_log.clone()),
        );
        let (orders, services) = Orders::start(&shared, context).await?;
        let proxies =
            [Arc::new(FaultProxy::to(bookings).await?), Arc::new(FaultProxy::to(services).await?)];
        let command = |word: &str| -> Result<Vec<String>> {
            let [bookings, services] = proxies.each_ref().map(|proxy| proxy.address());
            let args = [
                "--store".to_owned(),
                base.url(context.through)?,
                format!("--bookings=http://{bookings}/sink"),
                format!("--services=http://{services}/services"),
                format!("--hook={}", shared.hook()),
                format!("--lease-seconds={}", LEASE.as_secs()),
                word.to_owned(),
            ];
            Ok(args.to_vec())
        };
        let program = NodeProgram {
            path: std::env::current_exe()?.with_file_name("ledger"),
            args: command("run")?,
            folder: context.program.folder.clone(),
            env: Vec::new(),
        };
        let migrate = command("migrate")?;
        program.call(&migrate.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        base.prepare().await?;
        base.connect().await?.run(TABLES).await.context("the tables of the ledger")?;
        Ok(Self {
            base,
            program,
            sink,
            orders,
            proxies,
            shared,
            disturbers: Vec::new(),
            disrupted: Vec::new(),
            nodes: Vec::new(),
            posters: Vec::new(),
            posted: Vec::new(),
        })
    }

    /// From now on it runs, but not well, and gets posts and orders.
    pub(crate) fn go(&mut self, context: &FlowContext) {
        let FlowContext { plan, control, event_log, http, .. } = context;
        let rng = |part| Rng::new(plan.seed, part);
        let proxies = self.proxies.iter().zip(["the ledger's sink", "the services"]).zip(41..);
        self.disturbers = proxies
            .map(|((proxy, what), part)| {
                let (proxy, control) = (Arc::clone(proxy), Arc::clone(control));
                tokio::spawn(faults::disturb(proxy, what, rng(part), control, event_log.clone()))
            })
            .collect();
        if let Base::Postgres { .. } = &self.base {
            let (base, control) = (self.base.clone(), Arc::clone(control));
            let ending = faults::end_sessions(base, rng(43), control, event_log.clone());
            self.disturbers.push(tokio::spawn(ending));
        }
        self.disrupted = (0..NODES)
            .map(|number| {
                // The first has a clock of its own, where the database has another: for SQLite the time
                // of a process is the time of the database. Not one that uses Kafka: librdkafka waits
                // by the time of day, which that library does not fake in full.
                let program = match &plan.tools.faketime {
                    Some(library) if number == 0 => self.program.clone().a_day_ahead(library),
                    _ => self.program.clone(),
                };
                let rng = rng(44 + number as u64);
                let mut slot = NodeSlot::new(program, format!("ledger-{number}"), rng);
                slot.source = Some((Arc::clone(&self.shared), number));
                tokio::spawn(faults::disrupt_node(
                    slot,
                    Arc::clone(control),
                    event_log.clone(),
                    http.clone(),
                ))
            })
            .collect();
        let each = u64::from(POSTERS);
        let (posts, pace) = rate(plan, POSTS_A_SECOND / each);
        self.posters = (0..POSTERS)
            .map(|poster| {
                let keys = WriterKeys::new(Flow::Booked, poster * 1_000, ACCOUNTS);
                let (shared, rng) = (Arc::clone(&self.shared), rng(50 + u64::from(poster)));
                tokio::spawn(post(shared, keys, rng, http.clone(), (posts, pace)))
            })
            .collect();
        self.orders.go(context);
    }

    /// The faults are over.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        for disturber in self.disturbers.drain(..) {
            disturber.await?;
        }
        self.sink.recover();
        for node in self.disrupted.drain(..) {
            self.nodes.push(node.await??);
        }
        Ok(())
    }

    /// Nothing more is posted but replies.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.shared.closed.store(true, Relaxed);
        for poster in self.posters.drain(..) {
            self.posted.push(poster.await?);
        }
        self.orders.finish().await
    }

    pub(crate) async fn open(&self) -> Result<Vec<String>> {
        let mut client = self.base.connect().await?;
        let mut open = self.orders.open(&mut client).await?;
        open.extend(check::open(&mut client).await?);
        Ok(open)
    }

    pub(crate) async fn stop(&mut self) -> Result<()> {
        for node in self.nodes.drain(..) {
            node.stop().await?;
        }
        Ok(())
    }

    pub(crate) async fn check(&self, findings: &mut Findings) -> Result<()> {
        let mut client = self.base.connect().await?;
        let mut written = WrittenKeys::default();
        self.posted.iter().for_each(|keys| written.extend(keys.written()));
        // A message about every booking arrived, in the order of its account.
        findings.compare(&written, &self.sink.arrivals.close());

        let mut bookings = BTreeMap::<String, u64>::new();
        for name in client.texts("SELECT name FROM booking").await? {
            *bookings.entry(name).or_default() += 1;
        }
        for name in written.names() {
            match bookings.remove(&name.to_string()) {
                None => findings.add("lost", [format!("booking {name}")]),
                Some(1) => {}
                Some(times) => findings.add("double effect", [format!("{name} {times} times")]),
            }
        }
        findings.add("phantom", bookings.into_keys());

        let mut sums = BTreeMap::<String, u64>::new();
        for name in written.names() {
            *sums.entry(name.key()).or_default() += u64::from(name.number);
        }
        let sums: BTreeSet<String> =
            sums.into_iter().map(|(account, cents)| format!("{account} {cents}")).collect();
        let balances = "SELECT id || ' ' || CAST(balance AS TEXT) FROM account";
        let balances: BTreeSet<String> = client.texts(balances).await?.into_iter().collect();
        findings.add("wrong sum", sums.symmetric_difference(&balances).cloned());

        self.orders.check(&mut client, findings).await?;
        drop(client);
        findings.tables(&self.base).await
    }

    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let posted = self.posted.iter().flat_map(|keys| &keys.numbers).map(|last| u64::from(*last));
        let mut counts = vec![("bookings", posted.sum())];
        counts.extend(self.orders.counts());
        counts
    }

    /// Removes its database.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.base.remove().await
    }
}

/// Makes `posts` posts, about `pace` per second, each until it is answered with a promise.
async fn post(
    shared: Arc<SharedState>,
    mut keys: WriterKeys,
    mut rng: Rng,
    http: reqwest::Client,
    (posts, pace): (u64, u64),
) -> WriterKeys {
    for _ in 0..posts {
        if shared.closed.load(Relaxed) {
            break;
        }
        let name = keys.next(&mut rng);
        let letter = Letter { id: name.to_string(), answers: None, body: writers::payload(name) };
        for _ in 0..=u64::from(rng.percent(TWICE_PERCENT)) {
            writers::deliver(&shared, &http, &letter, &mut rng).await;
        }
        tokio::time::sleep(Duration::from_micros(1_000_000 / pace)).await;
    }
    keys
}
