//! The error of a row, in the three formats of the API.

use serde_json::{Value as Json, json};

/// A status code, a message and the affected fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) fields: Vec<String>,
}

impl RowError {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), fields: Vec::new() }
    }

    pub(crate) fn on(mut self, field: &str) -> Self {
        self.fields.push(field.to_owned());
        self
    }

    /// Returns `sf__Error` of a bulk result: `CODE:message:fields --`.
    pub(crate) fn in_bulk(&self) -> String {
        let Self { code, message, fields } = self;
        if fields.is_empty() {
            format!("{code}:{message}:--")
        } else {
            format!("{code}:{message}:{} --", fields.join(","))
        }
    }

    /// Returns an element of `errors` in the response to a collection.
    pub(crate) fn in_collection(&self) -> Json {
        json!({"statusCode": self.code, "message": self.message, "fields": self.fields})
    }

    /// Returns the body of an HTTP error.
    pub(crate) fn in_rest(&self) -> Json {
        let mut error = json!({"errorCode": self.code, "message": self.message});
        if !self.fields.is_empty() {
            error["fields"] = json!(self.fields);
        }
        json!([error])
    }

    /// Returns the HTTP status of a call for this row alone.
    pub(crate) fn status(&self) -> u16 {
        match self.code.as_str() {
            "NOT_FOUND" | "ENTITY_IS_DELETED" => 404,
            _ => 400,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bulk_error_ends_with_its_fields_and_dashes() {
        let error = RowError::new("REQUIRED_FIELD_MISSING", "Required fields are missing: [Name]");
        let error = error.on("Name");
        assert_eq!(
            error.in_bulk(),
            "REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:Name --"
        );
        let error = RowError::new("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id");
        assert_eq!(error.in_bulk(), "INVALID_CROSS_REFERENCE_KEY:invalid cross reference id:--");
    }
}
