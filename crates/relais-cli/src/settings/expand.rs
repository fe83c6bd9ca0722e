//! `${NAME}` in a setting becomes the environment variable; `$${` stands for a plain `${`.

/// Why a text could not be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpandError {
    #[error("environment variable `{0}` is not set; set it, or write `$${{` for a plain `${{`")]
    Missing(String),
    #[error("`${{` without `}}`; write `$${{` for a plain `${{`")]
    Unclosed,
    /// Not repeated: it may be a part of a secret.
    #[error(
        "`${{…}}` does not name an environment variable; use letters, digits and `_`, or write `$${{` for a plain `${{`"
    )]
    BadName,
}

/// Replaces every `${NAME}` by what `lookup` says. What comes in is not expanded again.
pub(crate) fn expand(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ExpandError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        let after = &from["${".len()..];
        if let Some(escaped) = before.strip_suffix('$') {
            out.push_str(escaped);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let (name, after) = after.split_once('}').ok_or(ExpandError::Unclosed)?;
        out.push_str(&value_of(name, lookup)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn value_of(name: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !starts_well || !plain {
        return Err(ExpandError::BadName);
    }
    lookup(name).ok_or_else(|| ExpandError::Missing(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<String, ExpandError> {
        expand(text, &|name| match name {
            "HOST" => Some("db.example".into()),
            "ODD" => Some("${HOST}".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_filled_in_once() {
        assert_eq!(check("postgres://${HOST}/x${EMPTY}").unwrap(), "postgres://db.example/x");
        assert_eq!(check("${ODD}").unwrap(), "${HOST}");
        assert_eq!(check("costs 5$ {HOST}").unwrap(), "costs 5$ {HOST}");
    }

    #[test]
    fn a_doubled_dollar_keeps_the_text() {
        assert_eq!(check("$${HOST}").unwrap(), "${HOST}");
        assert_eq!(check("a$${b${HOST}").unwrap(), "a${bdb.example");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(check("${NOPE}").unwrap_err(), ExpandError::Missing("NOPE".into()));
        assert_eq!(check("${HOST").unwrap_err(), ExpandError::Unclosed);
        assert_eq!(check("${A B}").unwrap_err(), ExpandError::BadName);
        assert_eq!(
            check("${NOPE}").unwrap_err().to_string(),
            "environment variable `NOPE` is not set; set it, or write `$${` for a plain `${`"
        );
    }
}
