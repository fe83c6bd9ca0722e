//! What goes wrong, and the settings of the org that tests want to change.
//!
//! [`Faults`] is the whole of it: put at once, read back as it was put. How often a fault has
//! already happened is kept apart and starts again with each put.

mod pattern;
mod settings;
mod state;

pub use pattern::Pattern;
use serde::{Deserialize, Serialize};
pub use settings::{
    BulkSettings, CollectionSettings, EarlyResults, EmptyResults, IdOnUpsert, LimitSettings,
    ResultSettings, SecondPut, UnknownField,
};
pub(crate) use state::{FaultState, locked_row};

/// All faults and settings. The default is an org in good health.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Where the chances start; the same seed gives the same faults for the same calls.
    pub seed: u64,
    /// Calls that fail, in order: the first that fits a call acts.
    pub http: Vec<HttpFault>,
    /// Rows that are refused, in order.
    pub rows: Vec<RowFault>,
    /// Parents that are locked for a while.
    pub locks: Vec<LockFault>,
    /// Bulk jobs that go wrong, in order.
    pub jobs: Vec<JobFault>,
    pub bulk: BulkSettings,
    pub results: ResultSettings,
    pub collections: CollectionSettings,
    pub limits: LimitSettings,
    /// Whether answers are packed for clients that accept it.
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
            bulk: BulkSettings::default(),
            results: ResultSettings::default(),
            collections: CollectionSettings::default(),
            limits: LimitSettings::default(),
            gzip: true,
        }
    }
}

/// What happens to calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpFault {
    /// `POST`, `PUT`, …; absent: every method.
    pub method: Option<String>,
    /// Found anywhere in the path, which has no query.
    pub path: Pattern,
    /// So many fitting calls pass first.
    pub skip: u64,
    /// So many calls are hit then; absent: all.
    pub times: Option<u64>,
    /// The share of fitting calls that is hit, 0 to 1; absent: all.
    pub chance: Option<f64>,
    pub action: HttpAction,
    /// Waits before anything else happens.
    pub delay_ms: u64,
    /// For `error`, `html` and `oauth_error`; each has its own default.
    pub status: Option<u16>,
    pub code: Option<String>,
    pub message: Option<String>,
    /// A `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    /// For `truncate` and `break`: the bytes of the body that arrive. For `slow`: bytes a second.
    pub bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpAction {
    /// Only the delay.
    #[default]
    None,
    /// The connection ends before anything is done.
    DropBefore,
    /// Everything is done, but the connection ends without an answer.
    DropAfter,
    /// The token of the call ends: 401 `INVALID_SESSION_ID`.
    SessionExpired,
    /// 403 `REQUEST_LIMIT_EXCEEDED`, the quota of the day.
    TotalLimit,
    /// 403 `REQUEST_LIMIT_EXCEEDED`, too many long calls at once.
    ConcurrentLimit,
    /// 503 `SERVER_UNAVAILABLE`.
    Unavailable,
    /// 429, as a proxy in between would answer.
    Throttled,
    /// 500 `UNKNOWN_EXCEPTION`, before anything is done.
    ServerError,
    /// A page in HTML instead of an answer, with status 503 or the one given.
    Html,
    /// The token endpoint refuses: 400 `invalid_grant`, or the code given.
    OauthError,
    /// Any status, code and message.
    Error,
    /// The answer comes a few bytes at a time.
    Slow,
    /// The answer is shorter than it should be, without any sign of it.
    Truncate,
    /// The connection ends in the middle of the answer.
    Break,
}

/// Rows that are refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RowFault {
    pub object: Option<String>,
    /// Found in the external id, or in the id where there is none.
    pub key: Pattern,
    /// So many attempts of each key are refused; absent: all.
    pub times: Option<u64>,
    /// The share of attempts that is refused, 0 to 1; absent: all.
    pub chance: Option<f64>,
    pub code: String,
    pub message: String,
    pub fields: Vec<String>,
}

/// Rows with the same parent get in each other's way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LockFault {
    pub object: Option<String>,
    /// The field with the parent, e.g. `AccountId`; any field will do.
    pub parent: String,
    /// So many transactions that touch a parent find it locked.
    pub attempts: u64,
}

/// A bulk job that goes wrong.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFault {
    pub object: Option<String>,
    /// So many jobs pass first.
    pub skip: u64,
    /// So many jobs are hit then; absent: all.
    pub times: Option<u64>,
    /// The job fails when so many rows were tried; what was committed stays.
    pub fail_after_rows: Option<u64>,
    /// A row with a value like this fails the whole job before any row is tried.
    pub poison: Option<Pattern>,
    /// The `errorMessage` of a job that fails.
    pub message: Option<String>,
    /// The job stays `InProgress` until this fault is taken away.
    pub stuck: bool,
    /// Rows with such keys are in none of the three results.
    pub missing: Option<Pattern>,
    /// Whether the missing rows are written.
    pub missing_applied: bool,
    /// So often each batch runs out of time and is tried again.
    pub timeouts: u32,
}
