//! The failure of a check that asks a system before the first message.

use std::{error::Error, fmt};

/// The reason why a system or a part of it cannot be used, and what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeError(String);

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ProbeError {}

impl From<String> for ProbeError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<ProbeError> for String {
    fn from(error: ProbeError) -> Self {
        error.0
    }
}
