//! An inbox table with a handler in another process: a row has the result of the handler, not of the copy that is made
//! for it.

use super::{inbox::INBOX_MIN, *};

on_both_databases!(
    a_row_is_processed_once_its_handler_is_done,
    a_row_shows_the_failure_of_its_handler_and_a_reset_calls_it_again,
    a_handled_row_that_is_reset_is_handled_again,
    a_row_in_backoff_shows_its_attempts_and_time_and_is_handled_at_once_without_them,
    a_changed_payload_is_handled_while_its_handler_has_the_old_one,
    a_duplicate_gets_the_result_of_the_handler,
    a_row_that_two_handlers_share_is_refused,
);

pub(super) fn handler(shop: &Shop, name: &str) -> String {
    format!(
        "[[handler]]\nname = \"{name}\"\nkind = \"http\"\non = \"inbox_min\"\nallow_private = true\n\
         url = \"http://{}/{name}\"\n[handler.retry]\nattempts = 2\nfirst = \"10ms\"\nmax = \"20ms\"\n",
        shop.target.address
    )
}

pub(super) const ADOPT: &str = "[[adopt]]\ntable = 'inbox_min'\npreset = \"minimal-inbox\"\n";

/// A shop whose handler is done with every message.
fn shop(on: Backend) -> Option<Shop> {
    let shop = Shop::new(on, INBOX_MIN, "")?;
    shop.target.answers(204);
    shop.write(&format!("{ADOPT}{}", handler(&shop, "billing")));
    Some(shop)
}

fn receive(shop: &Shop, message_id: &str, payload: &str) {
    shop.sql(&format!(
        "INSERT INTO inbox_min (message_id, source_system, payload) VALUES ('{message_id}', 'crm', '{payload}')"
    ));
}

fn row_is(shop: &Shop, expected: &str) {
    shop.wait("SELECT status FROM inbox_min", expected);
}

/// Waits until the copy for the handler has this state; the message itself is handled before.
fn copy_is(shop: &Shop, expected: &str) {
    shop.wait("SELECT status FROM relais_inbox WHERE source_system = '@billing::crm'", expected);
}

fn a_row_is_processed_once_its_handler_is_done(on: Backend) {
    let Some(shop) = shop(on) else { return };
    let running = shop.run();
    let held = shop.target.hold();
    receive(&shop, "m-1", "[1]");
    assert_eq!(shop.target.next().body, "[1]", "the handler is called");
    assert_eq!(
        shop.one("SELECT status FROM relais_inbox WHERE source_system = 'crm'"),
        "PROCESSED",
        "the copy for the handler is made"
    );
    assert_eq!(shop.one("SELECT status FROM inbox_min"), "RECEIVED", "and has no result");
    drop(held);
    row_is(&shop, "PROCESSED");
    copy_is(&shop, "PROCESSED");
    assert_eq!(shop.one("SELECT count(*) FROM relais_adopted_change"), "0");
    running.stop();
}

fn a_row_shows_the_failure_of_its_handler_and_a_reset_calls_it_again(on: Backend) {
    let Some(shop) = shop(on) else { return };
    shop.target.answers(400);
    let running = shop.run();
    receive(&shop, "m-1", "[1]");
    row_is(&shop, "FAILED");
    let open = "SELECT count(*) FROM relais_dead_letter WHERE resolved_at IS NULL";
    assert_eq!(shop.one(open), "1");
    shop.target.answers(204);
    shop.sql("UPDATE inbox_min SET status = 'RECEIVED', payload = '[2]'");
    row_is(&shop, "PROCESSED");
    let bodies: Vec<String> = (0..2).map(|_| shop.target.next().body).collect();
    assert_eq!(bodies, ["[1]", "[2]"]);
    assert_eq!(
        shop.one("SELECT resolution || ' ' || resolved_by FROM relais_dead_letter"),
        "retried relais"
    );
    running.stop();
}

fn a_handled_row_that_is_reset_is_handled_again(on: Backend) {
    let Some(shop) = shop(on) else { return };
    let running = shop.run();
    receive(&shop, "m-1", "[1]");
    row_is(&shop, "PROCESSED");
    assert_eq!(shop.target.next().body, "[1]");
    shop.sql("UPDATE inbox_min SET status = 'RECEIVED'");
    assert_eq!(shop.target.next().body, "[1]");
    row_is(&shop, "PROCESSED");
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    assert_eq!(shop.one("SELECT count(*) FROM relais_inbox"), "2", "the row and its copy");
    running.stop();
}

fn a_row_in_backoff_shows_its_attempts_and_time_and_is_handled_at_once_without_them(on: Backend) {
    let Some(shop) = shop(on) else { return };
    let slow = handler(&shop, "billing").replace("10ms", "1h").replace("20ms", "1h");
    shop.write(&format!("{ADOPT}{slow}"));
    // An empty answer is invalid: a counted attempt.
    shop.target.answers(200);
    let running = shop.run();
    receive(&shop, "m-1", "[1]");
    let state = "SELECT concat_ws(' ', status, attempts, \
                 CASE WHEN next_attempt_at IS NOT NULL THEN 'later' END) FROM inbox_min";
    shop.wait(state, "RETRY 1 later");
    shop.target.answers(204);
    shop.sql("UPDATE inbox_min SET next_attempt_at = NULL");
    shop.wait(state, "PROCESSED 1");
    let bodies: Vec<String> = (0..2).map(|_| shop.target.next().body).collect();
    assert_eq!(bodies, ["[1]", "[1]"]);
    running.stop();
}

fn a_changed_payload_is_handled_while_its_handler_has_the_old_one(on: Backend) {
    let Some(shop) = shop(on) else { return };
    let running = shop.run();
    let held = shop.target.hold();
    receive(&shop, "m-1", "[1]");
    assert_eq!(shop.target.next().body, "[1]");
    shop.sql("UPDATE inbox_min SET payload = '[2]'");
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    assert_eq!(shop.one("SELECT status FROM inbox_min"), "RECEIVED");
    drop(held);
    assert_eq!(shop.target.next().body, "[2]", "the answer to the old call settles nothing");
    row_is(&shop, "PROCESSED");
    let payload = "SELECT payload FROM relais_inbox WHERE source_system = '@billing::crm'";
    assert_eq!(shop.one(payload), "[2]");
    running.stop();
}

fn a_duplicate_gets_the_result_of_the_handler(on: Backend) {
    let Some(shop) = shop(on) else { return };
    shop.target.answers(400);
    let running = shop.run();
    receive(&shop, "m-1", "[1]");
    row_is(&shop, "FAILED");
    // The application removes its row, and the broker delivers the message again. The same primary key would ask for
    // the message once more.
    shop.sql("DELETE FROM inbox_min");
    shop.sql(
        "INSERT INTO inbox_min (id, message_id, source_system, payload) VALUES (99, 'm-1', 'crm', '[1]')",
    );
    row_is(&shop, "FAILED");
    assert_eq!(shop.target.unseen(), 1, "it was handled once");
    // The new row is the one that an operator's decision shows in.
    shop.target.answers(204);
    let letters = shop.site.json(&["dead-letter", "list"]);
    let letter = letters[0]["id"].as_str().unwrap_or_else(|| panic!("{letters}")).to_owned();
    let said = shop.site.relais(&["dead-letter", "retry", &letter, "--reason", "fixed", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    row_is(&shop, "PROCESSED");
    running.stop();
}

fn a_row_that_two_handlers_share_is_refused(on: Backend) {
    let Some(shop) = shop(on) else { return };
    shop.write(&format!("{ADOPT}{}{}", handler(&shop, "billing"), handler(&shop, "mail")));
    let expected = "is handled by [[handler]] `billing` and [[handler]] `mail`";
    assert_said(&shop.site.relais(&["check"]), 2, &[expected]);
}
