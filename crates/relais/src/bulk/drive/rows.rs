//! The rows of a job, read page by page.
//!
//! Invariant: at most one page of payloads is in memory at a time, beside the upload, whose bytes the
//! target limits.

use relais_core::{
    bulk::{CallProblem, EncodedRows},
    delivery::Problem,
    fault::Fault,
    outbox::OutboxRow,
    store::Payloads,
};

use super::JobDriver;
use crate::bulk::{call::CallAnswer, halt::Halt};

/// Maximum rows of one page, and maximum bytes of their payloads.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 8 * 1024 * 1024;

impl JobDriver {
    /// Encodes the upload of all remaining rows with fresh data, page by page; `None` if that is not possible
    /// now. Settles rows that cannot be part of it.
    pub(super) async fn encode(&mut self) -> Result<Option<Vec<Vec<u8>>>, Halt> {
        let (mut parts, mut bytes, mut after) = (Vec::new(), 0, 0);
        loop {
            let rows = self.page(after, Payloads::UpTo(PAGE_BYTES)).await?;
            let Some(last) = rows.last() else { break };
            after = last.id;
            crate::fail_point!("bulk.before_encode");
            let encoded = match self.encode_page(&rows, bytes).await? {
                Ok(encoded) => encoded,
                Err(CallProblem::Refused(_)) => return self.abandon().await.map(|_| None),
                Err(CallProblem::Unclear(problem)) => {
                    // A panic or a time-out: one of the rows may be the reason.
                    let (ids, _) = self.names().await?;
                    self.failed_whole(&ids, &problem).await?;
                    self.end_early().await?;
                    return Ok(None);
                }
                Err(_) => return Ok(None),
            };
            let left_out = encoded.left_out.into_iter().filter_map(|(id, delivery)| {
                let at = rows.binary_search_by_key(&id, |row| row.id).ok()?;
                Some((&rows[at], delivery))
            });
            self.settle(Fault::Message, left_out).await?;
            if encoded.count > 0 {
                bytes += encoded.body.len();
                parts.push(encoded.body);
            }
        }
        if parts.is_empty() {
            self.end_early().await?;
            return Ok(None);
        }
        Ok(Some(parts))
    }

    async fn encode_page(
        &self,
        rows: &[OutboxRow],
        bytes_before: usize,
    ) -> CallAnswer<EncodedRows> {
        let limit = self.settings.transfer_timeout;
        let call = self.caller.prepare(limit, |target| {
            Box::pin(async move {
                let encoded = target.encode(rows, bytes_before).await?;
                let all = encoded.count as usize + encoded.left_out.len() == rows.len();
                if all { Ok(encoded) } else { Err(answers_missing()) }
            })
        });
        call.await
    }

    /// Returns the next remaining rows, by id.
    pub(super) async fn page(
        &self,
        after: i64,
        payloads: Payloads,
    ) -> Result<Vec<OutboxRow>, Halt> {
        let job = self.job.id;
        self.persist(move |store| store.bulk_rows(job, after, PAGE, payloads)).await
    }

    /// Returns the ids of all remaining rows, in order, and their external ids.
    pub(super) async fn names(&self) -> Result<(Vec<i64>, Vec<String>), Halt> {
        let (mut ids, mut external_ids) = (Vec::new(), Vec::new());
        loop {
            let after = ids.last().copied().unwrap_or(0);
            let page = self.page(after, Payloads::Omitted).await?;
            if page.is_empty() {
                return Ok((ids, external_ids));
            }
            for row in page {
                ids.push(row.id);
                external_ids.push(row.aggregate_id);
            }
        }
    }
}

pub(super) fn answers_missing() -> CallProblem {
    CallProblem::Unclear(Problem::new("TARGET_FAULT", "answers are missing"))
}
