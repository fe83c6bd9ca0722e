//! Tables that cannot be adopted: a clear error, and nothing is changed.

use super::*;

fn refused(ddl: &str, adopt: &str, texts: &[&str]) {
    let Some(shop) = Shop::new(ddl, adopt) else { return };
    // `migrate` creates the tables of relais, and reports the table that it cannot adopt.
    assert_said(&shop.site.relais(&["migrate"]), 1, texts);
    assert_said(&shop.site.relais(&["adopt", "install"]), 1, texts);
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, texts);
    assert_said(&shop.site.relais(&["check"]), 1, texts);
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'relais\\_adopted%' AND tgrelid IN \
                    (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)";
    assert_eq!(shop.one(triggers), "0");
}

#[test]
fn a_table_that_does_not_exist_is_refused() {
    refused("SELECT 1", &adopt("outbox", "order-service", ""), &["table outbox does not exist"]);
    refused("SELECT 1", &adopt("a b.c.d", "order-service", ""), &["table a b.c.d does not exist"]);
}

#[test]
fn a_table_in_sqlite_is_refused() {
    let site = Site::with(&format!(
        "[store]\nurl = \"sqlite:r.db\"\n[[destination]]\nname = \"orders\"\nkind = \"log\"\n{}",
        adopt("outbox", "order-service", "")
    ));
    assert_said(&site.relais(&["check"]), 2, &["adopt[outbox]", "is for PostgreSQL"]);
    assert_said(&site.relais(&["run"]), 1, &["is for PostgreSQL"]);
    assert_said(&site.relais(&["adopt", "print"]), 1, &["cannot adopt tables of SQLite"]);
}

#[test]
fn a_view_is_refused() {
    refused(
        "CREATE VIEW outbox AS SELECT 1 AS id",
        &adopt("outbox", "order-service", ""),
        &["is not a table"],
    );
}

#[test]
fn a_table_of_relais_is_refused() {
    let Some(shop) = Shop::order_service() else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.write(&adopt("relais_outbox", "order-service", ""));
    assert_said(&shop.site.relais(&["adopt", "install"]), 1, &["is a table of relais itself"]);
}

#[test]
fn a_column_of_a_wrong_type_is_refused() {
    let bytes = ORDER_SERVICE.replace("payload text", "payload bytea");
    let texts = ["column `payload`", "has type bytea; it must be text, varchar, json, jsonb"];
    refused(&bytes, &adopt("outbox", "order-service", ""), &texts);
    let short = ORDER_SERVICE.replace("status varchar(50)", "status varchar(4)");
    refused(
        &short,
        &adopt("outbox", "order-service", ""),
        &["has 4 characters: too few for `FAILED`"],
    );
    let strict = ORDER_SERVICE.replace("error_message text", "error_message text NOT NULL");
    refused(
        &strict,
        &adopt("outbox", "order-service", ""),
        &["is NOT NULL, but relais must clear it"],
    );
}

#[test]
fn a_table_without_a_primary_key_of_one_column_is_refused() {
    let none = ORDER_SERVICE.replace(" PRIMARY KEY", "");
    refused(&none, &adopt("outbox", "order-service", ""), &["is not the primary key by itself"]);
    let two = none.replace("error_message text)", "error_message text, PRIMARY KEY (id, status))");
    refused(&two, &adopt("outbox", "order-service", ""), &["is not the primary key by itself"]);
}

#[test]
fn two_adoptions_of_one_table_are_refused() {
    let Some(shop) = Shop::order_service() else { return };
    let qualified = format!("{}.outbox", shop.schema.name);
    let both = [adopt("outbox", "order-service", ""), adopt(&qualified, "order-service", "")];
    shop.write(&both.concat());
    assert_said(&shop.site.relais(&["migrate"]), 1, &["twice"]);
    assert_said(&shop.site.relais(&["adopt", "check"]), 1, &["is adopted twice"]);
}

#[test]
fn a_role_without_rights_on_the_table_is_an_error_that_names_them() {
    let Some(shop) = Shop::order_service() else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let role = format!("r{}", &shop.schema.name[11..31]);
    let schema = &shop.schema.name;
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
fn a_copy_that_cannot_be_made_fails_the_insert() {
    let Some(shop) = Shop::order_service() else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    shop.sql("ALTER TABLE relais_outbox RENAME TO gone");
    let failed = shop.schema.try_texts(&insert(1, "[1]")).unwrap_err().to_string();
    assert!(failed.contains("db error") || failed.contains("relais_outbox"), "{failed}");
    assert_eq!(shop.one("SELECT count(*) FROM outbox"), "0");
}
