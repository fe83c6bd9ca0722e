//! The statements of one adopted table: templates of this folder with its names filled in.

use super::dialect::{PostgresDialect, PostgresTerms};
use crate::adopt::{
    Adoption,
    catalog::{DeadLetterTable, FoundTable, WRITTEN, unordered},
    sql_comment,
    terms::{AdoptSql, Values, fingerprint, identifier, render},
};

/// Before rows that exist are copied.
const UNVALIDATED: &str = "SET LOCAL relais.adopted = 'on'";

/// The statements of one adopted table.
#[derive(Clone, Debug)]
pub(in super::super) struct AdoptScript {
    /// The table with its schema, quoted: `adopted_by` of the copies.
    pub(super) name: String,
    /// The schema of relais's tables, quoted.
    pub(super) schema: String,
    /// The copies are in the inbox.
    pub(super) is_inbox: bool,
    pub(super) copy_body: String,
    pub(super) reset_body: String,
    pub(super) functions: String,
    pub(super) triggers: String,
    pub(super) drop_triggers: String,
    /// Copies the rows that exist.
    pub(super) existing: String,
    /// Why they cannot be copied in order.
    pub(super) unordered: Option<String>,
    /// Copies one row by its key.
    pub(super) copy_one: String,
    /// Reads what one row sends by its key, if it is still to be sent.
    pub(super) current: String,
    /// Makes other rows of a received message that were reset too wait for its result.
    pub(super) once: String,
    /// Locks rows before results are written into them.
    pub(super) lock_rows: String,
    /// Moves failed rows to the dead letters of the application.
    pub(super) bury: Option<String>,
    /// Writes results back; none if the table has no column for them.
    pub(super) write_back: Option<String>,
    pub(super) grants: String,
}

/// The templates that differ between the inbox and the outbox.
struct CopyTemplates {
    copy: &'static str,
    copy_body: &'static str,
    reset_body: &'static str,
    is_new: &'static str,
    current: &'static str,
    once: &'static str,
}

impl CopyTemplates {
    fn of(adoption: &Adoption) -> Self {
        match adoption.is_inbox() {
            false => Self {
                copy: adopt_sql!("copy"),
                copy_body: adopt_sql!("copy_body"),
                reset_body: adopt_sql!("reset_body"),
                is_new: adopt_sql!("is_new"),
                current: adopt_sql!("current"),
                once: "",
            },
            true => Self {
                copy: adopt_sql!("inbox_copy"),
                copy_body: adopt_sql!("inbox_copy_body"),
                reset_body: adopt_sql!("inbox_reset_body"),
                is_new: adopt_sql!("inbox_is_new"),
                current: adopt_sql!("inbox_current"),
                once: adopt_sql!("inbox_once"),
            },
        }
    }
}

impl AdoptScript {
    /// `table` must fit the adoption.
    pub(super) fn of(adoption: &Adoption, table: &FoundTable) -> Self {
        let terms = PostgresTerms::new(adoption, table);
        let name = table.name.as_str();
        let id = terms.identifier("id");
        let key_type = terms.found("id").map_or("text", |column| &column.type_name);
        let by_created = match adoption.column("created_at") {
            Some(column) => format!("ORDER BY r.{}, r.{id}", identifier(column)),
            None => format!("ORDER BY r.{id}"),
        };
        let one = format!("(SELECT * FROM {name} AS a WHERE a.{id} = $1::text::{key_type})");
        let [copy_function, reset_function] = function_names(name);
        let condition = terms.is_reset();
        let in_schema = |function: &str| {
            PostgresDialect::literal(&format!("{}.{function}()", table.relais_schema))
        };
        let mut values = terms.of_row("t");
        values.extend(terms.of_copy());
        values.extend([
            ("table", name.to_owned()),
            ("schema", table.relais_schema.clone()),
            ("id", id.clone()),
            ("key_type", key_type.to_owned()),
            ("copy_name", in_schema(&copy_function)),
            ("reset_name", in_schema(&reset_function)),
            ("copy_function", copy_function),
            ("reset_function", reset_function),
            ("condition", condition.clone()),
            ("assignments", terms.assignments().join(",\n    ")),
            ("has_time", adoption.column("next_attempt_at").is_some().to_string()),
            ("table_schema", table.schema.clone()),
            ("rights", rights(&terms)),
        ]);
        let templates = CopyTemplates::of(adoption);
        let unknown = render(templates.is_new, &[&values]).trim_end().to_owned();
        let copy = |source: &str, order: &str, is_new: &str| {
            let place = [("source", source), ("order", order), ("is_new", is_new)];
            let place = place.map(|(name, value)| (name, value.to_owned()));
            render(templates.copy, &[&place, &values]).trim_end().to_owned()
        };
        let copies = [
            ("copy", copy("relais_new", "", "TRUE")),
            ("copy_rest", copy("relais_new", "", &unknown)),
        ];
        let copy_body = render(templates.copy_body, &[&copies, &values]);
        let mut new = terms.of_row("NEW");
        new.push(("condition", condition));
        let reset_body = render(templates.reset_body, &[&new]);
        let bodies = [("copy_body", copy_body.clone()), ("reset_body", reset_body.clone())];
        let plain = |template| render(template, &[&values]);
        Self {
            functions: render(adopt_sql!("functions"), &[&bodies, &values]),
            triggers: plain(adopt_sql!("triggers")),
            drop_triggers: plain(adopt_sql!("drop_triggers")),
            existing: copy(name, &by_created, &unknown),
            unordered: unordered(adoption, table),
            copy_one: copy(&one, "", &unknown),
            current: plain(templates.current),
            once: plain(templates.once),
            write_back: (!terms.assignments().is_empty()).then(|| plain(adopt_sql!("write_back"))),
            lock_rows: plain(adopt_sql!("lock_rows")),
            grants: plain(adopt_sql!("grants")) + &dead_letter_rights(table),
            is_inbox: adoption.is_inbox(),
            name: name.to_owned(),
            schema: table.relais_schema.clone(),
            bury: bury(table, &terms, &values),
            copy_body,
            reset_body,
        }
    }

    /// Returns everything that an installation runs, as one transaction.
    pub(super) fn print(&self, with_existing: bool) -> String {
        let existing = if with_existing {
            format!(
                "{}{UNVALIDATED};\n{};\n",
                sql_comment(self.unordered.as_deref()),
                self.existing.trim()
            )
        } else {
            String::new()
        };
        format!("BEGIN;\n{}{}{existing}COMMIT;\n{}", self.functions, self.triggers, self.grants)
    }
}

/// Returns the names of the functions that the triggers of a table call.
pub(super) fn function_names(table: &str) -> [String; 2] {
    ["copy", "reset"].map(|kind| format!("relais_adopted_{kind}_{:016x}", fingerprint(table)))
}

/// Returns the statement that writes a dead letter into the application's table, if it has one.
fn bury(table: &FoundTable, terms: &PostgresTerms<'_>, values: &Values) -> Option<String> {
    let dead_letters = table.dead_letters.as_ref()?;
    let own = |meaning| (meaning, terms.identifier(meaning));
    let columns = [own("event_type"), own("payload"), own("created_at")];
    let error_max = dead_letters.error_max.unwrap_or(i32::MAX).to_string();
    let place = [("dead_letters", dead_letters.name.clone()), ("error_max", error_max)];
    Some(render(adopt_sql!("bury"), &[&place, &columns, values]))
}

/// Returns the rights on the table that the role of `relais run` needs.
fn rights(terms: &PostgresTerms<'_>) -> String {
    let written: Vec<String> = WRITTEN
        .iter()
        .filter_map(|meaning| terms.adoption.column(meaning).map(identifier))
        .collect();
    let update = match written.as_slice() {
        [] => String::new(),
        columns => format!(", UPDATE ({})", columns.join(", ")),
    };
    let delete = if terms.table.dead_letters.is_some() { ", DELETE" } else { "" };
    format!("SELECT{update}{delete}")
}

/// Returns the right on the table of dead letters.
fn dead_letter_rights(table: &FoundTable) -> String {
    let right =
        |table: &DeadLetterTable| format!("--   GRANT INSERT ON {} TO the role;\n", table.name);
    table.dead_letters.as_ref().map(right).unwrap_or_default()
}
