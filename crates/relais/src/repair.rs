//! Reprocesses undecodable rows (`SERDE_ERROR`) after a fix.
//!
//! Invariant: one row at a time is in memory, and each is written in a transaction of its own. So a
//! repair that stops half-way has changed whole rows, and can be run again.

use std::ops::ControlFlow;

pub use relais_core::{
    decode::Decoder,
    extract::{Mapping, Pick},
    query::SerdeErrors,
    repair::{DeclaredSource, Identity, Mode},
};
use relais_core::{
    delivery::Problem,
    inbox::{InboxRow, InboxStatus},
    inspect::InspectExt,
    query::PAGE_MAX,
    repair::{Repair, ReprocessOutcome, RewrittenRow, declared, original, readable_by, reread},
    store::{StoreDriver, StoreError},
};
use serde::Serialize;

/// The fix of undecodable rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// The configuration: a row is decoded as its source is declared now.
    Declared,
    /// The bytes are decoded with this decoder, whatever the source declares.
    Decoder(Decoder),
    /// An operator wrote this JSON in place of the bytes.
    Payload(Vec<u8>),
}

/// The plan of a repair: the fix, the actor and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPlan {
    /// The change before decoding.
    pub fix: Fix,
    /// The source of the message id.
    pub identity: Identity,
    /// Write, or only try.
    pub mode: Mode,
    /// For the audit log.
    pub actor: String,
    /// For the audit log, which adds the fix.
    pub reason: String,
}

impl RepairPlan {
    /// Returns a plan that decodes as the sources are declared now, and writes.
    pub fn new(actor: &str, reason: &str) -> Self {
        Self {
            fix: Fix::Declared,
            identity: Identity::Promised,
            mode: Mode::Write,
            actor: actor.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The outcome of one row, or the outcome that it would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// The row's `id`, which never changes.
    pub row: i64,
    /// The result.
    #[serde(flatten)]
    pub outcome: RepairOutcome,
}

/// See [`RepairReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum RepairOutcome {
    /// It is `RECEIVED` and handled like any other.
    Repaired {
        /// The message id.
        message_id: String,
        /// The origin of that id.
        identity: Identity,
        /// The ordering key.
        key: String,
        /// The event type.
        event_type: Option<String>,
    },
    /// Another row has the same message: this one is `PROCESSED` and will not be handled.
    Duplicate {
        /// The message id.
        message_id: String,
        /// The id of the row with the same message id.
        of: i64,
    },
    /// Another row has the id with different content: nothing was changed.
    Conflict {
        /// The message id.
        message_id: String,
        /// The id of the row with the same message id.
        with: i64,
    },
    /// It still cannot be decoded; `readable_by` names decoders that could.
    Unreadable {
        /// The problem.
        problem: Problem,
        /// Decoders that accept the bytes.
        readable_by: Vec<&'static str>,
    },
    /// It is not `SERDE_ERROR`, or does not exist any more: nothing was changed.
    Refused {
        /// The status of the row now; none if it was deleted.
        status: Option<InboxStatus>,
    },
}

/// The number of rows by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairSummary {
    /// Rows that are decoded now.
    pub repaired: u64,
    /// Recognised duplicates.
    pub duplicates: u64,
    /// Messages with a known id and other content.
    pub conflicts: u64,
    /// Rows that are still undecodable.
    pub unreadable: u64,
    /// Rows that changed meanwhile.
    pub refused: u64,
}

impl RepairSummary {
    /// Counts the result of one row.
    pub fn add(&mut self, outcome: &RepairOutcome) {
        *match outcome {
            RepairOutcome::Repaired { .. } => &mut self.repaired,
            RepairOutcome::Duplicate { .. } => &mut self.duplicates,
            RepairOutcome::Conflict { .. } => &mut self.conflicts,
            RepairOutcome::Unreadable { .. } => &mut self.unreadable,
            RepairOutcome::Refused { .. } => &mut self.refused,
        } += 1;
    }

    /// Returns the number of rows.
    pub fn rows(self) -> u64 {
        self.repaired + self.duplicates + self.conflicts + self.unreadable + self.refused
    }
}

/// Repairs one row.
pub async fn row(
    store: &dyn StoreDriver,
    sources: &[DeclaredSource],
    row: &InboxRow,
    plan: &RepairPlan,
) -> Result<RepairReport, StoreError> {
    let report = |outcome| RepairReport { row: row.id, outcome };
    if row.status != InboxStatus::SerdeError {
        return Ok(report(RepairOutcome::Refused { status: Some(row.status) }));
    }
    let (rewritten, how) = match read(sources, row, plan).await {
        Ok(read) => read,
        Err(unreadable) => return Ok(report(unreadable)),
    };
    let (message_id, identity) = (rewritten.message_id.clone(), rewritten.identity);
    let (key, event_type) = (rewritten.msg_key.clone(), rewritten.event_type.clone());
    let reason = match plan.reason.as_str() {
        "" => how,
        reason => format!("{reason} ({how})"),
    };
    let repair = Repair { rewritten, actor: plan.actor.clone(), reason };
    Ok(report(match store.reprocess(row.id, repair, plan.mode).await {
        Ok(ReprocessOutcome::Received) => {
            RepairOutcome::Repaired { message_id, identity, key, event_type }
        }
        Ok(ReprocessOutcome::Duplicate { of }) => RepairOutcome::Duplicate { message_id, of },
        Ok(ReprocessOutcome::Conflict { with }) => RepairOutcome::Conflict { message_id, with },
        Ok(ReprocessOutcome::Refused { status }) => RepairOutcome::Refused { status },
        // This row cannot be stored as it is decoded now; others may.
        Err(StoreError::Invalid(message)) => RepairOutcome::Unreadable {
            problem: Problem::new("REFUSED_BY_STORE", &message),
            readable_by: Vec::new(),
        },
        Err(error) => return Err(error),
    }))
}

/// Repairs the `SERDE_ERROR` rows that match, oldest first, at most `rows_max` of them. Passes each report
/// to `each`, which may stop the repair. A row that cannot be repaired does not stop it.
pub async fn all(
    store: &dyn StoreDriver,
    sources: &[DeclaredSource],
    mut wanted: SerdeErrors,
    plan: &RepairPlan,
    rows_max: usize,
    mut each: impl FnMut(RepairReport) -> ControlFlow<()>,
) -> Result<RepairSummary, StoreError> {
    let mut summary = RepairSummary::default();
    let mut left = rows_max;
    while left > 0 {
        wanted.limit = left.min(PAGE_MAX);
        let page = store.undecodable_rows(wanted.clone()).await?;
        let Some(last) = page.last() else { break };
        wanted.after = *last;
        left -= page.len();
        for id in page {
            let found = store.find_inbox(id.to_string()).await?;
            let report = match found.filter(|found| found.id == id) {
                Some(found) => row(store, sources, &found, plan).await?,
                None => RepairReport { row: id, outcome: RepairOutcome::Refused { status: None } },
            };
            crate::fail_point!("repair.after_row");
            summary.add(&report.outcome);
            if each(report).is_break() {
                return Ok(summary);
            }
        }
    }
    Ok(summary)
}

/// Returns the row as it is decoded now and, for the audit log, by what; or why it cannot be decoded.
async fn read(
    sources: &[DeclaredSource],
    row: &InboxRow,
    plan: &RepairPlan,
) -> Result<(RewrittenRow, String), RepairOutcome> {
    let hopeless = |problem| RepairOutcome::Unreadable { problem, readable_by: Vec::new() };
    let source = declared(sources, row).map_err(hopeless)?;
    let (decoder, how) = match &plan.fix {
        Fix::Declared => {
            (source.mapping.decoder, format!("decoder {}", source.mapping.decoder.as_str()))
        }
        Fix::Decoder(decoder) => (*decoder, format!("decoder {}", decoder.as_str())),
        Fix::Payload(_) => (Decoder::Json, "payload written by hand".to_owned()),
    };
    let decoded = if let Fix::Payload(payload) = &plan.fix {
        decoder.decode(payload).map_err(hopeless)?
    } else {
        let bytes = original(row).map_err(hopeless)?;
        source.decode(decoder, &bytes).await.map_err(|problem| {
            let readable_by = readable_by(&bytes).into_iter().map(Decoder::as_str).collect();
            RepairOutcome::Unreadable { problem, readable_by }
        })?
    };
    Ok((reread(&source.mapping, row, decoded, plan.identity), how))
}
