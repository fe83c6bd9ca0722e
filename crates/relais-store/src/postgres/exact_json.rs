//! JSON as the server writes it, without rounding.

use std::collections::BTreeMap;

use relais_core::json::DEPTH_MAX;
use serde_json::{Map, Number, Value, value::RawValue};

/// A JSON value without rounding: a number that no 64-bit number holds exactly stays as text.
pub(super) fn exact(json: &str) -> Value {
    nested(json.trim(), DEPTH_MAX)
}

fn nested(json: &str, depth: usize) -> Value {
    let plain = || serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()));
    let inner = |raw: &RawValue| nested(raw.get().trim(), depth - 1);
    match json.as_bytes().first() {
        Some(b'{' | b'[') if depth == 0 => Value::String(json.to_owned()),
        Some(b'{') => match serde_json::from_str::<BTreeMap<String, &RawValue>>(json) {
            Ok(fields) => {
                let fields = fields.into_iter().map(|(name, raw)| (name, inner(raw)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Err(_) => plain(),
        },
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(json) {
            Ok(items) => Value::Array(items.into_iter().map(inner).collect()),
            Err(_) => plain(),
        },
        Some(b'-' | b'0'..=b'9') => number(json),
        _ => plain(),
    }
}

fn number(digits: &str) -> Value {
    let text = || Value::String(digits.to_owned());
    if let Ok(whole) = digits.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.into();
    }
    let Ok(float) = digits.parse::<f64>() else { return text() };
    let without_zeros = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    // With an exponent it was a 64-bit number to begin with.
    let kept = digits.contains(['e', 'E']) || float.to_string() == without_zeros(digits);
    match Number::from_f64(float) {
        Some(number) if kept => Value::Number(number),
        _ => text(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_not_rounded() {
        let json = r#"{"whole":9007199254740993,"big":123456789012345678901,"money":10.50,
            "long":0.12345678901234567891,"float":1e300,"deep":[{"x":-1.5,"y":5.00000000000000000001}],
            "zero":0,"text":"1.50","none":null,"yes":true}"#;
        let expected = json!({
            "whole": 9_007_199_254_740_993_i64, "big": "123456789012345678901", "money": 10.5,
            "long": "0.12345678901234567891", "float": 1e300,
            "deep": [{"x": -1.5, "y": "5.00000000000000000001"}],
            "zero": 0, "text": "1.50", "none": null, "yes": true,
        });
        assert_eq!(exact(json), expected);
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(!exact(&deep).is_null());
    }
}
