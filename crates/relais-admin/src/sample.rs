//! The figures of the console: the last count of the store and the last minutes of every rate, updated by two
//! background loops.
//!
//! Invariant: no request counts rows or waits for a count. The pause after a count grows with its duration, so
//! that a store with many rows is counted less often.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use relais::observe::Figures;
use relais_core::{
    control::Control, query::Overview, report::Report, store::StoreError, time::Timestamp,
};
use serde::Serialize;
use tokio::{
    sync::{Notify, watch},
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    Admin, api,
    fleet::{Fleet, FleetRates},
    soon,
};

/// Time between two points of a series.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Most points kept: a quarter of an hour.
const POINTS_MAX: usize = 900;
/// Interval of events on a stream while no figure changes.
const CALM: Duration = Duration::from_secs(5);
/// Interval of counts while a client is connected.
const WATCHED: Duration = Duration::from_secs(1);
/// Interval of counts without a client.
const UNWATCHED: Duration = Duration::from_secs(5);
/// Shortest pause after a count while a client is connected, as a multiple of its duration.
const WATCHED_REST: u32 = 20;
/// Shortest pause after a count without a client, as a multiple of its duration.
const UNWATCHED_REST: u32 = 100;
/// A client counts as connected for this long after a request.
const LOOKING: Duration = Duration::from_secs(15);

/// The last points and the last count.
pub(crate) struct Sampler {
    started: Instant,
    /// Milliseconds after `started` of the last request for a count, plus one.
    asked: AtomicU64,
    /// Notified after a change, to count at once.
    changed: Notify,
    kept: Mutex<SamplerState>,
    ticks: watch::Sender<Tick>,
}

#[derive(Default)]
struct SamplerState {
    /// The last successful count.
    counted: Option<StoreCount>,
    /// The error of the last count, if it failed.
    problem: Option<String>,
    points: VecDeque<SeriesPoint>,
    /// The processes beside this one.
    fleet: Fleet,
    /// The newest rates of all processes.
    rates: FleetRates,
    /// The time of the last point.
    last: Option<Timestamp>,
}

/// The rows of the store at one time.
#[derive(Clone, Debug)]
pub(crate) struct StoreCount {
    pub(crate) database: String,
    pub(crate) overview: Overview,
    pub(crate) controls: Vec<Control>,
    pub(crate) reports: Vec<Report>,
}

/// The two events of a stream, as JSON.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tick {
    pub(crate) sample: String,
    pub(crate) overview: Option<String>,
}

/// One point of each series; rates are per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SeriesPoint {
    stored: f64,
    processed: f64,
    dispatched: f64,
    failed: f64,
    retried: f64,
    inbox_depth: u64,
    outbox_depth: u64,
    /// Absent if no message was delivered.
    latency_p50_ms: Option<f64>,
    latency_p95_ms: Option<f64>,
}

/// The points that are kept, by series.
#[derive(Debug, Serialize)]
pub(crate) struct SeriesHistory {
    every_ms: u64,
    /// The time of the first point.
    from: Option<Timestamp>,
    series: Series,
}

#[derive(Debug, Default, Serialize)]
struct Series {
    stored: Vec<f64>,
    processed: Vec<f64>,
    dispatched: Vec<f64>,
    failed: Vec<f64>,
    retried: Vec<f64>,
    inbox_depth: Vec<u64>,
    outbox_depth: Vec<u64>,
    latency_p50_ms: Vec<Option<f64>>,
    latency_p95_ms: Vec<Option<f64>>,
}

impl Sampler {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            asked: AtomicU64::new(0),
            changed: Notify::new(),
            kept: Mutex::default(),
            ticks: watch::Sender::new(Tick::default()),
        }
    }

    /// Returns the last count and marks that a client is connected.
    pub(crate) fn looked_at(&self) -> Result<StoreCount, StoreError> {
        self.asked.store(self.elapsed_ms(), Relaxed);
        self.counted()
    }

    /// Returns the last count, or an error if there is none or the newest one failed.
    pub(crate) fn counted(&self) -> Result<StoreCount, StoreError> {
        let kept = self.lock();
        match (&kept.counted, &kept.problem) {
            (Some(counted), None) => Ok(counted.clone()),
            (_, Some(problem)) => Err(StoreError::unavailable(problem.clone())),
            (None, None) => Err(StoreError::unavailable("the rows are not counted yet; try again")),
        }
    }

    /// Starts a count at once, after an operator has changed something.
    pub(crate) fn look_soon(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn history(&self) -> SeriesHistory {
        let kept = self.lock();
        let mut series = Series::default();
        for point in &kept.points {
            series.stored.push(point.stored);
            series.processed.push(point.processed);
            series.dispatched.push(point.dispatched);
            series.failed.push(point.failed);
            series.retried.push(point.retried);
            series.inbox_depth.push(point.inbox_depth);
            series.outbox_depth.push(point.outbox_depth);
            series.latency_p50_ms.push(point.latency_p50_ms);
            series.latency_p95_ms.push(point.latency_p95_ms);
        }
        let before = i64::try_from(kept.points.len().saturating_sub(1)).unwrap_or(0) * 1_000_000;
        let from = kept.last.map(|last| Timestamp(last.0 - before));
        SeriesHistory { every_ms: 1_000, from, series }
    }

    /// Subscribes to events, beginning with the last one.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Tick> {
        let mut ticks = self.ticks.subscribe();
        ticks.mark_changed();
        ticks
    }

    /// Counts rows and adds points until it is dropped.
    pub(crate) async fn run(admin: Admin) -> Infallible {
        tokio::join!(keep_counting(&admin), keep_sampling(&admin)).0
    }

    fn is_watched(&self) -> bool {
        let asked = self.asked.load(Relaxed);
        let lately = asked > 0
            && self.elapsed_ms().saturating_sub(asked)
                < u64::try_from(LOOKING.as_millis()).unwrap_or(u64::MAX);
        lately || self.ticks.receiver_count() > 0
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn lock(&self) -> MutexGuard<'_, SamplerState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_counting(admin: &Admin) -> Infallible {
    let mut database = None;
    loop {
        let asked = Instant::now();
        let counted = count(admin, &mut database).await;
        let took = asked.elapsed();
        {
            let mut kept = admin.sampler.lock();
            match counted {
                Ok(counted) => {
                    kept.fleet.take(&counted.reports, admin.observer.worker().as_deref());
                    (kept.counted, kept.problem) = (Some(counted), None);
                }
                Err(error) => kept.problem = Some(error.to_string()),
            }
        }
        rest(&admin.sampler, took).await;
    }
}

/// Pauses between counts; ends early when a client connects.
async fn rest(sampler: &Sampler, took: Duration) {
    let began = Instant::now();
    loop {
        let pause = if sampler.is_watched() {
            WATCHED.max(took.saturating_mul(WATCHED_REST))
        } else {
            UNWATCHED.max(took.saturating_mul(UNWATCHED_REST))
        };
        let Some(left) = pause.checked_sub(began.elapsed()) else { return };
        tokio::select! {
            () = sleep(left.min(WATCHED)) => {}
            () = sampler.changed.notified() => return,
        }
    }
}

async fn count(admin: &Admin, database: &mut Option<String>) -> Result<StoreCount, StoreError> {
    let (store, observer) = (admin.store.clone(), admin.observer.clone());
    let known = database.clone();
    let counted = soon(async move {
        let database = match known {
            Some(database) => database,
            None => store.describe().await?.server,
        };
        let asked = SystemTime::now();
        let overview = store.overview().await?;
        observer.database_time(asked, overview.now, SystemTime::now());
        let (controls, reports) = (store.controls().await?, store.reports().await?);
        Ok(StoreCount { database, overview, controls, reports })
    })
    .await?;
    *database = Some(counted.database.clone());
    Ok(counted)
}

async fn keep_sampling(admin: &Admin) -> Infallible {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut last = (Instant::now(), admin.observer.figures());
    let mut sent = Instant::now();
    loop {
        ticks.tick().await;
        let now = (Instant::now(), admin.observer.figures());
        let own = FleetRates::between(&last.1, &now.1, (now.0 - last.0).as_secs_f64());
        let rates = admin.sampler.lock().fleet.rates_with(own);
        let moved = rates.is_moving() || now.1 != last.1;
        let point = admin.sampler.keep(&rates);
        admin.sampler.lock().rates = rates;
        last = now;
        if admin.sampler.ticks.receiver_count() > 0 && (moved || sent.elapsed() >= CALM) {
            sent = Instant::now();
            admin.sampler.ticks.send_replace(tick(admin, &point));
        }
    }
}

fn tick(admin: &Admin, point: &SeriesPoint) -> Tick {
    Tick {
        sample: serde_json::to_string(point).expect("numbers are JSON"),
        overview: api::overview::shown(admin).ok().and_then(|o| serde_json::to_string(&o).ok()),
    }
}

impl Sampler {
    /// Returns figures and rates of all processes.
    pub(crate) fn fleet(&self, own: Figures) -> (Figures, FleetRates) {
        let kept = self.lock();
        (kept.fleet.with(own), kept.rates.clone())
    }

    /// Adds a point from the rates and the depths of the last count.
    fn keep(&self, rates: &FleetRates) -> SeriesPoint {
        let mut point = SeriesPoint::of(rates);
        let mut kept = self.lock();
        if let Some(StoreCount { overview, .. }) = &kept.counted {
            let open = |counts: &[relais_core::query::Count], names: &[&str]| {
                let open = counts.iter().filter(|count| names.contains(&count.name.as_str()));
                open.map(|count| count.rows).sum()
            };
            point.inbox_depth = open(&overview.inbox, &["RECEIVED", "RETRY"]);
            point.outbox_depth = open(&overview.outbox, &["PENDING"]);
        }
        if kept.points.len() == POINTS_MAX {
            kept.points.pop_front();
        }
        kept.points.push_back(point);
        kept.last = Some(clock());
        point
    }
}

impl SeriesPoint {
    fn of(rates: &FleetRates) -> Self {
        let rounded = |rate: f64| (rate * 10.0).round() / 10.0;
        let millis = |q| rates.latency.quantile(q).map(|d| (d.as_secs_f64() * 1e5).round() / 100.0);
        Self {
            stored: rounded(rates.stored),
            processed: rounded(rates.processed),
            dispatched: rounded(rates.dispatched),
            failed: rounded(rates.failed),
            retried: rounded(rates.retried),
            latency_p50_ms: millis(0.5),
            latency_p95_ms: millis(0.95),
            ..Self::default()
        }
    }
}

/// Returns the time of this machine's clock.
fn clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_bounded_and_its_start_advances() {
        let sampler = Sampler::new();
        for _ in 0..POINTS_MAX + 5 {
            sampler.keep(&FleetRates::default());
        }
        let history = sampler.history();
        assert_eq!(history.series.stored.len(), POINTS_MAX);
        let (last, from) = (sampler.lock().last.unwrap(), history.from.unwrap());
        assert_eq!(from.seconds_until(last), POINTS_MAX as u64 - 1);
    }

    #[test]
    fn before_the_first_count_an_error_is_returned() {
        let error = Sampler::new().counted().unwrap_err();
        assert!(error.to_string().contains("not counted yet"), "{error}");
    }
}
