//! Collects the events of one thing: its creation, attempts, decisions of operators, and its end.

use relais_core::{
    dead_letter::{CODE_OPERATOR_FAILED, DeadLetter, Origin, STATUS_CONFLICT},
    inbox::InboxRow,
    inspect::{Attempt, AuditEntry, AuditFilter, InspectExt},
    outbox::OutboxRow,
    query::PAGE_MAX,
    store::StoreError,
    time::Timestamp,
};

use super::Walk;
use crate::explain::{ThingName, ThingRole, events};

impl Walk<'_> {
    pub(super) async fn add_inbox(
        &mut self,
        name: &ThingName,
        row: &InboxRow,
        role: ThingRole,
    ) -> Result<(), StoreError> {
        let mut own = events::of_inbox(row).into_iter();
        self.events.extend(own.next());
        if row.raw_payload_base64.is_some() {
            for line in self.audit(&row.id.to_string()).await? {
                if line.action.starts_with("inbox.") {
                    self.events.push(events::of_audit(name, None, line));
                }
            }
        }
        self.add_attempts(name, &row.message_id, (Origin::Inbox, row.id)).await?;
        if role == ThingRole::Cause {
            for entry in self.store.trail(row.message_id.clone()).await?.process_log {
                self.add_entry(&entry).await?;
            }
        }
        self.events.extend(own);
        Ok(())
    }

    pub(super) async fn add_outbox(
        &mut self,
        name: &ThingName,
        row: &OutboxRow,
        role: ThingRole,
    ) -> Result<(), StoreError> {
        let mut own = events::of_outbox(row).into_iter();
        self.events.extend(own.next());
        self.add_attempts(name, &row.message_id.to_string(), (Origin::Outbox, row.id)).await?;
        if let Some(job) = &row.job_id {
            self.add_job(&row.destination, job, role).await?;
        }
        self.events.extend(own);
        Ok(())
    }

    /// Adds the attempts of a row, and its dead letters.
    async fn add_attempts(
        &mut self,
        name: &ThingName,
        message_id: &str,
        (origin, id): (Origin, i64),
    ) -> Result<(), StoreError> {
        let trail = self.store.trail(message_id.to_owned()).await?;
        let mut attempts = trail.attempts_of(origin, id);
        // An operator's action is no attempt; the audit log has it.
        let by_operator =
            |attempt: &Attempt| attempt.error_code.as_deref() == Some(CODE_OPERATOR_FAILED);
        attempts.retain(|attempt| !by_operator(attempt));
        if origin == Origin::Outbox {
            for line in self.audit(&id.to_string()).await? {
                if line.action.starts_with("outbox.") {
                    self.events.push(events::of_audit(name, None, line));
                }
            }
        }
        let failed = attempts.iter().filter(|attempt| attempt.outcome == "failed");
        let failed: Vec<Timestamp> = failed.map(|attempt| attempt.at).collect();
        self.events.extend(attempts.into_iter().map(|attempt| events::of_attempt(name, attempt)));
        let own = trail
            .dead_letters
            .into_iter()
            .filter(|l| (l.origin, l.origin_id) == (origin, Some(id)));
        let mut own: Vec<DeadLetter> = own.collect();
        // Attempt and dead letter are of one commit, which may have written the dead letter first.
        let deaths = own.iter_mut().filter(|letter| letter.failed_status != STATUS_CONFLICT);
        for (letter, failed_at) in deaths.rev().zip(failed.into_iter().rev()) {
            letter.parked_at = letter.parked_at.max(failed_at);
        }
        self.add_letters(name, own).await
    }

    pub(super) async fn add_letters(
        &mut self,
        name: &ThingName,
        letters: Vec<DeadLetter>,
    ) -> Result<(), StoreError> {
        for letter in letters {
            let audit = self.audit(&letter.id.to_string()).await?;
            self.events.extend(events::of_letter(name, letter, audit));
        }
        Ok(())
    }

    /// Returns the audit log of a target, oldest first.
    async fn audit(&self, target: &str) -> Result<Vec<AuditEntry>, StoreError> {
        let target = Some(target.to_owned());
        let filter = AuditFilter { target, limit: PAGE_MAX, ..AuditFilter::default() };
        let mut lines = self.store.list_audit(filter).await?;
        lines.reverse();
        Ok(lines)
    }

    async fn add_job(
        &mut self,
        destination: &str,
        id: &str,
        role: ThingRole,
    ) -> Result<(), StoreError> {
        if !self.jobs.contains_key(destination) {
            let jobs = self.store.list_bulk(Some(destination.to_owned()), PAGE_MAX).await?;
            self.jobs.insert(destination.to_owned(), jobs);
        }
        let job = self.jobs[destination].iter().find(|job| job.id.to_string() == id).cloned();
        if let Some(job) = job
            && self.enter(events::job_thing(&job, role))
        {
            self.events.extend(events::of_job(&job));
        }
        Ok(())
    }
}
