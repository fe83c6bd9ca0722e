//! A text nobody may see: it has no `Display` and its `Debug` hides it.

use std::fmt;

/// A token, header value or option that must not appear in logs, errors or dumps.
///
/// ```
/// use relais_connect::Secret;
///
/// assert_eq!(format!("{:?}", Secret::new("hunter2")), "[hidden]");
/// ```
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; only for putting it on the wire.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `candidate` is the secret. The time it takes tells nothing about either, not even
    /// their lengths: hashes are compared.
    #[cfg(feature = "http")]
    pub(crate) fn matches(&self, candidate: &[u8]) -> bool {
        use sha2::{Digest, Sha256};
        use subtle::ConstantTimeEq;
        let (ours, theirs) = (Sha256::digest(self.0.as_bytes()), Sha256::digest(candidate));
        ours.as_slice().ct_eq(theirs.as_slice()).into()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}
