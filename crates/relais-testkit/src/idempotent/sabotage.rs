//! Writes to one table that fail, as they would on a database in trouble: a trigger that raises.

use crate::database::{Database, Dialect};

const NAME: &str = "relais_testkit_refuse";

/// From now on every write to the table fails.
pub(super) async fn arm(database: &dyn Database, table: &str) {
    let table = identifier(table);
    match database.dialect() {
        Dialect::Postgres => {
            // The code of a conflict with another transaction: no handler may treat it as a success.
            let raise = "RAISE EXCEPTION 'this write fails on purpose' USING ERRCODE = '40001'";
            let function = format!(
                "CREATE OR REPLACE FUNCTION {NAME}() RETURNS trigger LANGUAGE plpgsql \
                 AS $$ BEGIN {raise}; END $$"
            );
            let trigger = format!(
                "CREATE TRIGGER {NAME} BEFORE INSERT OR UPDATE OR DELETE ON {table} \
                 FOR EACH STATEMENT EXECUTE FUNCTION {NAME}()"
            );
            run(database, &function).await;
            run(database, &trigger).await;
        }
        Dialect::Sqlite => {
            for event in EVENTS {
                // Not RAISE: that is a broken constraint, which some expect and catch.
                let fail = "SELECT json('this write fails on purpose')";
                let trigger = format!(
                    "CREATE TRIGGER {NAME}_{event} BEFORE {event} ON {table} BEGIN {fail}; END"
                );
                run(database, &trigger).await;
            }
        }
    }
}

/// From now on they succeed again.
pub(super) async fn disarm(database: &dyn Database, table: &str) {
    match database.dialect() {
        Dialect::Postgres => {
            run(database, &format!("DROP TRIGGER {NAME} ON {}", identifier(table))).await;
        }
        Dialect::Sqlite => {
            for event in EVENTS {
                run(database, &format!("DROP TRIGGER {NAME}_{event}")).await;
            }
        }
    }
}

const EVENTS: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

async fn run(database: &dyn Database, sql: &str) {
    database.execute(sql).await.unwrap_or_else(|error| panic!("{error}\n in: {sql}"));
}
