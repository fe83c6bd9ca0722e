//! The stream of server-sent events: the overview and a point of each series as they change.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, timeout_at},
};

use crate::{Admin, problem::ApiProblem, sample::Tick};

/// Most streams at once.
pub(crate) const STREAMS_MAX: usize = 32;
/// Lifetime of a stream. Browsers reconnect by themselves, and the token is checked again then.
const LIFE: Duration = Duration::from_secs(15 * 60);

pub(crate) async fn live(
    State(admin): State<Admin>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiProblem> {
    let seat = admin.seats.clone().try_acquire_owned().map_err(|_| {
        let detail = format!("{STREAMS_MAX} streams are open; close one, then try again");
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "TOO_MANY_STREAMS", detail)
    })?;
    let watcher = Watcher {
        ticks: admin.sampler.subscribe(),
        waiting: first(&admin),
        until: Instant::now() + LIFE,
        _seat: seat,
    };
    Ok(Sse::new(stream::unfold(watcher, Watcher::next)).keep_alive(KeepAlive::default()))
}

struct Watcher {
    ticks: watch::Receiver<Tick>,
    waiting: VecDeque<Event>,
    until: Instant,
    _seat: OwnedSemaphorePermit,
}

/// Returns the first events, so that a new client does not wait for a change.
fn first(admin: &Admin) -> VecDeque<Event> {
    let overview = super::overview::shown(admin).ok();
    let overview = overview.and_then(|shown| serde_json::to_string(&shown).ok());
    overview.map(|json| event("overview", json)).into_iter().collect()
}

impl Watcher {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some((Ok(event), self));
            }
            timeout_at(self.until, self.ticks.changed()).await.ok()?.ok()?;
            let Tick { sample, overview } = self.ticks.borrow_and_update().clone();
            self.waiting.extend(overview.map(|json| event("overview", json)));
            if !sample.is_empty() {
                self.waiting.push_back(event("sample", sample));
            }
        }
    }
}

fn event(name: &str, json: String) -> Event {
    Event::default().event(name).data(json)
}
