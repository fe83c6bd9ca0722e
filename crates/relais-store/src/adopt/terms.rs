//! Expressions over the columns of an adopted table, for the templates of a driver.
//!
//! Invariant: a name or word gets into a statement only as a quoted identifier or literal; what is filled in is
//! not searched for placeholders again.

use std::marker::PhantomData;

use relais_core::inbox::INBOX_SEPARATOR;

use super::{
    AdoptDestination, Adoption,
    catalog::{FoundColumn, FoundTable},
};

/// The destination of a row whose column names none: it waits there and is shown.
const NO_DESTINATION: &str = "(none)";
/// Most characters of a destination that a copy keeps: an index of PostgreSQL takes about 2,700 bytes. A row that
/// names a longer one waits.
const DESTINATION_MAX: i32 = 500;
/// Most characters of a message id or source that are kept as they are; `relais_core::text::MESSAGE_ID_MAX`.
const NAME_MAX: i32 = 200;
/// Stands for [`INBOX_SEPARATOR`] in the name of a source: a row must not get into another inbox by its name.
const NO_SEPARATOR: &str = "..";

/// The SQL of a database, where databases differ.
pub(crate) trait AdoptSql {
    /// False if a column holds values of any type.
    const IS_TYPED: bool;
    /// A time that is not known.
    const NO_TIME: &'static str;
    /// A condition of an UPDATE that is not by relais itself, and AND; empty if relais removes what it caused.
    const NOT_BY_RELAIS: &'static str;

    /// Returns the types that a column may have, by its meaning; none if any.
    fn types_of(meaning: &str) -> &'static [&'static str];
    fn literal(text: &str) -> String;
    fn text(value: &str) -> String;
    /// Returns the message id of a row by its primary key.
    fn message_id(id: &FoundColumn, table: &FoundTable, value: &str) -> String;
    /// Returns headers, or an empty object for a value that is none.
    fn headers(column: &FoundColumn, value: &str) -> String;
    /// Returns a time of the table for relais, if it is in the future.
    fn future(column: &FoundColumn, value: &str) -> String;
    /// Returns a time of relais for a column.
    fn time(column: &FoundColumn, value: &str) -> String;
    fn cut(value: &str, chars_max: i32) -> String;
    /// Returns a name of a message, or its hash if it is too long for an index: as `relais_core::text::identity`.
    fn identity(value: &str, chars_max: i32) -> String;
    /// Returns a text as a value of the column.
    fn of_type(column: &FoundColumn, value: &str) -> String;
    fn differ(one: &str, other: &str) -> String;
}

/// The expressions of one table.
pub(crate) struct Terms<'a, D> {
    pub(crate) adoption: &'a Adoption,
    pub(crate) table: &'a FoundTable,
    dialect: PhantomData<D>,
}

impl<'a, D: AdoptSql> Terms<'a, D> {
    pub(crate) fn new(adoption: &'a Adoption, table: &'a FoundTable) -> Self {
        Self { adoption, table, dialect: PhantomData }
    }

    pub(crate) fn identifier(&self, meaning: &str) -> String {
        identifier(self.adoption.column(meaning).unwrap_or_default())
    }

    pub(crate) fn found(&self, meaning: &str) -> Option<&'a FoundColumn> {
        self.table.column(self.adoption.column(meaning)?)
    }

    /// Returns the values of a copy, of a row that has this name in the statement.
    pub(crate) fn of_row(&self, row: &str) -> Vec<(&'static str, String)> {
        let next_attempt = self.found("next_attempt_at").map_or(D::NO_TIME.to_owned(), |found| {
            D::future(found, &format!("{row}.{}", identifier(&found.name)))
        });
        let headers = self.found("headers").map_or("'{}'".to_owned(), |found| {
            D::headers(found, &format!("{row}.{}", identifier(&found.name)))
        });
        let mut values = match &self.adoption.destination {
            AdoptDestination::Inbox(inbox) => self.of_received(row, inbox),
            _ => self.of_sent(row),
        };
        values.extend([
            ("headers", headers),
            ("next_attempt", next_attempt),
            ("pending", self.is_pending(row)),
            ("name", D::literal(&self.table.name)),
            ("key", self.key(row)),
        ]);
        values
    }

    fn key(&self, row: &str) -> String {
        D::text(&format!("{row}.{}", self.identifier("id")))
    }

    fn text(&self, row: &str, meaning: &str) -> Option<String> {
        let column = self.adoption.column(meaning)?;
        Some(D::text(&format!("{row}.{}", identifier(column))))
    }

    fn of_sent(&self, row: &str) -> Vec<(&'static str, String)> {
        let text = |meaning| self.text(row, meaning);
        let (key, plain) = (self.key(row), D::literal(&self.table.plain));
        let id = format!("{row}.{}", self.identifier("id"));
        let message_id = self.found("id").map(|found| D::message_id(found, self.table, &id));
        let destination = match &self.adoption.destination {
            AdoptDestination::Name(name) | AdoptDestination::Inbox(name) => D::literal(name),
            AdoptDestination::Column(column) => {
                let value = D::text(&format!("{row}.{}", identifier(column)));
                let is_short = has_at_most(self.table.column(column), DESTINATION_MAX);
                let value = if is_short { value } else { D::cut(&value, DESTINATION_MAX) };
                format!("coalesce(nullif({value}, ''), {})", D::literal(NO_DESTINATION))
            }
        };
        let category = text("category").map_or("'event'".to_owned(), |column| {
            format!(
                "CASE WHEN lower({column}) IN ('event', 'command', 'reply') THEN lower({column}) \
                 ELSE 'event' END"
            )
        });
        let aggregate_id = or(text("aggregate_id").or_else(|| text("key")), &key);
        vec![
            ("message_id", message_id.unwrap_or_default()),
            ("category", category),
            ("aggregate_type", or(text("aggregate_type"), &plain)),
            ("event_type", or(text("event_type"), &plain)),
            ("payload", or(text("payload"), "'null'")),
            ("destination", destination),
            ("msg_key", or(text("key"), &aggregate_id)),
            ("aggregate_id", aggregate_id),
        ]
    }

    fn of_received(&self, row: &str, inbox: &str) -> Vec<(&'static str, String)> {
        let text = |meaning| self.text(row, meaning);
        let some = |meaning| text(meaning).map(|value| format!("nullif({value}, '')"));
        let (key, plain) = (self.key(row), D::literal(&self.table.plain));
        let null = || "NULL".to_owned();
        let payload = text("payload").unwrap_or_else(null);
        let raw = text("raw_payload").unwrap_or_else(null);
        let is_raw = format!("{payload} IS NULL AND {raw} IS NOT NULL");
        let only_raw = |value: &str| format!("CASE WHEN {is_raw} THEN {value} END");
        let named = |meaning| {
            let is_short = has_at_most(self.found(meaning), NAME_MAX);
            some(meaning).map(|value| if is_short { value } else { D::identity(&value, NAME_MAX) })
        };
        let source = named("source").map(|value| {
            format!(
                "replace({value}, {}, {})",
                D::literal(INBOX_SEPARATOR),
                D::literal(NO_SEPARATOR)
            )
        });
        let source = or(source, &plain);
        let source = match inbox {
            "" => source,
            name => format!("{} || {source}", D::literal(&format!("{name}{INBOX_SEPARATOR}"))),
        };
        let message_id = or(named("message_id"), &key);
        let msg_key = [some("key"), some("aggregate_id")].into_iter().flatten();
        vec![
            ("source_system", source),
            (
                "msg_key",
                msg_key.rev().fold(message_id.clone(), |other, value| or(Some(value), &other)),
            ),
            ("message_id", message_id),
            ("topic", plain.clone()),
            ("aggregate_id", text("aggregate_id").unwrap_or_else(null)),
            ("event_type", or(some("event_type"), &plain)),
            (
                "payload",
                format!(
                    "CASE WHEN {raw} IS NULL THEN coalesce({payload}, 'null') ELSE {payload} END"
                ),
            ),
            ("raw", only_raw(&raw)),
            ("status", format!("CASE WHEN {is_raw} THEN 'SERDE_ERROR' ELSE 'RECEIVED' END")),
            ("stage", only_raw("'CONSUMER_SERDE'")),
            ("problem", only_raw("'the application stored only the raw payload'")),
        ]
    }

    fn is_pending(&self, row: &str) -> String {
        match (self.adoption.column("status"), self.adoption.column("sent_at")) {
            (Some(status), _) => {
                let words = ["new", "retry"].iter().filter_map(|state| self.adoption.state(state));
                let words: Vec<String> = words.map(D::literal).collect();
                let status = D::text(&format!("{row}.{}", identifier(status)));
                match words.as_slice() {
                    [word] => format!("{status} = {word}"),
                    words => format!("{status} IN ({})", words.join(", ")),
                }
            }
            (None, Some(sent_at)) => format!("{row}.{} IS NULL", identifier(sent_at)),
            (None, None) => "TRUE".to_owned(),
        }
    }

    /// Returns whether an UPDATE of the application asks for the row to be sent again, or changes what is sent,
    /// when or where to.
    pub(crate) fn is_reset(&self) -> String {
        let of = |meaning| self.adoption.column(meaning);
        let columns = [
            of("id"),
            of("payload"),
            of("raw_payload"),
            of("headers"),
            of("next_attempt_at"),
            self.adoption.destination_column(),
        ];
        let changed = columns.into_iter().flatten().map(|column| {
            let column = identifier(column);
            let of_row = |row| D::text(&format!("{row}.{column}"));
            D::differ(&of_row("OLD"), &of_row("NEW"))
        });
        format!(
            "{}{} AND (({}) IS NOT TRUE OR {})",
            D::NOT_BY_RELAIS,
            self.is_pending("NEW"),
            self.is_pending("OLD"),
            changed.collect::<Vec<_>>().join(" OR ")
        )
    }

    /// Returns the names of relais's own table and what its states mean, of a copy `o`.
    pub(crate) fn of_copy(&self) -> Vec<(&'static str, String)> {
        let (copies, done_at, open, state) = match self.adoption.is_inbox() {
            false => (
                "relais_outbox",
                "dispatched_at",
                "o.status = 'PENDING'",
                "CASE o.status WHEN 'DISPATCHED' THEN 'sent' WHEN 'FAILED' THEN 'failed' \
                 ELSE CASE WHEN o.error_code IS NULL THEN 'new' ELSE 'retry' END END",
            ),
            true => (
                "relais_inbox",
                "processed_at",
                "o.status IN ('RECEIVED', 'RETRY')",
                "CASE o.status WHEN 'PROCESSED' THEN 'sent' WHEN 'RETRY' THEN 'retry' WHEN 'RECEIVED' THEN 'new' \
                 ELSE 'failed' END",
            ),
        };
        let has = |meaning| self.adoption.column(meaning).is_some();
        // Without a column or word for it, a failed attempt that is not the last is not written.
        let shows_retry = self.adoption.state("retry").is_some();
        let written = match has("attempts") || has("next_attempt_at") || shows_retry {
            true => "TRUE".to_owned(),
            false => format!("(NOT ({open}) OR o.attempts = 0)"),
        };
        let values = [("copies", copies), ("done_at", done_at), ("open", open), ("state", state)];
        let values = values.map(|(name, value)| (name, value.to_owned()));
        values.into_iter().chain([("written", written)]).collect()
    }

    /// Returns what is written into the columns of a row `t`, of a result `s`.
    pub(crate) fn assignments(&self) -> Vec<String> {
        let word = |state| D::literal(self.adoption.state(state).unwrap_or_default());
        let mut all = Vec::new();
        let mut set = |found: &FoundColumn, value: String| {
            all.push(format!("{} = {value}", identifier(&found.name)));
        };
        if let Some(found) = self.found("status") {
            let retry = if self.adoption.state("retry").is_some() { "retry" } else { "new" };
            let value = format!(
                "CASE s.state WHEN 'sent' THEN {} WHEN 'failed' THEN {} WHEN 'retry' THEN {} ELSE {} END",
                word("sent"),
                word("failed"),
                word(retry),
                word("new")
            );
            set(found, D::of_type(found, &format!("({value})")));
        }
        if let Some(found) = self.found("sent_at") {
            let at = D::time(found, "s.done_at");
            set(found, format!("CASE WHEN s.state = 'sent' THEN {at} END"));
        }
        if let Some(found) = self.found("attempts") {
            let column = identifier(&found.name);
            set(found, format!("CASE WHEN s.state = 'sent' THEN t.{column} ELSE s.attempts END"));
        }
        if let Some(found) = self.found("next_attempt_at") {
            set(found, D::time(found, "s.next_attempt_at"));
        }
        if let Some(found) = self.found("error") {
            let text = D::cut("s.error_message", found.chars_max.unwrap_or(i32::MAX));
            set(found, format!("CASE WHEN s.state <> 'sent' THEN {text} END"));
        }
        all
    }
}

/// Returns whether the column limits its texts to this number of characters, or to fewer.
fn has_at_most(column: Option<&FoundColumn>, chars: i32) -> bool {
    column.and_then(|column| column.chars_max).is_some_and(|most| most <= chars)
}

fn or(value: Option<String>, other: &str) -> String {
    match value {
        Some(value) => format!("coalesce({value}, {other})"),
        None => other.to_owned(),
    }
}

/// Values of placeholders.
pub(crate) type Values = [(&'static str, String)];

/// Fills in `:name` placeholders; `::` is a cast.
pub(crate) fn render(template: &str, values: &[&Values]) -> String {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let (mut out, mut rest) = (String::new(), template);
    while let Some(at) = rest.find(':') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("::") {
            out.push_str("::");
            rest = after;
            continue;
        }
        let name = &rest[1..];
        let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
        let found = values.iter().flat_map(|v| v.iter()).find(|(known, _)| *known == &name[..end]);
        match found {
            Some((_, value)) => out.push_str(value),
            None => out.push_str(&rest[..=end]),
        }
        rest = &name[end..];
    }
    out.push_str(rest);
    out
}

pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a short name for what belongs to a table.
pub(crate) fn fingerprint(name: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    name.bytes().fold(OFFSET, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_once_and_casts_are_left() {
        let values = [("a", ":b".to_owned()), ("b", "x".to_owned())];
        assert_eq!(
            render("SELECT :a, y::text:::b, :unknown", &[&values]),
            "SELECT :b, y::text::x, :unknown"
        );
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }
}
