//! Processes written down without code: payload templates over what came in.
//!
//! The data of such a process is `{"input": the starting payload, "steps": {"name": the reply's payload}}`,
//! and its templates point into that: `{{/input/orderId}}`, `{{/steps/payment/paymentId}}`. A pointer to
//! nothing is an error, never a silent `null`.

use std::time::Duration;

use super::definition::Correlate;
use crate::{extract::Pick, retry::RetryPolicy};

/// `[[process]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    pub process_type: String,
    pub version: i32,
    /// Event types that start one.
    pub starts: Vec<String>,
    /// Where the business key is in them; absent: it has none.
    pub business_key: Option<Pick>,
    pub steps: Vec<DeclaredStep>,
}

/// `[[process.step]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredStep {
    pub name: String,
    pub call: DeclaredCall,
    pub compensation: Option<DeclaredCall>,
}

/// A command and its answers: of a step, or `[process.step.compensation]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredCall {
    pub destination: String,
    /// The event type of the command.
    pub command: String,
    /// A JSON template; absent: the whole data.
    pub payload: Option<String>,
    /// Replies that mean done.
    pub completed: Vec<String>,
    /// Replies that mean failed for good.
    pub failed: Vec<String>,
    /// Replies that mean failed for now.
    pub retryable: Vec<String>,
    /// Where a failing reply says why.
    pub error: Option<Pick>,
    /// How replies find the process.
    pub correlate: Correlate,
    pub timeout: Option<Duration>,
    pub retry: RetryPolicy,
}
