//! Sends spans to a collector: OTLP over HTTP with JSON, without compression.
//!
//! Invariant: workers never wait for it. Spans go into a bounded queue; if it is full, because the collector is
//! slow or unavailable, spans are dropped and counted. It needs no OpenTelemetry library: the format is a fixed
//! standard, and the HTTP client is that of HTTP destinations.

mod encode;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use relais::observe::{Span, SpanSink};
use reqwest::{
    Client, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

use self::encode::encode;
use crate::settings::TelemetrySettings;

/// Most spans in the queue.
const QUEUE_MAX: usize = 8_192;
/// Most spans in one request.
const BATCH_MAX: usize = 512;
/// Time that a request waits for more spans.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit of a request.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Most attempts for a batch.
const TRIES_MAX: u32 = 4;
/// The pause after the first failure; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit for the last spans on shutdown.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// The queue and the task that empties it.
pub(super) struct Exporter {
    queue: Mutex<Option<mpsc::Sender<Span>>>,
    dropped: Arc<AtomicU64>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Exporter {
    /// Starts the task, which connects with the first span.
    pub(super) fn start(endpoint: Url, settings: &TelemetrySettings) -> Result<Arc<Self>, String> {
        let client = Client::builder()
            .timeout(REQUEST_MAX)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(headers(&settings.headers)?)
            .build()
            .map_err(|error| format!("cannot create a client for `telemetry.otlp`: {error}"))?;
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let dropped = Arc::<AtomicU64>::default();
        let sender = Sender {
            client,
            endpoint,
            service_name: settings.service_name.clone(),
            dropped: Arc::clone(&dropped),
            troubled: false,
        };
        let task = tokio::spawn(sender.run(spans));
        Ok(Arc::new(Self { queue: Mutex::new(Some(queue)), dropped, task: Mutex::new(Some(task)) }))
    }

    /// Stops accepting spans and waits a moment for the rest to be sent.
    pub(super) async fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(task) = task else { return };
        let end = task.abort_handle();
        if timeout(CLOSE_MAX, task).await.is_err() {
            end.abort();
            tracing::warn!("lost the last spans: the collector did not accept them in time");
        }
    }
}

impl SpanSink for Exporter {
    fn record(&self, span: Span) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = queue.as_ref().is_some_and(|queue| queue.try_send(span).is_ok());
        if !sent {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

fn headers(wanted: &[(String, SecretString)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in wanted {
        let wrong =
            |what| format!("`telemetry.headers`: {what} of `{name}` is not allowed in HTTP");
        let key: HeaderName = name.parse().map_err(|_| wrong("the name"))?;
        let mut value: HeaderValue =
            value.expose_secret().parse().map_err(|_| wrong("the value"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

struct Sender {
    client: Client,
    endpoint: Url,
    service_name: String,
    dropped: Arc<AtomicU64>,
    /// The collector did not accept the last batch.
    troubled: bool,
}

/// The reason why a batch was not accepted.
enum ExportError {
    /// It may be accepted later.
    Later(String),
    Never(String),
}

impl Sender {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            if spans.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return;
            }
            let fill = async {
                while batch.len() < BATCH_MAX {
                    let room = BATCH_MAX - batch.len();
                    if spans.recv_many(&mut batch, room).await == 0 {
                        return;
                    }
                }
            };
            // An incomplete batch is sent after a moment.
            let _ = timeout(LINGER, fill).await;
            self.send(&batch).await;
            batch.clear();
        }
    }

    /// Sends a batch until the collector accepts it or the attempts are used up.
    async fn send(&mut self, batch: &[Span]) {
        let body = encode(batch, &self.service_name);
        let mut pause = PAUSE;
        for last in (1..=TRIES_MAX).map(|n| n == TRIES_MAX) {
            match self.post(body.clone()).await {
                Ok(()) => return self.recovered(),
                Err(ExportError::Later(reason)) if !last => self.complain(&reason),
                Err(ExportError::Later(reason) | ExportError::Never(reason)) => {
                    self.complain(&reason);
                    self.dropped.fetch_add(batch.len() as u64, Relaxed);
                    return;
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), ExportError> {
        let sent = self.client.post(self.endpoint.clone()).body(body).send().await;
        let status = match sent {
            // Without the URL, which is in the configuration and may hold a secret.
            Err(error) => return Err(ExportError::Later(error.without_url().to_string())),
            Ok(answer) => answer.status(),
        };
        let again = [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        if status.is_success() {
            Ok(())
        } else if again.contains(&status) {
            Err(ExportError::Later(format!("status {status}")))
        } else {
            Err(ExportError::Never(format!("status {status}")))
        }
    }

    fn complain(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.troubled, true) {
            tracing::warn!(reason, "the collector refused spans; message processing continues");
        }
    }

    fn recovered(&mut self) {
        let dropped = self.dropped.swap(0, Relaxed);
        if std::mem::take(&mut self.troubled) || dropped > 0 {
            tracing::info!(dropped, "the collector accepts spans again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use relais::observe::SpanKind;

    use super::*;

    /// On a runtime with one thread nothing is sent before the first wait.
    #[tokio::test]
    async fn spans_are_dropped_without_waiting_for_an_unavailable_collector() {
        let settings = TelemetrySettings {
            otlp: None,
            headers: Vec::new(),
            service_name: "relais".into(),
            sample: 1.0,
        };
        let closed_port = "http://127.0.0.1:1/v1/traces".parse().unwrap();
        let exporter = Exporter::start(closed_port, &settings).unwrap();
        let span = Span {
            trace_id: [1; 16],
            span_id: [2; 8],
            parent: None,
            kind: SpanKind::Consumer,
            name: "accept hook".into(),
            start: SystemTime::now(),
            end: SystemTime::now(),
            attributes: Vec::new(),
            error: None,
        };
        for _ in 0..QUEUE_MAX + 7 {
            exporter.record(span.clone());
        }
        assert_eq!(exporter.dropped.load(Relaxed), 7);
        timeout(CLOSE_MAX * 10, exporter.close()).await.expect("it ends without a collector");
        exporter.record(span);
        assert!(exporter.dropped.load(Relaxed) >= 8, "after the end spans are dropped");
    }
}
