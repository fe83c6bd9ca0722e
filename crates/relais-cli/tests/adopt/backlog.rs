//! Rows that were in the table before it was adopted, and the end of an adoption.

use super::*;

on_both_databases!(
    rows_that_wait_already_are_taken_along_before_any_new_one,
    rows_that_wait_already_are_not_copied_unless_asked_for,
    what_print_prints_is_what_install_does,
    a_removed_adoption_leaves_no_object_and_the_application_inserts_as_before,
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
