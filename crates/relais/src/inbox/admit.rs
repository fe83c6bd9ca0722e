//! Which rows are worked on next. What the rule about rows that may have killed their worker sets aside is
//! settled without any work.

use std::collections::HashSet;

use relais_core::{
    inbox::{InboxFate, InboxRow},
    publisher::Batching,
    quarantine::{self, Treatment},
    store::StoreError,
};

use super::InboxWorker;
use crate::flight::Job;

impl InboxWorker {
    /// The next rows to work on, with losses noted where it is needed. What the rule about rows that may
    /// have killed their worker sets aside is settled.
    pub(super) async fn admit(&mut self) -> Result<Vec<Job<InboxRow>>, StoreError> {
        if !self.processes.is_ready() {
            return Ok(Vec::new());
        }
        let room = self.handlers_max.saturating_sub(self.handlers.len());
        let mut jobs = Vec::new();
        while jobs.len() < room
            && let Some(job) = self.intake.take(Batching::Single).pop()
        {
            match job.treatment {
                Treatment::Hold => self.set_aside(&job, held()),
                Treatment::Bury => self.set_aside(&job, buried(&job.row)),
                Treatment::Send | Treatment::NoteAndSend | Treatment::SendAlone => jobs.push(job),
            }
        }
        let noted = self.intake.note_losses(jobs.iter()).await;
        if !matches!(noted, Ok(true)) {
            jobs.drain(..).for_each(|job| self.give_back(&job));
        }
        noted.map(|_| jobs)
    }

    /// Settles a suspect without any work on it.
    pub(super) fn set_aside(&mut self, job: &Job<InboxRow>, fate: InboxFate) {
        self.push(job, fate);
        self.intake.look();
        let key = HashSet::from([job.row.msg_key.clone()]);
        self.intake.flight.land(std::slice::from_ref(job), &key);
    }
}

/// Held because its worker was lost several times.
fn held() -> InboxFate {
    InboxFate::Wait {
        pause: quarantine::HOLD_FOR,
        problem: quarantine::held(),
        lost_workers: quarantine::HOLD_AFTER,
    }
}

/// A dead letter because its worker was lost each time.
fn buried(row: &InboxRow) -> InboxFate {
    InboxFate::Dead { attempts: row.attempts, problem: quarantine::lost(), park: true }
}
