//! The rule about rows that may have killed their worker.
//!
//! A row carries no mark while it is in flight, so when a worker is lost, its successor does not know
//! which rows were. It notes a loss on each of the first rows it sends (`lost_workers`, before the call)
//! and takes the note back when the call returns. So the number grows only for rows that were in flight
//! at one loss after the other: a message that kills its worker, or any message in a process that is
//! killed again and again. Both look alike, so after [`HOLD_AFTER`] losses the row is held for
//! [`HOLD_FOR`] while everything else continues:
//!
//! - another worker is lost meanwhile: the held row was not the reason, and goes again;
//! - otherwise it is sent alone, and one more loss is its dead letter, `WORKER_LOST`.
//!
//! Losses never use attempts.
//!
//! A bulk job names its rows, so its loss is counted on exactly those, by the worker that takes it over
//! ([`treatment_in_job`]). Suspects go again in jobs of fewer rows ([`job_rows_max`]).

use std::time::Duration;

use crate::delivery::Problem;

/// The number of losses that hold a row.
pub const HOLD_AFTER: u32 = 3;
/// The time that a row is held.
pub const HOLD_FOR: Duration = Duration::from_secs(60);
/// The losses that a held row keeps when another worker was lost meanwhile. Not 0: two messages that kill their
/// workers would clear each other without end.
pub const CLEARED: u32 = 1;

/// The circumstances in which a row was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadContext {
    /// By the worker that has held its lane since it was free, or that has noted its loss already.
    Usual,
    /// By the successor of a lost worker, for the first time.
    AfterLoss,
}

/// The treatment of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Send it.
    Send,
    /// Note one loss more, then send it.
    NoteAndSend,
    /// Hold it: [`HOLD_FOR`], with [`HOLD_AFTER`] losses.
    Hold,
    /// Note one loss more, then send it with no other suspect in flight.
    SendAlone,
    /// A dead letter: [`lost`].
    Bury,
}

/// Decides about a row with this number of losses.
pub fn treatment(lost_workers: u32, read: ReadContext) -> Treatment {
    match (read, lost_workers) {
        (ReadContext::Usual, 0..HOLD_AFTER) => Treatment::Send,
        (ReadContext::Usual, _) => Treatment::SendAlone,
        (ReadContext::AfterLoss, noted) if noted > HOLD_AFTER => Treatment::Bury,
        // Held, so not in flight when the worker was lost.
        (ReadContext::AfterLoss, HOLD_AFTER) => Treatment::SendAlone,
        (ReadContext::AfterLoss, noted) if noted + 1 >= HOLD_AFTER => Treatment::Hold,
        (ReadContext::AfterLoss, _) => Treatment::NoteAndSend,
    }
}

/// Decides about a row whose bulk job lost its worker before the upload had arrived. A row that had been
/// held was alone in that job.
pub fn treatment_in_job(lost_workers: u32) -> Treatment {
    match lost_workers {
        HOLD_AFTER.. => Treatment::Bury,
        noted => treatment(noted, ReadContext::AfterLoss),
    }
}

/// Returns the most rows of a job that has a row with this number of losses, where others have up to `max`. One
/// loss is most likely a restart, so it costs nothing.
pub fn job_rows_max(lost_workers: u32, max: usize) -> usize {
    match lost_workers {
        0 | 1 => max,
        HOLD_AFTER.. => 1,
        _ => max.isqrt().max(1),
    }
}

/// Returns the reason why a row of a lost bulk job goes again.
pub fn job_lost() -> Problem {
    Problem::new(
        "JOB_WORKER_LOST",
        "the worker was lost while it prepared the bulk job of this message; it goes again in another job",
    )
}

/// Returns the reason why a row is held.
pub fn held() -> Problem {
    Problem::new(
        "QUARANTINED",
        &format!(
            "{HOLD_AFTER} workers were lost while this message was in flight; it is held for a minute and \
             then sent alone"
        ),
    )
}

/// Returns the reason why a row is a dead letter.
pub fn lost() -> Problem {
    Problem::new(
        "WORKER_LOST",
        "the worker was lost each time this message was in flight, the last time with no other message of \
         this kind; check the payload before a retry",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One message in a scripted life: how often it flew, and how it ended.
    fn life(kills: impl Fn(u32) -> bool, other_losses_while_held: u32) -> (u32, Treatment) {
        let (mut noted, mut read, mut flights, mut other) =
            (0, ReadContext::Usual, 0, other_losses_while_held);
        loop {
            let treatment = treatment(noted, read);
            match treatment {
                Treatment::Bury => return (flights, treatment),
                Treatment::Hold if other > 0 => {
                    (noted, read, other) = (CLEARED, ReadContext::AfterLoss, other - 1);
                    continue;
                }
                Treatment::Hold => {
                    (noted, read) = (HOLD_AFTER, ReadContext::Usual);
                    continue;
                }
                Treatment::NoteAndSend | Treatment::SendAlone => noted += 1,
                Treatment::Send => {}
            }
            flights += 1;
            if !kills(flights) {
                return (flights, treatment);
            }
            read = ReadContext::AfterLoss;
        }
    }

    #[test]
    fn a_message_that_kills_its_worker_ends_as_a_dead_letter_after_four_flights() {
        assert_eq!(life(|_| true, 0), (4, Treatment::Bury));
    }

    #[test]
    fn an_innocent_neighbour_is_delivered_at_the_latest_when_it_is_sent_alone() {
        assert_eq!(life(|flight| flight < 4, 0), (4, Treatment::SendAlone));
        assert_eq!(life(|flight| flight < 2, 0), (2, Treatment::NoteAndSend));
        assert_eq!(life(|_| false, 0), (1, Treatment::Send));
    }

    #[test]
    fn a_process_that_is_killed_again_and_again_makes_no_dead_letter() {
        // Each hold sees another loss: 50 times, then the kills end.
        let (flights, end) = life(|flight| flight < 50, 50);
        assert_eq!((flights, end), (50, Treatment::NoteAndSend));
    }

    #[test]
    fn a_row_that_is_held_is_not_blamed_for_the_loss_of_another_worker() {
        assert_eq!(treatment(HOLD_AFTER, ReadContext::AfterLoss), Treatment::SendAlone);
    }
}
