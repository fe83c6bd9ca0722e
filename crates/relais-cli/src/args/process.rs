//! `relais process …`.

use std::time::Duration;

use clap::{Args, Subcommand};
use relais_core::{
    id_prefix::{IdKind, IdPrefix},
    process::{InvalidProcessRef, ProcessRef, ProcessStatus},
};

use super::{
    ControlArgs, DecisionArgs,
    rows::{limit, since},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ProcessCommand {
    /// List processes, newest first
    #[command(after_help = "Example:\n  relais process list --status paused")]
    List(ProcessList),
    /// Show a process with its log
    #[command(after_help = "Example:\n  relais process show order/o-1")]
    Show(ProcessId),
    /// Show the log of a process, newest first
    #[command(after_help = "Example:\n  relais process log order/o-1")]
    Log(ProcessLog),
    /// Compute the state of a process from its log and compare it with the stored state
    #[command(after_help = "Example:\n  relais process verify order/o-1")]
    Verify(ProcessId),
    /// Pause a process: replies are still received, no new step starts
    #[command(after_help = "Example:\n  relais process pause order/o-1 --reason \"wrong address\"")]
    Pause(Act),
    /// Resume a process at its current step
    #[command(
        after_help = "Example:\n  relais process resume order/o-1 --reason \"address fixed\""
    )]
    Resume(Act),
    /// Send the command of the current step, or of its compensation, again
    #[command(
        after_help = "Example:\n  relais process retry order/o-1 --reason \"refund possible again\""
    )]
    Retry(Act),
    /// Skip the current step, or its compensation, as if it were completed
    #[command(after_help = "Example:\n  relais process skip order/o-1 --reason \"paid in cash\"")]
    Skip(Act),
    /// Compensate the completed steps, last first
    #[command(
        after_help = "Example:\n  relais process compensate order/o-1 --reason \"customer left\""
    )]
    Compensate(Act),
    /// End a process as FAILED without compensation
    #[command(after_help = "Example:\n  relais process cancel order/o-1 --reason \"a test\"")]
    Cancel(Act),
    /// Pause messages and timers of a process type in all processes until it is resumed
    #[command(after_help = "Example:\n  relais process pause-type order --reason \"wrong prices\"")]
    #[command(mut_arg("name", |arg| arg.help("Name of the process type")))]
    PauseType(ControlArgs),
    /// Resume a process type
    #[command(
        after_help = "Example:\n  relais process resume-type order --reason \"prices fixed\""
    )]
    #[command(mut_arg("name", |arg| arg.help("Name of the process type")))]
    ResumeType(ControlArgs),
    /// Print the states of a process type as a Mermaid diagram
    #[command(after_help = "Example:\n  relais process diagram order")]
    Diagram(Diagram),
}

#[derive(Debug, Args)]
pub(crate) struct ProcessList {
    #[command(flatten)]
    pub(crate) matching: ProcessMatching,
    /// Most processes to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
    /// List the page after the process with this ID, or these first digits
    #[arg(long, value_name = "ID", value_parser = process_id)]
    pub(crate) before: Option<IdPrefix>,
}

/// The filters of processes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProcessMatching {
    /// Only processes in this state
    #[arg(long, ignore_case = true, value_parser = status)]
    pub(crate) status: Option<ProcessStatus>,
    /// Only this process type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) process_type: Option<String>,
    /// Only this business key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only processes created within this time, e.g. 15m or 2d
    #[arg(long, value_name = "DURATION", value_parser = since)]
    pub(crate) since: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ProcessId {
    /// ID of the process, its first digits, or TYPE/BUSINESS-KEY
    #[arg(value_parser = process_name)]
    pub(crate) id: ProcessName,
}

#[derive(Debug, Args)]
pub(crate) struct ProcessLog {
    #[command(flatten)]
    pub(crate) process: ProcessId,
    /// Most entries to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
    /// Show the page after the entry with this number
    #[arg(long, value_name = "SEQ")]
    pub(crate) before: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Act {
    /// IDs of processes, their first digits, or TYPE/BUSINESS-KEY
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "ID")]
    #[arg(value_parser = process_name)]
    pub(crate) ids: Vec<ProcessName>,
    /// Select all processes that match the filters; needs --status
    #[arg(long, requires = "status")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) matching: ProcessMatching,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Diagram {
    /// Process type
    #[arg(value_name = "TYPE")]
    pub(crate) process_type: String,
    /// Version of the definition (default: the highest)
    #[arg(long, value_name = "N")]
    pub(crate) definition: Option<i32>,
}

/// The name of a process on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessName {
    Exact(ProcessRef),
    Prefix(IdPrefix),
}

fn process_name(text: &str) -> Result<ProcessName, String> {
    let exact: Result<ProcessRef, InvalidProcessRef> = text.parse();
    exact
        .map(ProcessName::Exact)
        .or_else(|why| process_id(text).map(ProcessName::Prefix).map_err(|_| why.to_string()))
}

fn process_id(text: &str) -> Result<IdPrefix, String> {
    IdPrefix::parse(IdKind::Process, text).ok_or_else(|| "not the ID of a process".to_owned())
}

fn status(text: &str) -> Result<ProcessStatus, String> {
    ProcessStatus::parse(&text.to_uppercase()).ok_or_else(|| {
        let all: Vec<&str> = ProcessStatus::ALL.iter().map(|status| status.as_str()).collect();
        format!("must be one of {}", all.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use uuid::Uuid;

    use super::*;
    use crate::args::{Cli, RelaisCommand};

    fn parse(rest: &[&str]) -> Result<ProcessCommand, String> {
        let parsed = Cli::try_parse_from(["relais", "process"].iter().chain(rest));
        match parsed.map_err(|error| error.to_string())?.command {
            RelaisCommand::Process(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_is_named_by_its_id_or_by_type_and_business_key() {
        let shown = |id: &str| match parse(&["show", id]) {
            Ok(ProcessCommand::Show(shown)) => Ok(shown.id),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(
            shown(&Uuid::nil().to_string()),
            Ok(ProcessName::Exact(ProcessRef::Id(Uuid::nil())))
        );
        let key = ProcessRef::Key { process_type: "order".into(), business_key: "o/1".into() };
        assert_eq!(shown("order/o/1"), Ok(ProcessName::Exact(key)));
        assert!(matches!(shown("0192f3c4"), Ok(ProcessName::Prefix(_))));
        assert!(shown("order").is_err_and(|error| error.contains("TYPE/BUSINESS-KEY")));
    }

    #[test]
    fn all_needs_a_state() {
        assert!(parse(&["pause", "--all", "--status", "running", "--type", "order"]).is_ok());
        assert!(parse(&["pause", "--all"]).is_err());
        assert!(parse(&["pause"]).is_err());
        assert!(parse(&["pause", "order/o-1", "--all", "--status", "running"]).is_err());
        let wrong = parse(&["list", "--status", "done"]).unwrap_err();
        assert!(wrong.contains("SUCCEEDED"), "{wrong}");
    }
}
