//! A line: one producer of librdkafka from its start to its end.
//!
//! Invariant: what is handed to a line is reported exactly once, and after [`Line::ended`] nothing of
//! it is sent any more. A line never comes back: after an error another one is opened.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    error::{KafkaError, RDKafkaErrorCode as Code},
    producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{client_log::ClientLog, record::Record};

/// How often the thread of a line looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct Line {
    /// None once it has ended.
    producer: RwLock<Option<BaseProducer<Reports>>>,
    ending: AtomicBool,
    ended: watch::Sender<bool>,
    /// What was wrong when it ended.
    last_trouble: OnceLock<Trouble>,
}

impl Line {
    /// Opens a producer, with the thread that brings its reports. Connects in the background.
    pub(super) fn open(config: &ClientConfig, log: Arc<ClientLog>) -> Result<Arc<Self>, String> {
        let producer = producer(config, Arc::clone(&log))?;
        let line = Arc::new(Self {
            producer: RwLock::new(Some(producer)),
            ending: AtomicBool::new(false),
            ended: watch::Sender::new(false),
            last_trouble: OnceLock::new(),
        });
        let thread = std::thread::Builder::new().name("kafka-reports".to_owned());
        let served = Arc::clone(&line);
        match thread.spawn(move || served.serve()) {
            Ok(_) => Ok(line),
            Err(error) => Err(format!("no thread for the producer: {error}")),
        }
    }

    /// Whether a producer can be opened. Without brokers it connects to nobody.
    pub(super) fn rehearse(config: &ClientConfig, log: Arc<ClientLog>) -> Result<(), String> {
        let mut config = config.clone();
        config.remove("bootstrap.servers").set_log_level(RDKafkaLogLevel::Error);
        producer(&config, log).map(drop)
    }

    fn serve(&self) {
        while !self.ending.load(Ordering::Acquire) {
            let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(producer) = producer.as_ref() {
                producer.poll(LOOK_EVERY);
            }
        }
        if let Some(trouble) = self.trouble() {
            let _ = self.last_trouble.set(trouble);
        }
        let producer = self.producer.write().unwrap_or_else(PoisonError::into_inner).take();
        // Its end purges what it holds, reports it and closes the connections.
        drop(producer);
        self.ended.send_replace(true);
    }

    /// Hands one record over; its report comes to `tally` as number `at`. Never blocks.
    pub(super) fn send(
        &self,
        topic: &str,
        record: Record<'_>,
        tally: &Arc<Tally>,
        at: usize,
    ) -> Result<(), Code> {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        let Some(producer) = producer.as_ref().filter(|_| !self.is_ending()) else {
            return Err(Code::PurgeQueue);
        };
        let ticket = Box::new(Ticket { tally: Arc::clone(tally), at });
        let mut message = BaseRecord::with_opaque_to(topic, ticket)
            .key(record.key.as_ref())
            .headers(record.headers);
        message.payload = record.value;
        tally.expect();
        match producer.send(message) {
            Ok(()) => Ok(()),
            Err((error, _)) => {
                tally.expect_no_more();
                Err(error.rdkafka_error_code().unwrap_or(Code::Fail))
            }
        }
    }

    /// Ends the line: what it still holds is purged, reported as such and not sent any more.
    pub(super) fn end(&self) {
        if self.ending.swap(true, Ordering::AcqRel) {
            return;
        }
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = producer.as_ref() {
            producer.purge(PurgeConfig::default().queue().inflight().non_blocking());
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Returns when nothing of this line is sent any more.
    pub(super) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Waits until everything handed over is reported, at most so long. Blocks its thread.
    pub(super) fn flush(&self, limit: Duration) {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = producer.as_ref() {
            let _ = producer.flush(limit);
        }
    }

    /// What is wrong with the cluster or with this producer as a whole, if anything is.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        let Some(producer) = producer.as_ref() else { return self.last_trouble.get().cloned() };
        let context = producer.context();
        if let Some((code, text)) = producer.client().fatal_error() {
            return Some(Trouble { code, text: context.log.clean(&text), fatal: true });
        }
        context.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn producer(config: &ClientConfig, log: Arc<ClientLog>) -> Result<BaseProducer<Reports>, String> {
    let context =
        Reports { log: Arc::clone(&log), trouble: Mutex::new(None), troubled: false.into() };
    BaseProducer::from_config_and_context(config, context).map_err(|error| match error {
        // Its full text would show values of options.
        KafkaError::ClientConfig(_, _, name, _) => format!("option `{name}` cannot be used"),
        KafkaError::ClientCreation(text) => log.clean(&text),
        other => log.clean(&other.to_string()),
    })
}

/// An error of the producer as a whole; it is over with the next message the cluster takes.
#[derive(Clone)]
pub(super) struct Trouble {
    pub(super) code: Code,
    pub(super) text: String,
    /// It is never over: librdkafka sends nothing more.
    pub(super) fatal: bool,
}

/// Where librdkafka reports to.
struct Reports {
    log: Arc<ClientLog>,
    trouble: Mutex<Option<Trouble>>,
    /// Whether there is any, without the lock.
    troubled: AtomicBool,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        // The end of a producer is expected: another one takes over, and logs if it cannot. An option
        // that relais sets itself needs no warning.
        let expected = facility == "FATAL" || text.contains("enable.gapless.guarantee");
        let level = if expected { RDKafkaLogLevel::Debug } else { level };
        self.log.line(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        if code == Code::Fatal {
            return;
        }
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection that is refused is closed too, and then all brokers are down: what came first
        // is why.
        match (trouble.as_mut().map(|trouble| &mut trouble.code), code) {
            (
                Some(Code::Authentication | Code::SSL),
                Code::BrokerTransportFailure | Code::AllBrokersDown,
            ) => {}
            (Some(before), Code::AllBrokersDown) => *before = code,
            _ => *trouble = Some(Trouble { code, text: self.log.clean(reason), fatal: false }),
        }
        self.troubled.store(true, Ordering::Release);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let report = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        if report.is_ok() && self.troubled.swap(false, Ordering::AcqRel) {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        ticket.tally.report(ticket.at, report);
    }
}

/// Travels with a message and brings its report home.
struct Ticket {
    tally: Arc<Tally>,
    at: usize,
}

/// What one message came to.
pub(super) type Report = Result<(), Code>;

/// The reports of one call.
pub(super) struct Tally {
    counts: Mutex<Counts>,
    complete: Notify,
}

struct Counts {
    awaited: usize,
    reports: Vec<(usize, Report)>,
    last: Instant,
}

impl Tally {
    pub(super) fn new() -> Arc<Self> {
        let counts = Counts { awaited: 0, reports: Vec::new(), last: Instant::now() };
        Arc::new(Self { counts: Mutex::new(counts), complete: Notify::new() })
    }

    fn expect(&self) {
        self.lock().awaited += 1;
    }

    fn expect_no_more(&self) {
        self.lock().awaited -= 1;
    }

    fn report(&self, at: usize, report: Report) {
        let mut counts = self.lock();
        counts.awaited -= 1;
        counts.reports.push((at, report));
        counts.last = Instant::now();
        if counts.awaited == 0 {
            self.complete.notify_one();
        }
    }

    pub(super) fn awaited(&self) -> usize {
        self.lock().awaited
    }

    /// When the last report came, or when the first was expected.
    pub(super) fn last(&self) -> Instant {
        self.lock().last
    }

    /// Returns when the last report came; perhaps earlier too.
    pub(super) async fn complete(&self) {
        self.complete.notified().await;
    }

    pub(super) fn take(&self) -> Vec<(usize, Report)> {
        std::mem::take(&mut self.lock().reports)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
