//! What somebody may do.

use serde::Serialize;

/// Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything but payloads and headers.
    Monitor,
    /// Also sees payloads and headers.
    Viewer,
    /// Acts on rows, keys and processes; replays and repairs many.
    Operator,
    /// Also changes payloads and discards many: what cannot be taken back.
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Monitor, Self::Viewer, Self::Operator, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Monitor => "monitor",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}
