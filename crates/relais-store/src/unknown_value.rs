//! Stored values that this program does not know, perhaps written by a newer one.
//!
//! Invariant: such a value is shown or refused, never taken for another one.

use relais_core::process::{Entry, ProcessEvent};

/// Returns the reason why a row with an unknown value is not read.
pub(crate) fn unknown(name: &str) -> String {
    format!(
        "`{}` is not known to this program; a newer relais may have written it: update relais on this \
         machine",
        name.escape_debug()
    )
}

/// Returns a replacement for a log entry that cannot be decoded.
pub(crate) fn entry(event_type: &str, event: &str) -> Entry {
    let reason = format!("{event_type}: {event}");
    let note = "cannot decode this entry; a newer version may have written it".to_owned();
    Entry { note: Some(note), ..Entry::of(ProcessEvent::ProcessFailed { reason }) }
}
