//! Numbered scripts that make relais's tables. The numbers mean the same on every database.

/// One script; each is applied in a transaction of its own, exactly once.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub number: i64,
    pub name: &'static str,
    pub sql: &'static str,
}

/// The schema this program needs: the number of the last script.
pub const SCHEMA_VERSION: i64 = 1;
