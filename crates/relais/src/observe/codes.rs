//! Counts of problem codes.

use std::{collections::BTreeMap, sync::Mutex};

use relais_core::delivery::Problem;

use crate::lock::lock;

/// Counts by problem code; bounded: further codes count as `other`.
#[derive(Debug, Default)]
pub(super) struct ProblemCodes(Mutex<BTreeMap<String, u64>>);

/// Maximum number of different problem codes.
const CODES_MAX: usize = 100;

impl ProblemCodes {
    pub(super) fn count(&self, problem: &Problem) {
        let mut codes = lock(&self.0);
        let known = codes.contains_key(&problem.code) || codes.len() < CODES_MAX;
        let code = if known { problem.code.as_str() } else { "other" };
        *codes.entry(code.to_owned()).or_default() += 1;
    }

    pub(super) fn snapshot(&self) -> BTreeMap<String, u64> {
        lock(&self.0).clone()
    }
}
