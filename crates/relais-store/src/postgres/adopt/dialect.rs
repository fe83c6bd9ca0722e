//! The SQL of PostgreSQL for adopted tables.

use crate::adopt::{
    catalog::{FoundColumn, FoundTable},
    terms::{AdoptSql, Terms},
};

/// The expressions of one table.
pub(super) type PostgresTerms<'a> = Terms<'a, PostgresDialect>;

pub(super) struct PostgresDialect;

impl AdoptSql for PostgresDialect {
    const IS_TYPED: bool = true;
    const NO_TIME: &'static str = "NULL::timestamptz";
    const NOT_BY_RELAIS: &'static str =
        "current_setting('relais.write_back', true) IS DISTINCT FROM 'on' AND ";

    fn types_of(meaning: &str) -> &'static [&'static str] {
        match meaning {
            "id" => &["uuid", "int2", "int4", "int8", "numeric", "text", "varchar"],
            "payload" => &["text", "varchar", "json", "jsonb"],
            "headers" => &["json", "jsonb"],
            "status" | "error" | "raw_payload" => &["text", "varchar"],
            "sent_at" | "next_attempt_at" => &["timestamptz", "timestamp"],
            "attempts" => &["int2", "int4", "int8", "numeric"],
            _ => &[],
        }
    }

    fn literal(text: &str) -> String {
        let quoted = text.replace('\'', "''");
        match quoted.contains('\\') {
            true => format!("E'{}'", quoted.replace('\\', "\\\\")),
            false => format!("'{quoted}'"),
        }
    }

    fn text(value: &str) -> String {
        format!("{value}::text")
    }

    fn message_id(id: &FoundColumn, table: &FoundTable, value: &str) -> String {
        match id.base.as_str() {
            "uuid" => value.to_owned(),
            _ => {
                let name = Self::literal(&table.name);
                format!("md5('relais:' || {name} || ':' || {value}::text)::uuid")
            }
        }
    }

    fn headers(column: &FoundColumn, value: &str) -> String {
        let base = &column.base;
        format!("CASE WHEN {base}_typeof({value}) = 'object' THEN {value}::text ELSE '{{}}' END")
    }

    fn future(column: &FoundColumn, value: &str) -> String {
        let at = Self::time(column, value);
        format!("CASE WHEN {at} > clock_timestamp() THEN {at} END")
    }

    /// A time of relais for a column, or of a column for relais: one without a time zone is UTC.
    fn time(column: &FoundColumn, value: &str) -> String {
        match column.base.as_str() {
            "timestamp" => format!("({value} AT TIME ZONE 'UTC')"),
            _ => value.to_owned(),
        }
    }

    fn cut(value: &str, chars_max: i32) -> String {
        format!("left({value}, {chars_max})")
    }

    fn identity(value: &str, chars_max: i32) -> String {
        format!(
            "CASE WHEN length({value}) > {chars_max} \
             THEN 'sha256:' || encode(sha256(convert_to({value}, 'UTF8')), 'hex') ELSE {value} END"
        )
    }

    fn of_type(column: &FoundColumn, value: &str) -> String {
        format!("{value}::text::{}", column.type_name)
    }

    fn differ(one: &str, other: &str) -> String {
        format!("{one} IS DISTINCT FROM {other}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted() {
        let literal = PostgresDialect::literal;
        assert_eq!((literal("it's"), literal("a\\'")), ("'it''s'".into(), "E'a\\\\'''".into()));
    }
}
