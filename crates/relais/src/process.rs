//! Processes (sagas): several steps in several systems.
//!
//! A process changes by an inbox row (a start, a reply, a fired timer) or by an operator's action. The pure
//! functions of `relais-core` decide both. A decision is committed only if the process has not changed
//! since it was read; otherwise it is made again.
//!
//! - `registry`: the definitions of this program
//! - `decide`: decides an inbox row
//! - `timers`: turns due timers into inbox rows
//! - `own_inbox`: brings commands to handlers in other processes, and their answers back
//! - [`operator`]: the actions of operators; [`timeline`]: the steps of a process for operators

pub(crate) mod decide;
pub mod operator;
pub(crate) mod own_inbox;
pub(crate) mod registry;
pub mod timeline;
pub(crate) mod timers;

pub use self::operator::{ActError, Operator};
pub use relais_core::process::{
    Action, Definition, Entry, KeyHold, LogEntry, Process, ProcessEvent, ProcessFilter, ProcessRef,
    ProcessStatus, ReplayDifference, ReplayedProcess, ReplayedStep, actions,
    declared::{DeclaredCall, DeclaredProcess, DeclaredStep},
    definition::{CallTarget, Correlate, KeyUse, Meaning},
    typed::{Command, Define, InvalidDefinition, command, command_named, define, handler_command},
};
