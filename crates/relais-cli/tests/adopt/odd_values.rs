//! Values that no other test has: the INSERT of the application succeeds, and other rows are delivered.

use super::{inbox::INBOX_MIN, *};

on_both_databases!(
    odd_values_fail_no_insert_and_delay_no_other_row,
    a_type_of_the_greatest_length_is_delivered,
    received_rows_with_odd_names_are_handled,
);

/// A table without limits for its texts.
const UNLIMITED: &str = "
    CREATE TABLE mail (
        id integer PRIMARY KEY,
        target text,
        sort text,
        of_type text,
        of_id text,
        kind text,
        key text,
        extra json,
        due timestamp,
        body text,
        state varchar(10) NOT NULL DEFAULT 'open');";

const COLUMNS: &str = "columns = { id = 'id', payload = 'body', category = 'sort', aggregate_type = 'of_type', \
                       aggregate_id = 'of_id', event_type = 'kind', key = 'key', headers = 'extra', \
                       next_attempt_at = 'due', status = 'state' }\n\
                       states = { new = 'open', sent = 'gone', failed = 'bad' }";

/// Characters without a pattern, so that no database stores fewer.
fn noise(chars: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letters = (0..chars).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    });
    letters.collect()
}

fn odd_values_fail_no_insert_and_delay_no_other_row(on: Backend) {
    let adopt = adopt("mail", "custom", COLUMNS).replace("\"orders\"", "\"column:target\"");
    let Some(shop) = Shop::new(on, UNLIMITED, &adopt) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let (long, never) = (
        noise(100_000),
        match on {
            Backend::Postgres => ["infinity", "-infinity"],
            Backend::Sqlite => ["tomorrow", "9999-99-99"],
        },
    );
    let insert = |columns: &str, values: &str| {
        shop.sql(&format!("INSERT INTO mail ({columns}) VALUES ({values})"));
    };
    insert("id, target", "1, 'orders'");
    insert(
        "id, target, sort, of_type, of_id, kind, key, body",
        "2, 'orders', '', '', '', '', '', '[2]'",
    );
    let values = format!("3, 'orders', 'x', 'T', 'i', 'E', '{long}', '[3]'");
    insert("id, target, sort, of_type, of_id, kind, key, body", &values);
    let values = format!("4, '{}', '[4]'", noise(10_000));
    insert("id, target, body", &values);
    insert("id, target, due, body", &format!("5, 'orders', '{}', '[5]'", never[0]));
    insert("id, target, due, body", &format!("6, 'orders', '{}', '[6]'", never[1]));
    for (n, extra) in ["[1]", "null", "7", r#"{"a": {"b": null}, "c": 1.50}"#].iter().enumerate() {
        let id = 10 + n;
        insert("id, target, extra, body", &format!("{id}, 'orders', '{extra}', '[{id}]'"));
    }
    insert("id, target, body", "-9, 'orders', '[-9]'");
    let running = shop.run();
    // PostgreSQL's `infinity` is a time that does not come.
    let sent = match on {
        Backend::Postgres => "-9 1 2 3 6 10 11 12 13",
        Backend::Sqlite => "-9 1 2 3 5 6 10 11 12 13",
    };
    let state = |state: &str| {
        format!(
            "SELECT string_agg(CAST(id AS text), ' ' ORDER BY id) FROM mail WHERE state = '{state}'"
        )
    };
    shop.wait(&state("gone"), sent);
    assert_eq!(shop.one(&state("bad")), shop.one("SELECT NULL"));
    // A name that no destination can have waits, and is shown.
    let status = shop.site.json(&["status"]).to_string();
    assert!(status.contains(&noise(100)), "{status}");
    assert_eq!(shop.site.relais(&["outbox", "list"]).code, 0);
    shop.sql("UPDATE mail SET target = 'orders' WHERE id = 4");
    shop.wait("SELECT state FROM mail WHERE id = 4", "gone");
    shop.sql("UPDATE mail SET due = NULL WHERE id = 5 AND state = 'open'");
    shop.wait("SELECT state FROM mail WHERE id = 5", "gone");
    running.stop();
}

fn a_type_of_the_greatest_length_is_delivered(on: Backend) {
    let ef_core = adopt("messaging.outbox_messages", "ef-core", "");
    let Some(shop) = Shop::new(on, presets::EF_CORE, &ef_core) else { return };
    let running = shop.run();
    let name = format!("Shop.{}, Shop", noise(489));
    assert_eq!(name.len(), 500);
    shop.sql(&presets::ef_insert(1).replace("Shop.OrderPlaced, Shop", &name));
    let head = shop.target.next().head;
    assert!(head.contains(&name), "{head}");
    shop.wait("SELECT count(processed_at) FROM messaging.outbox_messages", "1");
    running.stop();
}

fn received_rows_with_odd_names_are_handled(on: Backend) {
    let open = INBOX_MIN.replace("varchar(200)", "text").replace("varchar(100)", "text");
    let open =
        open.replace(",\n        CONSTRAINT ux_dedupe UNIQUE (source_system, message_id)", "");
    assert!(!open.contains("UNIQUE") && !open.contains("varchar(100)"), "{open}");
    let adopt = "[[adopt]]\ntable = 'inbox_min'\npreset = \"minimal-inbox\"\n\
                 [[route]]\non = \"inbox_min\"\ndestination = \"orders\"\n";
    let Some(shop) = Shop::new(on, &open, adopt) else { return };
    let running = shop.run();
    let long = noise(10_000);
    let names =
        [("a::b", "1"), ("::", "2"), ("", "3"), (&long, "4"), ("shop", ""), ("mail", &long)];
    for (n, (source, id)) in names.into_iter().enumerate() {
        shop.sql(&format!(
            "INSERT INTO inbox_min (message_id, source_system, payload) VALUES ('{id}', '{source}', '[{n}]')"
        ));
    }
    let done = "SELECT count(*) FROM inbox_min WHERE status = 'PROCESSED'";
    shop.wait(done, &names.len().to_string());
    // Another message of the same names is a duplicate.
    shop.sql(&format!(
        "INSERT INTO inbox_min (message_id, source_system, payload) VALUES ('{long}', 'mail', '[5]')"
    ));
    shop.wait(done, &(names.len() + 1).to_string());
    running.stop();
    let mut bodies = shop.target.rest();
    bodies.sort();
    assert_eq!(bodies, ["[0]", "[1]", "[2]", "[3]", "[4]", "[5]"]);
}
