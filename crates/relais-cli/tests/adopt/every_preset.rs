//! The same life of a row for the table of every preset: a backlog, a failure, a manual retry and a backoff, each in the
//! words of that table.

use std::collections::BTreeSet;

use super::*;

on_both_databases!(
    rows_of_the_order_service_show_each_result_in_its_own_words,
    rows_of_ef_core_show_each_result_in_its_own_words,
    rows_of_jdbc_show_each_result_in_its_own_words,
    rows_of_the_minimal_table_show_each_result_in_its_own_words,
    rows_of_debezium_are_sent_and_show_nothing,
    rows_of_a_custom_table_show_each_result_in_its_own_words,
);

/// A statement about the row of one number.
type OfRow = fn(u32) -> String;

/// A table with what its application writes and reads. Each statement is about the row of one number.
struct PresetLife {
    ddl: &'static str,
    adopt: String,
    /// Inserts a row with its number as the payload.
    insert: OfRow,
    /// Returns one text: the state of a row.
    state: OfRow,
    /// The mark that the old poller set.
    mark_sent: Cell<OfRow>,
    delivered: &'static str,
    /// The statement that shows a failed row, and its result.
    failed: (OfRow, &'static str),
    /// The manual retry of a failed row, and the state after it.
    retry: Cell<(OfRow, &'static str)>,
    /// The UPDATE that sends a delivered row once more.
    resend: Cell<OfRow>,
    /// The state while it waits for another attempt, and after that has succeeded.
    backoff: Cell<(&'static str, &'static str)>,
}

/// A part of such a life, or the reason why the table cannot have it.
enum Cell<T> {
    Is(T),
    Not(&'static str),
}

use Cell::{Is, Not};

impl<T> Cell<T> {
    fn get(&self, part: &str) -> Option<&T> {
        match self {
            Is(value) => Some(value),
            Not(reason) => {
                println!("{part}: {reason}");
                None
            }
        }
    }
}

/// The rows: 1 to 3 are there before relais, 4 fails, 5 needs several attempts, all from 100 succeed.
const SENT_BEFORE: u32 = 2;
const FAILS: u32 = 4;
const NEEDS_ATTEMPTS: u32 = 5;
const SUCCEEDS: u32 = 100;

impl PresetLife {
    fn run(&self, on: Backend) {
        let Some(shop) = Shop::new(on, self.ddl, &self.adopt) else { return };
        // The row in backoff must not become a dead letter.
        let text = std::fs::read_to_string(shop.site.path("relais.toml")).unwrap();
        let text = text.replace("attempts = 3", "attempts = 1000").replace("\"20ms\"", "\"1s\"");
        shop.site.write("relais.toml", &text);
        let waiting = self.before(&shop);
        let running = shop.run();
        let bodies: BTreeSet<String> = waiting.iter().map(|_| shop.target.next().body).collect();
        assert_eq!(bodies, waiting.iter().map(|n| format!("[{n}]")).collect());
        for n in waiting {
            shop.wait(&(self.state)(n), self.delivered);
        }
        self.fails(&shop);
        self.is_sent_again(&shop);
        self.needs_attempts(&shop);
        running.stop();
        shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    }

    /// Inserts the backlog and installs the triggers; returns the rows that wait.
    fn before(&self, shop: &Shop) -> Vec<u32> {
        (1..=3).for_each(|n| drop(shop.sql(&(self.insert)(n))));
        let mut waiting = vec![1, 2, 3];
        if let Some(mark) = self.mark_sent.get("sent before") {
            shop.sql(&mark(SENT_BEFORE));
            waiting.retain(|n| *n != SENT_BEFORE);
        }
        let said = shop.site.json(&["migrate"]);
        assert_eq!(said["adopted"][0]["copied"], waiting.len(), "{said}");
        waiting
    }

    /// A refused message is a dead letter at once; a manual retry sends it.
    fn fails(&self, shop: &Shop) {
        let body = format!("[{FAILS}]");
        shop.target.refuses(Some((&body, 400)));
        shop.sql(&(self.insert)(FAILS));
        shop.wait(&(self.failed.0)(FAILS), self.failed.1);
        assert_eq!(shop.target.next().body, body);
        let open = "SELECT count(*) FROM relais_dead_letter WHERE resolved_at IS NULL";
        assert_eq!(shop.one(open), "1");
        shop.target.refuses(None);
        let Some((retry, delivered)) = self.retry.get("manual retry") else { return };
        shop.sql(&retry(FAILS));
        assert_eq!(shop.target.next().body, body);
        shop.wait(&(self.state)(FAILS), delivered);
        assert_eq!(shop.one(open), "0");
    }

    fn is_sent_again(&self, shop: &Shop) {
        let Some(resend) = self.resend.get("resend") else { return };
        shop.sql(&resend(1));
        assert_eq!(shop.target.next().body, "[1]");
        shop.wait(&(self.state)(1), self.delivered);
    }

    /// Other rows succeed meanwhile: so the failures are those of the row.
    fn needs_attempts(&self, shop: &Shop) {
        let Some((waits, delivered)) = self.backoff.get("backoff") else { return };
        shop.target.refuses(Some((&format!("[{NEEDS_ATTEMPTS}]"), 500)));
        shop.sql(&(self.insert)(NEEDS_ATTEMPTS));
        let (started, mut next) = (Instant::now(), SUCCEEDS);
        while shop.one(&(self.state)(NEEDS_ATTEMPTS)) != *waits {
            let found = shop.one(&(self.state)(NEEDS_ATTEMPTS));
            assert!(started.elapsed() < PATIENCE, "{found}, not {waits}");
            shop.sql(&(self.insert)(next));
            shop.wait(&(self.state)(next), self.delivered);
            next += 1;
        }
        shop.target.refuses(None);
        shop.wait(&(self.state)(NEEDS_ATTEMPTS), delivered);
    }
}

fn rows_of_the_order_service_show_each_result_in_its_own_words(on: Backend) {
    let state = |n| {
        format!(
            "SELECT concat_ws(' ', status, CASE WHEN sent_at IS NOT NULL THEN 'at' END, \
             CASE WHEN error_message LIKE '%answered 400%' THEN '400' END) FROM outbox WHERE id = '{}'",
            id(n)
        )
    };
    let life = PresetLife {
        ddl: ORDER_SERVICE,
        adopt: adopt("outbox", "order-service", "existing = true"),
        insert: |n| insert(n, &format!("[{n}]")),
        state,
        mark_sent: Is(|n| format!("UPDATE outbox SET status = 'SENT' WHERE id = '{}'", id(n))),
        delivered: "SENT at",
        failed: (state, "FAILED 400"),
        retry: Is((
            |n| format!("UPDATE outbox SET status = 'NEW' WHERE id = '{}'", id(n)),
            "SENT at",
        )),
        resend: Is(|n| format!("UPDATE outbox SET status = 'NEW' WHERE id = '{}'", id(n))),
        backoff: Not("the table has no column for attempts or for the next time"),
    };
    life.run(on);
}

fn rows_of_ef_core_show_each_result_in_its_own_words(on: Backend) {
    let life = PresetLife {
        ddl: presets::EF_CORE,
        adopt: adopt("messaging.outbox_messages", "ef-core", "existing = true"),
        insert: |n| presets::ef_insert(n).replace(&format!("{{\"n\": {n}}}"), &format!("[{n}]")),
        state: |n| {
            format!(
                "SELECT concat_ws(' ', CASE WHEN processed_at IS NOT NULL THEN 'at' END, \
                 CASE WHEN retry_count > 0 THEN 'tried' END, \
                 CASE WHEN error LIKE '%answered 500%' THEN '500' END) \
                 FROM messaging.outbox_messages WHERE id = '{}'",
                id(n)
            )
        },
        mark_sent: Is(|n| {
            let set = "UPDATE messaging.outbox_messages SET processed_at = now()";
            format!("{set} WHERE id = '{}'", id(n))
        }),
        delivered: "at",
        // The row has moved.
        failed: (
            |n| {
                format!(
                    "SELECT concat_ws(' ', type, content, retry_count, \
                     CASE WHEN error LIKE '%answered 400%' THEN '400' END, \
                     (SELECT count(*) FROM messaging.outbox_messages AS m WHERE m.id = d.original_message_id)) \
                     FROM messaging.outbox_dead_letters AS d WHERE original_message_id = '{}'",
                    id(n)
                )
            },
            "Shop.OrderPlaced, Shop [4] 1 400 0",
        ),
        // There is no row to update: the application inserts it again.
        retry: Is((
            |n| presets::ef_insert(n).replace(&format!("{{\"n\": {n}}}"), &format!("[{n}]")),
            "at",
        )),
        resend: Is(|n| {
            let set = "UPDATE messaging.outbox_messages SET processed_at = NULL";
            format!("{set} WHERE id = '{}'", id(n))
        }),
        // The table has no column for the next time.
        backoff: Is(("tried 500", "at tried")),
    };
    life.run(on);
}

fn rows_of_jdbc_show_each_result_in_its_own_words(on: Backend) {
    let state = |n| {
        format!(
            "SELECT concat_ws(' ', status, CASE WHEN published_at IS NOT NULL THEN 'at' END, \
             CASE WHEN attempts > 0 THEN 'tried' END, CASE WHEN next_at IS NOT NULL THEN 'later' END, \
             CASE WHEN last_error LIKE '%answered 400%' THEN '400' WHEN last_error LIKE '%answered 500%' THEN '500' END) \
             FROM outbox WHERE id = {n}"
        )
    };
    let life = PresetLife {
        ddl: presets::JDBC,
        adopt: adopt("outbox", "jdbc", "existing = true").replace("\"orders\"", "\"column:topic\""),
        insert: |n| {
            format!(
                "INSERT INTO outbox (id, category, topic, key, type, payload, headers, status, attempts, created_at) \
                 VALUES ({n}, 'event', 'orders', 'k-{n}', 'T', '[{n}]', '{{}}'::jsonb, 'NEW', 0, now())"
            )
        },
        state,
        mark_sent: Is(|n| format!("UPDATE outbox SET status = 'PUBLISHED' WHERE id = {n}")),
        delivered: "PUBLISHED at",
        failed: (state, "FAILED tried 400"),
        retry: Is((
            |n| format!("UPDATE outbox SET status = 'NEW' WHERE id = {n}"),
            "PUBLISHED at tried",
        )),
        resend: Is(|n| format!("UPDATE outbox SET status = 'NEW' WHERE id = {n}")),
        backoff: Is(("NEW tried later 500", "PUBLISHED at tried")),
    };
    life.run(on);
}

fn rows_of_the_minimal_table_show_each_result_in_its_own_words(on: Backend) {
    // The table has no column for the error, and none for the time.
    let state = |n| {
        format!(
            "SELECT concat_ws(' ', status, CASE WHEN attempts > 0 THEN 'tried' END, \
             CASE WHEN next_attempt_at IS NOT NULL THEN 'later' END) FROM outbox_min WHERE id = {n}"
        )
    };
    let life = PresetLife {
        ddl: presets::MINIMAL,
        adopt: adopt("outbox_min", "minimal", "existing = true")
            .replace("\"orders\"", "\"column:destination\""),
        insert: |n| {
            format!(
                "INSERT INTO outbox_min (id, destination, payload) VALUES ({n}, 'orders', '[{n}]')"
            )
        },
        state,
        mark_sent: Is(|n| format!("UPDATE outbox_min SET status = 'DISPATCHED' WHERE id = {n}")),
        delivered: "DISPATCHED",
        failed: (state, "FAILED tried"),
        retry: Is((
            |n| format!("UPDATE outbox_min SET status = 'PENDING' WHERE id = {n}"),
            "DISPATCHED tried",
        )),
        resend: Is(|n| format!("UPDATE outbox_min SET status = 'PENDING' WHERE id = {n}")),
        backoff: Is(("PENDING tried later", "DISPATCHED tried")),
    };
    life.run(on);
}

fn rows_of_debezium_are_sent_and_show_nothing(on: Backend) {
    const NO_COLUMN: &str = "the table has no column for results";
    // Only the copy shows it.
    let copy = |n| format!("SELECT status FROM relais_outbox WHERE message_id = '{}'", id(n));
    let life = PresetLife {
        ddl: presets::DEBEZIUM,
        // The ids of the test rise.
        adopt: adopt("outboxevent", "debezium", "columns = { created_at = 'id' }\nexisting = true"),
        insert: |n| {
            let id = id(n);
            format!(
                "INSERT INTO outboxevent VALUES ('{id}', 'Order', 'o-{n}', 'OrderPlaced', '[{n}]')"
            )
        },
        state: copy,
        mark_sent: Not(NO_COLUMN),
        delivered: "DISPATCHED",
        failed: (copy, "FAILED"),
        retry: Not(NO_COLUMN),
        resend: Not(NO_COLUMN),
        backoff: Not(NO_COLUMN),
    };
    life.run(on);
}

fn rows_of_a_custom_table_show_each_result_in_its_own_words(on: Backend) {
    let state = |n| {
        format!(
            "SELECT concat_ws(' ', \"State\", CASE WHEN \"Gone\" IS NOT NULL THEN 'at' END, \
             CASE WHEN \"Tries\" > 0 THEN 'tried' END, CASE WHEN \"Next\" IS NOT NULL THEN 'later' END, \
             CASE WHEN \"Why\" LIKE '%answered 400%' THEN '400' WHEN \"Why\" LIKE '%answered 500%' THEN '500' END) \
             FROM \"Mail\" WHERE \"No\" = 'm {n}'"
        )
    };
    let columns = "columns = { id = 'No', payload = 'Body', status = 'State', attempts = 'Tries', error = 'Why', \
                   next_attempt_at = 'Next', sent_at = 'Gone' }";
    let states = "states = { new = 'open', sent = 'gone', failed = 'bad', retry = 'again' }";
    let life = PresetLife {
        ddl: "CREATE TABLE \"Mail\" (\"No\" varchar(40) PRIMARY KEY, \"Body\" json NOT NULL, \
              \"State\" varchar(10) NOT NULL DEFAULT 'open', \"Tries\" smallint, \"Next\" timestamp, \
              \"Gone\" timestamptz, \"Why\" varchar(200))",
        adopt: adopt("\"Mail\"", "custom", &format!("{columns}\n{states}\nexisting = true")),
        insert: |n| format!("INSERT INTO \"Mail\" (\"No\", \"Body\") VALUES ('m {n}', '[{n}]')"),
        state,
        mark_sent: Is(|n| format!("UPDATE \"Mail\" SET \"State\" = 'gone' WHERE \"No\" = 'm {n}'")),
        delivered: "gone at",
        failed: (state, "bad tried 400"),
        retry: Is((
            |n| format!("UPDATE \"Mail\" SET \"State\" = 'open' WHERE \"No\" = 'm {n}'"),
            "gone at tried",
        )),
        resend: Is(|n| format!("UPDATE \"Mail\" SET \"State\" = 'open' WHERE \"No\" = 'm {n}'")),
        backoff: Is(("again tried later 500", "gone at tried")),
    };
    life.run(on);
}
