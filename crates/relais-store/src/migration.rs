//! Numbered scripts that make relais's tables, and which program may work with which tables.
//!
//! Invariant: the numbers mean the same on every database; a script that was applied is never
//! changed. `relais_schema` keeps of each what a program that does not know it has to know: from
//! which program on the tables can be used.

use relais_core::store::{MigrationOutcome, StoreError};

/// One script; each is applied in a transaction of its own, exactly once.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The number of the script, counted from 1.
    pub number: i64,
    /// The name of the script.
    pub name: &'static str,
    /// The oldest program that can still work with the tables after it, by the number of the last
    /// script that program knows. Its own number, if no older program can.
    pub needs: i64,
    /// The statements.
    pub sql: &'static str,
}

impl Script {
    /// Of its text, so that tables made by another edition of it are noticed. Ends of lines do not
    /// count: they are a matter of the checkout.
    pub fn checksum(&self) -> String {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let bytes = self.sql.bytes().filter(|byte| *byte != b'\r');
        let sum = bytes.fold(OFFSET, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME));
        format!("{sum:016x}")
    }
}

/// The schema this program needs: the number of the last script.
pub const SCHEMA_VERSION: i64 = 8;

/// A line of `relais_schema`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedScript {
    pub(crate) version: i64,
    pub(crate) name: String,
    pub(crate) needs: i64,
    pub(crate) checksum: String,
}

/// The scripts that tables are without, in order; none if they are newer than the program and fit it
/// all the same. `applied` is in order too.
pub(crate) fn missing<'a>(
    scripts: &'a [Script],
    applied: &[AppliedScript],
) -> Result<&'a [Script], StoreError> {
    let known = version_of(scripts.last().map(|script| script.number));
    let found = version_of(applied.last().map(|line| line.version));
    let refuse = |text: String| Err(StoreError::setup(text));
    let needs = applied.iter().skip(scripts.len()).map(|line| line.needs).max();
    if let Some(needs) = needs.filter(|needs| *needs > known) {
        return refuse(format!(
            "relais tables are version {found} and need a program that knows version {needs}, this \
             one knows {known}; update relais on this machine"
        ));
    }
    for (number, line) in (1..).zip(applied) {
        if line.version != number {
            return refuse(format!(
                "relais_schema names version {} and not version {number}; restore the \
                 missing line, or the database from a backup",
                line.version
            ));
        }
    }
    for (script, line) in scripts.iter().zip(applied) {
        if (script.name, script.checksum()) != (line.name.as_str(), line.checksum.clone()) {
            return refuse(format!(
                "relais tables were made by another edition of script {} `{}`: `{}` with checksum {}, \
                 this program has {}; use the relais that made them, or another database",
                script.number,
                script.name,
                line.name,
                line.checksum,
                script.checksum()
            ));
        }
    }
    Ok(scripts.get(applied.len()..).unwrap_or_default())
}

/// The next step for tables that are missing or old.
pub(crate) const MIGRATE: &str = "; run `relais migrate`";
/// The same for a role that may not migrate.
#[cfg(feature = "postgres")]
pub(crate) const MIGRATE_AS_OWNER: &str =
    "; run `relais migrate` as the role that owns relais's tables";

/// Refuses tables that this program cannot work with as they are; `place` is where they are looked
/// for, `next` what to do about it.
pub(crate) fn check(
    scripts: &[Script],
    applied: &[AppliedScript],
    place: &str,
    next: &str,
) -> Result<(), StoreError> {
    let Some(last) = missing(scripts, applied)?.last() else { return Ok(()) };
    Err(StoreError::setup(match applied.last() {
        None => format!("{place} has no relais tables{next}"),
        Some(line) => format!(
            "relais tables are version {}, this program needs {}{next}",
            line.version, last.number
        ),
    }))
}

/// Returns the result of a run that found `before`, added `now` and left `after`. Another node may have added
/// scripts meanwhile; a run that added none began where it ended.
pub(crate) fn migrated(
    before: &[AppliedScript],
    now: &[&Script],
    after: &[AppliedScript],
) -> MigrationOutcome {
    let last = |applied: &[AppliedScript]| version_of(applied.last().map(|line| line.version));
    MigrationOutcome {
        from: last(if now.is_empty() { after } else { before }),
        to: last(after),
        applied: now.iter().map(|script| script.name.to_owned()).collect(),
    }
}

/// Returns the error of a script that the database refused; `next` is the next step.
pub(crate) fn failed(script: &Script, error: StoreError, next: &str) -> StoreError {
    let text = format!(
        "migration {} `{}` was not applied and changed nothing: {error}{next}",
        script.number, script.name
    );
    match error {
        StoreError::Invalid(old) => StoreError::Setup(old).reworded(|_| text),
        other => other.reworded(|_| text),
    }
}

/// The next step when an object with the name of a table exists that no script made.
pub(crate) const IN_THE_WAY: &str = "; relais did not make what is in its way: rename or drop that, or use another database or schema";

/// Returns the error for a `relais_schema` that is not ours.
pub(crate) fn unreadable(error: &StoreError) -> StoreError {
    StoreError::setup(format!(
        "cannot read relais_schema as the list of relais's migrations: {error}{IN_THE_WAY}"
    ))
}

/// All scripts with the notes that they were applied, as one transaction: for a role that may
/// change the schema and wants to read it first. `record` has version, name, `needs` and checksum as
/// its first to fourth parameter.
pub(crate) fn as_one_transaction(create: &str, record: &str, scripts: &[Script]) -> String {
    let statement = |sql: &str| format!("{};\n\n", sql.trim_end().trim_end_matches(';'));
    let mut out = format!("BEGIN;\n\n{}", statement(create));
    for script in scripts {
        let Script { number, name, needs, sql } = script;
        let values = [
            number.to_string(),
            format!("'{name}'"),
            needs.to_string(),
            format!("'{}'", script.checksum()),
        ];
        let mut record = record.to_owned();
        for (place, value) in (1..).zip(&values) {
            for sign in ["$", "?"] {
                record = record.replace(&format!("{sign}{place}"), value);
            }
        }
        out.push_str(&format!("-- {number}: {name}\n{}{}", statement(sql), statement(&record)));
    }
    out.push_str("COMMIT;\n");
    out
}

/// 0 before the first script.
fn version_of(last: Option<i64>) -> i64 {
    last.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Script = Script { number: 1, name: "relais", needs: 1, sql: "CREATE" };
    const ADDS: Script = Script { number: 2, name: "adds", needs: 1, sql: "ALTER" };
    const BREAKS: Script = Script { number: 2, name: "breaks", needs: 2, sql: "DROP" };

    fn line(script: Script) -> AppliedScript {
        AppliedScript {
            version: script.number,
            name: script.name.to_owned(),
            needs: script.needs,
            checksum: script.checksum(),
        }
    }

    fn numbers(scripts: &[Script], applied: &[AppliedScript]) -> Vec<i64> {
        missing(scripts, applied).unwrap().iter().map(|script| script.number).collect()
    }

    fn refusal(scripts: &[Script], applied: &[AppliedScript]) -> String {
        let text = check(scripts, applied, "schema shop", MIGRATE).unwrap_err().to_string();
        match missing(scripts, applied) {
            Err(error) => assert_eq!(error.to_string(), text),
            Ok(_) => assert!(text.contains("run `relais migrate`"), "{text}"),
        }
        text
    }

    #[test]
    fn older_tables_get_what_is_missing() {
        let new = [ONE, ADDS];
        assert_eq!(numbers(&new, &[]), [1, 2]);
        assert_eq!(numbers(&new, &[line(ONE)]), [2]);
        assert_eq!(numbers(&new, &[line(ONE), line(ADDS)]), [0; 0]);
        assert!(refusal(&new, &[]).starts_with("schema shop has no relais tables"));
        let text = refusal(&new, &[line(ONE)]);
        assert!(text.contains("are version 1, this program needs 2"), "{text}");
    }

    #[test]
    fn newer_tables_fit_if_their_script_says_so() {
        let newer = [line(ONE), line(ADDS)];
        assert_eq!(numbers(&[ONE], &newer), [0; 0]);
        check(&[ONE], &newer, "", MIGRATE).unwrap();
        let text = refusal(&[ONE], &[line(ONE), line(BREAKS)]);
        assert!(text.contains("need a program that knows version 2, this one knows 1"), "{text}");
        // One script in between that breaks is enough, whatever the last one says.
        let later = AppliedScript { version: 3, ..line(ADDS) };
        assert!(refusal(&[ONE], &[line(ONE), line(BREAKS), later]).contains("update relais"));
    }

    #[test]
    fn another_edition_of_a_script_is_refused() {
        let edited = Script { sql: "CREATE TABLE", ..ONE };
        assert!(refusal(&[edited], &[line(ONE)]).contains("another edition of script 1"));
        let renamed = Script { name: "other", ..ONE };
        assert!(refusal(&[renamed], &[line(ONE)]).contains("another edition"));
        let windows = Script { sql: "CREATE\r\n", ..ONE };
        assert_eq!(windows.checksum(), Script { sql: "CREATE\n", ..ONE }.checksum());
    }

    #[test]
    fn a_list_with_a_gap_is_refused() {
        assert!(refusal(&[ONE, ADDS], &[line(ADDS)]).contains("and not version 1"));
        let far = AppliedScript { version: 9_999, ..line(ONE) };
        assert!(refusal(&[ONE], &[far]).contains("names version 9999"));
    }

    #[test]
    fn a_printed_schema_records_what_the_program_would() {
        let record =
            "INSERT INTO relais_schema (version, name, needs, checksum) VALUES ($1, $2, $3, $4)";
        let text = as_one_transaction("CREATE", record, &[ADDS]);
        let values = format!("VALUES (2, 'adds', 1, '{}');", ADDS.checksum());
        assert!(text.contains(&values), "{text}");
    }
}
