//! The places of the faults.

use std::fmt;

/// A place in the life of an inbox message where something goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultPoint {
    /// Nothing goes wrong.
    Clean,
    /// Nothing goes wrong, a second time.
    CleanAgain,
    /// Delivered twice before it is handled.
    DeliveredTwiceBefore,
    /// Delivered again after it was handled.
    DeliveredAgainAfter,
    /// The worker dies before the transaction begins.
    DiesBeforeTransaction,
    /// The worker loses its lane before the mark.
    LosesLaneBeforeMark,
    /// Another worker takes the lane and handles the message too.
    LosesLaneToAnother,
    /// The worker dies after the commit.
    DiesAfterCommit,
    /// Every write to this table fails while the message is handled for the first time.
    WriteFails(String),
    /// The worker is lost when its handler waits for the database for the n-th time.
    DiesInside(usize),
}

impl FaultPoint {
    pub(super) const FIXED: [Self; 6] = [
        Self::DeliveredTwiceBefore,
        Self::DeliveredAgainAfter,
        Self::DiesBeforeTransaction,
        Self::LosesLaneBeforeMark,
        Self::LosesLaneToAnother,
        Self::DiesAfterCommit,
    ];
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("no fault"),
            Self::CleanAgain => f.write_str("a second run without any fault"),
            Self::DeliveredTwiceBefore => f.write_str("delivered twice before it is handled"),
            Self::DeliveredAgainAfter => f.write_str("delivered again after it was handled"),
            Self::DiesBeforeTransaction => {
                f.write_str("the worker dies before the transaction begins")
            }
            Self::LosesLaneBeforeMark => f.write_str(
                "the worker dies after the handler's code and before the mark, so that all of it is \
                 rolled back",
            ),
            Self::LosesLaneToAnother => f.write_str(
                "the lane is lost to another worker, which handles the message at the same time",
            ),
            Self::DiesAfterCommit => f.write_str(
                "the worker dies after the commit, before it hears of it, and the message is handled \
                 again",
            ),
            Self::WriteFails(table) => write!(f, "a write to `{table}` fails the first time"),
            Self::DiesInside(waits) => {
                write!(f, "the worker dies when the handler waits for the database, wait {waits}")
            }
        }
    }
}
