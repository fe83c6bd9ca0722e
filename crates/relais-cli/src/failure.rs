//! Why a command did not do what it was asked, by exit code.

use std::{fmt, process::ExitCode};

use relais_core::store::StoreError;

use crate::settings::SettingsError;

/// What a command gives back.
pub(crate) type Done = Result<(), Failure>;

/// A command that did not work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was asked the wrong way, or the settings are wrong: exit code 2.
    Usage(String),
    /// It was asked well and failed: exit code 1.
    Failed(String),
    /// Everything is said already: exit code 1.
    Said,
    /// Everything is said already, and the configuration is wrong: exit code 2.
    SaidUsage,
}

impl Failure {
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) | Self::SaidUsage => ExitCode::from(2),
            Self::Failed(_) | Self::Said => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) => f.write_str(message),
            Self::Said | Self::SaidUsage => Ok(()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
