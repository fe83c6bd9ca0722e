//! JSON as bytes: checked, looked into, never rewritten.
//!
//! Payloads pass through relais byte for byte. What is parsed here is a copy, so numbers beyond 2^53,
//! duplicate keys and odd white space survive.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::value::RawValue;

/// Deepest nesting accepted; deeper input is stored as undecodable instead of risking the stack of
/// later readers.
pub const DEPTH_MAX: usize = 128;

/// Why bytes are not JSON that relais accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    #[error("empty body where JSON is expected")]
    Empty,
    #[error("not UTF-8 at byte {at}")]
    NotUtf8 { at: usize },
    #[error("not valid JSON: {0}")]
    Syntax(String),
    #[error("nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

impl JsonError {
    /// The stable code stored in `error_code`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "EMPTY",
            Self::NotUtf8 { .. } => "NOT_UTF8",
            Self::Syntax(_) => "INVALID_JSON",
            Self::TooDeep => "JSON_TOO_DEEP",
        }
    }
}

/// The bytes as text if they are one JSON value of tolerable depth.
pub fn check(bytes: &[u8]) -> Result<&str, JsonError> {
    if bytes.is_empty() {
        return Err(JsonError::Empty);
    }
    let text =
        std::str::from_utf8(bytes).map_err(|e| JsonError::NotUtf8 { at: e.valid_up_to() })?;
    if depth(bytes) > DEPTH_MAX {
        return Err(JsonError::TooDeep);
    }
    serde_json::from_str::<&RawValue>(text).map_err(|e| JsonError::Syntax(e.to_string()))?;
    Ok(text)
}

/// Returns true if every number of a JSON text fits the 64 bits of serde without becoming
/// another one.
pub(crate) fn keeps_numbers(json: &str) -> bool {
    let (mut in_string, mut escaped, mut from) = (false, false, None);
    for (at, byte) in json.bytes().chain([b' ']).enumerate() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.') {
            from = from.or(Some(at));
        } else if !(from.is_some() && matches!(byte, b'e' | b'E')) {
            in_string = byte == b'"';
            if from.take().is_some_and(|from| !keeps_number(&json[from..at])) {
                return false;
            }
        }
    }
    true
}

fn keeps_number(text: &str) -> bool {
    let held = serde_json::from_str::<serde_json::Number>(text);
    held.is_ok_and(|held| decimal(&held.to_string()) == decimal(text))
}

/// Sign, digits without zeros around them, and the power of ten of the last; nothing for zero, and for an
/// exponent beyond all bounds.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let moved = i64::try_from(digits.len() - kept.len()).ok()?;
    let power = exponent.parse::<i64>().ok()?.saturating_add(moved);
    let power = power.saturating_sub(i64::try_from(fraction.len()).ok()?);
    let kept = kept.trim_start_matches('0');
    (!kept.is_empty()).then(|| (negative, kept.to_owned(), power))
}

/// Deepest nesting of brackets outside strings.
fn depth(bytes: &[u8]) -> usize {
    let (mut level, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => {
                    level += 1;
                    deepest = deepest.max(level);
                }
                b'}' | b']' => level = level.saturating_sub(1),
                _ => {}
            }
        }
    }
    deepest
}

/// The value at an RFC 6901 pointer (`""` is the whole document), or `None`.
pub fn pointer<'a>(json: &'a str, pointer: &str) -> Option<&'a str> {
    let mut here = json.trim();
    if pointer.is_empty() {
        return Some(here);
    }
    for part in pointer.strip_prefix('/')?.split('/') {
        let part = part.replace("~1", "/").replace("~0", "~");
        here = match here.as_bytes().first()? {
            b'{' => fields(here)?.get(part.as_str()).copied()?,
            b'[' => items(here)?.get(index(&part)?).copied()?,
            _ => return None,
        };
    }
    Some(here)
}

/// The number of an element: digits alone, and none too many.
fn index(part: &str) -> Option<usize> {
    let plain = part == "0" || !part.starts_with(['0', '+']);
    part.parse().ok().filter(|_| plain)
}

fn fields(json: &str) -> Option<BTreeMap<Cow<'_, str>, &str>> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Fields<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);
    let fields: Fields<'_> = serde_json::from_str(json).ok()?;
    Some(fields.0.into_iter().map(|(k, v)| (k, v.get())).collect())
}

/// The elements of a JSON array, or `None` if it is not one.
pub fn items(json: &str) -> Option<Vec<&str>> {
    let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

/// A scalar as plain text: a string without its quotes, a number or boolean as written. `null` and
/// a string that is no Unicode (a lone surrogate) have none; objects and arrays show as JSON.
pub fn text(json: &str) -> Option<String> {
    match json.trim() {
        "null" => None,
        quoted if quoted.starts_with('"') => serde_json::from_str(quoted).ok(),
        other => Some(other.to_owned()),
    }
}

/// Replaces each `{{name}}` of a template by the JSON that `find` has for it; the result must be JSON.
pub fn fill<'a>(
    template: &str,
    mut find: impl FnMut(&str) -> Result<&'a str, String>,
) -> Result<String, String> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) =
            after.split_once("}}").ok_or("`{{` without `}}` in the payload template")?;
        out.push_str(before);
        out.push_str(find(name.trim())?);
        rest = after;
    }
    out.push_str(rest);
    check(out.as_bytes()).map_err(|error| format!("filled template is {error}"))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_json_says_why() {
        assert_eq!(check(b""), Err(JsonError::Empty));
        assert_eq!(check(b"{\"a\":\xff}"), Err(JsonError::NotUtf8 { at: 5 }));
        assert!(matches!(check(b"{\"a\":1"), Err(JsonError::Syntax(_))));
        assert!(matches!(check(b"{} x"), Err(JsonError::Syntax(_))));
        assert_eq!(check("[".repeat(5_000).as_bytes()), Err(JsonError::TooDeep));
        assert!(check(format!("{}1{}", "[".repeat(128), "]".repeat(128)).as_bytes()).is_ok());
    }

    #[test]
    fn odd_but_valid_json_is_accepted_as_it_is() {
        for odd in ["1e400", "{\"a\":1,\"a\":2}", "\"\\ud800\"", " [9007199254740993] ", "null"] {
            assert_eq!(check(odd.as_bytes()), Ok(odd));
        }
        assert_eq!(depth(br#""[[[\"[[""#), 0);
    }

    #[test]
    fn pointers_find_values_without_changing_them() {
        let json = r#"{"a/b": [10, {"m~n": 9007199254740993}], "t": "x\ny", "n": null}"#;
        assert_eq!(pointer(json, "/a~1b/1/m~0n"), Some("9007199254740993"));
        assert_eq!(pointer(json, "/t").and_then(text).as_deref(), Some("x\ny"));
        assert_eq!(pointer(json, "/n").and_then(text), None);
        for nothing in ["/a~1b/7", "/a~1b/00", "/a~1b/+1", "/a~1b/-", "/a~1b/"] {
            assert_eq!(pointer(json, nothing), None, "{nothing}");
        }
        assert_eq!(pointer(json, "t"), None);
        assert_eq!(pointer("5", ""), Some("5"));
    }

    #[test]
    fn numbers_that_would_become_others_are_known() {
        for kept in [
            "1",
            "-0.0",
            "1.10",
            "0.1",
            "1e3",
            "0e9223372036854775807",
            "[18446744073709551615,-9223372036854775808]",
        ] {
            assert!(keeps_numbers(kept), "{kept}");
        }
        assert!(keeps_numbers(r#"{"id":"9007199254740993123456789\\","e":true,"n":2.5E-3}"#));
        for other in ["9007199254740993123456789", "1e400", "0.1000000000000000055511151231257827"]
        {
            assert!(!keeps_numbers(other), "{other}");
            assert!(!keeps_numbers(&format!("{{\"a\\\"\": [{other}]}}")), "{other}");
        }
    }
}
