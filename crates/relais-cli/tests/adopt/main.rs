//! Adopted tables with the exact columns of their documents: the application's own INSERTs are delivered, and
//! results stand in its own columns.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod database;

mod backlog;
#[cfg(feature = "kafka")]
#[allow(dead_code)]
#[path = "../support/broker.rs"]
mod broker;
mod changes;
mod crash;
mod duplicates;
mod every_preset;
mod handler;
mod inbox;
#[cfg(feature = "kafka")]
mod kafka;
#[allow(dead_code)]
#[path = "../support/node.rs"]
mod node;
mod odd_values;
mod outside;
mod presets;
mod products;
mod refusals;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use database::{Backend, TestDatabase};
use support::{Running, Site, Target, assert_said, get, postgres::PostgresSchema};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two looks at the database.
const GLANCE: Duration = Duration::from_millis(20);

/// The table of the order service.
const ORDER_SERVICE: &str = "
    CREATE TABLE outbox (
        id uuid PRIMARY KEY,
        aggregate_type varchar(255) NOT NULL,
        aggregate_id uuid NOT NULL,
        event_type varchar(255) NOT NULL,
        payload text NOT NULL,
        status varchar(50) NOT NULL,
        created_at timestamp NOT NULL,
        sent_at timestamp,
        error_message text);
    CREATE INDEX idx_outbox_status_created ON outbox (status, created_at);
    CREATE INDEX idx_outbox_aggregate ON outbox (aggregate_id);";

/// A database with an application's table, a target, and relais with its configuration.
struct Shop {
    database: TestDatabase,
    target: Target,
    site: Site,
}

impl Shop {
    /// `None` without a PostgreSQL.
    fn new(on: Backend, ddl: &str, adopt: &str) -> Option<Self> {
        let (target, site) = (Target::start(), Site::new());
        let database = match on {
            Backend::Postgres => TestDatabase::Postgres(PostgresSchema::new()?),
            Backend::Sqlite => TestDatabase::Sqlite(site.path("shop.db")),
        };
        let shop = Self { database, target, site };
        shop.sql(ddl);
        shop.write(adopt);
        Some(shop)
    }

    fn order_service(on: Backend) -> Option<Self> {
        Self::new(on, ORDER_SERVICE, &adopt("outbox", "order-service", ""))
    }

    /// The schema of relais in a test that is only for PostgreSQL.
    fn schema(&self) -> &PostgresSchema {
        match &self.database {
            TestDatabase::Postgres(schema) => schema,
            TestDatabase::Sqlite(_) => panic!("not on SQLite"),
        }
    }

    fn is_sqlite(&self) -> bool {
        matches!(self.database, TestDatabase::Sqlite(_))
    }

    fn write(&self, adopt: &str) {
        let adopt = self.database.words(adopt);
        self.site.write(
            "relais.toml",
            &format!(
                "[store]\nurl = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                 [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
                 url = \"http://{}/in\"\non_dead_letter = \"skip\"\n\
                 [destination.retry]\nattempts = 3\nfirst = \"10ms\"\nmax = \"20ms\"\n{adopt}",
                self.database.url(),
                self.target.address
            ),
        );
    }

    fn sql(&self, sql: &str) -> Vec<String> {
        self.database.texts(sql)
    }

    fn one(&self, sql: &str) -> String {
        self.sql(sql).into_iter().next().unwrap_or_default()
    }

    /// Waits until the statement returns this.
    fn wait(&self, sql: &str, expected: &str) {
        let started = Instant::now();
        loop {
            let found = self.one(sql);
            if found == expected {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{sql}: {found}, not {expected}");
            std::thread::sleep(GLANCE);
        }
    }

    fn run(&self) -> Running {
        let running = self.site.run();
        running.drain();
        running
    }

    /// The INSERT of the order service, as its own code has it.
    fn order(&self, number: u32, payload: &str) {
        self.sql(&insert(number, payload));
    }

    fn order_is(&self, number: u32, expected: &str) {
        let sql = "SELECT concat_ws(' ', status, CASE WHEN sent_at IS NOT NULL THEN 't' ELSE 'f' END, CASE WHEN error_message LIKE '%answered 400%' THEN '400' WHEN error_message LIKE '%answered 500%' THEN '500' END) FROM outbox";
        self.wait(&format!("{sql} WHERE id = '{}'", id(number)), expected);
    }
}

fn adopt(table: &str, preset: &str, more: &str) -> String {
    format!(
        "[[adopt]]\ntable = '{table}'\npreset = \"{preset}\"\ndestination = \"orders\"\n{more}\n"
    )
}

fn id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn insert(number: u32, payload: &str) -> String {
    let id = id(number);
    format!(
        "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at) \
         VALUES ('{id}', 'Order', '{id}', 'OrderCreated', '{payload}', 'NEW', now())"
    )
}

on_both_databases!(
    a_committed_row_is_delivered_and_marked_in_the_words_of_its_table,
    a_row_that_is_rolled_back_is_not_delivered_and_rows_of_one_insert_keep_their_order,
    a_failed_row_says_why_and_an_update_sends_it_again_with_its_new_payload,
    decisions_of_operators_show_in_the_table,
    a_payload_that_is_no_json_becomes_a_dead_letter_and_does_not_fail_the_insert,
    a_row_that_is_inserted_and_deleted_is_sent_and_a_changed_one_as_it_is_then,
    a_column_that_is_renamed_later_shows_in_readiness_check_and_the_metric_of_the_alert,
);

fn a_committed_row_is_delivered_and_marked_in_the_words_of_its_table(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    shop.order(1, r#"{"total": 10,  "é": 1}"#);
    let seen = shop.target.next();
    assert_eq!(seen.body, r#"{"total": 10,  "é": 1}"#);
    assert!(
        seen.head.to_lowercase().contains(&id(1)),
        "the id of the row goes along: {}",
        seen.head
    );
    shop.order_is(1, "SENT t");
    // UTC, because the column has no time zone.
    let close = match shop.is_sqlite() {
        true => "SELECT 't' FROM outbox WHERE abs(unixepoch(sent_at) - unixepoch('now')) < 600",
        false => {
            "SELECT abs(extract(epoch FROM sent_at - (now() AT TIME ZONE 'UTC'))) < 600 FROM outbox"
        }
    };
    assert_eq!(shop.one(close), "t");
    assert_eq!(shop.one("SELECT count(*) FROM relais_adopted_change"), "0");
    let json = shop.site.json(&["adopt", "check"]);
    assert_eq!(
        (json["ok"].as_bool(), json["tables"][0]["preset"].as_str()),
        (Some(true), Some("order-service"))
    );
    running.stop();
}

fn a_row_that_is_rolled_back_is_not_delivered_and_rows_of_one_insert_keep_their_order(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    shop.sql(&format!("BEGIN; {}; ROLLBACK", insert(1, "{}")));
    let row = |n: u32| {
        let (key, payload) = (id(9), format!("[{n}]"));
        format!("('{}', 'Order', '{key}', 'OrderCreated', '{payload}', 'NEW', now())", id(n))
    };
    let rows: Vec<String> = (100..140).rev().map(row).collect();
    shop.sql(&format!(
        "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at) \
         VALUES {}",
        rows.join(", ")
    ));
    for n in (100..140).rev() {
        assert_eq!(shop.target.next().body, format!("[{n}]"));
    }
    shop.wait("SELECT count(*) FROM outbox WHERE status = 'SENT'", "40");
    assert_eq!(shop.one("SELECT count(*) FROM relais_outbox"), "40");
    running.stop();
}

fn a_failed_row_says_why_and_an_update_sends_it_again_with_its_new_payload(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    shop.target.answers(400);
    // Refused in a row, so that it is not the target that is at fault.
    shop.order(1, "[1]");
    shop.order_is(1, "FAILED f 400");
    assert_eq!(shop.one("SELECT count(*) FROM relais_dead_letter WHERE resolved_at IS NULL"), "1");
    shop.target.answers(200);
    shop.sql(&format!("UPDATE outbox SET status = 'NEW', payload = '[2]' WHERE id = '{}'", id(1)));
    shop.order_is(1, "SENT t");
    let bodies: Vec<String> = (0..2).map(|_| shop.target.next().body).collect();
    assert_eq!(bodies, ["[1]", "[2]"]);
    assert_eq!(
        shop.one("SELECT resolution || ' ' || resolved_by FROM relais_dead_letter"),
        "retried relais"
    );
    // A delivered row that is reset is sent once more.
    shop.sql("UPDATE outbox SET status = 'NEW'");
    assert_eq!(shop.target.next().body, "[2]");
    shop.order_is(1, "SENT t");
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    running.stop();
}

fn decisions_of_operators_show_in_the_table(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    shop.target.answers(400);
    shop.order(1, "[1]");
    shop.order_is(1, "FAILED f 400");
    shop.target.answers(200);
    let letters = shop.site.json(&["dead-letter", "list"]);
    let letter = letters[0]["id"].as_str().unwrap_or_else(|| panic!("{letters}")).to_owned();
    let said = shop.site.relais(&["dead-letter", "retry", &letter, "--reason", "fixed", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    shop.order_is(1, "SENT t");
    assert_eq!(shop.one("SELECT count(*) FROM relais_audit WHERE action = 'outbox.reset'"), "0");
    running.stop();
}

fn a_payload_that_is_no_json_becomes_a_dead_letter_and_does_not_fail_the_insert(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    shop.order(1, "{oops");
    shop.wait("SELECT status FROM outbox", "FAILED");
    let error = shop.one("SELECT error_message FROM outbox");
    assert!(error.starts_with("the payload is not JSON"), "{error}");
    assert_eq!(shop.one("SELECT payload FROM relais_dead_letter"), "{oops");
    shop.order(2, "[2]");
    assert_eq!(shop.target.next().body, "[2]", "the first was not sent");
    running.stop();
}

fn a_row_that_is_inserted_and_deleted_is_sent_and_a_changed_one_as_it_is_then(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.sql(&format!("BEGIN; {}; DELETE FROM outbox; COMMIT", insert(1, "[1]")));
    shop.order(2, "[2]");
    shop.sql("UPDATE outbox SET payload = '[3]'");
    let running = shop.run();
    shop.wait("SELECT status FROM outbox", "SENT");
    // The change is handled beside the delivery: the old payload may have been sent before.
    let bodies = shop.target.rest();
    assert!(bodies.contains(&"[1]".to_owned()), "{bodies:?}");
    let of_two: Vec<&String> = bodies.iter().filter(|body| *body != "[1]").collect();
    assert_eq!(of_two.last().unwrap().as_str(), "[3]", "{bodies:?}");
    running.stop();
}

#[test]
fn a_row_that_the_application_holds_locked_delays_no_other_row() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.order(1, "[1]");
    shop.order(2, "[2]");
    let hold = format!("BEGIN; SELECT FROM outbox WHERE id = '{}' FOR UPDATE", id(1));
    let held = shop.schema().open(&hold);
    let running = shop.run();
    shop.order_is(2, "SENT t");
    shop.wait("SELECT status FROM relais_outbox WHERE payload = '[1]'", "DISPATCHED");
    assert_eq!(shop.one("SELECT kind FROM relais_adopted_change"), "unwritten");
    assert_eq!(shop.one("SELECT status FROM outbox WHERE payload = '[1]'"), "NEW");
    drop(held);
    shop.order_is(1, "SENT t");
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    assert_eq!(shop.target.unseen(), 2, "nothing was sent twice");
    running.stop();
}

fn a_column_that_is_renamed_later_shows_in_readiness_check_and_the_metric_of_the_alert(
    on: Backend,
) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.site.run();
    let admin = running.logged("admin http://");
    running.drain();
    assert_eq!(get(admin, "/readyz").0, 200);
    shop.sql("ALTER TABLE outbox RENAME COLUMN error_message TO problem");
    let (status, body) = get(admin, "/readyz");
    assert!(status == 503 && body.contains("has no column `error_message` for `error`"), "{body}");
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, &["no column `error_message`"]);
    assert_said(&shop.site.relais(&["check"]), 1, &["adopt[outbox]", "no column `error_message`"]);
    problems_are(admin, 1);
    // It is still delivered; the result is written once the table fits again.
    shop.order(1, "[1]");
    shop.target.next();
    shop.wait("SELECT kind FROM relais_adopted_change", "unwritten");
    shop.sql("ALTER TABLE outbox RENAME COLUMN problem TO error_message");
    shop.order_is(1, "SENT t");
    assert_eq!(get(admin, "/readyz").0, 200);
    problems_are(admin, 0);
    running.stop();
}

/// Waits until the metric of the alert has this value.
fn problems_are(admin: std::net::SocketAddr, expected: u32) {
    let line = format!("relais_adopted_table_problems{{table=\"outbox\"}} {expected}");
    let started = Instant::now();
    loop {
        let (_, page) = get(admin, "/metrics");
        if page.lines().any(|found| found == line) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "no {line} in {page}");
        std::thread::sleep(GLANCE);
    }
}
