//! What other programs do beside relais: publishers of external destinations, and operators who change functions.

use super::*;

on_both_databases!(an_installation_adds_no_trigger_to_the_tables_of_relais,);

/// Claims the only message, and settles it with a call of a function that has its id and fence as first parameters.
fn settle(shop: &Shop, function: &str, more: &str) {
    let claim = "SELECT id || ', ' || fence FROM relais_sweep_batch('theirs', 1, 'publisher')";
    let claim = shop.one(claim);
    assert_ne!(claim, "", "a message is due");
    assert_eq!(shop.one(&format!("SELECT {function}({claim}{more})::text")), "true");
}

#[test]
fn results_of_a_publisher_that_is_not_relais_are_written_into_the_table() {
    let config = "[[destination]]\nname = \"theirs\"\nexternal = true\n\
                  [[adopt]]\ntable = 'outbox'\npreset = \"order-service\"\ndestination = \"theirs\"\n";
    let Some(shop) = Shop::new(Backend::Postgres, ORDER_SERVICE, config) else { return };
    let running = shop.run();
    assert_said(&shop.site.relais(&["check"]), 0, &[]);
    shop.order(1, "[1]");
    settle(&shop, "relais_mark_published", "");
    shop.order_is(1, "SENT t");
    shop.order(2, "[2]");
    settle(&shop, "relais_mark_failed", ", 'theirs answered 400'");
    shop.order_is(2, "FAILED f 400");
    // A reset lets the publisher claim it again.
    shop.sql(&format!("UPDATE outbox SET status = 'NEW' WHERE id = '{}'", id(2)));
    shop.wait("SELECT status FROM relais_outbox WHERE payload = '[2]'", "PENDING");
    settle(&shop, "relais_mark_published", "");
    shop.order_is(2, "SENT t");
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    running.stop();
}

#[test]
fn a_relais_that_only_writes_results_runs_and_warns_of_no_message_of_the_publisher() {
    let Some(shop) = Shop::new(Backend::Postgres, ORDER_SERVICE, "") else { return };
    let config = |admin: &str| {
        format!(
            "[store]\nurl = \"{}\"\n{admin}[[destination]]\nname = \"theirs\"\nexternal = true\n\
             [[adopt]]\ntable = 'outbox'\npreset = \"order-service\"\ndestination = \"theirs\"\n",
            shop.database.url()
        )
    };
    shop.site.write("relais.toml", &config(""));
    let running = shop.run();
    shop.wait("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'outbox'::regclass", "2");
    shop.order(1, "[1]");
    settle(&shop, "relais_mark_published", "");
    shop.order_is(1, "SENT t");
    running.stop();
    shop.site.write("relais.toml", &config("[admin]\nlisten = \"127.0.0.1:0\"\n"));
    let running = shop.site.run();
    let admin = running.logged("admin http://");
    running.drain();
    shop.order(2, "[2]");
    shop.sql(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, payload, destination) \
         VALUES ('Order', 'o-1', 'Placed', '{}', 'unserved')",
    );
    let started = Instant::now();
    loop {
        let (_, body) = get(admin, "/readyz");
        if body.contains("wait for destination unserved") {
            assert!(!body.contains("theirs"), "{body}");
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{body}");
        std::thread::sleep(GLANCE);
    }
    running.stop();
}

#[test]
fn a_function_that_was_altered_or_granted_shows_in_the_check_until_it_is_installed_again() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let function = |kind: &str| {
        shop.one(&format!(
            "SELECT g.tgfoid::regprocedure::text FROM pg_trigger AS g \
             WHERE g.tgrelid = 'outbox'::regclass AND g.tgname = 'relais_adopted_{kind}'"
        ))
    };
    let (copy, reset) = (function("copy"), function("reset"));
    let role = shop.one("SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'pg\\_%' LIMIT 1");
    let changes = [
        format!("GRANT EXECUTE ON FUNCTION {copy} TO PUBLIC"),
        format!("GRANT EXECUTE ON FUNCTION {reset} TO {role}"),
        format!("ALTER FUNCTION {copy} RESET search_path"),
        format!("ALTER FUNCTION {reset} SET search_path = pg_catalog"),
        format!("ALTER FUNCTION {reset} SET work_mem = '1MB'"),
        format!("ALTER FUNCTION {copy} SECURITY INVOKER"),
    ];
    for change in changes {
        assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["ok"]);
        shop.sql(&change);
        assert_said(&shop.site.relais(&["adopt", "check"]), 1, &["were altered, or other roles"]);
        assert_eq!(shop.site.relais(&["adopt", "install"]).code, 0, "{change}");
    }
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["ok"]);
}

/// Results are written back by the engine: only the table of the application has triggers of an adoption.
fn an_installation_adds_no_trigger_to_the_tables_of_relais(on: Backend) {
    let existing = adopt("outbox", "order-service", "existing = true");
    let Some(shop) = Shop::new(on, ORDER_SERVICE, &existing) else { return };
    let triggers = match on {
        Backend::Postgres => {
            "SELECT c.relname::text || ' ' || t.tgname::text FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid \
             WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace ORDER BY 1"
        }
        Backend::Sqlite => {
            "SELECT tbl_name || ' ' || name FROM sqlite_schema WHERE type = 'trigger' ORDER BY 1"
        }
    };
    let of_relais = || {
        let (own, others): (Vec<String>, Vec<String>) =
            shop.sql(triggers).into_iter().partition(|name| name.starts_with("outbox "));
        (own.len(), others)
    };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let (installed, with) = of_relais();
    assert!(installed >= 2, "copy and reset: {installed}");
    assert_eq!(shop.site.relais(&["adopt", "remove", "outbox", "--yes"]).code, 0);
    assert_eq!(of_relais(), (0, with));
}
