//! The roles of tokens.

use relais_core::setting::SettingWords;
use serde::Serialize;

/// A role; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything but payloads and headers.
    Monitor,
    /// Also sees payloads and headers.
    Viewer,
    /// Acts on rows, keys and processes; retries and reprocesses in bulk.
    Operator,
    /// Also changes payloads and discards in bulk, which cannot be undone.
    Admin,
}

impl Role {
    /// All roles, the one with the fewest rights first.
    pub const ALL: [Self; 4] = [Self::Monitor, Self::Viewer, Self::Operator, Self::Admin];

    /// Returns the name of the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Monitor => "monitor",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Parses the name of a role.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl SettingWords for Role {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("monitor", Self::Monitor),
        ("viewer", Self::Viewer),
        ("operator", Self::Operator),
        ("admin", Self::Admin),
    ];
}
