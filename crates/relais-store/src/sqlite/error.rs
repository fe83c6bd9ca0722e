//! SQLite's errors by what the caller may do about them.
//!
//! The texts hold names of tables and constraints, never values of rows.

use std::path::Path;

use relais_core::store::{DriverError, StoreError};
use rusqlite::{Error, ErrorCode, types::Type};

use crate::unknown_value;

/// An error of a statement or a commit.
pub(super) fn store(error: &Error) -> StoreError {
    let text = text(error);
    match error.sqlite_error() {
        Some(failure) => {
            let cause = DriverError::new(failure.extended_code.to_string(), text.clone());
            by_code(failure.code, text).caused_by(cause)
        }
        None if matches!(error, Error::FromSqlConversionFailure(..)) => {
            StoreError::unavailable(text)
        }
        None => StoreError::invalid(format!("sqlite driver: {text}")),
    }
}

fn by_code(code: ErrorCode, text: String) -> StoreError {
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::unavailable(format!(
            "{text}; another program holds the write lock of the file: end its transaction"
        )),
        ErrorCode::DiskFull => StoreError::unavailable(format!(
            "{text}; make room on the disk, then it continues by itself"
        )),
        ErrorCode::SystemIoFailure => {
            StoreError::unavailable(format!("{text}; check the disk and the system log"))
        }
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => StoreError::unavailable(format!(
            "{text}; the file and its directory must exist and be writable"
        )),
        ErrorCode::ReadOnly => StoreError::setup(format!(
            "{text}; give this user the right to write to the file and its directory"
        )),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::setup(format!(
            "{text}; the file is damaged or no sqlite database: restore it from a backup"
        )),
        ErrorCode::ConstraintViolation => refused_value(text),
        ErrorCode::TooBig => {
            StoreError::invalid(format!("{text}; a value is larger than sqlite stores"))
        }
        _ if text.contains("no such table: relais_")
            || text.contains("no such table: main.relais_") =>
        {
            StoreError::setup(format!("{text}; run `relais migrate`"))
        }
        _ if text.contains("relais_") && text.contains("no such") => {
            StoreError::setup(format!("{text}; the schema does not fit: run `relais check`"))
        }
        _ => StoreError::unavailable(text),
    }
}

fn refused_value(text: String) -> StoreError {
    let hint = if text.contains("json_valid(payload)") {
        "the payload is not valid JSON"
    } else if text.contains("json_valid(headers)") {
        "the headers are not valid JSON"
    } else if text.contains("message_is_uuid") {
        "the message id is not a UUID"
    } else {
        "the row breaks a rule of its table"
    };
    StoreError::invalid(format!("{hint} ({text})"))
}

/// A row that is not changed because this program does not know its state.
pub(super) fn unknown(name: &str) -> Error {
    Error::FromSqlConversionFailure(0, Type::Text, unknown_value::unknown(name).into())
}

/// An error of the user's own sqlx connection.
#[cfg(feature = "sqlx-sqlite")]
pub(super) fn sqlx(error: &sqlx::Error) -> StoreError {
    let code: Option<i32> = error.as_database_error().and_then(|e| e.code()?.parse().ok());
    match (code, error.as_database_error()) {
        (Some(code), Some(error)) => {
            let cause = DriverError::new(code.to_string(), error.message());
            let text = error.message().to_owned();
            by_code(rusqlite::ffi::Error::new(code).code, text).caused_by(cause)
        }
        _ => StoreError::unavailable(error.to_string()),
    }
}

/// An error on the way to an open database: named with the file, because nothing else is known yet.
pub(super) fn opening(path: &Path, error: &Error) -> StoreError {
    store(error).reworded(|text| format!("{}: {text}", path.display()))
}

/// Returns true if the database refused the content of a transaction, rather than being unable to write it.
pub(super) fn is_refusal(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// SQLite's own words.
pub(super) fn text(error: &Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(text)) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn failure(code: i32, text: &str) -> StoreError {
        store(&Error::SqliteFailure(ffi::Error::new(code), Some(text.to_owned())))
    }

    #[test]
    fn what_passes_by_itself_is_unavailable_and_says_what_to_do() {
        for code in [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_FULL,
            ffi::SQLITE_CANTOPEN,
        ] {
            let error = failure(code, "oops");
            assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("; ")));
        }
    }

    #[test]
    fn a_missing_table_asks_for_migration() {
        let error = failure(ffi::SQLITE_ERROR, "no such table: relais_outbox");
        assert!(matches!(&error, StoreError::Setup(text) if text.contains("relais migrate")));
    }

    #[test]
    fn a_broken_rule_is_named_and_final() {
        let error = failure(ffi::SQLITE_CONSTRAINT, "CHECK constraint failed: json_valid(payload)");
        assert!(matches!(&error, StoreError::Invalid(text) if text.contains("not valid JSON")));
        assert_eq!(error.code(), Some("19"));
    }
}
