//! Classifies the error codes and messages of Salesforce: one table, and the consequence of each
//! class.
//!
//! Invariant: the first matching row decides, and an unlisted code is retried. Codes are compared
//! without underscores and case, because the bulk API spells them differently (`INVALID_BATCH`,
//! `INVALIDBATCH`, `InvalidBatch`).

use std::time::Duration;

use relais_core::{
    bulk::CallProblem,
    delivery::{Delivery, Problem},
};

use crate::http::classify::harmless;

/// Pause when the daily calls, batches or storage are used up.
const QUOTA_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Pause when too many calls run at once.
const CONCURRENCY_PAUSE: Duration = Duration::from_secs(5);
/// Pause when the org throttles without a time.
pub(super) const THROTTLE_PAUSE: Duration = Duration::from_secs(30);
/// Pause until an operator may have fixed something.
pub(super) const OPERATOR_PAUSE: Duration = Duration::from_secs(60);
/// Pause of a row that refers to a missing record.
const DEPENDENCY_PAUSE: Duration = Duration::from_secs(5);

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// This row, temporarily.
    Transient,
    /// This row, permanently.
    Permanent,
    /// Authentication or permissions.
    Auth,
    /// A limit of the org is exceeded.
    Quota,
    /// The org is unreachable or does not work.
    Down,
    /// The row refers to a record that does not exist yet.
    Dependency,
    /// Never tried, or rolled back because of another row.
    Untried,
    /// It may or may not have happened.
    Unknown,
    /// The settings do not match the org: no row can succeed.
    Settings,
}

/// The messages that a row of the table matches.
#[derive(Clone, Copy)]
enum MessageRule {
    Always,
    Says(&'static [&'static str]),
    /// The duplicate is in the field that rows are upserted by.
    OwnKey,
}

use Class::{Auth, Dependency, Down, Permanent, Quota, Settings, Transient, Untried};
use MessageRule::{Always, OwnKey, Says};

type CodeRow = (&'static [&'static str], MessageRule, Class, Option<Duration>);

/// The record was locked by another transaction; `lock` alone would also match `Block__c`.
const LOCKED: MessageRule =
    Says(&["UNABLE_TO_LOCK_ROW", "unable to obtain exclusive access", "row lock", "locked row"]);
const TRIGGERED: &[&str] =
    &["CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "CANNOT_EXECUTE_FLOW_TRIGGER", "APEX_ERROR"];

const TABLE: &[CodeRow] = &[
    (&["INVALID_SESSION_ID", "INVALID_AUTH_HEADER"], Always, Auth, Some(OPERATOR_PAUSE)),
    (
        &[
            "invalid_grant",
            "invalid_client",
            "invalid_client_id",
            "invalid_client_credentials",
            "invalid_app_access",
            "unauthorized_client",
            "unsupported_grant_type",
            "inactive_user",
            "inactive_org",
        ],
        Always,
        Auth,
        Some(OPERATOR_PAUSE),
    ),
    (&["REQUEST_LIMIT_EXCEEDED"], Says(&["TotalRequests"]), Quota, Some(QUOTA_PAUSE)),
    (&["REQUEST_LIMIT_EXCEEDED"], Always, Quota, Some(CONCURRENCY_PAUSE)),
    (&["EXCEEDED_QUOTA", "LIMIT_EXCEEDED"], Always, Quota, Some(QUOTA_PAUSE)),
    (&["STORAGE_LIMIT_EXCEEDED"], Always, Quota, Some(QUOTA_PAUSE)),
    (&["TXN_SECURITY_METERING_ERROR"], Always, Quota, Some(THROTTLE_PAUSE)),
    (
        &[
            "TXN_SECURITY_NO_ACCESS",
            "TXN_SECURITY_TWO_FA_REQUIRED",
            "TXN_SECURITY_END_A_SESSION",
            "TXN_SECURITY_FAIL_CLOSE",
            "API_DISABLED_FOR_ORG",
            "API_CURRENTLY_DISABLED",
            "FUNCTIONALITY_NOT_ENABLED",
            "FEATURE_NOT_ENABLED",
        ],
        Always,
        Auth,
        Some(OPERATOR_PAUSE),
    ),
    (&["SERVER_UNAVAILABLE"], Always, Down, None),
    (&["UNABLE_TO_LOCK_ROW", "TooManyLockFailure", "Timeout"], Always, Transient, None),
    (&["DUPLICATE_VALUE"], Says(&["Duplicate external id specified"]), Transient, None),
    (&["DUPLICATE_VALUE"], OwnKey, Transient, None),
    (&["DUPLICATE_VALUE", "DUPLICATE_EXTERNAL_ID", "DUPLICATES_DETECTED"], Always, Permanent, None),
    (&["INVALID_FIELD"], Says(&["Foreign key external ID"]), Dependency, Some(DEPENDENCY_PAUSE)),
    (
        &["INVALID_CROSS_REFERENCE_KEY", "MALFORMED_ID", "ENTITY_IS_DELETED"],
        Always,
        Permanent,
        None,
    ),
    (MAPPING_CODES, Always, Permanent, None),
    (&["JSON_PARSER_ERROR", "MALFORMED_QUERY"], Always, Permanent, None),
    (
        &[
            "REQUIRED_FIELD_MISSING",
            "STRING_TOO_LONG",
            "NUMBER_OUTSIDE_VALID_RANGE",
            "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
            "INVALID_EMAIL_ADDRESS",
            "FIELD_INTEGRITY_EXCEPTION",
            "FIELD_FILTER_VALIDATION_EXCEPTION",
            "FIELD_CUSTOM_VALIDATION_EXCEPTION",
        ],
        Always,
        Permanent,
        None,
    ),
    (
        &[
            "INSUFFICIENT_ACCESS_OR_READONLY",
            "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY",
            "CANNOT_UPDATE_CONVERTED_LEAD",
            "NOT_FOUND",
        ],
        Always,
        Permanent,
        None,
    ),
    (TRIGGERED, LOCKED, Transient, None),
    (TRIGGERED, Says(&["Too many retries of batch save"]), Transient, None),
    (TRIGGERED, Says(OVERLOADED), Transient, None),
    (TRIGGERED, Always, Permanent, None),
    (
        &["ALL_OR_NONE_OPERATION_ROLLED_BACK", "PROCESSING_HALTED", "BATCH_PROCESSING_HALTED"],
        Always,
        Untried,
        None,
    ),
    (
        &[
            "UNKNOWN_EXCEPTION",
            "UNEXPECTED_ERROR",
            "QUERY_TIMEOUT",
            "REQUEST_RUNNING_TOO_LONG",
            "OPERATION_TOO_LARGE",
        ],
        Always,
        Transient,
        None,
    ),
    (
        &["InvalidBatch", "ClientInputError", "INVALID_ENTITY"],
        Always,
        Settings,
        Some(OPERATOR_PAUSE),
    ),
];

/// Codes about a column rather than a value: if every row of a batch fails with one, the settings
/// are wrong and not the rows.
const MAPPING_CODES: &[&str] = &[
    "INVALID_FIELD",
    "INVALID_FIELD_FOR_INSERT_UPDATE",
    "INVALID_TYPE",
    "INVALID_TYPE_ON_FIELD_IN_RECORD",
];

/// Messages of triggers that a batch has overloaded: fewer rows at once may succeed.
const OVERLOADED: &[&str] = &["LimitException", "Too many SOQL", "Too many DML", "CPU time limit"];

/// Returns whether a row that failed like this may succeed with fewer other rows.
pub(super) fn wants_fewer_neighbours(code: &str, message: &str) -> bool {
    same_code(code, "UNABLE_TO_LOCK_ROW") || OVERLOADED.iter().any(|text| message.contains(text))
}

/// Classifies rows of one destination.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    pub(super) external_id: String,
    /// The message of a validation rule that refuses versions older than that of the org.
    pub(super) superseded: Option<String>,
}

impl Judge {
    /// Returns the class and pause of the first matching row of the table.
    pub(super) fn class(&self, code: &str, message: &str) -> (Class, Option<Duration>) {
        let fits = |(codes, when, ..): &&CodeRow| {
            codes.iter().any(|known| same_code(known, code))
                && match when {
                    Always => true,
                    Says(texts) => texts.iter().any(|text| contains(message, text)),
                    OwnKey => self.is_own_key(message),
                }
        };
        // An unlisted code uses the attempts of the row.
        TABLE.iter().find(fits).map_or((Transient, None), |line| (line.2, line.3))
    }

    /// Returns the delivery of a row that Salesforce refused.
    pub(super) fn row(&self, code: &str, message: &str) -> Delivery {
        let outdated = self.superseded.as_ref().is_some_and(|text| message.contains(text.as_str()));
        if outdated && same_code(code, "FIELD_CUSTOM_VALIDATION_EXCEPTION") {
            // The org has a newer version: nothing is left to deliver.
            return Delivery::Accepted;
        }
        let (class, after) = self.class(code, message);
        delivery(class, problem(code, message), after)
    }

    fn is_own_key(&self, message: &str) -> bool {
        const START: &str = "duplicate value found:";
        let start = message.get(..START.len()).unwrap_or_default();
        let field = message.get(START.len()..).unwrap_or_default().trim_start();
        let field = field.split([' ', ',']).next().unwrap_or_default();
        start.eq_ignore_ascii_case(START) && field.eq_ignore_ascii_case(&self.external_id)
    }
}

/// If every row was refused for the same column, the settings are wrong: the rows stay and the
/// destination pauses.
pub(super) fn spare_rows_of_wrong_settings(deliveries: &mut [Delivery]) {
    let Some(Delivery::Reject { problem }) = deliveries.first() else { return };
    let problem = problem.clone();
    let is_column = MAPPING_CODES.iter().any(|code| same_code(code, &problem.code));
    let same = |delivery: &Delivery| *delivery == Delivery::Reject { problem: problem.clone() };
    if deliveries.len() > 1 && is_column && deliveries.iter().all(same) {
        let outage = delivery(Settings, problem, Some(OPERATOR_PAUSE));
        deliveries.fill(outage);
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SalesforceFailure {
    pub(super) class: Class,
    pub(super) problem: Problem,
    pub(super) after: Option<Duration>,
    /// The HTTP status, if there was a response.
    pub(super) status: Option<u16>,
}

impl SalesforceFailure {
    pub(super) fn new(class: Class, code: &str, message: &str) -> Self {
        let after = matches!(class, Auth | Settings).then_some(OPERATOR_PAUSE);
        Self { class, problem: problem(code, message), after, status: None }
    }

    /// Returns the delivery for each message of the call.
    pub(super) fn delivery(&self) -> Delivery {
        let (problem, after) = (self.problem.clone(), self.after);
        match (self.class, self.status) {
            (Down, None) => Delivery::Outage { problem, after },
            (class, _) => delivery(class, problem, after),
        }
    }

    /// Returns the problem for a call about a bulk job. It uses no attempt of a row.
    pub(super) fn call_problem(self) -> CallProblem {
        let Self { class, problem, after, .. } = self;
        match class {
            Auth | Settings | Permanent => CallProblem::Refused(problem),
            Class::Unknown => CallProblem::Unclear(problem),
            Quota | Down | Transient | Dependency | Untried => {
                CallProblem::Outage { problem, after }
            }
        }
    }
}

fn delivery(class: Class, problem: Problem, after: Option<Duration>) -> Delivery {
    match class {
        Transient | Dependency | Class::Unknown => Delivery::Retry { problem, after },
        Permanent => Delivery::Reject { problem },
        Down => Delivery::Busy { problem, after },
        Quota => Delivery::Outage { problem, after },
        // No row can succeed until an operator acts.
        Auth | Settings => {
            Delivery::Misconfigured { problem, after: after.or(Some(OPERATOR_PAUSE)) }
        }
        Untried => Delivery::Held,
    }
}

pub(super) fn problem(code: &str, message: &str) -> Problem {
    Problem::new(&harmless(code), &harmless(message))
}

/// Compares without underscores and case.
pub(super) fn same_code(a: &str, b: &str) -> bool {
    fn plain(code: &str) -> impl Iterator<Item = u8> {
        code.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_uppercase())
    }
    plain(a).eq(plain(b))
}

/// Returns whether `text` is in `message`, ignoring case.
fn contains(message: &str, text: &str) -> bool {
    message.contains(text) || message.to_ascii_lowercase().contains(&text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
