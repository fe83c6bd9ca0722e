//! What a newer program may have stored, and this one does not know.
//!
//! Invariant: it is shown or refused, never taken for something else.

use relais_core::process::{Entry, ProcessEvent};

/// Why a row is left alone.
pub(crate) fn unknown(name: &str) -> String {
    format!(
        "`{}` is not known to this program; a newer relais may have written it: update relais on this \
         machine",
        name.escape_debug()
    )
}

/// What is shown of an entry in a log that cannot be read.
pub(crate) fn entry(event_type: &str, event: &str) -> Entry {
    let reason = format!("{event_type}: {event}");
    let note = "this entry cannot be read; a newer version may have written it".to_owned();
    Entry { note: Some(note), ..Entry::of(ProcessEvent::ProcessFailed { reason }) }
}
