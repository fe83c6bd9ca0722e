//! What a settlement sends along: which rows, in which lanes, of which epochs. One vector a column,
//! as the statements' `unnest` takes them.

use std::time::Duration;

use relais_core::{delivery::Problem, lane::OwnedLane, store::SettleOutcome};
use tokio_postgres::types::ToSql;

use super::row;

/// A value for a statement.
pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// Rows and the epochs of their lanes.
#[derive(Debug, Default)]
pub(super) struct LaneProof {
    pub(super) ids: Vec<i64>,
    pub(super) lanes: Vec<i16>,
    pub(super) epochs: Vec<i64>,
}

impl LaneProof {
    pub(super) fn of(rows: &[(i64, OwnedLane)]) -> Self {
        let mut proof = Self::default();
        for (id, lane) in rows {
            proof.push((*id, lane.lane, lane.epoch));
        }
        proof
    }

    pub(super) fn push(&mut self, (id, lane, epoch): (i64, i16, i64)) {
        self.ids.push(id);
        self.lanes.push(lane);
        self.epochs.push(epoch);
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The values of a statement that names the owner with `owner`.
    pub(super) fn values<'v>(&'v self, owner: &[Value<'v>]) -> Vec<Value<'v>> {
        let own: [Value<'v>; 3] = [&self.ids, &self.lanes, &self.epochs];
        owner.iter().chain(&own).copied().collect()
    }
}

/// The answer when `settled` of `asked` rows were reached.
pub(super) fn settled(asked: usize, settled: u64) -> SettleOutcome {
    let refused = (asked as u64).saturating_sub(settled);
    SettleOutcome { settled, refused, ..SettleOutcome::default() }
}

/// Rows to be tried again later.
#[derive(Debug, Default)]
pub(super) struct Retry<'a> {
    pub(super) proof: LaneProof,
    /// None: no attempt was used.
    pub(super) attempts: Vec<Option<i32>>,
    pub(super) pauses_ms: Vec<i64>,
    pub(super) codes: Vec<&'a str>,
    pub(super) messages: Vec<&'a str>,
    pub(super) lost_workers: Vec<i16>,
}

impl<'a> Retry<'a> {
    pub(super) fn push(
        &mut self,
        proof: (i64, i16, i64),
        attempts: Option<u32>,
        pause: Duration,
        problem: &'a Problem,
        lost_workers: u32,
    ) {
        self.proof.push(proof);
        self.attempts.push(attempts.map(row::attempts));
        self.pauses_ms.push(row::millis(pause));
        self.codes.push(&problem.code);
        self.messages.push(&problem.message);
        self.lost_workers.push(row::lost_workers(lost_workers));
    }

    pub(super) fn values<'v>(&'v self, owner: &[Value<'v>]) -> Vec<Value<'v>> {
        let Self { attempts, pauses_ms, codes, messages, lost_workers, .. } = self;
        let own: [Value<'v>; 5] = [attempts, pauses_ms, codes, messages, lost_workers];
        self.proof.values(owner).into_iter().chain(own).collect()
    }
}

/// Rows that failed for good.
#[derive(Debug, Default)]
pub(super) struct Dead<'a> {
    pub(super) proof: LaneProof,
    pub(super) attempts: Vec<i32>,
    pub(super) parks: Vec<bool>,
    pub(super) codes: Vec<&'a str>,
    pub(super) messages: Vec<&'a str>,
}

impl<'a> Dead<'a> {
    pub(super) fn push(
        &mut self,
        proof: (i64, i16, i64),
        attempts: u32,
        park: bool,
        problem: &'a Problem,
    ) {
        self.proof.push(proof);
        self.attempts.push(row::attempts(attempts));
        self.parks.push(park);
        self.codes.push(&problem.code);
        self.messages.push(&problem.message);
    }

    pub(super) fn values<'v>(&'v self, owner: &[Value<'v>]) -> Vec<Value<'v>> {
        let own: [Value<'v>; 4] = [&self.attempts, &self.parks, &self.codes, &self.messages];
        self.proof.values(owner).into_iter().chain(own).collect()
    }
}
