//! Rows that were in the table before it was adopted, and the end of an adoption.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::*;

on_both_databases!(
    rows_that_wait_already_are_taken_along_before_any_new_one,
    rows_that_are_inserted_during_an_installation_overtake_no_older_row_of_their_key,
    rows_that_wait_already_are_not_copied_unless_asked_for,
    what_print_prints_is_what_install_does,
    a_removed_adoption_leaves_no_object_and_the_application_inserts_as_before,
    a_message_that_was_copied_before_a_removal_is_delivered_and_marked,
    a_start_with_a_removed_adoption_in_its_configuration_installs_it_again,
    a_message_that_was_copied_is_delivered_and_not_marked_without_its_configuration,
    a_table_that_was_dropped_shows_and_can_be_removed_with_what_is_left_of_it,
);

fn rows(shop: &Shop, from: u32, to: u32) {
    let row = |n: u32| {
        insert(n, &format!("[{n}]")).replace(
            &format!("'{}', 'OrderCreated'", id(n)),
            &format!("'{}', 'OrderCreated'", id(9)),
        )
    };
    let all: Vec<String> = (from..to).map(row).collect();
    shop.sql(&all.join(";"));
}

fn rows_that_wait_already_are_taken_along_before_any_new_one(on: Backend) {
    let existing = adopt("outbox", "order-service", "existing = true");
    let Some(shop) = Shop::new(on, ORDER_SERVICE, &existing) else { return };
    rows(&shop, 100, 150);
    shop.sql("UPDATE outbox SET status = 'SENT' WHERE payload = '[100]'");
    assert_eq!(shop.site.relais(&["migrate", "--json"]).code, 0);
    rows(&shop, 200, 250);
    // Once installed, nothing is copied again.
    let again = shop.site.json(&["adopt", "install"]);
    assert_eq!(
        (&again["installed"][0]["changed"], &again["installed"][0]["copied"]),
        (&false.into(), &0.into())
    );
    let running = shop.run();
    for n in (101..150).chain(200..250) {
        assert_eq!(shop.target.next().body, format!("[{n}]"), "one key, in order");
    }
    shop.wait("SELECT count(*) FROM outbox WHERE status = 'SENT'", "100");
    running.stop();
}

fn rows_that_are_inserted_during_an_installation_overtake_no_older_row_of_their_key(on: Backend) {
    const WRITERS: u32 = 4;
    const ROWS_BEFORE: usize = 100;
    let existing = adopt("outbox", "order-service", "existing = true");
    let Some(shop) = Shop::new(on, ORDER_SERVICE, &existing) else { return };
    let is_ended = Arc::new(AtomicBool::new(false));
    // Each writer has a key of its own, and numbers its rows.
    let writers = (0..WRITERS).map(|writer| {
        let is_ended = Arc::clone(&is_ended);
        let rows = (0..).take_while(move |_| !is_ended.load(Ordering::SeqCst)).map(move |n| {
            let row = id(1_000_000 * (writer + 1) + n);
            insert(1, &format!("[{writer},{n}]")).replacen(&id(1), &row, 1).replacen(
                &id(1),
                &id(writer),
                1,
            )
        });
        shop.database.run_beside(rows)
    });
    let writers: Vec<_> = writers.collect();
    let has_rows = |more: usize| {
        let started = Instant::now();
        let count = || shop.one("SELECT count(*) FROM outbox").parse::<usize>().unwrap();
        let enough = count() + more;
        while count() < enough {
            assert!(started.elapsed() < PATIENCE, "the writers stopped");
            std::thread::sleep(GLANCE);
        }
    };
    has_rows(ROWS_BEFORE);
    let said = shop.site.json(&["migrate"]);
    has_rows(ROWS_BEFORE);
    is_ended.store(true, Ordering::SeqCst);
    let written: Vec<u32> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let total: u32 = written.iter().sum();
    let copied = said["adopted"][0]["copied"].as_u64().unwrap();
    assert!(copied >= ROWS_BEFORE as u64 && copied < u64::from(total), "{copied} of {total}");
    let running = shop.run();
    let mut next = [0; WRITERS as usize];
    for _ in 0..total {
        let body = shop.target.next().body;
        let [writer, n]: [u32; 2] = serde_json::from_str(&body).unwrap();
        assert_eq!(n, next[writer as usize], "the rows of writer {writer} in their order");
        next[writer as usize] += 1;
    }
    assert_eq!(next, *written);
    shop.wait("SELECT count(*) FROM outbox WHERE status <> 'SENT'", "0");
    running.stop();
}

fn rows_that_wait_already_are_not_copied_unless_asked_for(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    rows(&shop, 100, 110);
    let said = shop.site.json(&["migrate"]);
    assert_eq!(
        (&said["adopted"][0]["changed"], &said["adopted"][0]["copied"]),
        (&true.into(), &0.into())
    );
    assert_eq!(shop.one("SELECT count(*) FROM relais_outbox"), "0");
}

fn what_print_prints_is_what_install_does(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    assert_said(
        &shop.site.relais(&["adopt", "remove", "outbox", "--yes"]),
        0,
        &["removed the triggers of"],
    );
    assert_said(
        &shop.site.relais(&["adopt", "check"]),
        1,
        &["has no triggers of relais; run `relais adopt install`"],
    );
    let printed = shop.site.json(&["adopt", "print"])["sql"].as_str().unwrap().to_owned();
    assert_eq!(shop.site.relais(&["adopt", "print"]).out.trim_end(), printed.trim_end());
    let expected: &[&str] = match on {
        Backend::Postgres => {
            &["SECURITY DEFINER", "SET search_path", "REVOKE ALL ON FUNCTION", "FOR EACH STATEMENT"]
        }
        Backend::Sqlite => {
            &["BEGIN IMMEDIATE", "AFTER INSERT ON \"outbox\" FOR EACH ROW", "COMMIT"]
        }
    };
    for words in expected {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(!printed.contains("EXCEPTION"), "{printed}");
    shop.sql(&printed);
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["outbox (order-service): ok"]);
    assert_said(&shop.site.relais(&["adopt", "install"]), 0, &["nothing to do"]);
    // Another configuration is another trigger.
    shop.write(&adopt("outbox", "order-service", "states = { new = \"OPEN\" }"));
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, &["made from another configuration"]);
    assert_said(&shop.site.relais(&["adopt", "install"]), 0, &["installed the triggers"]);
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &[": ok"]);
    if on == Backend::Sqlite {
        return;
    }
    shop.sql("ALTER TABLE outbox DISABLE TRIGGER relais_adopted_copy");
    assert_said(
        &shop.site.relais(&["adopt", "check"]),
        1,
        &["is disabled: new rows are not copied"],
    );
}

fn a_removed_adoption_leaves_no_object_and_the_application_inserts_as_before(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.order(1, "[1]");
    let removed = shop.site.json(&["adopt", "remove", "outbox", "--yes"]);
    let name = match on {
        Backend::Postgres => format!("{}.outbox", shop.schema().name),
        Backend::Sqlite => "\"outbox\"".to_owned(),
    };
    assert_eq!(removed["removed"], name);
    assert_said(&shop.site.relais(&["adopt", "remove", "outbox", "--yes"]), 0, &["nothing to do"]);
    shop.order(2, "[2]");
    assert_eq!(shop.one("SELECT string_agg(payload, ' ') FROM relais_outbox"), "[1]");
    let left = match on {
        Backend::Postgres => {
            "SELECT count(*) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace \
             WHERE p.proname LIKE 'relais\\_adopted%' AND n.nspname = current_schema()"
        }
        Backend::Sqlite => {
            "SELECT count(*) FROM sqlite_schema WHERE tbl_name = 'outbox' AND type = 'trigger'"
        }
    };
    assert_eq!(shop.one(left), "0");
}

fn a_message_that_was_copied_before_a_removal_is_delivered_and_marked(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.site.run();
    let admin = running.logged("admin http://");
    running.drain();
    let held = shop.target.hold();
    shop.order(1, "[1]");
    assert_eq!(shop.target.next().body, "[1]");
    let said = shop.site.relais(&["adopt", "remove", "outbox", "--yes"]);
    assert_said(&said, 0, &["removed the triggers of"]);
    shop.order(2, "[2]");
    drop(held);
    shop.order_is(1, "SENT t");
    let (status, body) = get(admin, "/readyz");
    assert!(status == 503 && body.contains("has no triggers of relais"), "{body}");
    running.stop();
    assert_eq!(shop.target.unseen(), 0, "new rows are not copied");
    assert_eq!(shop.one("SELECT status FROM outbox WHERE payload = '[2]'"), "NEW");
}

fn a_start_with_a_removed_adoption_in_its_configuration_installs_it_again(on: Backend) {
    let existing = adopt("outbox", "order-service", "existing = true");
    let Some(shop) = Shop::new(on, ORDER_SERVICE, &existing) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.order(1, "[1]");
    assert_eq!(shop.site.relais(&["adopt", "remove", "outbox", "--yes"]).code, 0);
    shop.order(2, "[2]");
    let running = shop.run();
    for n in 1..=2 {
        shop.order_is(n, "SENT t");
    }
    shop.order(3, "[3]");
    shop.order_is(3, "SENT t");
    running.stop();
    let mut bodies = shop.target.rest();
    bodies.sort();
    assert_eq!(bodies, ["[1]", "[2]", "[3]"], "each was copied once");
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &[": ok"]);
}

fn a_message_that_was_copied_is_delivered_and_not_marked_without_its_configuration(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.order(1, "[1]");
    assert_eq!(shop.site.relais(&["adopt", "remove", "outbox", "--yes"]).code, 0);
    shop.write("");
    let running = shop.run();
    shop.order(2, "[2]");
    assert_eq!(shop.target.next().body, "[1]");
    shop.wait("SELECT status FROM relais_outbox", "DISPATCHED");
    running.stop();
    assert_eq!(shop.one("SELECT count(*) FROM outbox WHERE status = 'NEW'"), "2");
    assert_eq!(shop.target.unseen(), 0);
}

fn a_table_that_was_dropped_shows_and_can_be_removed_with_what_is_left_of_it(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.site.run();
    let admin = running.logged("admin http://");
    running.drain();
    let held = shop.target.hold();
    shop.order(1, "[1]");
    assert_eq!(shop.target.next().body, "[1]");
    shop.sql("DROP TABLE outbox");
    let (status, body) = get(admin, "/readyz");
    assert!(status == 503 && body.contains("table outbox does not exist"), "{body}");
    drop(held);
    shop.wait("SELECT status FROM relais_outbox", "DISPATCHED");
    assert_eq!(shop.one("SELECT kind FROM relais_adopted_change"), "unwritten");
    running.stop();
    let said = shop.site.relais(&["adopt", "remove", "outbox", "--yes"]);
    assert_said(&said, 0, &["removed the triggers of"]);
    assert_eq!(shop.one("SELECT count(*) FROM relais_adopted_change"), "0");
    let left = match on {
        Backend::Postgres => {
            "SELECT count(*) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace \
             WHERE p.proname LIKE 'relais\\_adopted%' AND n.nspname = current_schema()"
        }
        Backend::Sqlite => "SELECT count(*) FROM sqlite_schema WHERE tbl_name = 'outbox'",
    };
    assert_eq!(shop.one(left), "0");
    let again = shop.site.relais(&["adopt", "remove", "outbox", "--yes"]);
    assert_said(&again, 0, &["nothing to do"]);
}
