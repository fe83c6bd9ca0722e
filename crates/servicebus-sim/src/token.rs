//! Shared access signatures: `SharedAccessSignature sr=…&sig=…&se=…&skn=…`.
//!
//! Pure: time is an argument.

use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;

/// Checks signature, name and end of a token. Returns the path of its resource, in lower case, and its end.
pub(crate) fn check(
    token: &str,
    key_name: &str,
    key: &str,
    now: SystemTime,
) -> Result<(String, SystemTime), String> {
    let fields =
        token.strip_prefix("SharedAccessSignature ").ok_or("no shared access signature")?;
    let field = |name: &str| {
        let mut pairs = fields.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(known, _)| *known == name);
        found.map(|(_, value)| value).ok_or(format!("the token has no `{name}`"))
    };
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (resource, end) = (field("sr")?, field("se")?);
    if plain(field("skn")?) != key_name {
        return Err("the key name is not known".to_owned());
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signature = hmac::sign(&key, format!("{resource}\n{end}").as_bytes());
    if plain(field("sig")?) != STANDARD.encode(signature.as_ref()) {
        return Err("the signature is not valid".to_owned());
    }
    let seconds: u64 = end.parse().map_err(|_| "`se` is no number".to_owned())?;
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    if end <= now {
        return Err("the token has expired".to_owned());
    }
    Ok((path_of(&plain(resource)), end))
}

/// Returns the path of a resource, in lower case.
fn path_of(resource: &str) -> String {
    let rest = resource.split_once("://").map_or(resource, |(_, rest)| rest);
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    path.trim_end_matches('/').to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_for_its_key_and_time() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let signed = hmac::sign(&key, b"sb%3A%2F%2Fns%2FQ\n4000000000");
        let signature = STANDARD.encode(signed.as_ref()).replace('+', "%2B").replace('=', "%3D");
        let token = format!(
            "SharedAccessSignature sr=sb%3A%2F%2Fns%2FQ&sig={signature}&se=4000000000&skn=name"
        );
        let early = SystemTime::UNIX_EPOCH;
        let late = early + Duration::from_secs(4_000_000_000);
        assert_eq!(check(&token, "name", "secret", early).unwrap(), ("q".to_owned(), late));
        assert!(check(&token, "name", "secret", late).unwrap_err().contains("expired"));
        assert!(check(&token, "name", "other", early).unwrap_err().contains("signature"));
        assert!(check(&token, "else", "secret", early).unwrap_err().contains("key name"));
        assert!(check("Bearer x", "name", "secret", early).is_err());
    }
}
