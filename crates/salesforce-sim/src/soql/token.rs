//! Splits a query into tokens.

use crate::row_error::RowError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum SoqlToken {
    /// A keyword or a name, possibly with dots.
    Word(String),
    Text(String),
    /// A number, a date or a time, as written.
    Literal(String),
    /// `( ) , = != < > <= >=`.
    Sign(&'static str),
}

const SIGNS: [&str; 10] = ["<=", ">=", "!=", "<>", "(", ")", ",", "=", "<", ">"];
/// The limit of Salesforce.
const QUERY_MAX: usize = 100_000;

pub(super) fn malformed(message: impl Into<String>) -> RowError {
    RowError::new("MALFORMED_QUERY", message)
}

pub(super) fn tokens(text: &str) -> Result<Vec<SoqlToken>, RowError> {
    if text.len() > QUERY_MAX {
        return Err(malformed("the query has more than 100000 characters"));
    }
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
        let length = if let Some(sign) = sign {
            tokens.push(SoqlToken::Sign(sign));
            sign.len()
        } else if first == '\'' {
            let (value, length) = quoted(rest)?;
            tokens.push(SoqlToken::Text(value));
            length
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = word(rest, |c| c.is_ascii_alphanumeric() || "_.".contains(c));
            tokens.push(SoqlToken::Word(rest[..length].to_owned()));
            length
        } else if first.is_ascii_digit() || first == '-' || first == '+' {
            let length = word(rest, |c| c.is_ascii_alphanumeric() || "+-.:".contains(c));
            tokens.push(SoqlToken::Literal(rest[..length].to_owned()));
            length
        } else {
            return Err(malformed(format!("unexpected token: '{first}'")));
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn word(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|c| !fits(c)).unwrap_or(text.len())
}

/// Returns the value of a text in single quotes, and its length in the query.
fn quoted(text: &str) -> Result<(String, usize), RowError> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Ok((value, at + 1)),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, 't')) => value.push('\t'),
                // `\_` and `\%` keep their meaning for LIKE.
                Some((_, c @ ('_' | '%'))) => value.extend(['\\', c]),
                Some((_, c)) => value.push(c),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err(malformed("line 1: a quote is not closed"))
}
