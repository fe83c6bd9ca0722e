//! The report on a handler, with what to fix.

use std::fmt;

use super::{changes::RowChanges, dump::Dump, point::FaultPoint};

/// Most lines of one kind that are shown.
const LINES_MAX: usize = 40;
/// Most characters of one line.
const LINE_MAX: usize = 400;

/// Why a handler is not idempotent, and at which point that showed.
#[derive(Clone, Debug)]
pub struct NotIdempotent {
    /// The point of the fault.
    pub point: FaultPoint,
    /// The difference.
    pub fault: HandlerFault,
}

/// A fault of a handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HandlerFault {
    /// The message did not get through.
    NotProcessed {
        /// The message id.
        message_id: String,
        /// The status of its row.
        status: String,
        /// The last problem.
        trouble: String,
    },
    /// A worker that had lost the message could commit it.
    HandledTwice {
        /// The message id.
        message_id: String,
    },
    /// The handler's transaction was rolled back, and something of it is there.
    Remains {
        /// The message id.
        message_id: String,
        /// The rows that remain.
        lines: Vec<String>,
    },
    /// The run ended otherwise than the one without faults.
    Differs {
        /// Rows only without the fault.
        without: Vec<String>,
        /// Rows only with the fault.
        with: Vec<String>,
    },
}

impl NotIdempotent {
    pub(super) fn new(point: &FaultPoint, fault: HandlerFault) -> Self {
        Self { point: point.clone(), fault }
    }

    pub(super) fn differs(point: &FaultPoint, expected: &RowChanges, found: &RowChanges) -> Self {
        let (without, with) = (expected.lines_without(found), found.lines_without(expected));
        Self::new(point, HandlerFault::Differs { without, with })
    }

    pub(super) fn unless_same(
        point: &FaultPoint,
        message_id: &str,
        before: &Dump,
        after: &Dump,
    ) -> Result<(), Self> {
        let changes = RowChanges::between(before, after, &[]);
        if changes.is_empty() {
            return Ok(());
        }
        let fault =
            HandlerFault::Remains { message_id: message_id.to_owned(), lines: changes.lines() };
        Err(Self::new(point, fault))
    }

    fn advice(&self) -> &'static str {
        match (&self.fault, &self.point) {
            (HandlerFault::NotProcessed { .. }, _) => {
                "a check shows something only for messages that the handler can process"
            }
            (HandlerFault::HandledTwice { .. }, _) => "relais must refuse this; please report it",
            (HandlerFault::Remains { .. }, _) => {
                "the handler writes through another connection, or ends its transaction itself: use \
                 the transaction it is given, and leave its end to relais"
            }
            (HandlerFault::Differs { .. }, FaultPoint::CleanAgain) => {
                "the handler uses chance, the clock or something outside the database as data: take \
                 it from the message, or name the column in `ignore`"
            }
            (HandlerFault::Differs { .. }, FaultPoint::WriteFails(_)) => {
                "the handler continues after an error, so that half of its work is committed: return \
                 the error"
            }
            (HandlerFault::Differs { .. }, _) => {
                "what the handler does depends on how often or when it runs: all its effects must \
                 be in the transaction it is given, and depend on the message and the database only"
            }
        }
    }
}

impl std::error::Error for NotIdempotent {}

impl fmt::Display for NotIdempotent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            HandlerFault::NotProcessed { .. } => "the handler did not get through",
            _ => "the handler is not idempotent",
        };
        writeln!(f, "{what}")?;
        writeln!(f, "  point: {}", self.point)?;
        match &self.fault {
            HandlerFault::NotProcessed { message_id, status, trouble } => {
                writeln!(f, "  message `{message_id}` is {status}: {trouble}")?;
            }
            HandlerFault::HandledTwice { message_id } => {
                writeln!(f, "  message `{message_id}` was committed by a worker that had lost it")?;
            }
            HandlerFault::Remains { message_id, lines } => {
                writeln!(f, "  message `{message_id}` was rolled back, but this remains of it:")?;
                show(f, lines)?;
            }
            HandlerFault::Differs { without, with } => {
                writeln!(f, "  only without the fault:")?;
                show(f, without)?;
                writeln!(f, "  only with it:")?;
                show(f, with)?;
            }
        }
        write!(f, "  {}", self.advice())
    }
}

fn show(f: &mut fmt::Formatter<'_>, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        writeln!(f, "    (nothing)")?;
    }
    for line in lines.iter().take(LINES_MAX) {
        let cut: String = line.chars().take(LINE_MAX).collect();
        writeln!(f, "    {cut}{}", if cut.len() < line.len() { "…" } else { "" })?;
    }
    match lines.len().saturating_sub(LINES_MAX) {
        0 => Ok(()),
        more => writeln!(f, "    … and {more} more"),
    }
}
