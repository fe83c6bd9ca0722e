//! The error of constructors that check their settings.

use std::{
    error::Error,
    fmt::{self, Display},
    sync::Arc,
};

/// A setting that a constructor refused. The text names the setting and what to change.
#[derive(Clone, Debug)]
pub struct InvalidSettings {
    text: String,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl InvalidSettings {
    /// Returns an error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: None }
    }

    /// Sets the error behind this one.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }
}

impl Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for InvalidSettings {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for InvalidSettings {}

impl Error for InvalidSettings {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}

impl From<String> for InvalidSettings {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for InvalidSettings {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<InvalidSettings> for String {
    fn from(error: InvalidSettings) -> Self {
        error.text
    }
}
