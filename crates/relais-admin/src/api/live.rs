//! The stream of server-sent events: the overview and a point of each series as they change. While the database
//! does not answer, a `problem` takes the place of the overview.

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

use super::overview::{StateEvent, state_event};
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
    state_event(admin).map(event_of).into_iter().collect()
}

impl Watcher {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some((Ok(event), self));
            }
            timeout_at(self.until, self.ticks.changed()).await.ok()?.ok()?;
            let Tick { sample, state } = self.ticks.borrow_and_update().clone();
            self.waiting.extend(state.map(event_of));
            self.waiting.extend(sample.map(|json| event("sample", json)));
        }
    }
}

fn event_of(state: StateEvent) -> Event {
    event(state.name, state.json)
}

fn event(name: &str, json: String) -> Event {
    Event::default().event(name).data(json)
}
