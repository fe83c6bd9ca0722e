//! Sends spans to a collector: OTLP over HTTP, in its JSON form.
//!
//! Invariant: workers never wait for it. Spans go into a bounded queue; what finds no room, because the
//! collector is slow or away, is dropped and counted. It needs no library of its own: the form is a fixed
//! standard, and the client is the one HTTP destinations use.

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

/// Spans that may wait.
const QUEUE_MAX: usize = 8_192;
/// Spans in one request.
const BATCH_MAX: usize = 512;
/// How long a request waits for more spans.
const LINGER: Duration = Duration::from_secs(1);
/// The longest one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// How often a batch is tried, …
const TRIES_MAX: u32 = 4;
/// … and the pause after the first failure; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end waits for the collector.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// The queue, and what empties it.
pub(super) struct Exporter {
    queue: Mutex<Option<mpsc::Sender<Span>>>,
    dropped: Arc<AtomicU64>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Exporter {
    /// Connects to nobody yet.
    pub(super) fn start(endpoint: Url, settings: &TelemetrySettings) -> Result<Arc<Self>, String> {
        let client = Client::builder()
            .timeout(REQUEST_MAX)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(headers(&settings.headers)?)
            .build()
            .map_err(|error| format!("no HTTP client for `telemetry.otlp`: {error}"))?;
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

    /// Takes no more spans, and gives the rest a moment to go out.
    pub(super) async fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(task) = task else { return };
        let end = task.abort_handle();
        if timeout(CLOSE_MAX, task).await.is_err() {
            end.abort();
            tracing::warn!("the collector took too long; the last spans are lost");
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
    /// The collector did not take the last batch.
    troubled: bool,
}

/// Why a batch was not taken.
enum Refusal {
    /// It may be taken later.
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
            // Too few for a full batch go after a moment.
            let _ = timeout(LINGER, fill).await;
            self.send(&batch).await;
            batch.clear();
        }
    }

    /// Tries until the collector takes it or has refused it too often.
    async fn send(&mut self, batch: &[Span]) {
        let body = encode(batch, &self.service_name);
        let mut pause = PAUSE;
        for last in (1..=TRIES_MAX).map(|n| n == TRIES_MAX) {
            match self.post(body.clone()).await {
                Ok(()) => return self.recovered(),
                Err(Refusal::Later(reason)) if !last => self.complain(&reason),
                Err(Refusal::Later(reason) | Refusal::Never(reason)) => {
                    self.complain(&reason);
                    self.dropped.fetch_add(batch.len() as u64, Relaxed);
                    return;
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), Refusal> {
        let sent = self.client.post(self.endpoint.clone()).body(body).send().await;
        let status = match sent {
            // Without its URL, which is in the settings and may hold more than an address.
            Err(error) => return Err(Refusal::Later(error.without_url().to_string())),
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
            Err(Refusal::Later(format!("status {status}")))
        } else {
            Err(Refusal::Never(format!("status {status}")))
        }
    }

    fn complain(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.troubled, true) {
            tracing::warn!(reason, "the collector takes no spans; messages go on without");
        }
    }

    fn recovered(&mut self) {
        let dropped = self.dropped.swap(0, Relaxed);
        if std::mem::take(&mut self.troubled) || dropped > 0 {
            tracing::info!(dropped, "the collector takes spans again");
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
    async fn what_finds_no_room_is_dropped_and_nobody_waits_for_a_collector_that_is_away() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let settings = TelemetrySettings {
            otlp: None,
            headers: Vec::new(),
            service_name: "relais".into(),
            sample: 1.0,
        };
        let nobody = "http://127.0.0.1:1/v1/traces".parse().unwrap();
        let exporter = Exporter::start(nobody, &settings).unwrap();
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
        assert!(exporter.dropped.load(Relaxed) >= 8, "after the end nothing is kept");
    }
}
