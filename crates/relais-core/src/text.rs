//! Text that must fit a column: cut on a character boundary, and free of what databases refuse.

use uuid::Uuid;

/// Longest `error_message` a row keeps, in characters.
pub const ERROR_MESSAGE_MAX: usize = 2_000;
/// Longest `error_code` a row keeps, in characters.
pub const ERROR_CODE_MAX: usize = 200;
/// Longest message id a row keeps as it is; longer ones are replaced by their hash.
pub const MESSAGE_ID_MAX: usize = 200;
/// Longest key a row keeps as it is; longer ones are replaced by their hash.
pub const KEY_MAX: usize = 1_000;

/// Longest aggregate id a row keeps, in characters. It is sent to targets, so it is never replaced.
pub const AGGREGATE_ID_MAX: usize = 1_000;
/// Most characters of an id that are shown in an error.
const SHOWN_MAX: usize = 300;

/// At most `chars_max` characters of `text`, with U+0000 (which PostgreSQL refuses) replaced.
pub fn fit(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if c == '\0' { '\u{FFFD}' } else { c }).collect()
}

/// `text` itself if it is short enough and has no U+0000, else `sha256:` and the hash of it: two
/// different identities never become one.
///
/// Only for what is compared (message ids, keys), never for what a target gets as the id of a record.
pub fn identity(text: &str, chars_max: usize) -> String {
    if text.contains('\0') || text.chars().count() > chars_max {
        format!("sha256:{}", sha256_hex(text.as_bytes()))
    } else {
        text.to_owned()
    }
}

/// `id` itself if a row can keep it as an aggregate id. The error names it and what is wrong.
pub fn aggregate_id(id: &str) -> Result<&str, String> {
    kept(id, AGGREGATE_ID_MAX)
}

/// `text` itself if [`identity`] would not replace it. The error names it and what is wrong.
pub(crate) fn kept(text: &str, chars_max: usize) -> Result<&str, String> {
    let shown = || text.chars().take(SHOWN_MAX).collect::<String>().escape_debug().to_string();
    if text.contains('\0') {
        return Err(format!("the id \"{}\" contains U+0000, which databases refuse", shown()));
    }
    match text.chars().count() {
        count if count > chars_max => Err(format!(
            "the id \"{}…\" has {count} characters, at most {chars_max} are kept",
            shown()
        )),
        _ => Ok(text),
    }
}

/// The SHA-256 of `bytes` in lower-case hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// An id that is always the same for the same parts, and another for others.
pub fn stable_uuid(parts: &[&str]) -> Uuid {
    use sha2::Digest;
    // Lengths before the parts, so that `a`, `bc` and `ab`, `c` differ.
    let name: String = parts.iter().map(|part| format!("{}:{part}", part.len())).collect();
    let digest = sha2::Sha256::digest(name.as_bytes());
    let bytes = digest[..16].try_into().expect("a SHA-256 has 32 bytes");
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        let long = "😀".repeat(ERROR_MESSAGE_MAX + 5);
        let cut = fit(&long, ERROR_MESSAGE_MAX);
        assert_eq!(cut.chars().count(), ERROR_MESSAGE_MAX);
        assert_eq!(fit("a\0b", 10), "a\u{FFFD}b");
    }

    #[test]
    fn long_and_strange_ids_stay_distinct() {
        let (a, b) = ("x".repeat(300), "x".repeat(301));
        assert_ne!(identity(&a, MESSAGE_ID_MAX), identity(&b, MESSAGE_ID_MAX));
        assert_ne!(identity("a\0", MESSAGE_ID_MAX), identity("a", MESSAGE_ID_MAX));
        assert_eq!(identity("m-1", MESSAGE_ID_MAX), "m-1");
        assert!(identity(&a, MESSAGE_ID_MAX).len() < MESSAGE_ID_MAX);
    }

    #[test]
    fn an_aggregate_id_is_kept_or_refused_but_never_replaced() {
        for id in ["m-1".to_owned(), "x".repeat(201), "😀".repeat(AGGREGATE_ID_MAX)] {
            assert_eq!(aggregate_id(&id), Ok(id.as_str()));
        }
        let why = aggregate_id(&"y".repeat(AGGREGATE_ID_MAX + 1)).unwrap_err();
        assert!(why.contains("\"yyyy") && why.contains("1001"), "{why}");
        let why = aggregate_id("a\0b").unwrap_err();
        assert!(why.contains("a\\0b") && !why.contains('\0'), "{why}");
    }

    #[test]
    fn the_same_parts_give_the_same_id_and_others_another() {
        assert_eq!(stable_uuid(&["a", "bc"]), stable_uuid(&["a", "bc"]));
        assert_ne!(stable_uuid(&["a", "bc"]), stable_uuid(&["ab", "c"]));
    }
}
