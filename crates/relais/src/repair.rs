//! Rows that could not be decoded (`SERDE_ERROR`), read again after a fix.
//!
//! Invariant: one row at a time is in memory, and each is written in a transaction of its own. So a
//! repair that stops half-way has done whole rows, and can be run again.

use std::ops::ControlFlow;

pub use relais_core::{
    decode::Decoder,
    extract::{Mapping, Pick},
    query::SerdeErrors,
    repair::{Declared, Identity, Mode},
};
use relais_core::{
    delivery::Problem,
    inbox::{InboxRow, InboxStatus},
    query::PAGE_MAX,
    repair::{Repair, Repaired, Rewritten, declared, original, readable_by, reread},
    store::{Store, StoreError},
};
use serde::Serialize;

/// What was fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// The settings: a row is read as its source is declared now.
    Declared,
    /// The bytes are read with this decoder, whatever the source declares.
    Decoder(Decoder),
    /// A person wrote this JSON in place of the bytes.
    Payload(Vec<u8>),
}

/// How rows are repaired, by whom and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub fix: Fix,
    pub identity: Identity,
    pub mode: Mode,
    /// For the audit.
    pub actor: String,
    /// For the audit, which adds what was fixed.
    pub reason: String,
}

impl Plan {
    /// Reads as the sources are declared now, and writes.
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

/// What became of one row, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The row's `id`, which never changes.
    pub row: i64,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// See [`Report`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Outcome {
    /// It is `RECEIVED` and goes on like any other.
    Repaired {
        message_id: String,
        /// Where that id comes from.
        identity: Identity,
        key: String,
        event_type: Option<String>,
    },
    /// Its message is another row's: it is `PROCESSED` and will not be handled.
    Duplicate { message_id: String, of: i64 },
    /// Another row has the id with other content: nothing was changed.
    Conflict { message_id: String, with: i64 },
    /// It still cannot be read, and by which decoders it could.
    Unreadable { problem: Problem, readable_by: Vec<&'static str> },
    /// It is not `SERDE_ERROR`, or is gone: nothing was changed.
    Refused { status: Option<InboxStatus> },
}

/// How many rows came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub repaired: u64,
    pub duplicates: u64,
    pub conflicts: u64,
    pub unreadable: u64,
    pub refused: u64,
}

impl Summary {
    pub fn add(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Repaired { .. } => &mut self.repaired,
            Outcome::Duplicate { .. } => &mut self.duplicates,
            Outcome::Conflict { .. } => &mut self.conflicts,
            Outcome::Unreadable { .. } => &mut self.unreadable,
            Outcome::Refused { .. } => &mut self.refused,
        } += 1;
    }

    pub fn rows(self) -> u64 {
        self.repaired + self.duplicates + self.conflicts + self.unreadable + self.refused
    }
}

/// Repairs one row.
pub async fn row(
    store: &dyn Store,
    sources: &[Declared],
    row: &InboxRow,
    plan: &Plan,
) -> Result<Report, StoreError> {
    let report = |outcome| Report { row: row.id, outcome };
    if row.status != InboxStatus::SerdeError {
        return Ok(report(Outcome::Refused { status: Some(row.status) }));
    }
    let (rewritten, how) = match read(sources, row, plan) {
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
    Ok(report(match store.repair(row.id, repair, plan.mode).await {
        Ok(Repaired::Received) => Outcome::Repaired { message_id, identity, key, event_type },
        Ok(Repaired::Duplicate { of }) => Outcome::Duplicate { message_id, of },
        Ok(Repaired::Conflict { with }) => Outcome::Conflict { message_id, with },
        Ok(Repaired::Refused { status }) => Outcome::Refused { status },
        // This row cannot be stored as it is now read; others may.
        Err(StoreError::Invalid(message)) => Outcome::Unreadable {
            problem: Problem::new("REFUSED_BY_STORE", &message),
            readable_by: Vec::new(),
        },
        Err(error) => return Err(error),
    }))
}

/// Repairs the `SERDE_ERROR` rows that match, oldest first, at most `rows_max` of them, and hands
/// each report to `each`, which may say stop. A row that cannot be repaired stops nothing.
pub async fn all(
    store: &dyn Store,
    sources: &[Declared],
    mut wanted: SerdeErrors,
    plan: &Plan,
    rows_max: usize,
    mut each: impl FnMut(Report) -> ControlFlow<()>,
) -> Result<Summary, StoreError> {
    let mut summary = Summary::default();
    let mut left = rows_max;
    while left > 0 {
        wanted.limit = left.min(PAGE_MAX);
        let page = store.serde_errors(wanted.clone()).await?;
        let Some(last) = page.last() else { break };
        wanted.after = *last;
        left -= page.len();
        for id in page {
            let found = store.find_inbox(id.to_string()).await?;
            let report = match found.filter(|found| found.id == id) {
                Some(found) => row(store, sources, &found, plan).await?,
                None => Report { row: id, outcome: Outcome::Refused { status: None } },
            };
            relais_store::fail_point!("repair.after_row");
            summary.add(&report.outcome);
            if each(report).is_break() {
                return Ok(summary);
            }
        }
    }
    Ok(summary)
}

/// The row read anew and, for the audit, by what; or why it cannot be.
fn read(sources: &[Declared], row: &InboxRow, plan: &Plan) -> Result<(Rewritten, String), Outcome> {
    let hopeless = |problem| Outcome::Unreadable { problem, readable_by: Vec::new() };
    let declared = declared(sources, row).map_err(hopeless)?;
    let (decoder, how) = match &plan.fix {
        Fix::Declared => (declared.decoder, format!("decoder {}", declared.decoder.as_str())),
        Fix::Decoder(decoder) => (*decoder, format!("decoder {}", decoder.as_str())),
        Fix::Payload(_) => (Decoder::Json, "payload written by hand".to_owned()),
    };
    let mapping = declared.clone().decoder(decoder);
    if let Fix::Payload(payload) = &plan.fix {
        let new = reread(&mapping, row, payload, plan.identity).map_err(hopeless)?;
        return Ok((new, how));
    }
    let bytes = original(row).map_err(hopeless)?;
    let new = reread(&mapping, row, &bytes, plan.identity).map_err(|problem| {
        let readable_by = readable_by(&bytes).into_iter().map(Decoder::as_str).collect();
        Outcome::Unreadable { problem, readable_by }
    })?;
    Ok((new, how))
}
