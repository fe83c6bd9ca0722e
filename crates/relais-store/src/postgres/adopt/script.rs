//! The statements of one adopted table: templates of this folder with its names filled in.
//!
//! Invariant: a name or word gets into a statement only as a quoted identifier or literal; what is filled in is
//! not searched for placeholders again.

use super::catalog::{DeadLetterTable, FoundColumn, FoundTable};
use super::layout::{AdoptDestination, Adoption};

/// The destination of a row whose column names none: it waits there and is shown.
const NO_DESTINATION: &str = "(none)";

/// Before rows that exist are copied.
const UNVALIDATED: &str = "SET LOCAL relais.adopted = 'on'";

/// The statements of one adopted table.
#[derive(Clone, Debug)]
pub(super) struct AdoptScript {
    /// The table with its schema, quoted: `adopted_by` of the copies.
    pub(super) name: String,
    pub(super) copy_body: String,
    pub(super) reset_body: String,
    pub(super) functions: String,
    pub(super) triggers: String,
    pub(super) drop_triggers: String,
    /// Copies the rows that exist.
    pub(super) existing: String,
    /// Copies one row by its key.
    pub(super) copy_one: String,
    /// Reads what one row sends by its key, if it is still to be sent.
    pub(super) current: String,
    /// Locks rows before results are written into them.
    pub(super) lock_rows: String,
    /// Moves failed rows to the dead letters of the application.
    pub(super) bury: Option<String>,
    /// Writes results back; none if the table has no column for them.
    pub(super) write_back: Option<String>,
    pub(super) grants: String,
}

impl AdoptScript {
    /// `table` must fit the adoption.
    pub(super) fn of(adoption: &Adoption, table: &FoundTable) -> Self {
        let terms = Terms { adoption, table };
        let name = table.name.as_str();
        let (id, key_type) = (terms.identifier("id"), terms.type_of("id"));
        let by_created = match adoption.column("created_at") {
            Some(column) => format!("ORDER BY r.{}, r.{id}", identifier(column)),
            None => format!("ORDER BY r.{id}"),
        };
        let one = format!("(SELECT * FROM {name} AS a WHERE a.{id} = $1::text::{key_type})");
        let hash = fingerprint(name);
        let (copy_function, reset_function) =
            (format!("relais_adopted_copy_{hash}"), format!("relais_adopted_reset_{hash}"));
        let condition = terms.is_reset();
        let mut values = terms.of_row("t");
        values.extend([
            ("table", name.to_owned()),
            ("schema", table.relais_schema.clone()),
            ("id", id.clone()),
            ("key_type", key_type.to_owned()),
            ("copy_function", copy_function),
            ("reset_function", reset_function),
            ("condition", condition.clone()),
            ("written", terms.is_written().to_owned()),
            ("assignments", terms.assignments().join(",\n    ")),
            ("has_time", adoption.column("next_attempt_at").is_some().to_string()),
            ("table_schema", table.schema.clone()),
            ("rights", terms.rights()),
        ]);
        let unknown = render(adopt_sql!("is_new"), &[&values]).trim_end().to_owned();
        let copy = |source: &str, order: &str, is_new: &str| {
            let place = [("source", source), ("order", order), ("is_new", is_new)];
            let place = place.map(|(name, value)| (name, value.to_owned()));
            render(adopt_sql!("copy"), &[&place, &values]).trim_end().to_owned()
        };
        let copies = [
            ("copy", copy("relais_new", "", "TRUE")),
            ("copy_rest", copy("relais_new", "", &unknown)),
        ];
        let copy_body = render(adopt_sql!("copy_body"), &[&copies, &values]);
        let new = terms.of_row("NEW");
        let reset_body = render(adopt_sql!("reset_body"), &[&[("condition", condition)], &new]);
        let bodies = [("copy_body", copy_body.clone()), ("reset_body", reset_body.clone())];
        let plain = |template| render(template, &[&values]);
        let bury = table.dead_letters.as_ref().map(|dead_letters| {
            let own = |meaning| (meaning, terms.identifier(meaning));
            let columns = [own("event_type"), own("payload"), own("created_at")];
            let error_max = dead_letters.error_max.unwrap_or(i32::MAX).to_string();
            let place = [("dead_letters", dead_letters.name.clone()), ("error_max", error_max)];
            render(adopt_sql!("bury"), &[&place, &columns, &values])
        });
        Self {
            functions: render(adopt_sql!("functions"), &[&bodies, &values]),
            triggers: plain(adopt_sql!("triggers")),
            drop_triggers: plain(adopt_sql!("drop_triggers")),
            existing: copy(name, &by_created, &unknown),
            copy_one: copy(&one, "", &unknown),
            current: plain(adopt_sql!("current")),
            write_back: (!terms.assignments().is_empty()).then(|| plain(adopt_sql!("write_back"))),
            lock_rows: plain(adopt_sql!("lock_rows")),
            grants: plain(adopt_sql!("grants")) + &terms.dead_letter_rights(),
            name: name.to_owned(),
            bury,
            copy_body,
            reset_body,
        }
    }

    /// Returns everything that an installation runs, as one transaction.
    pub(super) fn print(&self, with_existing: bool) -> String {
        let existing = if with_existing {
            format!("{UNVALIDATED};\n{};\n", self.existing.trim())
        } else {
            String::new()
        };
        format!("BEGIN;\n{}{}{existing}COMMIT;\n{}", self.functions, self.triggers, self.grants)
    }
}

/// Values of placeholders.
type Values = [(&'static str, String)];

/// Expressions over the columns of an adopted table.
struct Terms<'a> {
    adoption: &'a Adoption,
    table: &'a FoundTable,
}

impl Terms<'_> {
    fn identifier(&self, meaning: &str) -> String {
        identifier(self.adoption.column(meaning).unwrap_or_default())
    }

    fn found(&self, meaning: &str) -> Option<&FoundColumn> {
        self.table.column(self.adoption.column(meaning)?)
    }

    fn type_of(&self, meaning: &str) -> &str {
        self.found(meaning).map_or("text", |column| &column.type_name)
    }

    /// Returns the values of a copy, of a row that has this name in the statement.
    fn of_row(&self, row: &str) -> Vec<(&'static str, String)> {
        let text = |meaning| {
            let column = self.adoption.column(meaning)?;
            Some(format!("{row}.{}::text", identifier(column)))
        };
        let or = |value: Option<String>, other: &str| match value {
            Some(value) => format!("coalesce({value}, {other})"),
            None => other.to_owned(),
        };
        let key = format!("{row}.{}::text", self.identifier("id"));
        let name = literal(&self.table.name);
        let plain = literal(&self.table.plain);
        let message_id = match self.found("id").map(|column| column.base.as_str()) {
            Some("uuid") => format!("{row}.{}", self.identifier("id")),
            _ => format!("md5('relais:' || {name} || ':' || {key})::uuid"),
        };
        let destination = match &self.adoption.destination {
            AdoptDestination::Name(destination) => literal(destination),
            AdoptDestination::Column(column) => format!(
                "coalesce(nullif({row}.{}::text, ''), {})",
                identifier(column),
                literal(NO_DESTINATION)
            ),
        };
        let category = text("category").map_or("'event'".to_owned(), |column| {
            format!(
                "CASE WHEN lower({column}) IN ('event', 'command', 'reply') THEN lower({column}) \
                 ELSE 'event' END"
            )
        });
        let headers = self.found("headers").map_or("'{}'".to_owned(), |found| {
            let column = format!("{row}.{}", identifier(&found.name));
            let base = &found.base;
            format!(
                "CASE WHEN {base}_typeof({column}) = 'object' THEN {column}::text ELSE '{{}}' END"
            )
        });
        let next_attempt =
            self.found("next_attempt_at").map_or("NULL::timestamptz".to_owned(), |found| {
                let at = zoned(found, &format!("{row}.{}", identifier(&found.name)));
                format!("CASE WHEN {at} > clock_timestamp() THEN {at} END")
            });
        let aggregate_id = or(text("aggregate_id").or_else(|| text("key")), &key);
        vec![
            ("message_id", message_id),
            ("category", category),
            ("aggregate_type", or(text("aggregate_type"), &plain)),
            ("event_type", or(text("event_type"), &plain)),
            ("payload", or(text("payload"), "'null'")),
            ("headers", headers),
            ("destination", destination),
            ("msg_key", or(text("key"), &aggregate_id)),
            ("aggregate_id", aggregate_id),
            ("next_attempt", next_attempt),
            ("pending", self.is_pending(row)),
            ("name", name),
            ("key", key),
        ]
    }

    fn is_pending(&self, row: &str) -> String {
        match (self.adoption.column("status"), self.adoption.column("sent_at")) {
            (Some(status), _) => {
                let new = literal(self.adoption.state("new").unwrap_or_default());
                format!("{row}.{}::text = {new}", identifier(status))
            }
            (None, Some(sent_at)) => format!("{row}.{} IS NULL", identifier(sent_at)),
            (None, None) => "TRUE".to_owned(),
        }
    }

    /// Returns whether an UPDATE of the application asks for the row to be sent again, or changes what is sent,
    /// when or where to.
    fn is_reset(&self) -> String {
        let of = |meaning| self.adoption.column(meaning);
        let destination = match &self.adoption.destination {
            AdoptDestination::Column(column) => Some(column.as_str()),
            AdoptDestination::Name(_) => None,
        };
        let columns = [of("payload"), of("headers"), of("next_attempt_at"), destination];
        let changed = columns.into_iter().flatten().map(|column| {
            let column = identifier(column);
            format!("OLD.{column}::text IS DISTINCT FROM NEW.{column}::text")
        });
        format!(
            "current_setting('relais.write_back', true) IS DISTINCT FROM 'on' AND {} AND (({}) IS NOT TRUE \
             OR {})",
            self.is_pending("NEW"),
            self.is_pending("OLD"),
            changed.collect::<Vec<_>>().join(" OR ")
        )
    }

    /// Without a column for it, a failed attempt that is not the last is not written.
    fn is_written(&self) -> &'static str {
        let has = |meaning| self.adoption.column(meaning).is_some();
        if has("attempts") || has("next_attempt_at") {
            "TRUE"
        } else {
            "(o.status <> 'PENDING' OR o.attempts = 0)"
        }
    }

    fn assignments(&self) -> Vec<String> {
        let word = |state| literal(self.adoption.state(state).unwrap_or_default());
        let mut all = Vec::new();
        if let Some(found) = self.found("status") {
            all.push(format!(
                "{} = (CASE s.status WHEN 'DISPATCHED' THEN {} WHEN 'FAILED' THEN {} ELSE {} END)::text::{}",
                identifier(&found.name),
                word("sent"),
                word("failed"),
                word("new"),
                found.type_name
            ));
        }
        if let Some(found) = self.found("sent_at") {
            let at = zoned(found, "s.dispatched_at");
            all.push(format!(
                "{} = CASE WHEN s.status = 'DISPATCHED' THEN {at} END",
                identifier(&found.name)
            ));
        }
        if let Some(found) = self.found("attempts") {
            let column = identifier(&found.name);
            all.push(format!(
                "{column} = CASE WHEN s.status = 'DISPATCHED' THEN t.{column} ELSE s.attempts END"
            ));
        }
        if let Some(found) = self.found("next_attempt_at") {
            all.push(format!(
                "{} = {}",
                identifier(&found.name),
                zoned(found, "s.next_attempt_at")
            ));
        }
        if let Some(found) = self.found("error") {
            let max = found.chars_max.unwrap_or(i32::MAX);
            all.push(format!(
                "{} = CASE WHEN s.status <> 'DISPATCHED' THEN left(s.error_message, {max}) END",
                identifier(&found.name)
            ));
        }
        all
    }

    fn rights(&self) -> String {
        let written: Vec<String> = ["status", "sent_at", "attempts", "next_attempt_at", "error"]
            .iter()
            .filter_map(|meaning| self.adoption.column(meaning).map(identifier))
            .collect();
        let update = match written.as_slice() {
            [] => String::new(),
            columns => format!(", UPDATE ({})", columns.join(", ")),
        };
        let delete = if self.table.dead_letters.is_some() { ", DELETE" } else { "" };
        format!("SELECT{update}{delete}")
    }

    /// Returns the right on the table of dead letters.
    fn dead_letter_rights(&self) -> String {
        let table = self.table.dead_letters.as_ref();
        let right =
            |table: &DeadLetterTable| format!("--   GRANT INSERT ON {} TO the role;\n", table.name);
        table.map(right).unwrap_or_default()
    }
}

/// A time of relais for a column, or of a column for relais: one without a time zone is UTC.
fn zoned(column: &FoundColumn, value: &str) -> String {
    match column.base.as_str() {
        "timestamp" => format!("({value} AT TIME ZONE 'UTC')"),
        _ => value.to_owned(),
    }
}

/// Fills in `:name` placeholders; `::` is a cast.
fn render(template: &str, values: &[&Values]) -> String {
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

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    match quoted.contains('\\') {
        true => format!("E'{}'", quoted.replace('\\', "\\\\")),
        false => format!("'{quoted}'"),
    }
}

/// A short name for the functions of a table.
fn fingerprint(name: &str) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let sum = name.bytes().fold(OFFSET, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{sum:016x}")
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
    fn names_and_words_are_quoted() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!((literal("it's"), literal("a\\'")), ("'it''s'".into(), "E'a\\\\'''".into()));
    }
}
