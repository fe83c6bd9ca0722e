//! Errors of a store, by what the caller may do about them.
//!
//! Invariant: no error holds a value of a row. A driver's error is kept by its code, constraint and
//! one-line message, because its detail may quote a row.

use std::{
    error::Error,
    fmt::{self, Display},
    ops::Deref,
    sync::Arc,
};

/// An error of the store. The variant says what the caller may do.
///
/// The text is complete: it names the cause and the next step. [`Error::source`] is for programs, for
/// example to read the SQLSTATE of a [`DriverError`]; see also [`StoreError::code`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The database is unavailable, busy or full. Nothing is known to have changed; try again later.
    Unavailable(StoreErrorText),
    /// The request itself cannot be stored; trying it again will not help.
    Invalid(StoreErrorText),
    /// The database must be set up differently; the text says how.
    Setup(StoreErrorText),
}

/// The text of a [`StoreError`], with the error of the driver behind it.
#[derive(Clone, Debug)]
pub struct StoreErrorText {
    text: String,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

/// An error that the database reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverError {
    /// The SQLSTATE of PostgreSQL, or the extended result code of SQLite as a number.
    pub code: String,
    /// The name of the violated constraint, where the database reports it.
    pub constraint: Option<String>,
    /// The message of the database, in one line.
    pub message: String,
}

impl StoreError {
    /// Returns [`StoreError::Unavailable`].
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self::Unavailable(StoreErrorText::new(text))
    }

    /// Returns [`StoreError::Invalid`].
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(StoreErrorText::new(text))
    }

    /// Returns [`StoreError::Setup`].
    pub fn setup(text: impl Into<String>) -> Self {
        Self::Setup(StoreErrorText::new(text))
    }

    /// Sets the error behind this one. It must not hold values of rows.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.text_mut().cause = Some(Arc::new(cause));
        self
    }

    /// Changes the text; keeps the variant and the cause.
    #[must_use]
    pub fn reworded(mut self, reword: impl FnOnce(&str) -> String) -> Self {
        let text = self.text_mut();
        text.text = reword(&text.text);
        self
    }

    /// Returns the code of the database's error: the SQLSTATE of PostgreSQL, the extended result code
    /// of SQLite.
    pub fn code(&self) -> Option<&str> {
        let cause = self.source()?.downcast_ref::<DriverError>()?;
        Some(&cause.code)
    }

    fn text(&self) -> &StoreErrorText {
        match self {
            Self::Unavailable(text) | Self::Invalid(text) | Self::Setup(text) => text,
        }
    }

    fn text_mut(&mut self) -> &mut StoreErrorText {
        match self {
            Self::Unavailable(text) | Self::Invalid(text) | Self::Setup(text) => text,
        }
    }
}

impl Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(text) => write!(f, "database unavailable: {text}"),
            Self::Invalid(text) | Self::Setup(text) => Display::fmt(text, f),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.text().cause.as_deref()?;
        Some(cause)
    }
}

impl StoreErrorText {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: None }
    }
}

impl From<String> for StoreErrorText {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for StoreErrorText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl Deref for StoreErrorText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Display for StoreErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl DriverError {
    /// Returns an error of the database with its code and its one-line message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), constraint: None, message: message.into() }
    }

    /// Sets the name of the violated constraint.
    #[must_use]
    pub fn constraint(mut self, name: Option<&str>) -> Self {
        self.constraint = name.map(str::to_owned);
        self
    }
}

impl Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for DriverError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_cause_and_code_through_other_words() {
        let cause = DriverError::new("23505", "duplicate key").constraint(Some("orders_pkey"));
        let error = StoreError::invalid("duplicate key (SQLSTATE 23505)").caused_by(cause.clone());
        let error = error.reworded(|text| format!("cannot store the row: {text}"));
        assert_eq!(error.to_string(), "cannot store the row: duplicate key (SQLSTATE 23505)");
        assert_eq!(error.code(), Some("23505"));
        assert_eq!(error.source().and_then(|source| source.downcast_ref()), Some(&cause));
    }

    #[test]
    fn an_error_without_a_cause_has_no_code() {
        let error = StoreError::unavailable("no connection");
        assert_eq!(error.to_string(), "database unavailable: no connection");
        assert!(error.code().is_none() && error.source().is_none());
    }
}
