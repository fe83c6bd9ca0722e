//! relais is killed again and again while an application inserts: every row is delivered, and every row says so.

use std::collections::{BTreeMap, HashSet};

use super::*;
use crate::node::kill_until;

on_both_databases!(
    every_row_of_the_order_service_is_delivered_and_marked_while_relais_is_killed,
    every_row_of_ef_core_is_delivered_and_marked_while_relais_is_killed,
    every_row_of_jdbc_is_delivered_in_order_and_marked_while_relais_is_killed,
    every_row_of_the_minimal_table_is_delivered_and_marked_while_relais_is_killed,
    every_row_that_debezium_deletes_at_once_is_delivered_while_relais_is_killed,
    every_row_of_a_custom_table_is_delivered_and_marked_while_relais_is_killed,
);

/// Of ten transactions one is rolled back.
const ROLLED_BACK: u32 = 10;

/// A table and what its application does.
struct KillLoop {
    ddl: &'static str,
    adopt: String,
    /// Transactions of the application.
    rows: u32,
    /// The INSERT with this number in its payload.
    insert: fn(u32) -> String,
    /// Counts the rows that are marked as delivered.
    marked: &'static str,
}

impl KillLoop {
    /// Returns the bodies in the order in which the target got each for the first time.
    fn run(&self, on: Backend) -> Option<Vec<u32>> {
        let adopt = self.adopt.clone() + "[lanes]\nlease = \"2s\"\n";
        let shop = Shop::new(on, self.ddl, &adopt)?;
        assert_eq!(shop.site.relais(&["migrate"]).code, 0);
        let is_kept = |n: &u32| n % ROLLED_BACK != ROLLED_BACK - 1;
        let insert = self.insert;
        let statements = (0..self.rows).map(move |n| {
            let end = if is_kept(&n) { "COMMIT" } else { "ROLLBACK" };
            format!("BEGIN; {}; {end}", insert(n))
        });
        let application = shop.database.run_beside(statements);
        let committed = (0..self.rows).filter(is_kept).count();
        let marked = || shop.one(self.marked).parse::<usize>().unwrap();
        let (started, mut seen_at_start) = (Instant::now(), 0);
        let kills = kill_until(
            &shop.site,
            |node| {
                node.assert_alive();
                let now = marked();
                let works = now > seen_at_start;
                seen_at_start = now;
                works
            },
            || {
                assert!(started.elapsed() < 4 * PATIENCE, "{} marked", marked());
                marked() == committed
            },
        );
        application.join().unwrap();
        assert!(kills.at_work >= 2, "{kills:?}");
        let open = "SELECT count(*) FROM relais_outbox WHERE status <> 'DISPATCHED'";
        assert_eq!(shop.one(open), "0");
        assert_eq!(shop.one("SELECT count(*) FROM relais_outbox"), committed.to_string());
        let first = Self::first_arrivals(&shop.target, committed);
        assert!(first.iter().all(is_kept), "only what was committed");
        Some(first)
    }

    /// Waits until `count` messages have arrived: the target notes a request only after its reply.
    fn first_arrivals(target: &Target, count: usize) -> Vec<u32> {
        let (mut known, mut first) = (HashSet::new(), Vec::new());
        while first.len() < count {
            let body = target.next().body;
            let number = body.trim_matches(['[', ' ', ']']);
            let number = number.parse().unwrap_or_else(|_| panic!("{body:?} is no number"));
            if known.insert(number) {
                first.push(number);
            }
        }
        first
    }
}

fn every_row_of_the_order_service_is_delivered_and_marked_while_relais_is_killed(on: Backend) {
    let order_service = KillLoop {
        ddl: ORDER_SERVICE,
        adopt: adopt("outbox", "order-service", ""),
        rows: 4_000,
        insert: |n| insert(n, &format!("[{n}]")),
        marked: "SELECT count(*) FROM outbox WHERE status = 'SENT' AND sent_at IS NOT NULL",
    };
    order_service.run(on);
}

fn every_row_of_ef_core_is_delivered_and_marked_while_relais_is_killed(on: Backend) {
    let ef_core = KillLoop {
        ddl: presets::EF_CORE,
        adopt: adopt("messaging.outbox_messages", "ef-core", ""),
        rows: 2_000,
        insert: |n| {
            let id = id(n);
            format!(
                "INSERT INTO messaging.outbox_messages (id, type, content, created_at, retry_count) \
                 VALUES ('{id}', 'Shop.OrderPlaced, Shop', '[{n}]', now(), 0)"
            )
        },
        marked: "SELECT count(*) FROM messaging.outbox_messages WHERE processed_at IS NOT NULL",
    };
    ef_core.run(on);
}

fn every_row_of_jdbc_is_delivered_in_order_and_marked_while_relais_is_killed(on: Backend) {
    const KEYS: u32 = 20;
    let jdbc = KillLoop {
        ddl: presets::JDBC,
        adopt: adopt("outbox", "jdbc", "").replace("\"orders\"", "\"column:topic\""),
        rows: 2_000,
        insert: |n| {
            let key = n % KEYS;
            format!(
                "INSERT INTO outbox (category, topic, key, type, payload, headers, status, attempts, created_at) \
                 VALUES ('event', 'orders', 'k-{key}', 'T', '[{n}]', '{{}}'::jsonb, 'NEW', 0, now())"
            )
        },
        marked: "SELECT count(*) FROM outbox WHERE status = 'PUBLISHED' AND published_at IS NOT NULL",
    };
    let Some(numbers) = jdbc.run(on) else { return };
    let mut last = BTreeMap::new();
    for n in numbers {
        let before = last.insert(n % KEYS, n);
        assert!(before.is_none_or(|before| before < n), "{n} came after {before:?} of its key");
    }
}

fn every_row_of_the_minimal_table_is_delivered_and_marked_while_relais_is_killed(on: Backend) {
    let minimal = KillLoop {
        ddl: presets::MINIMAL,
        adopt: adopt("outbox_min", "minimal", "").replace("\"orders\"", "\"column:destination\""),
        rows: 2_000,
        insert: |n| {
            format!("INSERT INTO outbox_min (destination, payload) VALUES ('orders', '[{n}]')")
        },
        marked: "SELECT count(*) FROM outbox_min WHERE status = 'DISPATCHED'",
    };
    minimal.run(on);
}

fn every_row_that_debezium_deletes_at_once_is_delivered_while_relais_is_killed(on: Backend) {
    let debezium = KillLoop {
        ddl: presets::DEBEZIUM,
        adopt: adopt("outboxevent", "debezium", ""),
        rows: 2_000,
        insert: |n| {
            let id = id(n);
            format!(
                "INSERT INTO outboxevent VALUES ('{id}', 'Order', 'o-{n}', 'OrderPlaced', '[{n}]'); \
                 DELETE FROM outboxevent WHERE id = '{id}'"
            )
        },
        // The table has no column for results.
        marked: "SELECT count(*) FROM relais_outbox WHERE status = 'DISPATCHED'",
    };
    debezium.run(on);
}

fn every_row_of_a_custom_table_is_delivered_and_marked_while_relais_is_killed(on: Backend) {
    let custom = KillLoop {
        ddl: "CREATE TABLE \"Mail\" (\"No\" varchar(40) PRIMARY KEY, \"Body\" json NOT NULL, \
              \"State\" varchar(10) NOT NULL DEFAULT 'open')",
        adopt: adopt(
            "\"Mail\"",
            "custom",
            "columns = { id = 'No', payload = 'Body', status = 'State' }\n\
             states = { new = 'open', sent = 'gone', failed = 'bad' }",
        ),
        rows: 2_000,
        insert: |n| format!("INSERT INTO \"Mail\" (\"No\", \"Body\") VALUES ('m {n}', '[{n}]')"),
        marked: "SELECT count(*) FROM \"Mail\" WHERE \"State\" = 'gone'",
    };
    custom.run(on);
}
