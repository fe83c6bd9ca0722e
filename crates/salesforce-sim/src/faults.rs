//! Faults, and the settings of the org that tests change.
//!
//! [`Faults`] is replaced as a whole and read back unchanged. The counts of past faults are kept
//! separately and reset with each replacement.

mod pattern;
mod settings;
mod state;

pub use pattern::Pattern;
use serde::{Deserialize, Serialize};
pub use settings::{
    BulkJobSettings, CollectionSettings, EarlyResults, EmptyResults, IdOnUpsert, LimitSettings,
    ResultSettings, SecondPut, UnknownField,
};
pub(crate) use state::{FaultState, locked_row};

/// All faults and settings. The default is an org without faults.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// The seed of random choices; the same seed gives the same faults for the same calls.
    pub seed: u64,
    /// Calls that fail: the first matching fault applies.
    pub http: Vec<HttpFault>,
    /// Rows that are refused: the first matching fault applies.
    pub rows: Vec<RowFault>,
    /// Parents that are locked temporarily.
    pub locks: Vec<LockFault>,
    /// Bulk jobs that fail: the first matching fault applies.
    pub jobs: Vec<JobFault>,
    pub bulk: BulkJobSettings,
    pub results: ResultSettings,
    pub collections: CollectionSettings,
    pub limits: LimitSettings,
    /// Compresses responses for clients that accept it.
    pub gzip: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            seed: 0,
            http: Vec::new(),
            rows: Vec::new(),
            locks: Vec::new(),
            jobs: Vec::new(),
            bulk: BulkJobSettings::default(),
            results: ResultSettings::default(),
            collections: CollectionSettings::default(),
            limits: LimitSettings::default(),
            gzip: true,
        }
    }
}

/// A fault of calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpFault {
    /// `POST`, `PUT`, …; absent: every method.
    pub method: Option<String>,
    /// Matched anywhere in the path, without the query.
    pub path: Pattern,
    /// This many matching calls succeed first.
    pub skip: u64,
    /// This many calls are affected then; absent: all.
    pub times: Option<u64>,
    /// The share of matching calls that is affected, 0 to 1; absent: all.
    pub chance: Option<f64>,
    pub action: HttpAction,
    /// Delay before anything else.
    pub delay_ms: u64,
    /// For `error`, `html` and `oauth_error`; each has its own default.
    pub status: Option<u16>,
    pub code: Option<String>,
    pub message: Option<String>,
    /// A `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    /// For `truncate` and `break`: the bytes of the body that arrive. For `slow`: bytes per second.
    pub bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpAction {
    /// Only the delay.
    #[default]
    None,
    /// The connection ends before the call is executed.
    DropBefore,
    /// The call is executed, but the connection ends without a response.
    DropAfter,
    /// The token of the call expires: 401 `INVALID_SESSION_ID`.
    SessionExpired,
    /// 403 `REQUEST_LIMIT_EXCEEDED`, the daily limit.
    TotalLimit,
    /// 403 `REQUEST_LIMIT_EXCEEDED`, too many long calls at once.
    ConcurrentLimit,
    /// 503 `SERVER_UNAVAILABLE`.
    Unavailable,
    /// 429, as from a proxy.
    Throttled,
    /// 500 `UNKNOWN_EXCEPTION`, before the call is executed.
    ServerError,
    /// An HTML page instead of a response, with status 503 or the given one.
    Html,
    /// The token endpoint refuses: 400 `invalid_grant`, or the given code.
    OauthError,
    /// Any status, code and message.
    Error,
    /// The response arrives a few bytes at a time.
    Slow,
    /// The response is truncated without any sign of it.
    Truncate,
    /// The connection ends in the middle of the response.
    Break,
}

/// A fault of rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RowFault {
    pub object: Option<String>,
    /// Matched in the external id, or in the id if there is none.
    pub key: Pattern,
    /// This many attempts of each key are refused; absent: all.
    pub times: Option<u64>,
    /// The share of attempts that is refused, 0 to 1; absent: all.
    pub chance: Option<f64>,
    pub code: String,
    pub message: String,
    pub fields: Vec<String>,
}

/// A lock on the parent of rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LockFault {
    pub object: Option<String>,
    /// The field of the parent, e.g. `AccountId`; any field is possible.
    pub parent: String,
    /// This many transactions that touch a parent find it locked.
    pub attempts: u64,
}

/// A fault of bulk jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFault {
    pub object: Option<String>,
    /// This many jobs succeed first.
    pub skip: u64,
    /// This many jobs are affected then; absent: all.
    pub times: Option<u64>,
    /// The job fails after this many rows were tried; committed rows stay.
    pub fail_after_rows: Option<u64>,
    /// A row with a matching value fails the whole job before any row is tried.
    pub poison: Option<Pattern>,
    /// The `errorMessage` of a job that fails.
    pub message: Option<String>,
    /// The job stays `InProgress` until this fault is removed.
    pub stuck: bool,
    /// Rows with matching keys are in none of the three results.
    pub missing: Option<Pattern>,
    /// The missing rows are written nevertheless.
    pub missing_applied: bool,
    /// This many times each batch times out and is tried again.
    pub timeouts: u32,
}
