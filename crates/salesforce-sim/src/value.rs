//! The value of a field: parsed from CSV or JSON by the rules of its type, and formatted again.
//!
//! Texts lose blanks at their ends, like in Salesforce. Numbers lose their spelling: `912260031`
//! comes back as `9.12260031E8` from a double field.

use serde_json::{Value as Json, json};

use crate::{
    id::Id,
    row_error::RowError,
    schema::{FieldKind, SchemaField},
};

/// A value that is not null.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldValue {
    Text(Box<str>),
    Int(i64),
    Double(f64),
    Bool(bool),
}

/// Limit of the values of a number field.
const DOUBLE_MAX: f64 = 1e18;

impl FieldValue {
    /// Parses a cell of a CSV file, or the text of a JSON string.
    pub(crate) fn from_text(field: &SchemaField, text: &str) -> Result<Self, RowError> {
        let value = match field.kind {
            FieldKind::Boolean => match text.to_ascii_lowercase().as_str() {
                "true" | "1" => Some(Self::Bool(true)),
                "false" | "0" => Some(Self::Bool(false)),
                _ => None,
            },
            FieldKind::Int => text.parse::<i32>().ok().map(|number| Self::Int(number.into())),
            FieldKind::Double | FieldKind::Currency | FieldKind::Percent => double(text),
            FieldKind::Date => date(text).then(|| Self::Text(text.into())),
            FieldKind::DateTime => date_time(text).map(|text| Self::Text(text.into())),
            FieldKind::Lookup | FieldKind::Id => return reference(field, text),
            _ => return long_text(field, text),
        };
        let wrong = || {
            let message = format!("{}: value not of required type: {text}", field.name);
            RowError::new("INVALID_TYPE_ON_FIELD_IN_RECORD", message).on(&field.name)
        };
        let value = value.ok_or_else(wrong)?;
        if matches!(value, Self::Double(number) if number.abs() >= DOUBLE_MAX) {
            let message = format!("{}: value outside of valid range", field.label);
            return Err(RowError::new("NUMBER_OUTSIDE_VALID_RANGE", message).on(&field.name));
        }
        Ok(value)
    }

    /// Parses a JSON value that is not null. A value of the wrong JSON type is an error of the
    /// whole body, `JSON_PARSER_ERROR`: the parser of Salesforce finds it before the record.
    pub(crate) fn from_json(field: &SchemaField, json: &Json) -> Result<Self, RowError> {
        let (token, text) = match json {
            Json::String(text) => ("VALUE_STRING", text.clone()),
            Json::Number(number) if number.is_f64() => ("VALUE_NUMBER_FLOAT", number.to_string()),
            Json::Number(number) => ("VALUE_NUMBER_INT", number.to_string()),
            Json::Bool(true) => ("VALUE_TRUE", "true".to_owned()),
            Json::Bool(false) => ("VALUE_FALSE", "false".to_owned()),
            Json::Null => ("VALUE_NULL", String::new()),
            Json::Array(_) => ("START_ARRAY", "[".to_owned()),
            Json::Object(_) => ("START_OBJECT", "{".to_owned()),
        };
        let is_read = match field.kind {
            FieldKind::Boolean => matches!(json, Json::Bool(_) | Json::String(_)),
            FieldKind::Int | FieldKind::Double | FieldKind::Currency | FieldKind::Percent => {
                matches!(json, Json::Number(_) | Json::String(_))
            }
            _ => json.is_string(),
        };
        let wrong = || {
            let message = format!(
                "Cannot deserialize instance of {} from {token} value {text} or request may be \
                 missing a required field",
                field.kind.deserialized()
            );
            RowError::new("JSON_PARSER_ERROR", message).on(&field.name)
        };
        if !is_read {
            return Err(wrong());
        }
        Self::from_text(field, &text).map_err(|error| match error.code.as_str() {
            "INVALID_TYPE_ON_FIELD_IN_RECORD" => wrong(),
            _ => error,
        })
    }

    pub(crate) fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            Self::Int(number) => json!(number),
            Self::Double(number) => json!(number),
            Self::Bool(flag) => json!(flag),
        }
    }

    /// Formats the value as in a bulk result.
    pub(crate) fn to_cell(&self) -> String {
        match self {
            Self::Text(text) => text.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Double(number) => java_double(*number),
            Self::Bool(flag) => flag.to_string(),
        }
    }

    /// Returns the key that makes two values equal for a unique field.
    pub(crate) fn index_key(&self, field: &SchemaField) -> String {
        match self {
            Self::Text(text) if field.case_sensitive => text.to_string(),
            Self::Text(text) => text.to_lowercase(),
            other => other.to_cell(),
        }
    }
}

fn double(text: &str) -> Option<FieldValue> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let number = text.parse::<f64>().ok().filter(|number| plain && number.is_finite())?;
    Some(FieldValue::Double(number))
}

fn date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Parses a time with any offset; stored in UTC.
fn date_time(text: &str) -> Option<String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(crate::clock::written(time));
    }
    // `+0000` is the spelling of Salesforce.
    let with_colon =
        format!("{}:{}", text.get(..text.len().checked_sub(2)?)?, text.get(text.len() - 2..)?);
    with_colon.parse::<jiff::Timestamp>().ok().map(crate::clock::written)
}

fn reference(field: &SchemaField, text: &str) -> Result<FieldValue, RowError> {
    let id = Id::parse(text).ok_or_else(|| {
        let message = format!("{}: id value of incorrect type: {text}", field.label);
        RowError::new("MALFORMED_ID", message).on(&field.name)
    })?;
    Ok(FieldValue::Text(id.as_str().into()))
}

fn long_text(field: &SchemaField, text: &str) -> Result<FieldValue, RowError> {
    let text = text.trim();
    let refused = |code, message| Err(RowError::new(code, message).on(&field.name));
    if text.chars().count() > field.length {
        let shown: String = text.chars().take(255).collect();
        let label = &field.label;
        let message =
            format!("{label}: data value too large: {shown} (max length={})", field.length);
        return refused("STRING_TOO_LONG", message);
    }
    if field.kind == FieldKind::Email && !is_email(text) {
        let message = format!("{}: invalid email address: {text}", field.label);
        return refused("INVALID_EMAIL_ADDRESS", message);
    }
    if field.kind == FieldKind::Picklist && !field.values.iter().any(|value| value == text) {
        let message = format!("{}: bad value for restricted picklist field: {text}", field.label);
        return refused("INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", message);
    }
    Ok(FieldValue::Text(text.into()))
}

fn is_email(text: &str) -> bool {
    let Some((name, host)) = text.split_once('@') else { return false };
    let blank = text.chars().any(|c| c.is_whitespace() || c.is_control());
    !name.is_empty()
        && !blank
        && host.contains('.')
        && !host.contains('@')
        && !host.starts_with('.')
        && !host.ends_with('.')
}

/// Formats like `Double.toString` of Java: always a point, an exponent outside 0.001 to 10,000,000.
fn java_double(number: f64) -> String {
    if number == 0.0 || (1e-3..1e7).contains(&number.abs()) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn field(kind: &str, rest: &str) -> (Schema, usize) {
        let text =
            format!("[[object]]\nname='A'\n[[object.field]]\nname='F__c'\ntype='{kind}'\n{rest}");
        (Schema::from_toml(&text).unwrap(), 5)
    }

    fn read(kind: &str, rest: &str, text: &str) -> Result<String, String> {
        let (schema, index) = field(kind, rest);
        let value = FieldValue::from_text(&schema.objects[0].fields[index], text);
        value.map(|value| value.to_cell()).map_err(|error| error.in_bulk())
    }

    #[test]
    fn doubles_come_back_as_java_writes_them() {
        for (text, cell) in [
            ("912260031", "9.12260031E8"),
            ("5", "5.0"),
            ("0", "0.0"),
            ("1e3", "1000.0"),
            ("10000000", "1.0E7"),
            ("9999999", "9999999.0"),
            ("-0.00015", "-1.5E-4"),
            ("0.001", "0.001"),
        ] {
            assert_eq!(read("double", "", text).unwrap(), cell);
        }
    }

    #[test]
    fn each_type_reads_its_documented_spellings() {
        for (kind, text, cell) in [
            ("boolean", "1", "true"),
            ("boolean", "FALSE", "false"),
            ("int", "800", "800"),
            ("date", "2024-02-29", "2024-02-29"),
            ("datetime", "2024-02-29T10:00:00.000Z", "2024-02-29T10:00:00.000+0000"),
            ("datetime", "2024-02-29T10:00:00+02:00", "2024-02-29T08:00:00.000+0000"),
            ("datetime", "2024-02-29T10:00:00.000+0000", "2024-02-29T10:00:00.000+0000"),
            ("text", "  blanks  go ", "blanks  go"),
            ("email", "a@example.org", "a@example.org"),
        ] {
            assert_eq!(read(kind, "", text).unwrap(), cell);
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_with_its_code() {
        for (kind, rest, text, code) in [
            ("boolean", "", "yes", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("int", "", "1.5", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("int", "", "2147483648", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("double", "", "inf", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("double", "", "1e300", "NUMBER_OUTSIDE_VALID_RANGE"),
            ("date", "", "2024-02-30", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("date", "", "2024-02-29Z", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("datetime", "", "", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("datetime", "", "yesterday", "INVALID_TYPE_ON_FIELD_IN_RECORD"),
            ("text", "length=3", "four", "STRING_TOO_LONG"),
            ("email", "", "nobody", "INVALID_EMAIL_ADDRESS"),
            ("picklist", "values=['a']", "b", "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
            ("lookup", "to='A'\nrelationship='R'", "x", "MALFORMED_ID"),
        ] {
            let error = read(kind, rest, text).unwrap_err();
            assert!(error.starts_with(&format!("{code}:")), "{error}");
            assert!(error.ends_with(":F__c --"), "{error}");
        }
    }

    #[test]
    fn a_json_value_of_the_wrong_type_is_an_error_of_the_body() {
        for (kind, json, says) in [
            ("double", json!("abc"), "double from VALUE_STRING value abc"),
            ("currency", json!(true), "double from VALUE_TRUE"),
            ("int", json!(1.5), "int from VALUE_NUMBER_FLOAT value 1.5"),
            ("boolean", json!("yes"), "boolean from VALUE_STRING value yes"),
            ("boolean", json!(1), "boolean from VALUE_NUMBER_INT value 1"),
            ("date", json!("2024-02-30"), "date from VALUE_STRING"),
            ("text", json!(5), "string from VALUE_NUMBER_INT value 5"),
            ("text", json!([1]), "string from START_ARRAY"),
        ] {
            let (schema, index) = field(kind, "");
            let error = FieldValue::from_json(&schema.objects[0].fields[index], &json).unwrap_err();
            assert_eq!(error.code, "JSON_PARSER_ERROR", "{kind} {json}");
            assert!(error.message.contains(says), "{}", error.message);
        }
        for (kind, json, cell) in [
            ("double", json!("1.5"), "1.5"),
            ("double", json!(5), "5.0"),
            ("boolean", json!("true"), "true"),
            ("text", json!("5"), "5"),
        ] {
            let (schema, index) = field(kind, "");
            let value = FieldValue::from_json(&schema.objects[0].fields[index], &json);
            assert_eq!(value.unwrap().to_cell(), cell);
        }
        let (schema, index) = field("text", "length=3");
        let long = FieldValue::from_json(&schema.objects[0].fields[index], &json!("four"));
        assert_eq!(long.unwrap_err().code, "STRING_TOO_LONG", "an error of the record");
    }

    #[test]
    fn lengths_are_counted_in_characters() {
        assert!(read("text", "length=3", "äöü").is_ok());
        assert!(read("text", "length=3", "😀😀😀").is_ok());
    }
}
