//! The options: which figures, of which stores, in which size.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

pub(crate) const HELP: &str = "\
usage: cargo xtask bench [options]
  --quick                  small: a tenth of the rows, fewer samples
  --store sqlite|postgres|all
  --only NAME[,NAME]       send relay backlog finished snapshot writer sender latency idle memory
                           single hot-key destinations workers live process http-out http-in
                           kafka-out kafka-in rabbitmq-out rabbitmq-in nats-out nats-in
                           amqp-out amqp-in console adopt
  --json PATH              where the figures go; default target/bench.json";

/// The variable with the default of `--json`; set by `cargo xtask bench`.
const JSON_VARIABLE: &str = "RELAIS_BENCH_JSON";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreName {
    Sqlite,
    Postgres,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Send,
    /// A backlog that fits: the base of the next five.
    Relay,
    /// A far longer backlog.
    Backlog,
    /// Finished rows in the table.
    Finished,
    /// A transaction that only reads stays open.
    Snapshot,
    /// A transaction that wrote elsewhere stays open.
    Writer,
    /// A transaction that sent a message stays open.
    Sender,
    Latency,
    Idle,
    Memory,
    /// One message a call.
    Single,
    /// All messages of one key.
    HotKey,
    /// A backlog of many destinations.
    Destinations,
    /// A backlog shared by several workers.
    Workers,
    /// Producers and a relay together, as fast as they can.
    Live,
    /// Processes of several steps.
    Process,
    /// A backlog relayed over HTTP.
    HttpOut,
    /// Messages received over HTTP, routed and delivered.
    HttpIn,
    /// A backlog relayed to a topic.
    KafkaOut,
    /// A topic read into the inbox.
    KafkaIn,
    /// A backlog relayed to a queue of RabbitMQ, and back.
    RabbitmqOut,
    RabbitmqIn,
    /// The same with a stream of NATS.
    NatsOut,
    NatsIn,
    /// The same with a queue of an AMQP 1.0 broker.
    AmqpOut,
    AmqpIn,
    /// The queries of the console, with a long history.
    Console,
    /// An application's own outbox table, adopted.
    Adopt,
}

impl Figure {
    const ALL: [(&'static str, Self); 28] = [
        ("send", Self::Send),
        ("relay", Self::Relay),
        ("backlog", Self::Backlog),
        ("finished", Self::Finished),
        ("snapshot", Self::Snapshot),
        ("writer", Self::Writer),
        ("sender", Self::Sender),
        ("latency", Self::Latency),
        ("idle", Self::Idle),
        ("memory", Self::Memory),
        ("single", Self::Single),
        ("hot-key", Self::HotKey),
        ("destinations", Self::Destinations),
        ("workers", Self::Workers),
        ("live", Self::Live),
        ("process", Self::Process),
        ("http-out", Self::HttpOut),
        ("http-in", Self::HttpIn),
        ("kafka-out", Self::KafkaOut),
        ("kafka-in", Self::KafkaIn),
        ("rabbitmq-out", Self::RabbitmqOut),
        ("rabbitmq-in", Self::RabbitmqIn),
        ("nats-out", Self::NatsOut),
        ("nats-in", Self::NatsIn),
        ("amqp-out", Self::AmqpOut),
        ("amqp-in", Self::AmqpIn),
        ("console", Self::Console),
        ("adopt", Self::Adopt),
    ];

    fn parse(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, figure)| *figure).with_context(|| format!("no figure is called `{name}`"))
    }
}

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Rows of one relay round.
    pub(crate) rows: u64,
    /// Rows of a long backlog, or of history.
    pub(crate) rows_many: u64,
    /// The number of rounds, in which raw and relais take turns.
    pub(crate) send_rounds: usize,
    pub(crate) relay_rounds: usize,
    /// The duration of one round of sending.
    pub(crate) send_time: Duration,
    /// Messages of one latency measurement: one at a time, and many.
    pub(crate) calm_messages: usize,
    pub(crate) loaded_messages: usize,
    pub(crate) idle_time: Duration,
}

const FULL: Size = Size {
    rows: 200_000,
    rows_many: 1_000_000,
    send_rounds: 5,
    relay_rounds: 3,
    send_time: Duration::from_secs(3),
    calm_messages: 200,
    loaded_messages: 3_000,
    idle_time: Duration::from_secs(5),
};

const QUICK: Size = Size {
    rows: 20_000,
    rows_many: 100_000,
    send_rounds: 3,
    relay_rounds: 3,
    send_time: Duration::from_millis(700),
    calm_messages: 60,
    loaded_messages: 500,
    idle_time: Duration::from_secs(3),
};

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) size: Size,
    pub(crate) json: PathBuf,
    store: Option<StoreName>,
    only: Vec<Figure>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self {
            quick: false,
            size: FULL,
            json: std::env::var_os(JSON_VARIABLE).map_or_else(default_json, PathBuf::from),
            store: None,
            only: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value"));
            match arg.as_str() {
                "--bench" => {}
                "--quick" => (options.quick, options.size) = (true, QUICK),
                "--store" => options.store = parse_store(value()?)?,
                "--only" => {
                    options.only = value()?.split(',').map(Figure::parse).collect::<Result<_>>()?;
                }
                "--json" => options.json = PathBuf::from(value()?),
                other => bail!("unknown argument `{other}`"),
            }
        }
        Ok(options)
    }

    pub(crate) fn wants_store(&self, store: StoreName) -> bool {
        self.store.is_none_or(|only| only == store)
    }

    pub(crate) fn wants(&self, figure: Figure) -> bool {
        self.only.is_empty() || self.only.contains(&figure)
    }
}

fn parse_store(name: &str) -> Result<Option<StoreName>> {
    Ok(match name {
        "all" => None,
        "sqlite" => Some(StoreName::Sqlite),
        "postgres" => Some(StoreName::Postgres),
        other => bail!("no store is called `{other}`"),
    })
}

/// In the target directory, beside the folder cargo gives to benchmarks.
fn default_json() -> PathBuf {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    scratch.parent().unwrap_or(scratch).join("bench.json")
}
