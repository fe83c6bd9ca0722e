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

/// At most `chars_max` characters of `text`, with U+0000 (which PostgreSQL refuses) replaced.
pub fn fit(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if c == '\0' { '\u{FFFD}' } else { c }).collect()
}

/// `text` itself if it is short enough and has no U+0000, else `sha256:` and the hash of it: two
/// different identities never become one.
pub fn identity(text: &str, chars_max: usize) -> String {
    if text.contains('\0') || text.chars().count() > chars_max {
        format!("sha256:{}", sha256_hex(text.as_bytes()))
    } else {
        text.to_owned()
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
    fn the_same_parts_give_the_same_id_and_others_another() {
        assert_eq!(stable_uuid(&["a", "bc"]), stable_uuid(&["a", "bc"]));
        assert_ne!(stable_uuid(&["a", "bc"]), stable_uuid(&["ab", "c"]));
    }
}
