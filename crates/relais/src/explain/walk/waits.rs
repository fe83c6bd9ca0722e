//! The reason why an open row waits, if it is not in backoff and its key is not parked: an earlier row of
//! its key, no worker that knows its event type or serves its destination, or an unavailable destination.

use std::collections::BTreeMap;

use relais_core::{
    breaker::BreakerState,
    inbox::inbox_of,
    inspect::InspectExt,
    query::{Filter, Overview, PAGE_MAX},
    store::StoreError,
};

use super::Walk;
use crate::{
    explain::{Thing, ThingKind},
    observe::Figures,
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
        let unavailable = self.unavailable().await?;
        let open: Vec<usize> =
            (0..self.things.len()).filter(|at| waits(&self.things[*at])).collect();
        for at in open {
            let behind = self.behind(&self.things[at]).await?;
            let thing = &mut self.things[at];
            let destination = thing.place.as_ref().filter(|_| thing.name.kind == ThingKind::Outbox);
            let closed = || destination.and_then(|name| unavailable.get(name)).cloned();
            thing.waits_for = behind.or_else(|| unserved(thing, &overview)).or_else(closed);
        }
        Ok(())
    }

    /// Returns the destinations whose circuit breaker is not closed in a live process, with the reason.
    async fn unavailable(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let mut found = BTreeMap::new();
        for report in self.store.reports().await?.iter().filter(|report| report.alive) {
            let Ok(figures) = serde_json::from_str::<Figures>(&report.figures) else { continue };
            for (name, figures) in figures.destinations {
                if let (Some(BreakerState::Open | BreakerState::HalfOpen), Some(reason)) =
                    (figures.breaker, figures.reason)
                {
                    let why = format!("{}: {}", reason.code, reason.message);
                    let text = format!(
                        "waits for destination {name}, whose circuit breaker is open: {why}"
                    );
                    found.insert(name, text);
                }
            }
        }
        Ok(found)
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
