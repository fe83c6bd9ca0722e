//! One producer of librdkafka from its start to its end.
//!
//! Invariant: each record given to a producer is reported exactly once, and after
//! [`KafkaProducer::ended`] none of them is sent. A producer that ended is never reused: after an
//! error another one is opened.

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

use super::{client_log::ClientLog, record::OutgoingRecord};

/// Interval at which the thread of a producer checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct KafkaProducer {
    /// `None` after its end.
    producer: RwLock<Option<BaseProducer<ReportContext>>>,
    ending: AtomicBool,
    ended: watch::Sender<bool>,
    /// The error of the producer when it ended.
    last_error: OnceLock<ProducerError>,
}

impl KafkaProducer {
    /// Opens a producer and the thread that polls its reports. Connects in the background.
    pub(super) fn open(config: &ClientConfig, log: Arc<ClientLog>) -> Result<Arc<Self>, String> {
        let producer = producer(config, Arc::clone(&log))?;
        let opened = Arc::new(Self {
            producer: RwLock::new(Some(producer)),
            ending: AtomicBool::new(false),
            ended: watch::Sender::new(false),
            last_error: OnceLock::new(),
        });
        let thread = std::thread::Builder::new().name("kafka-reports".to_owned());
        let served = Arc::clone(&opened);
        match thread.spawn(move || served.serve()) {
            Ok(_) => Ok(opened),
            Err(error) => Err(format!("cannot start a thread for the producer: {error}")),
        }
    }

    /// Checks that a producer can be opened. Without brokers it does not connect.
    pub(super) fn validate(config: &ClientConfig, log: Arc<ClientLog>) -> Result<(), String> {
        let mut config = config.clone();
        config.remove("bootstrap.servers").set_log_level(RDKafkaLogLevel::Error);
        producer(&config, log).map(drop)
    }

    fn serve(&self) {
        while !self.ending.load(Ordering::Acquire) {
            let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(producer) = producer.as_ref() {
                producer.poll(CHECK_INTERVAL);
            }
        }
        if let Some(error) = self.error() {
            let _ = self.last_error.set(error);
        }
        let producer = self.producer.write().unwrap_or_else(PoisonError::into_inner).take();
        // Dropping it purges its messages, reports them and closes the connections.
        drop(producer);
        self.ended.send_replace(true);
    }

    /// Queues one record; its report arrives in `reports` under the index `at`. Never blocks.
    pub(super) fn send(
        &self,
        topic: &str,
        record: OutgoingRecord<'_>,
        reports: &Arc<DeliveryReports>,
        at: usize,
    ) -> Result<(), Code> {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        let Some(producer) = producer.as_ref().filter(|_| !self.is_ending()) else {
            return Err(Code::PurgeQueue);
        };
        let ticket = Box::new(Ticket { reports: Arc::clone(reports), at });
        let mut message = BaseRecord::with_opaque_to(topic, ticket)
            .key(record.key.as_ref())
            .headers(record.headers);
        message.payload = record.value;
        reports.expect();
        match producer.send(message) {
            Ok(()) => Ok(()),
            Err((error, _)) => {
                reports.expect_no_more();
                Err(error.rdkafka_error_code().unwrap_or(Code::Fail))
            }
        }
    }

    /// Ends the producer: its remaining messages are purged and reported, and not sent any more.
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

    /// Returns when nothing of this producer is sent any more.
    pub(super) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Waits until every record is reported, at most `limit`. Blocks its thread.
    pub(super) fn flush(&self, limit: Duration) {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = producer.as_ref() {
            let _ = producer.flush(limit);
        }
    }

    /// Returns the current error of the cluster or of the producer as a whole.
    pub(super) fn error(&self) -> Option<ProducerError> {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        let Some(producer) = producer.as_ref() else { return self.last_error.get().cloned() };
        let context = producer.context();
        if let Some((code, text)) = producer.client().fatal_error() {
            return Some(ProducerError { code, text: context.log.clean(&text), fatal: true });
        }
        context.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn producer(
    config: &ClientConfig,
    log: Arc<ClientLog>,
) -> Result<BaseProducer<ReportContext>, String> {
    let context =
        ReportContext { log: Arc::clone(&log), error: Mutex::new(None), has_error: false.into() };
    BaseProducer::from_config_and_context(config, context).map_err(|error| match error {
        // The full text would show values of options.
        KafkaError::ClientConfig(_, _, name, _) => format!("cannot use option `{name}`"),
        KafkaError::ClientCreation(text) => log.clean(&text),
        other => log.clean(&other.to_string()),
    })
}

/// An error of the producer as a whole. It is cleared when the cluster accepts the next message.
#[derive(Clone)]
pub(super) struct ProducerError {
    pub(super) code: Code,
    pub(super) text: String,
    /// Permanent: librdkafka sends nothing more.
    pub(super) fatal: bool,
}

/// Receives the callbacks of librdkafka.
struct ReportContext {
    log: Arc<ClientLog>,
    error: Mutex<Option<ProducerError>>,
    /// True if there is an error; readable without the lock.
    has_error: AtomicBool,
}

impl ClientContext for ReportContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        // The end of a producer is expected: another one takes over, and logs if it cannot. An
        // option that relais sets itself needs no warning.
        let expected = facility == "FATAL" || text.contains("enable.gapless.guarantee");
        let level = if expected { RDKafkaLogLevel::Debug } else { level };
        self.log.line(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        if code == Code::Fatal {
            return;
        }
        let mut current = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        // After a refused connection all brokers are reported down too: the first error is the
        // cause.
        match (current.as_mut().map(|current| &mut current.code), code) {
            (
                Some(Code::Authentication | Code::SSL),
                Code::BrokerTransportFailure | Code::AllBrokersDown,
            ) => {}
            (Some(before), Code::AllBrokersDown) => *before = code,
            _ => {
                *current = Some(ProducerError { code, text: self.log.clean(reason), fatal: false })
            }
        }
        self.has_error.store(true, Ordering::Release);
    }
}

impl ProducerContext for ReportContext {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let report = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        if report.is_ok() && self.has_error.swap(false, Ordering::AcqRel) {
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        ticket.reports.report(ticket.at, report);
    }
}

/// Travels with a message and routes its report.
struct Ticket {
    reports: Arc<DeliveryReports>,
    at: usize,
}

/// The result of one message.
pub(super) type Report = Result<(), Code>;

/// The reports of one call.
pub(super) struct DeliveryReports {
    counts: Mutex<ReportCounts>,
    complete: Notify,
}

struct ReportCounts {
    awaited: usize,
    reports: Vec<(usize, Report)>,
    last: Instant,
}

impl DeliveryReports {
    pub(super) fn new() -> Arc<Self> {
        let counts = ReportCounts { awaited: 0, reports: Vec::new(), last: Instant::now() };
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

    /// Returns when the last report arrived, or when the first was expected.
    pub(super) fn last(&self) -> Instant {
        self.lock().last
    }

    /// Returns when the last report arrived, possibly earlier.
    pub(super) async fn complete(&self) {
        self.complete.notified().await;
    }

    pub(super) fn take(&self) -> Vec<(usize, Report)> {
        std::mem::take(&mut self.lock().reports)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ReportCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
