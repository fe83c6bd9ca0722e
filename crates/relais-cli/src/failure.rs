//! The errors of commands and their exit codes.

use std::{fmt, process::ExitCode};

use relais_core::store::StoreError;

use crate::settings::SettingsError;

/// The result of a command.
pub(crate) type Done = Result<(), CommandError>;

/// The error of a command.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// Wrong usage or configuration: exit code 2.
    Usage(String),
    /// Errors in the configuration file: exit code 2.
    Configuration(SettingsError),
    /// Any other failure: exit code 1.
    Failed(String),
    /// A failure that is printed already: exit code 1.
    Printed,
    /// A wrong configuration that is printed already: exit code 2.
    PrintedUsage,
}

impl CommandError {
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) | Self::Configuration(_) | Self::PrintedUsage => ExitCode::from(2),
            Self::Failed(_) | Self::Printed => ExitCode::from(1),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) => f.write_str(message),
            Self::Configuration(error) => write!(f, "{error}"),
            Self::Printed | Self::PrintedUsage => Ok(()),
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        Self::Configuration(error)
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
