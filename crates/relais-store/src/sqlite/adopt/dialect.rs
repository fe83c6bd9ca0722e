//! The SQL of SQLite for adopted tables. What a trigger contains must run in the SQLite of the application, which may
//! be older than that of relais.

use crate::adopt::{
    catalog::{FoundColumn, FoundTable},
    terms::{AdoptSql, Terms, fingerprint},
};

/// The expressions of one table.
pub(super) type SqliteTerms<'a> = Terms<'a, SqliteDialect>;

pub(super) struct SqliteDialect;

/// The names of relais's own times.
const RELAIS_TIME: &str = "%Y-%m-%dT%H:%M:%fZ";
/// The times of SQLite itself, which most libraries write.
const SQLITE_TIME: &str = "%Y-%m-%d %H:%M:%f";

impl AdoptSql for SqliteDialect {
    const IS_TYPED: bool = false;
    const NO_TIME: &'static str = "NULL";
    const NOT_BY_RELAIS: &'static str = "";

    fn types_of(meaning: &str) -> &'static [&'static str] {
        match meaning {
            "id" => &["integer", "text", "uuid", "numeric"],
            "payload" | "headers" => &["text", "json"],
            "status" | "error" | "raw_payload" => &["text"],
            "sent_at" | "next_attempt_at" => &["text", "timestamp"],
            "attempts" => &["integer", "numeric"],
            _ => &[],
        }
    }

    fn literal(text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    fn text(value: &str) -> String {
        format!("CAST({value} AS TEXT)")
    }

    /// A UUID is itself, and an integer gives one with the table; for another key it is chosen at random.
    fn message_id(_: &FoundColumn, table: &FoundTable, value: &str) -> String {
        let sum = format!("{:016x}", fingerprint(&table.name));
        let of_table = format!("{}-{}-8{}", &sum[..8], &sum[8..12], &sum[12..15]);
        format!(
            "CASE WHEN typeof({value}) = 'integer' \
             THEN printf('{of_table}-8%03x-%012x', ({value} >> 48) & 4095, {value} & 281474976710655) \
             WHEN {value} GLOB '????????-????-????-????-????????????' AND {value} NOT GLOB '*[^0-9a-fA-F-]*' \
             AND length(replace({value}, '-', '')) = 32 THEN lower({value}) \
             ELSE lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) \
             || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))) END"
        )
    }

    fn headers(_: &FoundColumn, value: &str) -> String {
        format!(
            "CASE WHEN json_valid({value}) AND json_type({value}) = 'object' THEN CAST({value} AS TEXT) \
             ELSE '{{}}' END"
        )
    }

    fn future(_: &FoundColumn, value: &str) -> String {
        let at = format!("strftime('{RELAIS_TIME}', {value})");
        format!("CASE WHEN {at} > strftime('{RELAIS_TIME}', 'now') THEN {at} END")
    }

    fn time(_: &FoundColumn, value: &str) -> String {
        format!("strftime('{SQLITE_TIME}', {value})")
    }

    fn cut(value: &str, chars_max: i32) -> String {
        format!("substr({value}, 1, {chars_max})")
    }

    /// SQLite has no hash, and its indexes take a value of any length.
    fn identity(value: &str, _: i32) -> String {
        value.to_owned()
    }

    fn of_type(_: &FoundColumn, value: &str) -> String {
        value.to_owned()
    }

    fn differ(one: &str, other: &str) -> String {
        format!("{one} IS NOT {other}")
    }
}
