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

/// All scripts with the notes that they were applied, as one transaction: for somebody who may
/// change the schema and wants to read it first. `record` has the version and the name as its
/// first and second parameter.
pub(crate) fn as_one_transaction(create: &str, record: &str, scripts: &[Script]) -> String {
    let statement = |sql: &str| format!("{};\n\n", sql.trim_end().trim_end_matches(';'));
    let mut out = format!("BEGIN;\n\n{}", statement(create));
    for Script { number, name, sql } in scripts {
        let mut record = record.to_owned();
        for sign in ["$", "?"] {
            record = record.replace(&format!("{sign}1"), &number.to_string());
            record = record.replace(&format!("{sign}2"), &format!("'{name}'"));
        }
        out.push_str(&format!("-- {number}: {name}\n{}{}", statement(sql), statement(&record)));
    }
    out.push_str("COMMIT;\n");
    out
}
