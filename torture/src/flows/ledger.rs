//! The service `ledger`: processes of its own on a database of its own, killed and frozen like the
//! others. What is posted to it must be booked once, and told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result};
use relais_testkit::proxy::FaultProxy;
use tokio::task::JoinHandle;

use super::{Stage, orders::Orders, rate};
use crate::{
    base::Base,
    check::{self, Findings},
    dice::Dice,
    faults::{self, LEASE, Place},
    history::{Flow, Written},
    node::{Node, Program},
    sink::Sink,
    writers::{self, Desk, Keys, Letter},
};

/// Of a hundred posts, so many are made twice although the first was answered.
const TWICE_PERCENT: u64 = 10;
/// Processes of the service.
const NODES: usize = 2;
/// Who posts to it, how much a second, to how many accounts each.
const POSTERS: u32 = 2;
const POSTS_A_SECOND: u64 = 10;
const ACCOUNTS: usize = 25;

const TABLES: &str = "CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL); \
    CREATE TABLE booking (account text NOT NULL, name text NOT NULL, cents bigint NOT NULL)";

/// The service, those it talks to, and those who post.
pub(crate) struct Ledger {
    base: Base,
    program: Program,
    sink: Sink,
    orders: Orders,
    /// To the sink, to the services of the orders.
    proxies: [Arc<FaultProxy>; 2],
    desk: Arc<Desk>,
    disturbers: Vec<JoinHandle<()>>,
    haunted: Vec<JoinHandle<Result<Node>>>,
    nodes: Vec<Node>,
    posters: Vec<JoinHandle<Keys>>,
    posted: Vec<Keys>,
}

impl Ledger {
    /// Makes its database.
    pub(crate) async fn start(stage: &Stage) -> Result<Self> {
        let base = match &stage.base {
            Base::Sqlite(path) => Base::Sqlite(path.with_file_name("ledger.db")),
            Base::Postgres { server, .. } => Base::postgres(server.clone()).await?,
        };
        let desk = Arc::new(Desk::at(&format!("ledger-{}", stage.base.name())));
        let (sink, told) = Sink::start(Dice::new(stage.plan.seed, 40)).await?;
        let _ = (desk.diary.set(stage.diary.clone()), sink.diary.set(stage.diary.clone()));
        let (orders, services) = Orders::start(&desk, stage).await?;
        let proxies =
            [Arc::new(FaultProxy::to(told).await?), Arc::new(FaultProxy::to(services).await?)];
        let command = |word: &str| -> Result<Vec<String>> {
            let [told, services] = proxies.each_ref().map(|proxy| proxy.address());
            let args = [
                "--store".to_owned(),
                base.url(stage.through)?,
                format!("--told=http://{told}/sink"),
                format!("--services=http://{services}/services"),
                format!("--hook={}", desk.hook()),
                format!("--lease-seconds={}", LEASE.as_secs()),
                word.to_owned(),
            ];
            Ok(args.to_vec())
        };
        let program = Program {
            path: std::env::current_exe()?.with_file_name("ledger"),
            args: command("run")?,
            folder: stage.program.folder.clone(),
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
            desk,
            disturbers: Vec::new(),
            haunted: Vec::new(),
            nodes: Vec::new(),
            posters: Vec::new(),
            posted: Vec::new(),
        })
    }

    /// From now on it runs, but not well, and gets posts and orders.
    pub(crate) fn go(&mut self, stage: &Stage) {
        let Stage { plan, toll, diary, http, .. } = stage;
        let dice = |part| Dice::new(plan.seed, part);
        let proxies = self.proxies.iter().zip(["the ledger's sink", "the services"]).zip(41..);
        self.disturbers = proxies
            .map(|((proxy, what), part)| {
                let (proxy, toll) = (Arc::clone(proxy), Arc::clone(toll));
                tokio::spawn(faults::disturb(proxy, what, dice(part), toll, diary.clone()))
            })
            .collect();
        if let Base::Postgres { .. } = &self.base {
            let (base, toll) = (self.base.clone(), Arc::clone(toll));
            let ending = faults::end_sessions(base, dice(43), toll, diary.clone());
            self.disturbers.push(tokio::spawn(ending));
        }
        self.haunted = (0..NODES)
            .map(|number| {
                // The first has a clock of its own, where the database has another: for SQLite the time
                // of a process is the time of the database. Not one that uses Kafka: librdkafka waits
                // by the time of day, which that library does not fake in full.
                let program = match &plan.means.faketime {
                    Some(library) if number == 0 => self.program.clone().a_day_ahead(library),
                    _ => self.program.clone(),
                };
                let dice = dice(44 + number as u64);
                let mut place = Place::new(program, format!("ledger-{number}"), dice);
                place.source = Some((Arc::clone(&self.desk), number));
                tokio::spawn(faults::haunt(place, Arc::clone(toll), diary.clone(), http.clone()))
            })
            .collect();
        let each = u64::from(POSTERS);
        let (posts, pace) = rate(plan, POSTS_A_SECOND / each);
        self.posters = (0..POSTERS)
            .map(|poster| {
                let keys = Keys::new(Flow::Booked, poster * 1_000, ACCOUNTS);
                let (desk, dice) = (Arc::clone(&self.desk), dice(50 + u64::from(poster)));
                tokio::spawn(post(desk, keys, dice, http.clone(), (posts, pace)))
            })
            .collect();
        self.orders.go(stage);
    }

    /// The faults are over.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        for disturber in self.disturbers.drain(..) {
            disturber.await?;
        }
        self.sink.recover();
        for node in self.haunted.drain(..) {
            self.nodes.push(node.await??);
        }
        Ok(())
    }

    /// Nothing more is posted but replies.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.desk.closed.store(true, Relaxed);
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
        let mut written = Written::default();
        self.posted.iter().for_each(|keys| written.extend(keys.written()));
        // Every booking was told, in the order of its account.
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

/// Posts so many, about so many a second, each until it is answered with a promise.
async fn post(
    desk: Arc<Desk>,
    mut keys: Keys,
    mut dice: Dice,
    http: reqwest::Client,
    (posts, pace): (u64, u64),
) -> Keys {
    for _ in 0..posts {
        if desk.closed.load(Relaxed) {
            break;
        }
        let name = keys.next(&mut dice);
        let letter = Letter { id: name.to_string(), answers: None, body: writers::payload(name) };
        for _ in 0..=u64::from(dice.percent(TWICE_PERCENT)) {
            writers::deliver(&desk, &http, &letter, &mut dice).await;
        }
        tokio::time::sleep(Duration::from_micros(1_000_000 / pace)).await;
    }
    keys
}
