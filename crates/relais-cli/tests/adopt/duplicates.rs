//! Rows that were copied before, beside new ones in one INSERT, and several rows of one received message.

use super::{
    handler::{ADOPT, handler},
    inbox::INBOX_MIN,
    *,
};

on_both_databases!(
    a_known_row_in_an_insert_of_several_rows_sends_no_new_row_twice,
    a_known_message_in_an_insert_of_several_rows_calls_no_handler_twice,
    a_reset_of_any_row_of_a_message_handles_it_once_and_every_row_has_the_result,
);

/// The keys of rows that were requested again.
const REQUESTED: &str = "SELECT adopted_key FROM relais_adopted_change ORDER BY id";
const NO_CHANGES: &str = "SELECT count(*) FROM relais_adopted_change";

fn a_known_row_in_an_insert_of_several_rows_sends_no_new_row_twice(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    shop.order(1, "[1]");
    shop.order_is(1, "SENT t");
    assert_eq!(shop.target.next().body, "[1]");
    running.stop();
    shop.sql("DELETE FROM outbox");
    let (columns, first) = insert(1, "[1]").split_once(" VALUES ").map(owned).unwrap();
    let rest = (2..=3).map(|n| insert(n, &format!("[{n}]")).split_once(" VALUES ").map(owned));
    let rest: Vec<String> = rest.map(|row| row.unwrap().1).collect();
    shop.sql(&format!("{columns} VALUES {}, {first}, {}", rest[0], rest[1]));
    assert_eq!(shop.sql(REQUESTED), [id(1)], "the one that was there before");
    let running = shop.run();
    (1..=3).for_each(|n| shop.order_is(n, "SENT t"));
    shop.wait(NO_CHANGES, "0");
    running.stop();
    let mut bodies = shop.target.rest();
    bodies.sort();
    assert_eq!(bodies, ["[1]", "[2]", "[3]"]);
}

fn owned((one, other): (&str, &str)) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

/// A shop whose table may have several rows of a message, and whose handler is done with every message.
fn shop_with_duplicates(on: Backend) -> Option<Shop> {
    let unique = ",\n        CONSTRAINT ux_dedupe UNIQUE (source_system, message_id)";
    let ddl = INBOX_MIN.replace(unique, "");
    assert_ne!(ddl, INBOX_MIN);
    let shop = Shop::new(on, &ddl, "")?;
    shop.target.answers(204);
    shop.write(&format!("{ADOPT}{}", handler(&shop, "billing")));
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    Some(shop)
}

/// Inserts rows of these messages in one statement.
fn receive(shop: &Shop, rows: &[(u32, u32)]) {
    let row = |(id, message): &(u32, u32)| format!("({id}, 'm-{message}', 'crm', '[{message}]')");
    let rows: Vec<String> = rows.iter().map(row).collect();
    let rows = rows.join(", ");
    shop.sql(&format!(
        "INSERT INTO inbox_min (id, message_id, source_system, payload) VALUES {rows}"
    ));
}

fn all_are_processed(shop: &Shop, rows: u32) {
    let processed = "SELECT count(*) FROM inbox_min WHERE status = 'PROCESSED'";
    shop.wait(processed, &rows.to_string());
    shop.wait(NO_CHANGES, "0");
}

fn a_known_message_in_an_insert_of_several_rows_calls_no_handler_twice(on: Backend) {
    let Some(shop) = shop_with_duplicates(on) else { return };
    receive(&shop, &[(1, 1)]);
    receive(&shop, &[(2, 2), (3, 1), (4, 2), (5, 3)]);
    assert_eq!(shop.sql(REQUESTED), ["3", "4"], "the duplicates");
    let running = shop.run();
    all_are_processed(&shop, 5);
    running.stop();
    let mut bodies = shop.target.rest();
    bodies.sort();
    assert_eq!(bodies, ["[1]", "[2]", "[3]"]);
}

fn a_reset_of_any_row_of_a_message_handles_it_once_and_every_row_has_the_result(on: Backend) {
    let Some(shop) = shop_with_duplicates(on) else { return };
    let running = shop.run();
    receive(&shop, &[(1, 1), (2, 1), (3, 2)]);
    all_are_processed(&shop, 3);
    assert_eq!(shop.target.unseen(), 2, "each message once");
    for rows in ["id = 1", "id = 2", "message_id = 'm-1'", "id = 1", "message_id = 'm-1'"] {
        shop.sql(&format!("UPDATE inbox_min SET status = 'RECEIVED' WHERE {rows}"));
        assert_eq!(shop.target.next().body, "[1]", "{rows}");
        all_are_processed(&shop, 3);
        assert_eq!(shop.target.unseen(), 0, "{rows}");
    }
    running.stop();
}
