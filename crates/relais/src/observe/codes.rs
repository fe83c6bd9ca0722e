//! Problem codes, counted.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use relais_core::delivery::Problem;

/// How often each problem code was seen; bounded, the rest goes under `other`.
#[derive(Debug, Default)]
pub(super) struct Codes(Mutex<BTreeMap<String, u64>>);

/// Different problem codes told apart per destination.
const CODES_MAX: usize = 100;

impl Codes {
    pub(super) fn count(&self, problem: &Problem) {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = codes.contains_key(&problem.code) || codes.len() < CODES_MAX;
        let code = if known { problem.code.as_str() } else { "other" };
        *codes.entry(code.to_owned()).or_default() += 1;
    }

    pub(super) fn snapshot(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
