//! The statements of one adopted table: templates of this folder with its names filled in.

use super::dialect::SqliteTerms;
use crate::adopt::{
    Adoption,
    catalog::{FoundTable, unordered},
    sql_comment,
    terms::{fingerprint, identifier, render},
};

/// The statements of one adopted table.
#[derive(Clone, Debug)]
pub(in super::super) struct AdoptScript {
    /// The table, quoted: `adopted_by` of the copies.
    pub(super) name: String,
    /// Not quoted.
    pub(super) plain: String,
    /// The copies are in the inbox.
    pub(super) is_inbox: bool,
    /// The text of each trigger, as the file keeps it.
    pub(super) triggers: [String; 2],
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
    /// Moves failed rows to the dead letters of the application: one statement copies, one removes.
    pub(super) bury: Option<[String; 2]>,
    /// Writes results back; none if the table has no column for them.
    pub(super) write_back: Option<String>,
}

/// The templates that differ between the inbox and the outbox.
struct CopyTemplates {
    copy: &'static str,
    copy_trigger: &'static str,
    is_new: &'static str,
    current: &'static str,
    once: &'static str,
}

impl CopyTemplates {
    fn of(adoption: &Adoption) -> Self {
        match adoption.is_inbox() {
            false => Self {
                copy: adopt_sql!("copy"),
                copy_trigger: adopt_sql!("copy_trigger"),
                is_new: adopt_sql!("is_new"),
                current: adopt_sql!("current"),
                once: "",
            },
            true => Self {
                copy: adopt_sql!("inbox_copy"),
                copy_trigger: adopt_sql!("inbox_copy_trigger"),
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
        let terms = SqliteTerms::new(adoption, table);
        let templates = CopyTemplates::of(adoption);
        let id = terms.identifier("id");
        let order = match adoption.column("created_at") {
            Some(column) => format!("t.{}, t.{id}", identifier(column)),
            None => format!("t.{id}"),
        };
        let hash = format!("{:016x}", fingerprint(&table.name));
        let common = [
            ("table", table.name.clone()),
            ("id", id),
            ("order", order),
            ("copy_trigger", format!("relais_adopted_copy_{hash}")),
            ("reset_trigger", format!("relais_adopted_reset_{hash}")),
            ("condition", terms.is_reset()),
            ("assignments", terms.assignments().join(",\n    ")),
            ("has_time", adoption.column("next_attempt_at").is_some().to_string()),
        ];
        // Twice: of a row of the table, and of the new row in a trigger.
        let values = |row| {
            let of_row = terms.of_row(row);
            let part = |template| {
                let text = render(template, &[&of_row, &common]);
                text.trim_end().to_owned()
            };
            let parts = [("copy", part(templates.copy)), ("is_new", part(templates.is_new))];
            of_row.iter().cloned().chain(parts).chain(terms.of_copy()).collect::<Vec<_>>()
        };
        let (of_table, of_new) = (values("t"), values("NEW"));
        let plain = |template| render(template, &[&of_table, &common]);
        let trigger = |template| render(template, &[&of_new, &common]).trim_end().to_owned();
        let bury = table.dead_letters.as_ref().map(|dead_letters| {
            let own = |name, meaning| (name, terms.identifier(meaning));
            let columns = [
                own("event_type", "event_type"),
                own("payload_column", "payload"),
                own("created_at", "created_at"),
                ("dead_letters", dead_letters.name.clone()),
                ("error_max", dead_letters.error_max.unwrap_or(i32::MAX).to_string()),
            ];
            let rendered = |template| render(template, &[&columns, &common]);
            [rendered(adopt_sql!("bury")), rendered(adopt_sql!("remove_buried"))]
        });
        Self {
            triggers: [trigger(templates.copy_trigger), trigger(adopt_sql!("reset_trigger"))],
            existing: plain(adopt_sql!("copy_rows")),
            unordered: unordered(adoption, table),
            copy_one: plain(adopt_sql!("copy_one")),
            current: plain(templates.current),
            once: plain(templates.once),
            write_back: (!terms.assignments().is_empty()).then(|| plain(adopt_sql!("write_back"))),
            name: table.name.clone(),
            plain: table.plain.clone(),
            is_inbox: adoption.is_inbox(),
            bury,
        }
    }

    /// Returns everything that an installation runs, as one transaction.
    pub(super) fn print(&self, with_existing: bool) -> String {
        let existing = match with_existing {
            true => {
                format!("{}{};\n", sql_comment(self.unordered.as_deref()), self.existing.trim())
            }
            false => String::new(),
        };
        format!("BEGIN IMMEDIATE;\n{};\n{existing}COMMIT;\n", self.triggers.join(";\n"))
    }
}
