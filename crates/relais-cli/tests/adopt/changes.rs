//! Rows that the application changes while they wait or are in flight, and installations that had to wait.

use super::*;

on_both_databases!(
    a_payload_that_changes_in_flight_is_sent_as_it_is_then,
    a_changed_destination_and_time_of_a_waiting_row_are_obeyed,
    a_row_that_gets_another_key_is_sent_under_it,
    a_row_without_a_destination_waits_until_it_has_one,
    check_reports_missing_tables_of_relais_before_the_first_migration,
    a_table_of_dead_letters_that_does_not_fit_delays_only_dead_letters,
);

fn a_payload_that_changes_in_flight_is_sent_as_it_is_then(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    let held = shop.target.hold();
    shop.order(1, "[1]");
    assert_eq!(shop.target.next().body, "[1]");
    shop.sql("UPDATE outbox SET payload = '[2]'");
    // Handled during the call: the copy that is in flight is withdrawn.
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    assert_eq!(shop.one("SELECT payload FROM relais_outbox"), "[2]");
    drop(held);
    assert_eq!(shop.target.next().body, "[2]");
    shop.order_is(1, "SENT t");
    let closed = "SELECT concat_ws(' ', resolution, resolved_by, payload) FROM relais_dead_letter";
    assert_eq!(shop.one(closed), "discarded relais [1]");
    running.stop();
}

#[test]
fn a_row_that_changed_before_its_settlement_is_not_marked_as_sent() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    let running = shop.run();
    let held = shop.target.hold();
    shop.order(1, "[1]");
    assert_eq!(shop.target.next().body, "[1]");
    // The change is committed, and no worker can handle it before the settlement.
    let lock = "BEGIN; LOCK TABLE relais_adopted_change IN SHARE ROW EXCLUSIVE MODE; \
                UPDATE outbox SET payload = '[2]'; COMMIT; \
                BEGIN; SELECT FROM relais_adopted_change FOR UPDATE";
    let change = shop.schema().open(lock);
    drop(held);
    shop.wait("SELECT status FROM relais_outbox", "DISPATCHED");
    assert_eq!(shop.one("SELECT status FROM outbox"), "NEW", "the new payload was not sent yet");
    drop(change);
    assert_eq!(shop.target.next().body, "[2]");
    shop.order_is(1, "SENT t");
    running.stop();
}

fn a_changed_destination_and_time_of_a_waiting_row_are_obeyed(on: Backend) {
    let adopt = adopt("outbox", "jdbc", "").replace("\"orders\"", "\"column:topic\"");
    let Some(shop) = Shop::new(on, presets::JDBC, &adopt) else { return };
    let running = shop.run();
    shop.sql(
        "INSERT INTO outbox (category, topic, key, type, payload, created_at) \
         VALUES ('event', 'nowhere', 'k', 'A', '[1]', now())",
    );
    shop.sql(
        "INSERT INTO outbox (category, topic, type, payload, next_at, created_at) VALUES \
         ('event', 'orders', 'B', '[2]', (now() AT TIME ZONE 'UTC') + interval '1 hour', now())",
    );
    shop.sql("UPDATE outbox SET topic = 'orders' WHERE type = 'A'");
    assert_eq!(shop.target.next().body, "[1]");
    let state = "SELECT concat_ws(' ', status, CASE WHEN published_at IS NOT NULL THEN 't' ELSE 'f' END) FROM outbox";
    shop.wait(&format!("{state} WHERE type = 'A'"), "PUBLISHED t");
    assert_eq!(shop.one("SELECT count(*) FROM relais_outbox WHERE destination = 'nowhere'"), "0");
    shop.sql("UPDATE outbox SET next_at = NULL WHERE type = 'B'");
    assert_eq!(shop.target.next().body, "[2]");
    shop.wait(&format!("{state} WHERE type = 'B'"), "PUBLISHED t");
    assert_eq!(shop.target.unseen(), 0);
    running.stop();
}

fn a_row_that_gets_another_key_is_sent_under_it(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let running = shop.run();
    let held = shop.target.hold();
    shop.order(1, "[1]");
    assert_eq!(shop.target.next().body, "[1]");
    shop.sql(&format!("UPDATE outbox SET id = '{}'", id(2)));
    drop(held);
    let again = shop.target.next();
    assert!(again.body == "[1]" && again.head.contains(&id(2)), "{again:?}");
    shop.order_is(2, "SENT t");
    running.stop();
}

fn a_row_without_a_destination_waits_until_it_has_one(on: Backend) {
    let adopt = adopt(
        "mail",
        "custom",
        "columns = { id = 'id', payload = 'body', status = 'state' }\n\
         states = { new = 'open', sent = 'gone', failed = 'bad' }",
    );
    let adopt = adopt.replace("\"orders\"", "\"column:target\"");
    let ddl = "CREATE TABLE mail (id bigint PRIMARY KEY, target varchar(20), body text NOT NULL, \
               state varchar(10) NOT NULL DEFAULT 'open')";
    let Some(shop) = Shop::new(on, ddl, &adopt) else { return };
    let running = shop.run();
    shop.sql("INSERT INTO mail (id, target, body) VALUES (1, NULL, '[1]'), (2, '', '[2]'), (3, 'orders', '[3]')");
    assert_eq!(shop.target.next().body, "[3]", "the others have no destination");
    let waiting = "SELECT string_agg(concat_ws(' ', payload, destination, status), '; ' ORDER BY id) \
                   FROM relais_outbox WHERE destination <> 'orders'";
    assert_eq!(shop.one(waiting), "[1] (none) PENDING; [2] (none) PENDING");
    assert_eq!(shop.one("SELECT state FROM mail WHERE id = 1"), "open");
    shop.sql("UPDATE mail SET target = 'orders' WHERE id = 1");
    assert_eq!(shop.target.next().body, "[1]");
    shop.wait("SELECT state FROM mail WHERE id = 1", "gone");
    running.stop();
}

#[test]
fn a_reset_by_update_waits_for_no_lock_on_rows_of_relais() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    let running = shop.run();
    shop.order(1, "[1]");
    assert_eq!(shop.target.next().body, "[1]");
    shop.order_is(1, "SENT t");
    running.stop();
    let held = shop.schema().open("BEGIN; LOCK TABLE relais_outbox IN ACCESS EXCLUSIVE MODE");
    // It would fail if it waited.
    shop.sql("SET lock_timeout = '5s'; UPDATE outbox SET status = 'NEW'");
    assert_eq!(shop.one("SELECT kind FROM relais_adopted_change"), "reset");
    drop(held);
    let running = shop.run();
    assert_eq!(shop.target.next().body, "[1]");
    shop.order_is(1, "SENT t");
    running.stop();
}

#[test]
fn an_installation_that_had_to_wait_for_too_long_is_repeated() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    let held = shop.schema().open(&format!("BEGIN; {}", insert(1, "[1]")));
    let running = shop.site.run();
    let admin = running.logged("admin http://");
    running.drain();
    let (status, body) = get(admin, "/readyz");
    assert!(status == 503 && body.contains("has no triggers of relais"), "{body}");
    drop(held);
    let started = Instant::now();
    while get(admin, "/readyz").0 != 200 {
        assert!(started.elapsed() < PATIENCE, "{:?}", get(admin, "/readyz"));
        std::thread::sleep(GLANCE);
    }
    shop.order(2, "[2]");
    assert_eq!(shop.target.next().body, "[2]");
    shop.order_is(2, "SENT t");
    running.stop();
}

fn check_reports_missing_tables_of_relais_before_the_first_migration(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let said = shop.site.relais(&["adopt", "check"]);
    assert_said(&said, 1, &["outbox (order-service): not ok", "run `relais migrate`"]);
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["outbox (order-service): ok"]);
}

#[test]
fn print_needs_no_right_on_the_table_and_lists_all_that_run_needs() {
    let ef_core = adopt("messaging.outbox_messages", "ef-core", "");
    let Some(shop) = Shop::new(Backend::Postgres, presets::EF_CORE, &ef_core) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let role = format!("r{}", &shop.schema().name[11..31]);
    let schema = &shop.schema().name;
    shop.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    ));
    let text = std::fs::read_to_string(shop.site.path("relais.toml")).unwrap();
    shop.site.write("relais.toml", &text.replace("://postgres@", &format!("://{role}@")));
    // Without USAGE of the schema PostgreSQL shows no table in it.
    let hidden = ["permission denied for schema", "GRANT USAGE of the schema"];
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, &hidden);
    assert_said(&shop.site.relais(&["adopt", "print"]), 1, &hidden);
    shop.sql(&format!("GRANT USAGE ON SCHEMA messaging TO {role}"));
    let said = shop.site.relais(&["adopt", "print"]);
    assert_eq!(said.code, 0, "{said:?}");
    shop.sql(&format!("REVOKE USAGE ON SCHEMA messaging FROM {role}"));
    let grants: Vec<&str> = said.out.lines().filter_map(|l| l.strip_prefix("--   ")).collect();
    let grants: [&str; 3] = grants.try_into().unwrap_or_else(|all| panic!("{all:?}"));
    assert!(grants[0].starts_with("GRANT USAGE ON SCHEMA"), "{grants:?}");
    let grants = grants.map(|grant| grant.replace("the role", &role));
    shop.sql(&grants[0]);
    let lacks = ["lacks INSERT on column `id`", "may not delete from", "lacks SELECT on column"];
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, &lacks);
    // What it lists is enough.
    shop.sql(&grants.join("\n"));
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["ok"]);
    let running = shop.run();
    shop.target.answers(400);
    shop.sql(&presets::ef_insert(1));
    shop.wait("SELECT count(*) FROM messaging.outbox_dead_letters", "1");
    running.stop();
    shop.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

fn a_table_of_dead_letters_that_does_not_fit_delays_only_dead_letters(on: Backend) {
    let ef_core = adopt("messaging.outbox_messages", "ef-core", "");
    let Some(shop) = Shop::new(on, presets::EF_CORE, &ef_core) else { return };
    let running = shop.run();
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["ok"]);
    shop.sql("ALTER TABLE messaging.outbox_dead_letters RENAME COLUMN error TO problem");
    let said = shop.site.relais(&["adopt", "check"]);
    assert_said(&said, 1, &["outbox_dead_letters", "has no column `error`"]);
    shop.target.answers(400);
    shop.sql(&presets::ef_insert(1));
    shop.wait("SELECT kind FROM relais_adopted_change", "unwritten");
    let error = "SELECT CASE WHEN error LIKE '%answered 400%' THEN '400' WHEN error LIKE '%answered 500%' THEN '500' END FROM messaging.outbox_messages";
    assert_eq!(shop.one(error), "400", "the row shows why");
    shop.target.answers(200);
    shop.sql(&presets::ef_insert(2));
    let sent =
        format!("SELECT count(processed_at) FROM messaging.outbox_messages WHERE id = '{}'", id(2));
    shop.wait(&sent, "1");
    shop.sql("ALTER TABLE messaging.outbox_dead_letters RENAME COLUMN problem TO error");
    shop.wait("SELECT count(*) FROM messaging.outbox_dead_letters", "1");
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    assert_eq!(shop.one("SELECT count(*) FROM messaging.outbox_messages"), "1", "it was moved");
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["ok"]);
    running.stop();
}

#[test]
fn a_table_of_dead_letters_of_other_types_is_refused_with_the_reason() {
    let texts = [
        (
            "error varchar(2000),\n        retry_count integer NOT NULL,\n        created_at timestamptz NOT NULL,\n        dead",
            "dead",
            "has no column `error`",
        ),
        (
            "original_message_id uuid",
            "original_message_id bigint",
            "has type bigint; it must be uuid",
        ),
        (
            "dead_lettered_at timestamptz NOT NULL",
            "dead_lettered_at timestamptz NOT NULL, team text NOT NULL",
            "column `team`",
        ),
    ];
    for (from, to, text) in texts {
        let ddl = presets::EF_CORE.replacen(from, to, 1);
        assert_ne!(ddl, presets::EF_CORE);
        let ef_core = adopt("messaging.outbox_messages", "ef-core", "");
        let Some(shop) = Shop::new(Backend::Postgres, &ddl, &ef_core) else { return };
        assert_said(&shop.site.relais(&["migrate"]), 1, &[text]);
        assert_said(&shop.site.relais(&["adopt", "check"]), 1, &[text]);
    }
}
