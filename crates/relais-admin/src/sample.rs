//! The figures of the console: the last count of the store and the last minutes of every rate, updated by two
//! background loops.
//!
//! Invariant: no request counts rows or waits for a count. The pause after a count grows with its duration, so
//! that a store with many rows is counted less often, up to [`PAUSE_MAX`].

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use relais::observe::{Figures, Observer};
use relais_core::{
    control::Control,
    query::Overview,
    report::Report,
    store::{StoreDriver, StoreError},
    time::Timestamp,
};
use serde::Serialize;
use tokio::{
    sync::{Notify, watch},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    Admin,
    api::{self, overview::StateEvent},
    fleet::{Fleet, FleetRates},
};

/// Time between two points of a series.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Most points kept: a quarter of an hour.
const POINTS_MAX: usize = 900;
/// Interval of events on a stream while no figure changes. The console treats a stream without events for five
/// seconds (`SILENCE_MS` in `live.js`) as stale.
const CALM: Duration = Duration::from_secs(3);
/// Interval of counts while a client is connected.
const WATCHED: Duration = Duration::from_secs(1);
/// Interval of counts without a client.
const UNWATCHED: Duration = Duration::from_secs(5);
/// Shortest pause after a count while a client is connected, as a multiple of its duration.
const WATCHED_REST: u32 = 20;
/// Shortest pause after a count without a client, as a multiple of its duration.
const UNWATCHED_REST: u32 = 100;
/// Longest pause between counts, however long one takes: no figure is older than this and the next count.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Shortest pause after a count that failed, as a multiple of its duration: the end of an outage is seen soon.
const FAILED_REST: u32 = 2;
/// A count that takes longer is reported as a problem until it ends.
const COUNT_LATE: Duration = Duration::from_secs(5);
/// A late count is abandoned after this time more.
const COUNT_MAX: Duration = Duration::from_secs(30);
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
    problem: Option<StoreError>,
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
    /// The time at which the count began, by the monotonic clock of this process.
    pub(crate) begun: Instant,
    pub(crate) database: String,
    pub(crate) overview: Overview,
    pub(crate) controls: Vec<Control>,
    pub(crate) reports: Vec<Report>,
}

/// The events of a stream. The default has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tick {
    /// A [`SeriesPoint`] as JSON.
    pub(crate) sample: Option<String>,
    pub(crate) state: Option<StateEvent>,
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
            (_, Some(problem)) => Err(problem.clone()),
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

    /// Subscribes to the next events; the last one may be old.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Tick> {
        self.ticks.subscribe()
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

    /// Returns true if the rows were counted, with or without success.
    pub(crate) fn has_tried(&self) -> bool {
        let kept = self.lock();
        kept.counted.is_some() || kept.problem.is_some()
    }

    /// Returns true if the newest count succeeded.
    fn is_counted(&self) -> bool {
        let kept = self.lock();
        kept.counted.is_some() && kept.problem.is_none()
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
        let counted = count_patiently(admin, database.clone()).await;
        let took = asked.elapsed();
        let rests = match &counted {
            Ok(_) => (WATCHED_REST, UNWATCHED_REST),
            Err(_) => (FAILED_REST, FAILED_REST),
        };
        {
            let mut kept = admin.sampler.lock();
            match counted {
                Ok(counted) => {
                    database = Some(counted.database.clone());
                    kept.fleet.take(&counted.reports, admin.observer.worker().as_deref());
                    (kept.counted, kept.problem) = (Some(counted), None);
                }
                Err(error) => kept.problem = Some(error),
            }
        }
        let pauses = (took.saturating_mul(rests.0), took.saturating_mul(rests.1));
        rest(&admin.sampler, pauses).await;
    }
}

/// Counts, and reports a problem while the count is late. It waits for a late count, because a second one beside
/// it would make a slow database slower.
async fn count_patiently(
    admin: &Admin,
    database: Option<String>,
) -> Result<StoreCount, StoreError> {
    let late = |limit: Duration| {
        StoreError::unavailable(format!("no answer from the database within {limit:?}"))
    };
    let work = count(admin.store.clone(), admin.observer.clone(), database);
    let mut work = tokio::spawn(work);
    let ended = match timeout(COUNT_LATE, &mut work).await {
        Ok(ended) => ended,
        Err(_) => {
            admin.sampler.lock().problem = Some(late(COUNT_LATE));
            timeout(COUNT_MAX, work).await.map_err(|_| late(COUNT_MAX))?
        }
    };
    ended.unwrap_or_else(|ended| Err(StoreError::unavailable(ended.to_string())))
}

/// Pauses between counts, at least as long as given with and without a client; ends early when a client connects.
async fn rest(sampler: &Sampler, (watched, unwatched): (Duration, Duration)) {
    let began = Instant::now();
    loop {
        let pause = match sampler.is_watched() {
            true => pause(WATCHED, watched),
            false => pause(UNWATCHED, unwatched),
        };
        let Some(left) = pause.checked_sub(began.elapsed()) else { return };
        tokio::select! {
            () = sleep(left.min(WATCHED)) => {}
            () = sampler.changed.notified() => return,
        }
    }
}

/// Returns the pause between two counts: the usual one, longer after a slow count, and never above [`PAUSE_MAX`].
fn pause(usual: Duration, after_count: Duration) -> Duration {
    usual.max(after_count).min(PAUSE_MAX)
}

/// Counts the rows. `database` is its name and version, if known.
async fn count(
    store: Arc<dyn StoreDriver>,
    observer: Arc<Observer>,
    database: Option<String>,
) -> Result<StoreCount, StoreError> {
    let database = match database {
        Some(database) => database,
        None => store.describe().await?.server,
    };
    let (begun, asked) = (Instant::now(), SystemTime::now());
    let overview = store.overview().await?;
    observer.database_time(asked, overview.now, SystemTime::now());
    let (controls, reports) = (store.controls().await?, store.reports().await?);
    Ok(StoreCount { begun, database, overview, controls, reports })
}

async fn keep_sampling(admin: &Admin) -> Infallible {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut last = (Instant::now(), admin.observer.figures());
    let (mut sent, mut was_counted) = (Instant::now(), false);
    loop {
        ticks.tick().await;
        let now = (Instant::now(), admin.observer.figures());
        let own = FleetRates::between(&last.1, &now.1, (now.0 - last.0).as_secs_f64());
        let rates = admin.sampler.lock().fleet.rates_with(own);
        let counted = admin.sampler.is_counted();
        // The begin and the end of an outage of the database are sent at once.
        let moved = rates.is_moving() || now.1 != last.1 || counted != was_counted;
        was_counted = counted;
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
    Tick { sample: serde_json::to_string(point).ok(), state: api::overview::state_event(admin) }
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
    fn a_slow_count_is_repeated_within_a_minute() {
        let after = |count: Duration| pause(UNWATCHED, count.saturating_mul(UNWATCHED_REST));
        assert_eq!(after(Duration::from_millis(1)), UNWATCHED);
        assert_eq!(after(Duration::from_millis(300)), Duration::from_secs(30));
        assert_eq!(after(Duration::from_secs(6)), PAUSE_MAX);
    }

    #[test]
    fn before_the_first_count_an_error_is_returned() {
        let error = Sampler::new().counted().unwrap_err();
        assert!(error.to_string().contains("not counted yet"), "{error}");
    }
}
