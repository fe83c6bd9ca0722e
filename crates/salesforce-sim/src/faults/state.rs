//! Selects the fault that applies: the faults with their counts.

use std::collections::HashMap;

use super::{Faults, HttpFault, JobFault};
use crate::row_error::RowError;

/// The faults, and how often each has matched.
#[derive(Debug, Default)]
pub(crate) struct FaultState {
    faults: Faults,
    http_met: Vec<u64>,
    jobs_met: Vec<u64>,
    /// Counts by fault and key.
    rows_met: HashMap<(usize, String), u64>,
    /// By fault and parent: the number of locks, and the last attempt that was locked.
    locks_met: HashMap<(usize, String), (u64, u64)>,
    attempts: u64,
    random: u64,
}

impl FaultState {
    pub(crate) fn new(faults: Faults) -> Self {
        Self {
            http_met: vec![0; faults.http.len()],
            jobs_met: vec![0; faults.jobs.len()],
            random: faults.seed,
            faults,
            ..Self::default()
        }
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }

    /// Returns the fault of this call.
    pub(crate) fn http(&mut self, method: &str, path: &str) -> Option<HttpFault> {
        for index in 0..self.faults.http.len() {
            let fault = &self.faults.http[index];
            let same = fault.method.as_ref().is_none_or(|m| m.eq_ignore_ascii_case(method));
            if !same || !fault.path.fits(path) {
                continue;
            }
            let (skip, times, chance) = (fault.skip, fault.times, fault.chance);
            if hits(&mut self.http_met[index], skip, times) && self.happens(chance) {
                return Some(self.faults.http[index].clone());
            }
        }
        None
    }

    /// Returns the fault of this job.
    pub(crate) fn job(&mut self, object: &str) -> Option<JobFault> {
        let jobs = self.faults.jobs.iter().zip(&mut self.jobs_met);
        let mut fitting = jobs.filter(|(fault, _)| is_for(fault.object.as_ref(), object));
        fitting.find_map(|(fault, met)| hits(met, fault.skip, fault.times).then(|| fault.clone()))
    }

    /// Returns the error if this attempt of a row is refused.
    pub(crate) fn row(&mut self, object: &str, key: &str) -> Option<RowError> {
        for index in 0..self.faults.rows.len() {
            let fault = &self.faults.rows[index];
            if !is_for(fault.object.as_ref(), object) || !fault.key.fits(key) {
                continue;
            }
            let (times, chance) = (fault.times, fault.chance);
            if times.is_some() {
                let met = self.rows_met.entry((index, key.to_owned())).or_default();
                if !hits(met, 0, times) {
                    continue;
                }
            }
            if self.happens(chance) {
                let fault = &self.faults.rows[index];
                let (code, message) = (fault.code.clone(), fault.message.clone());
                return Some(RowError { code, message, fields: fault.fields.clone() });
            }
        }
        None
    }

    /// Returns the error if the parent of a row is locked. All rows of one attempt get the same
    /// result.
    pub(crate) fn lock(
        &mut self,
        object: &str,
        attempt: u64,
        parent: impl Fn(&str) -> Option<String>,
    ) -> Option<RowError> {
        for (index, fault) in self.faults.locks.iter().enumerate() {
            if !is_for(fault.object.as_ref(), object) {
                continue;
            }
            let Some(value) = parent(&fault.parent) else { continue };
            let (locked, last) = self.locks_met.entry((index, value.clone())).or_default();
            if *last != attempt && *locked < fault.attempts {
                *locked += 1;
                *last = attempt;
            }
            if *last == attempt {
                return Some(locked_row(&value));
            }
        }
        None
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.next_random() % (last as u64 + 1);
            items.swap(last, other as usize);
        }
    }

    fn happens(&mut self, chance: Option<f64>) -> bool {
        let Some(chance) = chance else { return true };
        let random = (self.next_random() >> 11) as f64 / (1_u64 << 53) as f64;
        random < chance
    }

    /// SplitMix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

pub(crate) fn locked_row(id: &str) -> RowError {
    let message = format!("unable to obtain exclusive access to this record or 1 records: {id}");
    RowError::new("UNABLE_TO_LOCK_ROW", message)
}

fn is_for(wanted: Option<&String>, object: &str) -> bool {
    wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(object))
}

/// Counts one more match. Returns whether it is affected.
fn hits(met: &mut u64, skip: u64, times: Option<u64>) -> bool {
    *met += 1;
    *met > skip && times.is_none_or(|times| *met - skip <= times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{HttpAction, LockFault, Pattern, RowFault};

    #[test]
    fn a_fault_skips_then_hits_then_passes() {
        let fault = HttpFault {
            method: Some("PUT".to_owned()),
            path: Pattern::new("/batches$").unwrap(),
            skip: 1,
            times: Some(2),
            action: HttpAction::Unavailable,
            ..HttpFault::default()
        };
        let mut state = FaultState::new(Faults { http: vec![fault], ..Faults::default() });
        assert!(state.http("POST", "/jobs/1/batches").is_none());
        assert!(state.http("PUT", "/jobs/1").is_none());
        let hit: Vec<bool> = (0..4).map(|_| state.http("PUT", "/j/batches").is_some()).collect();
        assert_eq!(hit, [false, true, true, false]);
    }

    #[test]
    fn a_row_fault_counts_each_key_by_itself() {
        let fault = RowFault { times: Some(1), code: "X".to_owned(), ..RowFault::default() };
        let mut state = FaultState::new(Faults { rows: vec![fault], ..Faults::default() });
        let hit = ["a", "b", "a", "b"].map(|key| state.row("Contact", key).is_some());
        assert_eq!(hit, [true, true, false, false]);
    }

    #[test]
    fn a_lock_holds_for_all_rows_of_its_attempts() {
        let fault =
            LockFault { parent: "AccountId".to_owned(), attempts: 2, ..LockFault::default() };
        let mut state = FaultState::new(Faults { locks: vec![fault], ..Faults::default() });
        let mut locked =
            |attempt| state.lock("Contact", attempt, |_| Some("acme".to_owned())).is_some();
        assert_eq!([locked(1), locked(1), locked(2), locked(3)], [true, true, true, false]);
    }

    #[test]
    fn chances_come_back_with_their_seed() {
        let fault = RowFault { chance: Some(0.5), ..RowFault::default() };
        let hits = |seed| {
            let faults = Faults { seed, rows: vec![fault.clone()], ..Faults::default() };
            let mut state = FaultState::new(faults);
            (0..100).map(|_| state.row("A", "k").is_some()).collect::<Vec<_>>()
        };
        assert_eq!(hits(1), hits(1));
        assert_ne!(hits(1), hits(2));
        assert!((30..70).contains(&hits(3).iter().filter(|hit| **hit).count()));
    }
}
