//! The reads of operators, with a method for each table.

use uuid::Uuid;

use super::{
    AuditEntry, AuditFilter, Inspect, MessageRow, MessageTable, PageQuery, PageRows, PayloadPart,
    RowPage,
};
use crate::{
    async_trait,
    bulk::BulkJob,
    dead_letter::DeadLetter,
    inbox::InboxRow,
    outbox::OutboxRow,
    process::{LogEntry, Process, ProcessFilter},
    query::{Filter, ParkedKey},
    store::{StoreError, StoreResult},
};

/// Typed calls of [`Inspect::page`] and [`Inspect::get`]; written once for all drivers.
#[async_trait]
pub trait InspectExt: Inspect {
    /// Lists inbox rows with whole payloads.
    async fn list_inbox(&self, filter: Filter) -> StoreResult<Vec<InboxRow>> {
        Ok(rows(self.inbox_page(filter, PayloadPart::Whole).await?))
    }

    /// Lists outbox rows with whole payloads.
    async fn list_outbox(&self, filter: Filter) -> StoreResult<Vec<OutboxRow>> {
        Ok(rows(self.outbox_page(filter, PayloadPart::Whole).await?))
    }

    /// Lists dead letters with whole payloads.
    async fn list_dead_letters(&self, filter: Filter) -> StoreResult<Vec<DeadLetter>> {
        Ok(rows(self.dead_letter_page(filter, PayloadPart::Whole).await?))
    }

    /// Reads one page of inbox rows.
    async fn inbox_page(
        &self,
        filter: Filter,
        part: PayloadPart,
    ) -> StoreResult<RowPage<InboxRow>> {
        match self.page(PageQuery::Inbox(filter, part)).await? {
            PageRows::Inbox(page) => Ok(page),
            _ => Err(other_table()),
        }
    }

    /// Reads one page of outbox rows.
    async fn outbox_page(
        &self,
        filter: Filter,
        part: PayloadPart,
    ) -> StoreResult<RowPage<OutboxRow>> {
        match self.page(PageQuery::Outbox(filter, part)).await? {
            PageRows::Outbox(page) => Ok(page),
            _ => Err(other_table()),
        }
    }

    /// Reads one page of dead letters.
    async fn dead_letter_page(
        &self,
        filter: Filter,
        part: PayloadPart,
    ) -> StoreResult<RowPage<DeadLetter>> {
        match self.page(PageQuery::DeadLetters(filter, part)).await? {
            PageRows::DeadLetters(page) => Ok(page),
            _ => Err(other_table()),
        }
    }

    /// Lists processes, newest first.
    async fn list_processes(&self, filter: ProcessFilter) -> StoreResult<Vec<Process>> {
        match self.page(PageQuery::Processes(filter)).await? {
            PageRows::Processes(rows) => Ok(rows),
            _ => Err(other_table()),
        }
    }

    /// Lists the log of one process, newest first; `before` is a sequence number: the next page.
    async fn process_log(
        &self,
        process_id: Uuid,
        before: Option<i64>,
        limit: usize,
    ) -> StoreResult<Vec<LogEntry>> {
        match self.page(PageQuery::ProcessLog { process_id, before, limit }).await? {
            PageRows::ProcessLog(rows) => Ok(rows),
            _ => Err(other_table()),
        }
    }

    /// Lists entries of the audit log, newest first.
    async fn list_audit(&self, filter: AuditFilter) -> StoreResult<Vec<AuditEntry>> {
        match self.page(PageQuery::Audit(filter)).await? {
            PageRows::Audit(rows) => Ok(rows),
            _ => Err(other_table()),
        }
    }

    /// Lists bulk jobs, newest first; open ones before all others.
    async fn list_bulk(
        &self,
        destination: Option<String>,
        limit: usize,
    ) -> StoreResult<Vec<BulkJob>> {
        match self.page(PageQuery::BulkJobs { destination, limit }).await? {
            PageRows::BulkJobs(rows) => Ok(rows),
            _ => Err(other_table()),
        }
    }

    /// Lists parked keys, those parked longest first, with the rows that wait behind them.
    async fn parked_keys(&self, limit: usize) -> StoreResult<Vec<ParkedKey>> {
        match self.page(PageQuery::ParkedKeys { limit }).await? {
            PageRows::ParkedKeys(keys) => Ok(keys),
            _ => Err(other_table()),
        }
    }

    /// Returns one inbox row by its id, else the newest row of the message id.
    async fn find_inbox(&self, id: String) -> StoreResult<Option<InboxRow>> {
        match self.get(MessageTable::Inbox, id).await? {
            Some(MessageRow::Inbox(row)) => Ok(Some(row)),
            None => Ok(None),
            Some(_) => Err(other_table()),
        }
    }

    /// Returns one outbox row by its id, else the oldest row of the message id: [`Trail::sent`] has all.
    async fn find_outbox(&self, id: String) -> StoreResult<Option<OutboxRow>> {
        match self.get(MessageTable::Outbox, id).await? {
            Some(MessageRow::Outbox(row)) => Ok(Some(row)),
            None => Ok(None),
            Some(_) => Err(other_table()),
        }
    }

    /// Returns one dead letter by its id.
    async fn find_dead_letter(&self, id: Uuid) -> StoreResult<Option<DeadLetter>> {
        match self.get(MessageTable::DeadLetters, id.to_string()).await? {
            Some(MessageRow::DeadLetter(row)) => Ok(Some(row)),
            None => Ok(None),
            Some(_) => Err(other_table()),
        }
    }
}

impl<S: Inspect + ?Sized> InspectExt for S {}

fn rows<T>(page: RowPage<T>) -> Vec<T> {
    page.rows.into_iter().map(|listed| listed.row).collect()
}

/// A fault of the driver.
fn other_table() -> StoreError {
    StoreError::invalid("the driver returned rows of another table than the query names")
}
