//! The reason why an open row waits, if it is not in backoff and its key is not parked: an earlier row of
//! its key, a paused destination, no worker that knows its event type or serves its destination, or a
//! destination or handler over HTTP that is unavailable or failed last.

use std::collections::BTreeMap;

use relais_core::{
    breaker::BreakerState,
    control::{Control, ControlKind, Pause},
    delivery::Problem,
    inbox::{SUBSCRIBER_SEPARATOR, inbox_of},
    inspect::InspectExt,
    query::{Filter, Overview, PAGE_MAX},
    store::StoreError,
};

use super::Walk;
use crate::{
    explain::{Thing, ThingKind},
    observe::{DestinationFigures, Figures, LastError},
    unserved::describe_inbox,
};

impl Walk<'_> {
    pub(super) async fn mark_waits(&mut self) -> Result<(), StoreError> {
        let waits = |thing: &Thing| {
            let open = matches!(&*thing.status, "RECEIVED" | "RETRY" | "PENDING");
            open && thing.held_by.is_none()
        };
        if !self.things.iter().any(waits) {
            return Ok(());
        }
        let overview = self.store.overview().await?;
        let destinations = self.destinations().await?;
        let controls = self.store.controls().await?;
        let open: Vec<usize> =
            (0..self.things.len()).filter(|at| waits(&self.things[*at])).collect();
        for at in open {
            let behind = self.behind(&self.things[at]).await?;
            let thing = &mut self.things[at];
            let name = target(thing);
            let pause = name.as_ref().and_then(|name| paused(name, &controls));
            let destination = name.as_ref().and_then(|name| destinations.get_key_value(name));
            // A row that failed has an error of its own.
            let failing = || destination.filter(|_| thing.problem.is_none()).and_then(failing);
            thing.waits_for = pause
                .or(behind)
                .or_else(|| unserved(thing, &overview))
                .or_else(|| destination.and_then(|of| unavailable(of, thing.problem.as_ref())))
                .or_else(failing);
            if thing.waits_for.is_some() {
                // A time that has passed is not when it is sent.
                thing.next_attempt_at = thing.next_attempt_at.filter(|at| *at > overview.now);
            }
        }
        Ok(())
    }

    /// Returns the figures of each destination, of all live processes together.
    async fn destinations(&self) -> Result<BTreeMap<String, DestinationFigures>, StoreError> {
        let mut figures = Figures::default();
        for report in self.store.reports().await?.iter().filter(|report| report.alive) {
            if let Ok(of_process) = serde_json::from_str(&report.figures) {
                figures.add(&of_process);
            }
        }
        Ok(figures.destinations)
    }

    /// Returns the first open row of the same key before this one.
    async fn behind(&self, thing: &Thing) -> Result<Option<String>, StoreError> {
        let filter = |status: &str| Filter {
            status: Some(status.to_owned()),
            key: thing.key.clone(),
            before: Some(thing.name.id.clone()),
            limit: PAGE_MAX,
            ..Filter::default()
        };
        // A row that has not failed and is not due yet is delayed: it blocks no other row.
        let first = match thing.name.kind {
            ThingKind::Outbox => {
                let wanted = Filter { destination: thing.place.clone(), ..filter("PENDING") };
                let mut rows = self.store.list_outbox(wanted).await?;
                rows.retain(|row| row.next_attempt_at.is_none() || row.error_code.is_some());
                rows.last().map(|row| (row.id, row.error_code.clone()))
            }
            ThingKind::Inbox => {
                let mut rows = self.store.list_inbox(filter("RECEIVED")).await?;
                rows.extend(self.store.list_inbox(filter("RETRY")).await?);
                let first = rows.iter().min_by_key(|row| row.id);
                first.map(|row| (row.id, row.error_code.clone()))
            }
            ThingKind::Process | ThingKind::DeadLetter | ThingKind::Message | ThingKind::Job => {
                None
            }
        };
        Ok(first.map(|(id, code)| {
            let why = code.map(|code| format!(", which has failed with {code}"));
            let (kind, why) = (thing.name.kind.as_str(), why.unwrap_or_default());
            format!("waits behind {kind}:{id} of its key{why}")
        }))
    }
}

/// Returns the destination of an outbox row, or the handler over HTTP whose copy an inbox row is.
fn target(thing: &Thing) -> Option<String> {
    match (thing.name.kind, thing.place.as_deref()?) {
        (ThingKind::Outbox, destination) => Some(destination.to_owned()),
        (ThingKind::Inbox, source) => {
            let (_, handler) = inbox_of(source).split_once(SUBSCRIBER_SEPARATOR)?;
            Some(format!("{SUBSCRIBER_SEPARATOR}{handler}"))
        }
        _ => None,
    }
}

/// Returns who paused a destination, and why.
fn paused(name: &str, controls: &[Control]) -> Option<String> {
    let of = |c: &&Control| c.kind == ControlKind::Destination && c.name == name;
    let Pause { at, by, reason } = controls.iter().find(of)?.pause.as_ref()?;
    Some(format!(
        "waits for destination {name}, which {by} paused at {at}: {reason}; resume it to continue"
    ))
}

/// Returns why the circuit breaker of a destination is not closed, if so. An error that the row has itself is
/// shown with the row, so it is not repeated.
fn unavailable(
    (name, figures): (&String, &DestinationFigures),
    own: Option<&Problem>,
) -> Option<String> {
    let is_open = matches!(figures.breaker, Some(BreakerState::Open | BreakerState::HalfOpen));
    let Problem { code, message } = figures.reason.as_ref().filter(|_| is_open)?;
    let text = format!("waits for destination {name}, whose circuit breaker is open");
    let is_own = own.is_some_and(|own| own.code == *code);
    Some(if is_own { text } else { format!("{text}: {code}: {message}") })
}

/// Returns the last error of a destination, if nothing was delivered since.
fn failing((name, figures): (&String, &DestinationFigures)) -> Option<String> {
    let LastError { at, code, message } = figures.last_error.as_ref()?;
    let is_last = figures.last_delivered_at.is_none_or(|delivered| delivered < *at);
    is_last.then(|| {
        format!("waits for destination {name}, whose last call failed at {at}: {code}: {message}")
    })
}

/// Returns why no live worker handles the row, if so.
fn unserved(thing: &Thing, overview: &Overview) -> Option<String> {
    match thing.name.kind {
        ThingKind::Inbox => {
            let inbox = thing.place.as_deref().map_or("", inbox_of);
            if overview.unserved_inboxes.iter().any(|count| count.name == inbox) {
                return Some(format!(
                    "waits for {}, which no worker serves: start its worker, or subscribe under the old \
                     name until it is handled",
                    describe_inbox(inbox)
                ));
            }
            let event_type = thing.event_type.as_deref()?;
            let unknown = overview.unknown_types.iter().any(|count| count.name == event_type);
            unknown.then(|| {
                format!(
                    "waits for a worker that knows event type {event_type}: add a route, process or \
                     handler for it"
                )
            })
        }
        ThingKind::Outbox => {
            let destination = thing.place.as_deref()?;
            let scope = format!("outbox:{destination}");
            let served = overview.workers.iter().any(|row| row.alive && row.scope == scope);
            (!served).then(|| {
                format!(
                    "waits for a worker that serves destination {destination}: none is running; define \
                     it, or start the program that does"
                )
            })
        }
        ThingKind::Process | ThingKind::DeadLetter | ThingKind::Message | ThingKind::Job => None,
    }
}
