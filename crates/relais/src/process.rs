//! Processes: several steps in several systems, as this program runs them.
//!
//! Whatever happens to a process comes through an inbox row (what starts it, replies, fired timers) or
//! through a person's action. Both are decided by the pure functions of `relais-core`, and committed
//! only if nobody changed the process meanwhile; otherwise they are decided again.
//!
//! - `registry`: the definitions known here
//! - `decide`: what a row makes of the processes it concerns
//! - `timers`: timers that are due become inbox rows
//! - [`operator`]: what people do with processes; [`timeline`]: what they see of one

pub(crate) mod decide;
pub mod operator;
pub(crate) mod registry;
pub mod timeline;
pub(crate) mod timers;

pub use self::operator::{ActError, Operator};
pub use relais_core::process::{
    Action, Definition, Entry, LogEntry, Process, ProcessEvent, ProcessFilter, ProcessRef,
    ProcessStatus, actions,
    declared::{Declared, DeclaredCall, DeclaredStep},
    definition::{Correlate, Meaning},
    typed::{Command, Define, InvalidDefinition, command, command_named, define},
};
