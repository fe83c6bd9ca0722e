//! What the console draws: the store at a glance and the last minutes of every rate, kept by two loops of
//! their own.
//!
//! Invariant: no request counts rows or waits for a count. What counting costs bounds how often it is
//! done, so that a store with many rows is asked less often.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use relais::observe::{Latency, Snapshot};
use relais_core::{query::Overview, store::StoreError, time::Timestamp};
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{Admin, api, soon};

/// A point of each series.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Points that are kept: a quarter of an hour.
const POINTS_MAX: usize = 900;
/// While nothing moves, streams are told this often.
const CALM: Duration = Duration::from_secs(5);
/// The store is counted this often while somebody looks, and otherwise.
const WATCHED: Duration = Duration::from_secs(1);
const UNWATCHED: Duration = Duration::from_secs(5);
/// After a count that took long there is a pause of so many times as long.
const WATCHED_REST: u32 = 20;
const UNWATCHED_REST: u32 = 100;
/// Somebody who asked within this is looking.
const LOOKING: Duration = Duration::from_secs(15);

/// The last points and the last count.
pub(crate) struct Sampler {
    started: Instant,
    /// Milliseconds after `started` of the last request for what is kept here, plus one.
    asked: AtomicU64,
    kept: Mutex<Kept>,
    ticks: watch::Sender<Tick>,
}

#[derive(Default)]
struct Kept {
    /// Of the store: which database, and its rows.
    counted: Option<Counted>,
    /// Why the last count failed.
    problem: Option<String>,
    points: VecDeque<Point>,
    /// When the last point was taken.
    last: Option<Timestamp>,
}

/// The rows of the store at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) database: String,
    pub(crate) overview: Overview,
}

/// What a stream is told: two events, as JSON.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tick {
    pub(crate) sample: String,
    pub(crate) overview: Option<String>,
}

/// One point of each series; rates are per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Point {
    stored: f64,
    processed: f64,
    dispatched: f64,
    failed: f64,
    retried: f64,
    inbox_depth: u64,
    outbox_depth: u64,
    /// None if nothing was delivered.
    latency_p50_ms: Option<f64>,
    latency_p95_ms: Option<f64>,
}

/// The points that are kept, by series.
#[derive(Debug, Serialize)]
pub(crate) struct History {
    every_ms: u64,
    /// When the first point was taken.
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
            kept: Mutex::default(),
            ticks: watch::Sender::new(Tick::default()),
        }
    }

    /// The last count, for somebody who looks.
    pub(crate) fn looked_at(&self) -> Result<Counted, StoreError> {
        self.asked.store(self.elapsed_ms(), Relaxed);
        self.counted()
    }

    /// The last count; an error if there is none, or none any more.
    pub(crate) fn counted(&self) -> Result<Counted, StoreError> {
        let kept = self.lock();
        match (&kept.counted, &kept.problem) {
            (Some(counted), None) => Ok(counted.clone()),
            (_, Some(problem)) => Err(StoreError::Unavailable(problem.clone())),
            (None, None) => {
                Err(StoreError::Unavailable("nothing was counted yet; ask again".to_owned()))
            }
        }
    }

    pub(crate) fn history(&self) -> History {
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
        History { every_ms: 1_000, from, series }
    }

    /// What is published from now on, beginning with the last.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Tick> {
        let mut ticks = self.ticks.subscribe();
        ticks.mark_changed();
        ticks
    }

    /// Counts the store and takes a point again and again.
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

    fn lock(&self) -> MutexGuard<'_, Kept> {
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
                Ok(counted) => (kept.counted, kept.problem) = (Some(counted), None),
                Err(error) => kept.problem = Some(error.to_string()),
            }
        }
        rest(&admin.sampler, took).await;
    }
}

/// Ends early when somebody begins to look.
async fn rest(sampler: &Sampler, took: Duration) {
    let began = Instant::now();
    loop {
        let pause = if sampler.is_watched() {
            WATCHED.max(took.saturating_mul(WATCHED_REST))
        } else {
            UNWATCHED.max(took.saturating_mul(UNWATCHED_REST))
        };
        let Some(left) = pause.checked_sub(began.elapsed()) else { return };
        sleep(left.min(WATCHED)).await;
    }
}

async fn count(admin: &Admin, database: &mut Option<String>) -> Result<Counted, StoreError> {
    let (store, observer) = (admin.store.clone(), admin.observer.clone());
    let known = database.clone();
    let counted = soon(async move {
        let database = match known {
            Some(database) => database,
            None => store.describe().await?,
        };
        let asked = SystemTime::now();
        let overview = store.overview().await?;
        observer.database_time(asked, overview.now, SystemTime::now());
        Ok(Counted { database, overview })
    })
    .await?;
    *database = Some(counted.database.clone());
    Ok(counted)
}

async fn keep_sampling(admin: &Admin) -> Infallible {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut last = (Instant::now(), Totals::of(&admin.observer.snapshot()));
    let mut told = Instant::now();
    loop {
        ticks.tick().await;
        let now = (Instant::now(), Totals::of(&admin.observer.snapshot()));
        let moved = now.1.moved(&last.1);
        let point = now.1.since(&last.1, now.0 - last.0);
        let point = admin.sampler.keep(point);
        last = now;
        if admin.sampler.ticks.receiver_count() > 0 && (moved || told.elapsed() >= CALM) {
            told = Instant::now();
            admin.sampler.ticks.send_replace(tick(admin, &point));
        }
    }
}

fn tick(admin: &Admin, point: &Point) -> Tick {
    Tick {
        sample: serde_json::to_string(point).expect("numbers are JSON"),
        overview: api::overview::shown(admin).ok().and_then(|o| serde_json::to_string(&o).ok()),
    }
}

impl Sampler {
    /// Adds the depths of the last count, and keeps the point.
    fn keep(&self, mut point: Point) -> Point {
        let mut kept = self.lock();
        if let Some(Counted { overview, .. }) = &kept.counted {
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

/// This machine's time: the points are about this process.
fn clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// What this process has counted so far.
#[derive(Clone, Debug, Default)]
struct Totals {
    stored: u64,
    processed: u64,
    dispatched: u64,
    failed: u64,
    retried: u64,
    latency: Latency,
}

impl Totals {
    fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { inbox, destinations, .. } = snapshot;
        Self {
            stored: inbox.stored,
            processed: inbox.processed,
            dispatched: destinations.values().map(|d| d.dispatched).sum(),
            failed: inbox.failed + destinations.values().map(|d| d.failed).sum::<u64>(),
            retried: inbox.retried + destinations.values().map(|d| d.retried).sum::<u64>(),
            latency: snapshot.dispatch(),
        }
    }

    fn moved(&self, before: &Self) -> bool {
        let all = |t: &Self| [t.stored, t.processed, t.dispatched, t.failed, t.retried];
        all(self) != all(before)
    }

    fn since(&self, before: &Self, took: Duration) -> Point {
        let seconds = took.as_secs_f64().max(0.001);
        let rate =
            |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds * 10.0).round() / 10.0;
        let latency = self.latency.since(&before.latency);
        let millis = |q| latency.quantile(q).map(|d| (d.as_secs_f64() * 1e5).round() / 100.0);
        Point {
            stored: rate(self.stored, before.stored),
            processed: rate(self.processed, before.processed),
            dispatched: rate(self.dispatched, before.dispatched),
            failed: rate(self.failed, before.failed),
            retried: rate(self.retried, before.retried),
            latency_p50_ms: millis(0.5),
            latency_p95_ms: millis(0.95),
            ..Point::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_its_start_moves_on() {
        let sampler = Sampler::new();
        for _ in 0..POINTS_MAX + 5 {
            sampler.keep(Point::default());
        }
        let history = sampler.history();
        assert_eq!(history.series.stored.len(), POINTS_MAX);
        let (last, from) = (sampler.lock().last.unwrap(), history.from.unwrap());
        assert_eq!(from.seconds_until(last), POINTS_MAX as u64 - 1);
    }

    #[test]
    fn rates_are_of_the_time_that_has_passed() {
        let before = Totals { stored: 100, ..Totals::default() };
        let now = Totals { stored: 350, failed: 1, ..Totals::default() };
        let point = now.since(&before, Duration::from_millis(2_500));
        assert_eq!((point.stored, point.failed, point.latency_p50_ms), (100.0, 0.4, None));
        assert!(now.moved(&before) && !now.moved(&now));
    }

    #[test]
    fn before_the_first_count_there_is_an_answer_that_says_so() {
        let error = Sampler::new().counted().unwrap_err();
        assert!(error.to_string().contains("counted yet"), "{error}");
    }
}
