//! Who may touch which rows: lanes, leases and the fence.
//!
//! All keys hash into [`LANES`] lanes (the database computes it). A worker owns lanes of its scopes while its
//! lease is valid, one lease for all of them; only the owner works on a lane's rows. Each change of owner
//! raises the lane's epoch, and a worker that settles a row proves in the same transaction that its epoch is
//! still the current one. That proof does not look at the lease: a lane of an expired lease that no other
//! worker has taken has still one owner.

use std::{fmt, time::Duration};

use serde::Serialize;

/// The number of lanes that the keys of one scope share. Part of the schema: the database computes the lane.
pub const LANES: u16 = 64;

/// A body of work whose lanes are shared out: the inbox, or one destination's part of the outbox.
/// Each destination has its own lanes, so a process that does not serve it cannot hold it back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    Inbox,
    /// An inbox of its own on the same database.
    NamedInbox(String),
    Outbox(String),
}

impl Scope {
    /// The scope of an inbox; the name '' stands for the inbox without a name.
    pub fn of_inbox(name: &str) -> Self {
        if name.is_empty() { Self::Inbox } else { Self::NamedInbox(name.to_owned()) }
    }

    /// The name of the inbox, if it is one.
    pub fn inbox(&self) -> Option<&str> {
        match self {
            Self::Inbox => Some(""),
            Self::NamedInbox(name) => Some(name),
            Self::Outbox(_) => None,
        }
    }
}

impl fmt::Display for Scope {
    /// The text in the `scope` column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inbox => f.write_str("inbox"),
            Self::NamedInbox(name) => write!(f, "inbox:{name}"),
            Self::Outbox(destination) => write!(f, "outbox:{destination}"),
        }
    }
}

/// One lane held by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct OwnedLane {
    pub lane: i16,
    /// Raised at every change of owner; what the fence compares.
    pub epoch: i64,
    /// Taken over from a worker that did not give it back: its first rows are handled with caution.
    pub unclean: bool,
}

/// Proof of ownership for a statement: who asks, for which scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub scope: Scope,
    /// Unique to one run of one process, never a host name alone.
    pub worker: String,
}

/// A scope that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeAnnouncement {
    pub scope: Scope,
    /// The event types that the worker knows there. Empty in scopes of the outbox.
    pub event_types: Vec<String>,
}

/// A heartbeat of a worker: renews its lease, which covers its lanes in all scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRenewal {
    pub worker: String,
    pub lease: Duration,
    /// Scopes to announce. Other workers share their lanes with this one from now on.
    pub announce: Vec<ScopeAnnouncement>,
}

/// The request of a worker for lanes of a scope, made when workers came or left.
#[derive(Clone, Debug)]
pub struct LaneRequest {
    pub fence: Fence,
    pub lease: Duration,
    /// The event types that the worker announces: it takes lanes that were handed over for one of them.
    /// Empty in scopes of the outbox.
    pub event_types: Vec<String>,
}

impl LaneRequest {
    /// A request of a worker that announces no event types.
    pub fn new(fence: Fence, lease: Duration) -> Self {
        Self { fence, lease, event_types: Vec::new() }
    }
}

/// One lane that its owner gives back for another worker, because its next row is of an event type that
/// the owner does not know. While a live worker knows that type, only such a worker takes the lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneHandOver {
    pub lane: i16,
    pub event_type: String,
    /// The lane came from a lost worker, and rows that the owner does not know were not quarantined: the
    /// next owner does that.
    pub unclean: bool,
}

/// Lanes that a worker gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneRelease {
    /// These lanes, for any worker.
    Lanes(Vec<i16>),
    /// These lanes, for workers that know an event type which this worker does not know. They take them at
    /// their next heartbeat, also beyond their share; other workers do not while one of them is alive.
    HandOver(Vec<LaneHandOver>),
    /// Every lane: the worker leaves the scope.
    All,
}

/// The lanes of a worker in one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneGrant {
    /// The term of the worker's lease. While it stays the same, no lane can have another owner.
    pub term: i64,
    /// Other workers hold lanes that this one should get: ask again.
    pub unsettled: bool,
    /// Every lane of the worker, old and new.
    pub lanes: Vec<OwnedLane>,
    /// The number of lanes it should give back for a fair share, once nothing of theirs is in flight.
    pub surplus: usize,
    /// Those of the lanes that were handed over to it now, because it knows an event type.
    pub handed_over: Vec<i16>,
    /// Event types that other live workers of the scope know and this one does not.
    pub types_elsewhere: Vec<String>,
}

/// The fair share of each of `live` workers; at least one lane.
pub fn share(live: usize) -> usize {
    usize::from(LANES).div_ceil(live.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_lanes() {
        for live in 1..100 {
            assert!(share(live) * live >= usize::from(LANES));
        }
        assert_eq!(share(0), 64);
        assert_eq!(share(3), 22);
    }
}
