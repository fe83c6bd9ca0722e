//! Messages in by a broker and out by the same one, through inbox, route and outbox, with brokers that are
//! killed now and then.
//!
//! A message is sent until its broker has acknowledged it, so all of them must arrive, in the order of their
//! keys; copies keep the id of the first. What cannot be decoded must be kept.

mod kafka;
mod nats;
mod rabbitmq;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use tokio::task::JoinHandle;

use super::{FlowContext, rate};
use crate::{
    base::DatabaseClient,
    check::Findings,
    faults::{self, NodeSlot},
    history::{ArrivalTable, Flow, WrittenKeys},
    node::NodeProcess,
    rng::Rng,
    writers::{self, WriterKeys},
};

/// Messages a second to each broker, and the number of their keys.
const MESSAGES_A_SECOND: u64 = 20;
const KEYS: usize = 100;
/// Share of messages that are sent twice, and of undecodable ones.
const AGAIN_PERCENT: u64 = 5;
const GARBAGE_PERCENT: u64 = 2;
/// Time until a broker is killed.
const BROKER_LIFE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(90));
/// Longest time of one request to a broker, which may be starting.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time of all attempts to send one message: a broker that was killed starts slowly on a busy machine.
const SENDING_MAX: Duration = Duration::from_secs(300);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Processes that read from the brokers.
const READERS: usize = 2;
/// Longer than a process of the other slots works: a group needs time to form.
const LIFE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(6));

/// A broker, and the program that kills and starts it, if that is allowed.
#[derive(Clone, Debug)]
pub(crate) struct BrokerServer {
    pub(crate) address: String,
    pub(crate) restart: Option<PathBuf>,
}

/// The brokers of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct BrokerServers {
    pub(crate) kafka: Option<BrokerServer>,
    pub(crate) rabbitmq: Option<BrokerServer>,
    pub(crate) nats: Option<BrokerServer>,
}

/// The names of one kind of broker in settings and figures.
#[derive(Debug)]
struct BrokerKind {
    flow: Flow,
    event_type: &'static str,
    /// The name of its source, source system and destination.
    name: &'static str,
    /// Processes that may read at the same time without changing the order of a key.
    readers: usize,
    /// The figures of messages, of those sent twice, of undecodable ones, and of kills.
    figures: [&'static str; 4],
}

/// Two topics, queues or streams of a broker: relais reads from one and writes to the other.
#[async_trait]
trait MessageBroker: Send + Sync {
    fn kind(&self) -> &'static BrokerKind;

    /// Returns the keys of the source in the configuration, besides the common ones.
    fn source(&self) -> String;

    /// Returns the keys of the destination in the configuration, besides the common ones.
    fn destination(&self) -> String;

    async fn sender(&self) -> Result<Box<dyn MessageSender>>;

    /// Returns work that relais has not read, or, if the broker cannot say that, of which the result has not
    /// arrived. `expected` is the number of messages that were sent.
    async fn unread(&self, expected: u64) -> Result<Vec<String>>;

    /// Returns everything that relais wrote.
    async fn arrived(&self) -> Result<ArrivalTable>;

    async fn remove(&self) -> Result<()>;
}

/// Sends to the topic, queue or stream that relais reads.
#[async_trait]
trait MessageSender: Send {
    /// Sends until the broker acknowledges. A message whose acknowledgement was lost may be stored; the
    /// next attempt is a copy of it then.
    async fn put(&mut self, key: &str, id: Option<&str>, payload: &str) -> Result<()>;
}

/// The flows of all brokers, and the processes that read from them.
pub(crate) struct Brokers(Vec<BrokerFlow>);

struct BrokerFlow {
    broker: Arc<dyn MessageBroker>,
    restart: Option<PathBuf>,
    disturber: Option<JoinHandle<Result<u64>>>,
    sending: Option<JoinHandle<Result<SentMessages>>>,
    sent: SentMessages,
    restarts: u64,
}

/// Messages that the broker has acknowledged.
#[derive(Debug, Default)]
struct SentMessages {
    written: WrittenKeys,
    garbage: u64,
    again: u64,
}

impl Brokers {
    /// Creates topics, queues and streams.
    pub(crate) async fn start(servers: &BrokerServers) -> Result<Self> {
        let mut flows = Vec::new();
        if let Some(server) = &servers.kafka {
            let broker = kafka::KafkaTopics::create(&server.address).await?;
            flows.push(BrokerFlow::new(Arc::new(broker), server));
        }
        if let Some(server) = &servers.rabbitmq {
            let broker = rabbitmq::RabbitQueues::create(&server.address).await?;
            flows.push(BrokerFlow::new(Arc::new(broker), server));
        }
        if let Some(server) = &servers.nats {
            let broker = nats::NatsStreams::create(&server.address).await?;
            flows.push(BrokerFlow::new(Arc::new(broker), server));
        }
        Ok(Self(flows))
    }

    /// Returns the routes and destinations, which every process has.
    pub(crate) fn settings(&self) -> String {
        self.0.iter().map(BrokerFlow::settings).collect()
    }

    /// Writes the configuration of the processes that read.
    pub(crate) fn write_settings(&self, context: &FlowContext, common: &str) -> Result<()> {
        for reader in 0..self.readers() {
            let read = self.0.iter().filter(|flow| flow.broker.kind().readers > reader);
            let sources: String = read.map(BrokerFlow::source).collect();
            let file = context.program.folder.join(settings_file(reader));
            std::fs::write(file, common.to_owned() + &sources)?;
        }
        Ok(())
    }

    fn readers(&self) -> usize {
        if self.0.is_empty() { 0 } else { READERS }
    }

    /// Starts to send and to read, and to kill the brokers now and then. The readers are processes like the
    /// others of the run.
    pub(crate) fn go(&mut self, context: &FlowContext) -> Vec<JoinHandle<Result<NodeProcess>>> {
        for (flow, part) in self.0.iter_mut().zip((400..).step_by(10)) {
            flow.go(context, part);
        }
        let FlowContext { plan, control, event_log, http, shared, .. } = context;
        let disrupt_node = |number: usize| {
            let mut program = context.program.clone();
            program.args.push(format!("--config={}", settings_file(number)));
            let rng = Rng::new(plan.seed, 32 + number as u64);
            let mut slot = NodeSlot::new(program, format!("reader-{number}"), rng);
            slot.source = Some((Arc::clone(shared), plan.nodes + number));
            slot.life = LIFE;
            let (control, event_log) = (Arc::clone(control), event_log.clone());
            tokio::spawn(faults::disrupt_node(slot, control, event_log, http.clone()))
        };
        (0..self.readers()).map(disrupt_node).collect()
    }

    /// The faults are over.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        for flow in &mut self.0 {
            if let Some(disturber) = flow.disturber.take() {
                flow.restarts = disturber.await??;
            }
        }
        Ok(())
    }

    /// No more messages are sent.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        for flow in &mut self.0 {
            if let Some(sending) = flow.sending.take() {
                let name = flow.broker.kind().name;
                flow.sent = sending.await?.with_context(|| format!("sending {name}"))?;
            }
        }
        Ok(())
    }

    /// Returns messages that relais has not read.
    pub(crate) async fn open(&self, client: &mut DatabaseClient) -> Result<Vec<String>> {
        let mut open = Vec::new();
        for flow in &self.0 {
            let expected = flow.sent.written.names().count() as u64;
            // A broker that has just come back may not know its groups yet.
            let unread = flow.broker.unread(expected).await;
            let name = flow.broker.kind().name;
            open.extend(unread.unwrap_or_else(|error| vec![format!("{name}: {error:#}")]));
            let (kept, garbage) = (flow.kept(client).await?, flow.sent.garbage);
            if kept < garbage {
                open.push(format!("{kept} of {garbage} undecodable {name}"));
            }
        }
        Ok(open)
    }

    pub(crate) async fn check(
        &self,
        client: &mut DatabaseClient,
        findings: &mut Findings,
    ) -> Result<()> {
        for flow in &self.0 {
            let name = flow.broker.kind().name;
            let arrived = flow.broker.arrived().await;
            let arrived = arrived.with_context(|| format!("reading what arrived of {name}"))?;
            findings.compare(&flow.sent.written, &arrived);
            let (kept, garbage) = (flow.kept(client).await?, flow.sent.garbage);
            if kept < garbage {
                findings.add("lost", [format!("{} {name} that are no JSON", garbage - kept)]);
            }
            if kept > garbage {
                findings.add("phantom", [format!("{} {name} that are no JSON", kept - garbage)]);
            }
            flow.broker.remove().await?;
        }
        Ok(())
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().flat_map(|flow| {
            let SentMessages { written, garbage, again } = &flow.sent;
            let numbers = [written.names().count() as u64, *again, *garbage, flow.restarts];
            flow.broker.kind().figures.into_iter().zip(numbers)
        })
    }
}

fn settings_file(reader: usize) -> String {
    format!("reader-{reader}.toml")
}

impl BrokerFlow {
    fn new(broker: Arc<dyn MessageBroker>, server: &BrokerServer) -> Self {
        let (restart, sent) = (server.restart.clone(), SentMessages::default());
        Self { broker, restart, disturber: None, sending: None, sent, restarts: 0 }
    }

    fn settings(&self) -> String {
        let BrokerKind { name, event_type, .. } = self.broker.kind();
        let destination = self.broker.destination();
        format!(
            r#"
[[route]]
on = "{event_type}"
destination = "{name}"

[[destination]]
name = "{name}"
{destination}

[destination.retry]
attempts = 400
first = "10ms"
max = "20ms"

[destination.limits]
timeout = "5s"

[destination.breaker]
open_for = "300ms"
"#
        )
    }

    fn source(&self) -> String {
        let (name, source) = (self.broker.kind().name, self.broker.source());
        format!(
            r#"
[[source]]
name = "{name}"
source_system = "{name}"
message_id = "header:message-id"
event_type = "payload:/type"
aggregate_id = "key"
{source}
"#
        )
    }

    fn go(&mut self, context: &FlowContext, part: u64) {
        let sending = send(Arc::clone(&self.broker), context.clone(), part);
        self.sending = Some(tokio::spawn(sending));
        if let Some(program) = self.restart.clone() {
            let name = self.broker.kind().name;
            let restarting = restart(program, name, context.clone(), part + 1);
            self.disturber = Some(tokio::spawn(restarting));
        }
    }

    /// Returns the number of undecodable messages in the inbox. Each is unlike the others, and a copy of it
    /// is no other.
    async fn kept(&self, client: &mut DatabaseClient) -> Result<u64> {
        let name = self.broker.kind().name;
        let kept = format!(
            "SELECT CAST(count(DISTINCT raw_payload_base64) AS TEXT) FROM relais_inbox \
             WHERE status = 'SERDE_ERROR' AND source_system = '{name}'"
        );
        client.number(&kept).await
    }
}

/// Sends messages, one after the other.
async fn send(
    broker: Arc<dyn MessageBroker>,
    context: FlowContext,
    part: u64,
) -> Result<SentMessages> {
    let mut sender = broker.sender().await?;
    let mut rng = Rng::new(context.plan.seed, part);
    let mut keys = WriterKeys::new(broker.kind().flow, 0, KEYS);
    let mut sent = SentMessages::default();
    let (messages, pace) = rate(&context.plan, MESSAGES_A_SECOND);
    for number in 0..messages {
        if context.shared.closed.load(Relaxed) {
            break;
        }
        if rng.percent(GARBAGE_PERCENT) {
            sender.put("garbage", None, &format!("{{\"garbage\":{number}")).await?;
            sent.garbage += 1;
        }
        let name = keys.next(&mut rng);
        let (key, id, payload) = (name.key(), name.to_string(), writers::payload(name));
        sender.put(&key, Some(&id), &payload).await?;
        if rng.percent(AGAIN_PERCENT) {
            sender.put(&key, Some(&id), &payload).await?;
            sent.again += 1;
        }
        context.event_log.note(format_args!("produced {name}"));
        tokio::time::sleep(Duration::from_micros(1_000_000 / pace)).await;
    }
    sent.written = keys.written();
    Ok(sent)
}

/// Kills a broker and starts it again, until the faults are over; returns how often.
async fn restart(
    program: PathBuf,
    name: &'static str,
    context: FlowContext,
    part: u64,
) -> Result<u64> {
    let mut rng = Rng::new(context.plan.seed, part);
    let mut times = 0;
    // A broker that starts slowly beside other work must live long enough to take something.
    let (shortest, longest) =
        (BROKER_LIFE.0 * context.plan.calm, BROKER_LIFE.1 * context.plan.calm);
    while context.control.wait(rng.between(shortest, longest)).await {
        context.event_log.note(format_args!("kill the broker of {name}"));
        let status = tokio::process::Command::new(&program).status().await?;
        ensure!(status.success(), "the broker of {name} does not start again: {status}");
        context.event_log.note(format_args!("the broker of {name} is back"));
        times += 1;
    }
    Ok(times)
}
