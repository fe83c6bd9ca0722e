//! Rules for `.sql` files: every driver has the same ones, and each says at once what it is.

use std::collections::BTreeSet;

use super::{TidyFinding, tree::Tree};

/// The folders of the drivers.
const DRIVERS: [&str; 2] = ["sqlite", "postgres"];

/// A statement that only one database needs.
struct OneSided {
    driver: &'static str,
    name: &'static str,
    reason: &'static str,
}

/// All of them. An entry that is not true any more is a finding too.
const ONE_SIDED: &[OneSided] = &[
    only("postgres", "enqueue_all.sql", "SQLite has no arrays, and no round trips to save"),
    only("postgres", "enqueue_new.sql", "SQLite reserves no row before it writes it"),
    only("postgres", "enqueue_new_all.sql", "SQLite has no arrays, and no round trips to save"),
    only(
        "postgres",
        "see_session.sql",
        "SQLite has no server, and each connection its own statements",
    ),
    only("postgres", "accept_new.sql", "SQLite reserves no row before it writes it"),
    only("postgres", "lock_key.sql", "SQLite has one writer, so nothing needs locking"),
    only("postgres", "lock_schema.sql", "SQLite has one writer, so nothing needs locking"),
    only("postgres", "writers.sql", "low-water mark: SQLite keeps no old row versions"),
    only("postgres", "highest_inbox.sql", "low-water mark: SQLite keeps no old row versions"),
    only("postgres", "lock_inbox.sql", "low-water mark: SQLite keeps no old row versions"),
    only("postgres", "lowest_inbox.sql", "low-water mark: SQLite keeps no old row versions"),
    only("postgres", "lowest_outbox.sql", "low-water mark: SQLite keeps no old row versions"),
    only("postgres", "migration_limits.sql", "settings of a server; SQLite has pragmas"),
    only("postgres", "server.sql", "settings of a server; SQLite has pragmas"),
    only("postgres", "session.sql", "settings of a server; SQLite has pragmas"),
    only("postgres", "probe.sql", "sessions of a server, perhaps behind a pooler; SQLite has none"),
    only(
        "postgres",
        "backend.sql",
        "sessions of a server, perhaps behind a pooler; SQLite has none",
    ),
    only("postgres", "begin_handler.sql", "SQLite has one isolation level"),
    only("postgres", "check_transaction.sql", "SQLite refuses a second BEGIN"),
    only("postgres", "transaction_start.sql", "SQLite's driver knows whether one is open"),
    only("postgres", "missing_privileges.sql", "SQLite has no roles"),
    only("postgres", "schema_exists.sql", "a failed statement would end the transaction"),
    only("postgres", "settle_processed.sql", "SQLite settles row by row, with mark_processed.sql"),
    only("postgres", "settle_changed.sql", "SQLite settles row by row, with mark_processed.sql"),
    only(
        "postgres",
        "check_constraints.sql",
        "SQLite cannot check deferred keys before its commit",
    ),
    only("postgres", "hydrate.sql", "SQLite's driver makes JSON of a row itself"),
    only("postgres", "hydrate_session.sql", "settings of a server; SQLite has pragmas"),
    only("sqlite", "advance_inbox_mark.sql", "PostgreSQL asks for writers too: highest, lowest"),
    only("sqlite", "enqueue_row.sql", "SQLite's driver knows the id of the last row"),
    only("sqlite", "first_fresh.sql", "PostgreSQL asks for writers too: lowest_outbox.sql"),
    only("sqlite", "fetch_due.sql", "PostgreSQL reads fresh and due rows in fetch_outbox.sql"),
    only("sqlite", "read_outbox.sql", "PostgreSQL reads fresh and due rows in fetch_outbox.sql"),
    only("sqlite", "key_obstacles.sql", "PostgreSQL finds obstacles in fetch_outbox.sql"),
    only("sqlite", "lane_of_row.sql", "PostgreSQL compares lanes in fetch_outbox.sql"),
    only("sqlite", "settle_time.sql", "PostgreSQL settles many rows in one statement"),
    only(
        "sqlite",
        "enter_waiting.sql",
        "SQLite has no statement of several writes as retry_outbox.sql",
    ),
    only(
        "sqlite",
        "leave_waiting.sql",
        "SQLite has no statement of several writes as mark_dispatched",
    ),
    only("sqlite", "hold_waiting.sql", "SQLite has no statement of several writes as retry_outbox"),
    only("sqlite", "free_waiting.sql", "SQLite has no statement of several writes as free_bulk"),
    only("sqlite", "backlog.sql", "PostgreSQL counts all destinations in backlogs.sql"),
    only("sqlite", "sweep_outbox_end.sql", "PostgreSQL finds the end in sweep_outbox.sql"),
    only("sqlite", "sweep_waiting_end.sql", "PostgreSQL finds the end in sweep_waiting.sql"),
    only("sqlite", "sweep_times.sql", "SQLite has no statement of several writes as sweep_waiting"),
    only("sqlite", "sweep_keys.sql", "SQLite has no statement of several writes as sweep_waiting"),
    only(
        "sqlite",
        "extend_leases.sql",
        "PostgreSQL has many writers: none keeps a heartbeat waiting",
    ),
    only(
        "sqlite",
        "extend_bulk.sql",
        "PostgreSQL has many writers: none keeps a heartbeat waiting",
    ),
    only("sqlite", "bulk_owner.sql", "PostgreSQL returns the former owner with take_bulk.sql"),
    only("sqlite", "hydrate_ids.sql", "SQLite has no arrays; PostgreSQL's `= ANY ($1)` is no file"),
    only("sqlite", "fail_inbox.sql", "SQLite has no statement of several writes as bury_inbox.sql"),
    only(
        "sqlite",
        "postpone_timers.sql",
        "SQLite has no statement of several writes as fire_timers",
    ),
    only("sqlite", "parks_key.sql", "SQLite has no statement of several writes as bury_outbox.sql"),
    only("sqlite", "park_key.sql", "SQLite has no statement of several writes as bury_outbox.sql"),
    only(
        "sqlite",
        "record_attempts.sql",
        "SQLite has no statement of several writes as retry_inbox",
    ),
    only(
        "sqlite",
        "cleanup_attempts.sql",
        "SQLite has no statement of several writes as cleanup_inbox",
    ),
    only(
        "sqlite",
        "cleanup_discarded_inbox.sql",
        "SQLite has no statement of several writes as cleanup_dead_letters",
    ),
    only(
        "sqlite",
        "cleanup_discarded_outbox.sql",
        "SQLite has no statement of several writes as cleanup_dead_letters",
    ),
    only(
        "sqlite",
        "forget_announcements.sql",
        "PostgreSQL writes three tables in forget_workers.sql",
    ),
    only("sqlite", "forget_lanes.sql", "PostgreSQL writes three tables in forget_workers.sql"),
    only("sqlite", "leave_scope.sql", "PostgreSQL writes two tables in free_lanes.sql"),
];

const fn only(driver: &'static str, name: &'static str, reason: &'static str) -> OneSided {
    OneSided { driver, name, reason }
}

/// The same statement has the same file name in each driver: a reader of one driver knows all.
pub(super) fn same_names(tree: &Tree) -> Vec<TidyFinding> {
    compare(tree, "sql", ONE_SIDED)
}

/// The same number of a migration means the same on each database.
pub(super) fn same_migrations(tree: &Tree) -> Vec<TidyFinding> {
    compare(tree, "migrations", &[])
}

pub(super) fn first_words(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.under("", ".sql") {
        let first = file.text.split([' ', '\n', ';']).next().unwrap_or_default();
        let keyword = first.len() > 1 && first.chars().all(|c| c.is_ascii_uppercase());
        if !keyword && !first.starts_with("--") {
            let text = "starts with neither a comment nor an upper-case keyword";
            findings.push(TidyFinding::new(&file.path, 1, text));
        }
    }
    findings
}

/// Returns files that one driver has in a folder and another has not.
fn compare(tree: &Tree, folder: &str, exceptions: &[OneSided]) -> Vec<TidyFinding> {
    let path = |driver: &str| format!("crates/relais-store/src/{driver}/{folder}/");
    let owners = |name: &str| -> Vec<&str> {
        let owns = |driver: &&str| tree.get(&format!("{}{name}", path(driver))).is_some();
        DRIVERS.into_iter().filter(owns).collect()
    };
    let excepted = |name: &str| exceptions.iter().find(|exception| exception.name == name);
    let files = DRIVERS.into_iter().flat_map(|driver| {
        tree.under(&path(driver), ".sql").map(|file| file.name().to_owned()).collect::<Vec<_>>()
    });
    let names: BTreeSet<String> =
        files.chain(exceptions.iter().map(|exception| exception.name.to_owned())).collect();

    let mut findings = Vec::new();
    for name in &names {
        let owners = owners(name);
        let text = match excepted(name) {
            Some(exception) if owners == [exception.driver] => continue,
            Some(OneSided { driver, reason, .. }) => {
                format!("is not only in {driver} ({reason}): take it out of ONE_SIDED")
            }
            None if owners.len() == DRIVERS.len() => continue,
            None => {
                format!("is only in {owners:?}: write it for all, or give the reason in ONE_SIDED")
            }
        };
        findings.push(TidyFinding::new(&format!("{}{name}", path("*")), 0, text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: [(&str, &str); 3] = [
        ("crates/relais-store/src/sqlite/sql/accept.sql", "INSERT"),
        ("crates/relais-store/src/postgres/sql/accept.sql", "INSERT"),
        ("crates/relais-store/src/postgres/sql/lock.sql", "SELECT"),
    ];

    fn exception(name: &'static str) -> OneSided {
        only("postgres", name, "SQLite has one writer")
    }

    #[test]
    fn a_statement_that_one_driver_lacks_is_found() {
        let findings = compare(&Tree::of(&SAMPLE), "sql", &[]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].file, "crates/relais-store/src/*/sql/lock.sql");
        assert!(findings[0].text.starts_with("is only in [\"postgres\"]"));
    }

    #[test]
    fn an_exception_holds_only_while_it_is_true() {
        assert_eq!(compare(&Tree::of(&SAMPLE), "sql", &[exception("lock.sql")]), []);
        let stale = [exception("lock.sql"), exception("accept.sql"), exception("missing.sql")];
        assert_eq!(compare(&Tree::of(&SAMPLE), "sql", &stale).len(), 2);
    }

    #[test]
    fn migrations_with_other_numbers_are_found() {
        let tree = Tree::of(&[
            ("crates/relais-store/src/sqlite/migrations/0001_relais.sql", "CREATE"),
            ("crates/relais-store/src/postgres/migrations/0002_relais.sql", "CREATE"),
        ]);
        assert_eq!(same_migrations(&tree).len(), 2);
    }

    #[test]
    fn lower_case_statements_are_found() {
        let tree = Tree::of(&[
            ("a.sql", "select 1"),
            ("b.sql", "-- Why.\nselect 1"),
            ("c.sql", "BEGIN;\nSELECT 1"),
            ("d.sql", ""),
        ]);
        let found: Vec<_> = first_words(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["a.sql", "d.sql"]);
    }

    #[test]
    fn every_exception_has_a_reason() {
        for OneSided { driver, name, reason } in ONE_SIDED {
            assert!(DRIVERS.contains(driver) && name.ends_with(".sql") && reason.len() > 10);
        }
    }
}
