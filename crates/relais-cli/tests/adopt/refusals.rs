//! Tables that cannot be adopted: a clear error, and nothing is changed.

use super::*;

on_both_databases!(
    a_table_that_does_not_exist_is_refused,
    a_view_is_refused,
    a_table_of_relais_is_refused,
    a_column_of_a_wrong_type_is_refused,
    a_table_without_a_primary_key_of_one_column_is_refused,
    two_adoptions_of_one_table_are_refused,
    a_copy_that_cannot_be_made_fails_the_insert,
    an_id_that_another_message_has_fails_the_insert,
    rows_that_wait_in_an_unknown_order_are_refused_until_it_is_named,
);

fn refused(on: Backend, ddl: &str, adopt: &str, texts: &[&str]) {
    let Some(shop) = Shop::new(on, ddl, adopt) else { return };
    // `migrate` creates the tables of relais, and reports the table that it cannot adopt.
    assert_said(&shop.site.relais(&["migrate"]), 1, texts);
    assert_said(&shop.site.relais(&["adopt", "install"]), 1, texts);
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, texts);
    assert_said(&shop.site.relais(&["check"]), 1, texts);
    let triggers = match on {
        Backend::Postgres => {
            "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'relais\\_adopted%' AND tgrelid IN \
             (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)"
        }
        Backend::Sqlite => {
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'relais\\_adopted\\_%\\_%' ESCAPE '\\' AND type = 'trigger'"
        }
    };
    assert_eq!(shop.one(triggers), "0");
}

fn a_table_that_does_not_exist_is_refused(on: Backend) {
    refused(
        on,
        "SELECT 1",
        &adopt("outbox", "order-service", ""),
        &["table outbox does not exist"],
    );
    refused(
        on,
        "SELECT 1",
        &adopt("a b.c.d", "order-service", ""),
        &["table a b.c.d does not exist"],
    );
}

fn a_view_is_refused(on: Backend) {
    refused(
        on,
        "CREATE VIEW outbox AS SELECT 1 AS id",
        &adopt("outbox", "order-service", ""),
        &["is not a table"],
    );
}

fn a_table_of_relais_is_refused(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.write(&adopt("relais_outbox", "order-service", ""));
    assert_said(&shop.site.relais(&["adopt", "install"]), 1, &["is a table of relais itself"]);
}

fn a_column_of_a_wrong_type_is_refused(on: Backend) {
    let (bytes, texts) = match on {
        Backend::Postgres => {
            ("bytea", ["column `payload`", "has type bytea; it must be text, varchar, json, jsonb"])
        }
        Backend::Sqlite => ("blob", ["column `payload`", "has type BLOB; it must be text, json"]),
    };
    let bytes = ORDER_SERVICE.replace("payload text", &format!("payload {bytes}"));
    refused(on, &bytes, &adopt("outbox", "order-service", ""), &texts);
    let short = ORDER_SERVICE.replace("status varchar(50)", "status varchar(4)");
    refused(
        on,
        &short,
        &adopt("outbox", "order-service", ""),
        &["has 4 characters: too few for `FAILED`"],
    );
    let strict = ORDER_SERVICE.replace("error_message text", "error_message text NOT NULL");
    refused(
        on,
        &strict,
        &adopt("outbox", "order-service", ""),
        &["is NOT NULL, but relais must clear it"],
    );
}

fn a_table_without_a_primary_key_of_one_column_is_refused(on: Backend) {
    let none = ORDER_SERVICE.replace(" PRIMARY KEY", "");
    refused(
        on,
        &none,
        &adopt("outbox", "order-service", ""),
        &["is not the primary key by itself"],
    );
    let two = none.replace("error_message text)", "error_message text, PRIMARY KEY (id, status))");
    refused(on, &two, &adopt("outbox", "order-service", ""), &["is not the primary key by itself"]);
}

fn two_adoptions_of_one_table_are_refused(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    let qualified = match on {
        Backend::Postgres => format!("{}.outbox", shop.schema().name),
        Backend::Sqlite => "main.outbox".to_owned(),
    };
    let both = [adopt("outbox", "order-service", ""), adopt(&qualified, "order-service", "")];
    shop.write(&both.concat());
    assert_said(&shop.site.relais(&["migrate"]), 1, &["twice"]);
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, &["is adopted twice"]);
}

#[test]
fn virtual_tables_and_integer_times_of_sqlite_are_refused() {
    let order_service = adopt("outbox", "order-service", "");
    let table = "CREATE VIRTUAL TABLE outbox USING rtree (id, a, b)";
    refused(
        Backend::Sqlite,
        table,
        &order_service,
        &["is a virtual table, which cannot have triggers"],
    );
    let numbers = ORDER_SERVICE.replace("sent_at timestamp", "sent_at integer");
    let texts = ["column `sent_at`", "has type INTEGER; it must be text, timestamp"];
    refused(Backend::Sqlite, &numbers, &order_service, &texts);
}

#[test]
fn an_installation_by_a_role_that_may_create_no_trigger_names_the_privilege() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    let (role, schema) = (format!("r{}", &shop.schema().name[11..31]), &shop.schema().name);
    shop.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT, INSERT, UPDATE ON outbox TO {role}"
    ));
    let text = std::fs::read_to_string(shop.site.path("relais.toml")).unwrap();
    shop.site.write("relais.toml", &text.replace("://postgres@", &format!("://{role}@")));
    let lacks = ["permission denied for table outbox", "SELECT and TRIGGER on the table"];
    assert_said(&shop.site.relais(&["migrate"]), 1, &lacks);
    assert_said(&shop.site.relais(&["adopt", "install"]), 1, &lacks);
    // No superuser is needed.
    shop.sql(&format!("GRANT TRIGGER ON outbox TO {role}"));
    assert_said(&shop.site.relais(&["adopt", "install"]), 0, &["installed the triggers"]);
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &[": ok"]);
    shop.order(1, "{oops");
    assert_eq!(shop.one("SELECT payload FROM relais_outbox"), "{oops", "copied as it is");
    // A message of the same transaction that is no copy is validated.
    let own = "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
               VALUES ('Order', 'o-1', 'OrderPlaced', 'orders', '{oops')";
    let refused = shop.database.try_texts(&format!("BEGIN; {}; {own}; COMMIT", insert(2, "[2]")));
    assert!(refused.unwrap_err().contains("invalid input syntax for type json"));
    assert_eq!(shop.one("SELECT count(*) FROM relais_outbox"), "1");
    shop.sql(&format!("DROP TABLE outbox; DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}

#[test]
fn a_role_without_rights_on_the_table_is_an_error_that_names_them() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let role = format!("r{}", &shop.schema().name[11..31]);
    let schema = &shop.schema().name;
    shop.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}; \
         REVOKE ALL ON outbox FROM {role}; GRANT SELECT, INSERT ON outbox TO {role}"
    ));
    let text = std::fs::read_to_string(shop.site.path("relais.toml")).unwrap();
    let as_role = text.replace("://postgres@", &format!("://{role}@"));
    shop.site.write("relais.toml", &as_role);
    let said = shop.site.relais(&["adopt", "check"]);
    let grant = format!("GRANT UPDATE ON {schema}.outbox TO {role}");
    assert_said(&said, 1, &["lacks UPDATE on column `status`", &grant]);
    // The application itself needs no right on the tables of relais.
    shop.sql(&format!("REVOKE ALL ON relais_outbox, relais_adopted_change FROM {role}"));
    shop.sql(&format!("SET ROLE {role}; {}", insert(1, "[1]")));
    assert_eq!(shop.one("SELECT payload FROM relais_outbox"), "[1]");
    shop.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn row_level_security_that_may_hide_rows_is_reported_with_the_policy_that_helps() {
    let Some(shop) = Shop::order_service(Backend::Postgres) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let (role, schema) = (format!("r{}", &shop.schema().name[11..31]), &shop.schema().name);
    shop.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}; \
         ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY tenant ON outbox USING (aggregate_type = current_setting('shop.tenant', true))"
    ));
    let text = std::fs::read_to_string(shop.site.path("relais.toml")).unwrap();
    shop.site.write("relais.toml", &text.replace("://postgres@", &format!("://{role}@")));
    let said = shop.site.relais(&["adopt", "check"]);
    let policy = format!("CREATE POLICY relais ON {schema}.outbox TO {role} USING (true)");
    assert_said(&said, 1, &["row-level security", &policy]);
    shop.sql(&policy);
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &[": ok"]);
    let running = shop.run();
    shop.order(1, "[1]");
    shop.order_is(1, "SENT t");
    running.stop();
    shop.sql("DROP POLICY relais ON outbox");
    shop.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

fn a_copy_that_cannot_be_made_fails_the_insert(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.sql(match on {
        Backend::Postgres => "ALTER TABLE relais_outbox RENAME TO gone",
        // SQLite renames it in the trigger too.
        Backend::Sqlite => {
            "CREATE TRIGGER full BEFORE INSERT ON relais_outbox \
             BEGIN SELECT RAISE(ABORT, 'relais_outbox is full'); END"
        }
    });
    let failed = shop.database.try_texts(&insert(1, "[1]")).unwrap_err();
    assert!(failed.contains("db error") || failed.contains("relais_outbox"), "{failed}");
    assert_eq!(shop.one("SELECT count(*) FROM outbox"), "0");
}

fn an_id_that_another_message_has_fails_the_insert(on: Backend) {
    let Some(shop) = Shop::order_service(on) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.sql(&format!(
        "INSERT INTO relais_outbox (message_id, aggregate_type, aggregate_id, event_type, destination, payload) \
         VALUES ('{}', 'Order', 'o-1', 'OrderPlaced', 'orders', '[0]')",
        id(1)
    ));
    let failed = shop.database.try_texts(&insert(1, "[1]")).unwrap_err();
    let reason = match on {
        Backend::Postgres => "duplicate key value violates unique constraint",
        Backend::Sqlite => "the id of the row is the id of another message",
    };
    assert!(failed.contains(reason), "{failed}");
    assert_eq!(shop.one("SELECT count(*) FROM outbox"), "0");
    shop.order(2, "[2]");
    assert_eq!(shop.sql("SELECT payload FROM relais_outbox ORDER BY id"), ["[0]", "[2]"]);
}

fn rows_that_wait_in_an_unknown_order_are_refused_until_it_is_named(on: Backend) {
    let adopt = |more: &str| adopt("outboxevent", "debezium", more);
    let texts = ["the order of the rows that wait", "`id` has type uuid", "`created_at`"];
    refused(on, presets::DEBEZIUM, &adopt("existing = true"), &texts);
    let Some(shop) = Shop::new(on, presets::DEBEZIUM, &adopt("existing = true")) else { return };
    let insert = |n: u32, order: &str| {
        let id = id(n);
        shop.sql(&format!(
            "INSERT INTO outboxevent VALUES ('{id}', 'Order', '{order}', 'Placed', '[{n}]')"
        ))
    };
    insert(1, "o-1");
    assert_said(&shop.site.relais(&["migrate"]), 1, &texts[..1]);
    // Once installed, the rows that waited are copied, and the order of new ones is known.
    shop.write(&adopt("columns = { created_at = 'id' }\nexisting = true"));
    assert_eq!(shop.site.json(&["migrate"])["adopted"][0]["copied"], 1);
    shop.write(&adopt("existing = true"));
    assert_said(&shop.site.relais(&["adopt", "check"]), 0, &["ok"]);
    // Without keys there is no order.
    let minimal = super::adopt("outboxevent", "debezium", "columns = { aggregate_id = '' }");
    assert_eq!(shop.site.relais(&["adopt", "remove", "outboxevent", "--yes"]).code, 0);
    shop.write(&format!("{minimal}existing = true\n"));
    assert_said(&shop.site.relais(&["adopt", "install"]), 0, &["installed the triggers"]);
}
